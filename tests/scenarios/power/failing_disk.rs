//! A disk that is full, or on which one write fails.
//!
//! A library that stands before the C library counts the writes of a program below a folder, and fails those that it has to.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{repository, succeed};

/// Fault of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Room for this number of bytes: the write that reaches the end is a short one, and later ones fail.
    Full(u64),
    /// An error of the write of this number, from 1 on.
    Write(u64),
}

impl Fault {
    /// Returns the system's name of the error.
    pub fn cause(self) -> &'static str {
        match self {
            Fault::Full(_) => "No space left on device",
            Fault::Write(_) => "Input/output error",
        }
    }
}

/// A write of a program below the folder.
#[derive(Debug)]
pub struct Write {
    pub bytes: u64,
    pub has_failed: bool,
    /// Name of the file.
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
            Some(Fault::Write(number)) => command.env("FAILING_DISK_WRITE", number.to_string()),
            None => command,
        };
    }
}

/// Returns the writes into the folder of a run.
pub fn writes(run: &Path) -> Vec<Write> {
    let text = fs::read_to_string(log_of(run)).unwrap();
    let parse = |line: &str| {
        let (bytes, rest) = line.split_once(' ')?;
        let (end, path) = rest.split_once(' ')?;
        let file = Path::new(path).file_name()?.to_string_lossy().into_owned();
        Some(Write { bytes: bytes.parse().ok()?, has_failed: end == "failed", file })
    };
    text.lines().map(|line| parse(line).unwrap()).collect()
}

fn log_of(run: &Path) -> PathBuf {
    run.with_extension("writes")
}
