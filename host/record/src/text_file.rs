//! Files of a run folder, which may be somebody else's.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Largest text file of a run folder that is read as a whole, in bytes. A workflow with long prompts has some hundred
/// kilobytes.
pub(crate) const LARGEST_TEXT: u64 = 64 << 20;

/// Reads a text file of at most `largest` bytes. Pipes and devices, which may never end, are refused.
pub(crate) fn read_text(path: &Path, largest: u64) -> std::io::Result<String> {
    let mut text = String::new();
    if open_file(path)?.take(largest + 1).read_to_string(&mut text)? as u64 > largest {
        return Err(std::io::Error::other(format!("it is larger than {} MiB", largest >> 20)));
    }
    Ok(text)
}

/// Opens a file. Pipes and devices are refused: opening a pipe would wait for a writer.
pub(crate) fn open_file(path: &Path) -> std::io::Result<File> {
    if path.metadata()?.is_file() { File::open(path) } else { Err(not_a_file()) }
}

pub(crate) fn not_a_file() -> std::io::Error {
    std::io::Error::other("it is not a file")
}
