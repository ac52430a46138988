//! Targets under libFuzzer, in builds that count which code an input reaches.
//!
//! A test is one campaign: libFuzzer ends the process when the time is over, or when an input makes the reader panic, which it keeps.

use std::cell::Cell;
use std::ffi::{CString, c_char, c_int};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

// Its C++ is linked.
use libfuzzer_sys as _;

/// Environment variable with libFuzzer's arguments, one per line: the folder of the corpus and options.
const ARGUMENTS: &str = "PL_HOST_FUZZ_ARGUMENTS";

unsafe extern "C" {
    fn LLVMFuzzerRunDriver(
        count: *mut c_int,
        arguments: *mut *mut *mut c_char,
        read: extern "C" fn(*const u8, usize) -> c_int,
    ) -> c_int;
}

/// A reader of inputs. libFuzzer never returns, so it lives as long as the process.
type Reader = *const (dyn Fn(&[u8]) + 'static);

thread_local! {
    static READER: Cell<Option<Reader>> = const { Cell::new(None) };
}

/// Passes inputs to a reader as libFuzzer's arguments say. `words` are its dictionary.
///
/// # Panics
/// If the seeds can't be written.
pub fn fuzz(name: &str, seeds: &[Vec<u8>], words: &[&str], read: impl Fn(&[u8])) {
    let folder =
        tempfile::tempdir().unwrap_or_else(|error| panic!("{name}: no folder for the seeds: {error}"));
    let write = |path: &Path, bytes: &[u8]| {
        fs::write(path, bytes).unwrap_or_else(|error| panic!("{name}: cannot write a seed: {error}"));
    };
    let seed_folder = folder.path().join("seeds");
    fs::create_dir(&seed_folder).unwrap_or_else(|error| panic!("{name}: no folder for the seeds: {error}"));
    for (index, seed) in seeds.iter().enumerate() {
        write(&seed_folder.join(index.to_string()), seed);
    }
    let dictionary = folder.path().join("words");
    let entries: String = words.iter().map(|word| entry(word)).collect();
    write(&dictionary, entries.as_bytes());

    let arguments = std::env::var(ARGUMENTS).unwrap_or_default();
    let arguments = [name.to_owned()]
        .into_iter()
        .chain(arguments.lines().map(str::to_owned))
        .chain([seed_folder.display().to_string(), format!("-dict={}", dictionary.display())]);
    let arguments: Vec<CString> = arguments.filter_map(|argument| CString::new(argument).ok()).collect();
    let mut pointers: Vec<*mut c_char> = arguments.iter().map(|one| one.as_ptr().cast_mut()).collect();
    let mut count = pointers.len() as c_int;
    pointers.push(std::ptr::null_mut());
    let mut start = pointers.as_mut_ptr();

    let reader: *const (dyn Fn(&[u8]) + '_) = &read;
    // SAFETY: only the lifetime changes. The reader is used by the call below alone.
    READER.set(Some(unsafe { std::mem::transmute::<*const (dyn Fn(&[u8]) + '_), Reader>(reader) }));
    // SAFETY: the arguments end with a null pointer and live longer than the call.
    let code = unsafe { LLVMFuzzerRunDriver(&mut count, &mut start, read_one) };
    READER.set(None);
    assert_eq!(code, 0, "{name}: libFuzzer failed");
}

extern "C" fn read_one(start: *const u8, length: usize) -> c_int {
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
#[unsafe(no_mangle)]
fn rust_fuzzer_test_input(_: &[u8]) -> i32 {
    0
}

/// Returns a word as a line of a dictionary.
fn entry(word: &str) -> String {
    let escaped = word.bytes().map(|byte| match byte {
        b' ' | b'!' | b'#'..=b'[' | b']'..=b'~' => char::from(byte).to_string(),
        _ => format!("\\x{byte:02X}"),
    });
    format!("\"{}\"\n", escaped.collect::<String>())
}
