//! Files of a run on a worker, in the cache under their hashes.

use std::io::Write;
use std::path::{Path, PathBuf};

use pl_cluster::{SharedFile, Worker};
use pl_record::create_partial;
use pl_toolchain::cache;

use crate::error::Error;
use crate::error::cluster::ClusterError;

/// Fetches the files of a run into a folder of the cache. Returns the folder.
///
/// # Errors
/// If a file is missing on the server, or can't be written.
pub(super) async fn fetch(worker: &Worker) -> Result<PathBuf, Error> {
    // The content decides the name: runs of the same files share a folder.
    let mut hasher = blake3::Hasher::new();
    for file in &worker.entry().files {
        hasher.update(file.path.as_bytes()).update(&[0]).update(file.hash.as_bytes());
    }
    let folder = cache::private("cluster").map_err(Error::Cache)?.join(hasher.finalize().to_hex().as_str());
    let has = |file: &SharedFile| {
        let read = std::fs::read(folder.join(&file.path));
        read.is_ok_and(|bytes| blake3::hash(&bytes).to_hex().as_str() == file.hash)
    };
    std::fs::create_dir_all(&folder).map_err(ClusterError::file(&folder)).map_err(Error::cluster)?;
    worker.fetch(has, |file, bytes| write(&folder, file, bytes)).await.map_err(Error::cluster)?;
    Ok(folder)
}

fn write(folder: &Path, file: &SharedFile, bytes: &[u8]) -> Result<(), ClusterError> {
    let path = folder.join(&file.path);
    let failed = ClusterError::file(&path);
    if !file.is_inside() {
        let reason = "the coordinator has sent a path that leaves the folder of the run";
        return Err(failed(std::io::Error::other(reason)));
    }
    let parent = path.parent().unwrap_or(folder);
    std::fs::create_dir_all(parent).map_err(&failed)?;
    // Other workers on this machine may write the same file. It is not synced: the next run checks its hash.
    let mut partial = create_partial(&path).map_err(&failed)?;
    partial.as_file_mut().write_all(bytes).map_err(&failed)?;
    partial.persist(&path).map_err(|error| failed(error.error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn files_have_the_permissions_that_the_mask_leaves() {
        let folder = tempfile::tempdir().unwrap();
        let file = SharedFile {
            path: "starts/a/weights".to_owned(),
            hash: blake3::hash(b"weights").to_hex().to_string(),
        };
        write(folder.path(), &file, b"weights").unwrap();
        let (path, other) = (folder.path().join(&file.path), folder.path().join("other"));
        std::fs::write(&other, b"weights").unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(&path), mode(&other));
        assert_eq!(std::fs::read(&path).unwrap(), b"weights");
    }

    #[test]
    fn a_failure_names_its_path_once_and_keeps_its_kind() {
        let folder = tempfile::tempdir().unwrap();
        let file = SharedFile { path: "weights".to_owned(), hash: String::new() };
        let path = folder.path().join(&file.path);
        std::fs::create_dir(&path).unwrap();
        let error = write(folder.path(), &file, b"weights").unwrap_err();
        assert_eq!(error.to_string().matches(path.to_str().unwrap()).count(), 1, "{error}");
        let is_kept = matches!(
            &error,
            ClusterError::File { source, .. } if source.kind() == std::io::ErrorKind::IsADirectory
        );
        assert!(is_kept, "{error}");
    }
}
