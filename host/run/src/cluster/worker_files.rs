//! Files of a run on a worker, in the cache under their hashes.

use std::path::{Path, PathBuf};

use pl_cluster::{SharedFile, Worker};
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
    std::fs::create_dir_all(&folder).map_err(failed(&folder))?;
    worker.fetch(has, |file, bytes| write(&folder, file, bytes)).await.map_err(Error::cluster)?;
    Ok(folder)
}

fn write(folder: &Path, file: &SharedFile, bytes: &[u8]) -> Result<(), ClusterError> {
    let path = folder.join(&file.path);
    let refused =
        || std::io::Error::other("the coordinator has sent a path that leaves the folder of the run");
    if !file.is_inside() {
        return Err(ClusterError::File { path, source: refused() });
    }
    let failed = |source| ClusterError::File { path: path.clone(), source };
    let parent = path.parent().unwrap_or(folder);
    std::fs::create_dir_all(parent).map_err(failed)?;
    // Other workers on this machine may write the same file.
    let mut partial = tempfile::NamedTempFile::new_in(parent).map_err(failed)?;
    std::io::Write::write_all(&mut partial, bytes).map_err(failed)?;
    partial.persist(&path).map_err(|error| failed(error.error))?;
    Ok(())
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> Error + '_ {
    move |source| Error::cluster(ClusterError::File { path: path.to_path_buf(), source })
}
