//! The workflows that the grammars are tried on.

use std::path::{Path, PathBuf};

/// A place in the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files of a folder with one ending, in order of name.
pub fn of(folder: &str, ending: &str) -> Vec<PathBuf> {
    let folder = repository(folder);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == ending))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no .{ending}", folder.display());
    files
}

/// Every right workflow: the examples, and every form of the language.
pub fn workflows() -> Vec<PathBuf> {
    [of("examples", "mas"), of("editors/tests/tests/fixtures", "mas")].concat()
}
