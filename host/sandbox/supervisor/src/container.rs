//! What there is in a container beside programs: its folders, processes and counts.

use std::io::Result;
use std::path::{Path, PathBuf};

use crate::counters::Counters;
use crate::reap::Children;
use crate::zygote::Keeper;
use crate::{folder, ipc};

/// The container that this process is the first one of.
pub struct Container<'a> {
    /// Where programs start.
    pub work: &'a Path,
    /// All that programs may write to.
    folders: &'a [PathBuf],
    pub children: Children,
    pub keeper: Keeper,
    pub counters: Counters,
}

impl<'a> Container<'a> {
    pub fn new(work: &'a Path, folders: &'a [PathBuf]) -> Result<Self> {
        Ok(Self {
            work,
            folders,
            children: Children::watch()?,
            keeper: Keeper::new(),
            counters: Counters::open(),
        })
    }

    /// Removes all that a program left. The error says what could not be removed.
    pub fn clean(&mut self) -> std::result::Result<(), String> {
        self.keeper.end_programs(&self.children)?;
        self.folders.iter().try_for_each(|folder| folder::wipe(folder))?;
        ipc::wipe()
    }
}
