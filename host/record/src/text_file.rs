//! Files of a run folder, which may be somebody else's.

use std::path::Path;

use pl_types::SourcePath;

/// Largest text file of a run folder that is read as a whole, in bytes. A workflow with long prompts has some hundred
/// kilobytes.
pub(crate) const LARGEST_TEXT: u64 = 64 << 20;

/// Reads a text file of at most `largest` bytes. Pipes and devices, which may never end, are refused.
pub(crate) fn read_text(path: &Path, largest: u64) -> std::io::Result<String> {
    String::from_utf8(SourcePath::from(path).read_at_most(largest)?).map_err(std::io::Error::other)
}
