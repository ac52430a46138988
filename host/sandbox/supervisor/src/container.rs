//! Resources of the container besides programs: its folders, processes and counters.

use std::path::{Path, PathBuf};

use crate::counters::Counters;
use crate::error::Result;
use crate::reap::Children;
use crate::{folder, ipc};

/// The container in which this process is PID 1.
pub struct Container<'a> {
    /// Working folder of programs.
    pub work: &'a Path,
    /// All folders that programs may write to.
    folders: &'a [PathBuf],
    pub children: Children,
    pub counters: Counters,
}

impl<'a> Container<'a> {
    pub fn new(work: &'a Path, folders: &'a [PathBuf]) -> std::io::Result<Self> {
        Ok(Self { work, folders, children: Children::watch()?, counters: Counters::open() })
    }

    /// Removes everything that a program left: processes, files, System V objects.
    pub fn clean(&self) -> Result<()> {
        self.children.kill_all()?;
        self.folders.iter().try_for_each(|folder| folder::empty(folder))?;
        ipc::remove_all()
    }
}
