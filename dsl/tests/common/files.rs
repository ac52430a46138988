//! Workflow files of tests.

use std::fs;
use std::path::{Path, PathBuf};

use pl_dsl::Source;

/// Returns the path of a folder of this crate.
pub fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Reads the workflow files of a folder, in order of name.
pub fn workflows(folder: &Path) -> Vec<Source> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "mas"))
        .collect();
    files.sort();
    let read = |path: &PathBuf| Source {
        name: path.file_name().unwrap().to_string_lossy().into_owned(),
        text: fs::read_to_string(path).unwrap(),
    };
    files.iter().map(read).collect()
}
