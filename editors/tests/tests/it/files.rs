//! Workflows for the tests of the grammars.

use std::path::{Path, PathBuf};

/// Path in the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Files of a folder with an extension, sorted by name.
pub fn with_extension(folder: &str, extension: &str) -> Vec<PathBuf> {
    let folder = repository(folder);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no .{extension}", folder.display());
    files
}

/// All valid workflows: the examples, and a file with every form of the language.
pub fn workflows() -> Vec<PathBuf> {
    [with_extension("examples", "mas"), with_extension("editors/tests/tests/fixtures", "mas")].concat()
}
