//! Targets under libFuzzer, in builds that count which code an input reaches.
//!
//! A test is one campaign: libFuzzer exits the process when the time is over, or when an input makes the reader panic or takes too
//! long, which it keeps. To run that input again: `PL_HOST_FUZZ_ARGUMENTS=FILE PROGRAM TEST --exact --nocapture`.

use std::cell::Cell;
use std::ffi::{CString, c_char, c_int};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

// Only for its C++ code.
use libfuzzer_sys as _;

use super::{LONGEST, NUMBERS_IN_TEXT, cpu_time};

/// Environment variable with libFuzzer's arguments, one per line: the folder of the corpus, or a file to read once, and options.
const ARGUMENTS: &str = "PL_HOST_FUZZ_ARGUMENTS";

/// Time between two looks at the CPU time of an input.
const LOOK: Duration = Duration::from_secs(1);

unsafe extern "C" {
    fn LLVMFuzzerRunDriver(
        count: *mut c_int,
        arguments: *mut *mut *mut c_char,
        read: extern "C" fn(*const u8, usize) -> c_int,
    ) -> c_int;
}

/// A reader of inputs, which [`fuzz`] keeps while libFuzzer runs.
type Reader = *const (dyn Fn(&[u8]) + 'static);

thread_local! {
    static READER: Cell<Option<Reader>> = const { Cell::new(None) };
}

/// Number of inputs so far.
static INPUTS: AtomicU64 = AtomicU64::new(0);

/// Runs libFuzzer on a reader, with the arguments in `PL_HOST_FUZZ_ARGUMENTS`. `words` are its dictionary.
///
/// # Panics
/// If the seeds can't be written, or libFuzzer refuses its arguments.
pub fn fuzz(name: &str, seeds: &[Vec<u8>], words: &[&str], read: impl Fn(&[u8])) {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{name}: no folder for seeds: {error}"));
    let (seed_folder, dictionary) = (folder.path().join("seeds"), folder.path().join("words"));
    write_seeds(&seed_folder, seeds)
        .and_then(|()| {
            fs::write(&dictionary, words.iter().chain(&NUMBERS_IN_TEXT).map(entry).collect::<String>())
        })
        .unwrap_or_else(|error| panic!("{name}: cannot write the seeds: {error}"));
    let given = std::env::var(ARGUMENTS).unwrap_or_default();
    let mut arguments = vec![name.to_owned()];
    arguments.extend(given.lines().map(str::to_owned));
    // A single input is run alone.
    if !given.lines().next().is_some_and(|first| Path::new(first).is_file()) {
        arguments.push(seed_folder.display().to_string());
        arguments.push(format!("-dict={}", dictionary.display()));
    }
    watch_this_thread();
    assert_eq!(run(arguments, &read), 0, "{name}: libFuzzer failed");
}

fn write_seeds(folder: &Path, seeds: &[Vec<u8>]) -> std::io::Result<()> {
    fs::create_dir(folder)?;
    seeds.iter().enumerate().try_for_each(|(index, seed)| fs::write(folder.join(index.to_string()), seed))
}

/// Returns a word as a line of a dictionary.
fn entry(word: &&str) -> String {
    let escaped = word.bytes().map(|byte| match byte {
        b' ' | b'!' | b'#'..=b'[' | b']'..=b'~' => char::from(byte).to_string(),
        _ => format!("\\x{byte:02X}"),
    });
    format!("\"{}\"\n", escaped.collect::<String>())
}

/// Ends the process when this thread takes too long for an input. libFuzzer's own limit works in the main thread alone, and tests
/// have others.
fn watch_this_thread() {
    let thread = fs::read_link("/proc/thread-self").unwrap_or_default();
    let schedstat = Path::new("/proc").join(thread).join("schedstat");
    std::thread::spawn(move || {
        let (mut input, mut since) = (0, Duration::ZERO);
        loop {
            std::thread::sleep(LOOK);
            let (now, time) = (INPUTS.load(Ordering::Relaxed), cpu_time(&schedstat));
            if now != input {
                (input, since) = (now, time);
            } else if time.saturating_sub(since) > LONGEST {
                eprintln!("an input took more than {} s of CPU time", LONGEST.as_secs());
                // libFuzzer keeps the input.
                std::process::abort();
            }
        }
    });
}

/// Runs libFuzzer, and returns its exit code if it refuses its arguments.
fn run(arguments: Vec<String>, read: &dyn Fn(&[u8])) -> c_int {
    let arguments: Vec<CString> =
        arguments.into_iter().filter_map(|argument| CString::new(argument).ok()).collect();
    let mut pointers: Vec<*mut c_char> = arguments.iter().map(|one| one.as_ptr().cast_mut()).collect();
    let mut count = pointers.len() as c_int;
    pointers.push(std::ptr::null_mut());
    let mut start = pointers.as_mut_ptr();
    let reader: *const (dyn Fn(&[u8]) + '_) = read;
    // SAFETY: only the lifetime changes. The reader is used by the call below alone.
    READER.set(Some(unsafe { std::mem::transmute::<*const (dyn Fn(&[u8]) + '_), Reader>(reader) }));
    // SAFETY: the arguments end with a null pointer and live longer than the call.
    let code = unsafe { LLVMFuzzerRunDriver(&mut count, &mut start, read_one) };
    READER.set(None);
    code
}

extern "C" fn read_one(start: *const u8, length: usize) -> c_int {
    INPUTS.fetch_add(1, Ordering::Relaxed);
    let input: &[u8] = if length == 0 {
        &[]
    } else {
        // SAFETY: libFuzzer's input, which it keeps meanwhile.
        unsafe { std::slice::from_raw_parts(start, length) }
    };
    if let Some(reader) = READER.get() {
        // SAFETY: `fuzz` keeps the reader until libFuzzer returns, which calls it on the same thread.
        let read = catch_unwind(AssertUnwindSafe(|| unsafe { (*reader)(input) }));
        if read.is_err() {
            // libFuzzer keeps the input.
            std::process::abort();
        }
    }
    0
}

/// The function that the crate's own entry calls, which is linked but not used.
#[allow(improper_ctypes_definitions, reason = "the crate declares it so")]
#[unsafe(no_mangle)]
extern "C" fn rust_fuzzer_test_input(_: &[u8]) -> i32 {
    0
}
