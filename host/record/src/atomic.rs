//! Atomic writes: to a temporary file, which is synced and renamed.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use crate::error::Error;

/// Writes `bytes` to `path` atomically: a reader, also after a crash, sees the old file or the new one.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file =
        tempfile::NamedTempFile::new_in(folder).map_err(Error::io("write a temporary file next to", path))?;
    file.write_all(bytes).map_err(Error::io("write", path))?;
    file.as_file().sync_all().map_err(Error::io("sync", path))?;
    file.persist(path).map_err(|e| Error::io("rename to", path)(e.error))?;
    sync_folder(folder)
}

/// Makes renames within `folder` durable.
pub fn sync_folder(folder: &Path) -> Result<(), Error> {
    File::open(folder).and_then(|f| f.sync_all()).map_err(Error::io("sync", folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_a_file_and_leaves_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        write_atomically(&path, b"one").unwrap();
        write_atomically(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
