//! Adapters as PEFT folders, which servers read.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use pl_model::Adapter;
use pl_record::hash_file;
use tempfile::TempDir;

use crate::error::Error;

/// File whose hash stands for an adapter's weights.
const TENSORS: &str = "adapter_model.safetensors";

/// End of the name of a folder that is not complete.
const PARTIAL: &str = ".partial";

/// Number of hexadecimal digits of the hash in an adapter's name.
const DIGITS: usize = 12;

/// Folder for the adapters of a session: `adapters` in the run folder, or a temporary one.
#[derive(Default)]
pub(crate) struct AdapterStore {
    current: Mutex<StoreFolder>,
}

/// Folder of a store, once it is known.
#[derive(Default)]
struct StoreFolder {
    folder: Option<PathBuf>,
    /// Removed with the store.
    temporary: Option<TempDir>,
}

/// An adapter in the store.
pub(crate) struct StoredAdapter {
    /// Policy, version and hash, such as `coder@v17-0c5a8d0be117`. Two runs that share servers differ in the hash.
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
}

impl AdapterStore {
    /// Keeps new adapters in this folder from now on. Those of an earlier process are removed.
    ///
    /// # Errors
    /// If the old folder can't be removed.
    pub(crate) fn keep_in(&self, folder: PathBuf) -> Result<(), Error> {
        if folder.exists() {
            for entry in fs::read_dir(&folder).map_err(failed(&folder))? {
                let path = entry.map_err(failed(&folder))?.path();
                let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                if name.contains("@v") || name.ends_with(PARTIAL) {
                    fs::remove_dir_all(&path).map_err(failed(&path))?;
                }
            }
        }
        self.current.lock().unwrap_or_else(PoisonError::into_inner).folder = Some(folder);
        Ok(())
    }

    /// Writes an adapter under a name that its policy, its version and its weights determine.
    ///
    /// # Errors
    /// If a file can't be written.
    pub(crate) fn write(
        &self,
        policy: &str,
        version: u64,
        adapter: &Adapter,
    ) -> Result<StoredAdapter, Error> {
        let parent = self.folder()?;
        let partial = parent.join(format!("{policy}{PARTIAL}"));
        if partial.exists() {
            fs::remove_dir_all(&partial).map_err(failed(&partial))?;
        }
        fs::create_dir_all(&partial).map_err(failed(&partial))?;
        adapter
            .save(&partial)
            .map_err(|source| Error::Adapter { path: partial.clone(), reason: source.to_string() })?;
        let hash = hash_file(&partial.join(TENSORS)).map_err(Error::RunFolder)?;
        let name = format!("{policy}@v{version}-{}", hash.get(..DIGITS).unwrap_or(&hash));
        let folder = parent.join(&name);
        if folder.exists() {
            // The same weights.
            fs::remove_dir_all(&partial).map_err(failed(&partial))?;
        } else {
            fs::rename(&partial, &folder).map_err(failed(&folder))?;
        }
        Ok(StoredAdapter { name, folder })
    }

    /// Removes an adapter that servers have unloaded.
    pub(crate) fn remove(folder: &Path) {
        if let Err(error) = fs::remove_dir_all(folder) {
            tracing::warn!(folder = %folder.display(), %error, "an old adapter was not removed");
        }
    }

    fn folder(&self) -> Result<PathBuf, Error> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(folder) = &current.folder {
            return Ok(folder.clone());
        }
        let temporary = tempfile::Builder::new()
            .prefix("pl-host-adapters-")
            .tempdir()
            .map_err(failed(&std::env::temp_dir()))?;
        let folder = temporary.path().to_path_buf();
        (current.folder, current.temporary) = (Some(folder.clone()), Some(temporary));
        Ok(folder)
    }
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> Error + '_ {
    move |error| Error::Adapter { path: path.to_path_buf(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use pl_model::{Config, Projection};

    use super::*;

    #[test]
    fn names_stand_for_weights() {
        let folder = tempfile::tempdir().unwrap();
        let store = AdapterStore::default();
        store.keep_in(folder.path().join("adapters")).unwrap();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/tiny");
        let config = Config::read(&path).unwrap();
        let adapter = |seed| Adapter::new(&config, 2, 4.0, &[Projection::Q], [seed; 32]).unwrap();
        let first = store.write("coder", 3, &adapter(1)).unwrap();
        let (same, other) =
            (store.write("coder", 3, &adapter(1)).unwrap(), store.write("coder", 3, &adapter(2)).unwrap());
        assert!(first.name.starts_with("coder@v3-"), "{}", first.name);
        assert_eq!(first.name, same.name);
        assert_ne!(first.name, other.name);
        let read = Adapter::load(&first.folder, &config).unwrap();
        assert_eq!((read.rank, read.alpha), (2, 4.0));
        AdapterStore::remove(&first.folder);
        assert!(!first.folder.exists() && other.folder.exists());
        store.keep_in(folder.path().join("adapters")).unwrap();
        assert!(!other.folder.exists(), "those of an earlier process are gone");
    }
}
