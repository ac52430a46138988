//! Large files, mapped into memory: what is read of them is the system's to drop again, and is dropped as
//! soon as it has been converted, so that loading a model takes no more memory than the model.

use std::fs::File;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use crate::error::Error;

/// A file's bytes.
#[derive(Debug)]
pub(crate) struct MappedFile {
    path: PathBuf,
    file: File,
    map: Mmap,
}

impl MappedFile {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(Error::io(path))?;
        // SAFETY: the map is read once, while loading; a file that another program cuts short meanwhile would
        // end this one with SIGBUS, which no way of reading large files without copies avoids.
        let map = unsafe { Mmap::map(&file) }.map_err(Error::io(path))?;
        Ok(Self { path: path.to_path_buf(), file, map })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds the whole file to a hash, without leaving it in this process's memory.
    pub(crate) fn hash(&self, hasher: &mut blake3::Hasher) -> Result<(), Error> {
        hasher.update_reader(&self.file).map_err(Error::io(&self.path))?;
        Ok(())
    }

    /// Says that a part of the file will not be read again soon.
    pub(crate) fn release(&self, part: &[u8]) {
        #[cfg(unix)]
        {
            let offset = part.as_ptr() as usize - self.map.as_ptr() as usize;
            // SAFETY: the pages are the file's, unwritten, so that whoever reads them once more gets them
            // from there.
            let advised = unsafe {
                self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, offset, part.len())
            };
            // Advice that is not taken costs memory for a while and nothing else.
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
