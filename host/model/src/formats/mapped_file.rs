//! Large files that are mapped into memory. Converted parts are released at once, so that loading a model
//! takes no more memory than the model.

use std::fs::File;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use pl_types::SourcePath;

use crate::error::Error;

/// A file that is mapped into memory.
#[derive(Debug)]
pub(crate) struct MappedFile {
    path: PathBuf,
    file: File,
    map: Mmap,
}

impl MappedFile {
    pub(crate) fn open(source: &SourcePath) -> Result<Self, Error> {
        let path = source.path();
        let file = source.open().map_err(Error::io(path))?;
        // SAFETY: sound as long as no other program writes into the file while it is mapped, which is while a model is
        // loaded. Only programs of those who may write the user's model can; one that truncates the file ends this one with
        // SIGBUS. It can't be avoided without copies.
        let map = unsafe { Mmap::map(&file) }.map_err(Error::io(path))?;
        Ok(Self { path: path.to_path_buf(), file, map })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds the file to a hash, without keeping it in this process's memory.
    pub(crate) fn hash(&self, hasher: &mut blake3::Hasher) -> Result<(), Error> {
        hasher.update_reader(&self.file).map_err(Error::io(&self.path))?;
        Ok(())
    }

    /// Tells the system that a part of the file will not be read again soon.
    pub(crate) fn release(&self, part: &[u8]) {
        #[cfg(unix)]
        {
            let offset = (part.as_ptr() as usize).wrapping_sub(self.map.as_ptr() as usize);
            if offset.checked_add(part.len()).is_none_or(|end| end > self.map.len()) {
                // No part of this file.
                return;
            }
            // SAFETY: within the map, as checked. The pages are unmodified pages of the file, so that a later read loads
            // them again.
            let advised = unsafe {
                self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, offset, part.len())
            };
            // Without effect, the pages stay in memory for longer.
            drop(advised);
        }
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}
