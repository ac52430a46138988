//! A disk that is full, or on which one change fails: a write, or the creation or removal of an entry.
//!
//! A library that stands before the C library counts the changes that a program makes below a folder, and fails those
//! that it has to. Syncs and renames are left to strace, since some renames do not go through the C library.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{repository, succeed};

/// Fault of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Room for this number of bytes: the write that reaches the end is a short one, and later ones fail.
    Full(u64),
    /// An error of a change, by its kind and its number among those of its kind, from 1 on.
    Change(&'static str, u64),
}

impl Fault {
    /// Returns the system's name of the error.
    pub fn cause(self) -> &'static str {
        match self {
            Fault::Full(_) => "No space left on device",
            Fault::Change(..) => "Input/output error",
        }
    }
}

/// A change that a program makes below the folder.
#[derive(Debug)]
pub struct Change {
    /// `write`, `create`, `mkdir`, `symlink` or `remove`.
    pub kind: String,
    /// Bytes of a write, and 0 of any other change.
    pub bytes: u64,
    pub has_failed: bool,
    /// Name of the file, folder or link.
    pub file: String,
}

/// The compiled library.
#[derive(Debug)]
pub struct FailingDisk {
    library: PathBuf,
}

impl FailingDisk {
    /// Compiles the library into a folder, with the compiler by which Rust links programs.
    pub fn compile(folder: &Path) -> FailingDisk {
        let library = folder.join("failing_disk.so");
        let source = repository().join("tests/scenarios/power/failing_disk.c");
        succeed(Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(source));
        FailingDisk { library }
    }

    /// Puts the files that a command writes into the folder of a run, a path without links, on the disk.
    pub fn hold(&self, command: &mut Command, run: &Path, fault: Option<Fault>) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAILING_DISK_FOLDER", run)
            .env("FAILING_DISK_LOG", log_of(run));
        match fault {
            Some(Fault::Full(bytes)) => command.env("FAILING_DISK_SPACE", bytes.to_string()),
            Some(Fault::Change(kind, number)) => {
                command.env("FAILING_DISK_KIND", kind).env("FAILING_DISK_NUMBER", number.to_string())
            }
            None => command,
        };
    }
}

/// Returns the changes in the folder of a run.
pub fn changes(run: &Path) -> Vec<Change> {
    let text = fs::read_to_string(log_of(run)).unwrap();
    let parse = |line: &str| {
        let mut fields = line.splitn(4, ' ');
        let (kind, bytes, end) = (fields.next()?.to_owned(), fields.next()?.parse().ok()?, fields.next()?);
        let file = Path::new(fields.next()?).file_name()?.to_string_lossy().into_owned();
        Some(Change { kind, bytes, has_failed: end == "failed", file })
    };
    text.lines().map(|line| parse(line).unwrap()).collect()
}

fn log_of(run: &Path) -> PathBuf {
    run.with_extension("changes")
}
