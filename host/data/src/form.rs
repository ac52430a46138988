//! Forms of files of records, by the suffixes of their names.

use std::path::Path;

/// Suffixes of the forms that can be read.
const SUFFIXES: [&str; 5] = [".jsonl", ".jsonl.gz", ".json", ".parquet", ".txt"];

/// Returns the suffix of a file's form. Returns `None` if it can't be read.
pub(crate) fn form(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?;
    SUFFIXES.into_iter().find(|suffix| name.ends_with(suffix))
}

/// Returns true if a file's name has the suffix of a form that can be read.
pub fn is_readable(path: &Path) -> bool {
    form(path).is_some()
}

/// Removes the plain texts among files of other forms: these are notes.
pub(crate) fn drop_notes<F>(files: &mut Vec<F>, path: impl Fn(&F) -> &Path) {
    let is_text = |file: &F| form(path(file)) == Some(".txt");
    if !files.iter().all(is_text) {
        files.retain(|file| !is_text(file));
    }
}
