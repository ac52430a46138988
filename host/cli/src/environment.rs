//! Environment variables that libraries read before they compute.

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

/// Variables with the values that the program needs, unless they are set.
const VARIABLES: [(&str, &CStr); 3] = [
    // OpenMP threads sleep while they wait, instead of spinning. Plugins, sandboxes and the interpreter of turns need the
    // cores meanwhile: with spinning, a step of the engine took four times as long under other load.
    ("OMP_WAIT_POLICY", c"OMP_WAIT_POLICY=passive"),
    // Before they sleep, they spin for some tens of microseconds, as long as most gaps between the loops of training. Without, an update
    // of all weights took a tenth to a fifth longer in a virtual machine, where a core that sleeps wakes late.
    ("GOMP_SPINCOUNT", c"GOMP_SPINCOUNT=2000"),
    // cuBLAS repeats its sums with workspaces of a fixed size alone. These take as much as its default on large GPUs.
    ("CUBLAS_WORKSPACE_CONFIG", c"CUBLAS_WORKSPACE_CONFIG=:4096:8"),
];

/// The arguments that the dynamic loader passes to functions of `.preinit_array`.
pub type Preinit = unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char);

/// Starts the program again with the variables that are missing, if any. If that fails, the program continues: slower, and
/// on a GPU with other bits in each run.
///
/// It is for `.preinit_array`, whose functions run before the constructors of libraries. One of these reads OpenMP's
/// variable, and libtorch's take 0.3 s, which would be spent twice if the program started again later.
///
/// # Safety
/// `arguments` and `variables` are arrays of C strings that end with a null pointer, as `execve` takes them.
pub unsafe extern "C" fn set_variables(
    _count: c_int,
    arguments: *const *const c_char,
    variables: *const *const c_char,
) {
    // `std::env` is empty until the C library has run its own constructor.
    let mut all = Vec::new();
    let mut next = variables;
    // SAFETY: The array ends with a null pointer, where the loop ends.
    while let Some(variable) = unsafe { next.as_ref() }.copied().filter(|variable| !variable.is_null()) {
        all.push(variable);
        // SAFETY: The end of the array was not reached.
        next = unsafe { next.add(1) };
    }
    // SAFETY: These are the C strings of the environment, which outlive the process.
    let is_set = |name: &str| all.iter().any(|variable| names(unsafe { CStr::from_ptr(*variable) }, name));
    // It would override any other policy.
    let has_policy = is_set("OMP_WAIT_POLICY");
    let is_wanted = |name: &str| !is_set(name) && (!has_policy || name != "GOMP_SPINCOUNT");
    let missing: Vec<_> = VARIABLES.iter().filter(|(name, _)| is_wanted(name)).collect();
    if missing.is_empty() {
        return;
    }
    let Ok(program) = std::fs::read_link("/proc/self/exe") else { return };
    let Ok(program) = CString::new(program.as_os_str().as_bytes()) else { return };
    all.extend(missing.iter().map(|(_, variable)| variable.as_ptr()));
    all.push(std::ptr::null());
    // SAFETY: The path and all strings are C strings, and both arrays end with a null pointer.
    unsafe { libc::execve(program.as_ptr(), arguments, all.as_ptr()) };
}

/// Returns true if a variable, as in `NAME=value`, has this name.
fn names(variable: &CStr, name: &str) -> bool {
    variable.to_bytes().strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"="))
}
