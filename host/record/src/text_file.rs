//! Files of a run folder, which may be somebody else's.

use std::io::Read;
use std::path::Path;

use pl_types::open_file;

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
