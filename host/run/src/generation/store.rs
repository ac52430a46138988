//! Weights as folders that servers read: adapters in PEFT form, whole models in Hugging Face form.

use std::fs;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use pl_model::{Adapter, ChatTemplate, Config, Model, Tokenizer, Weights};
use pl_record::hash_file;
use pl_types::Dtype;
use tch::Device;
use tempfile::TempDir;

use crate::error::Error;

/// File whose hash stands for an adapter's weights.
pub(super) const TENSORS: &str = "adapter_model.safetensors";

/// File with the difference from the version before, in the folder of a whole model.
const DELTA: &str = "weights.delta";

/// End of the name of a folder that is not complete.
const PARTIAL: &str = ".partial";

/// Number of hexadecimal digits of the hash in the name of a folder.
const DIGITS: usize = 12;

/// Folder for the weights of a session that servers load: `adapters` in the run folder, or a temporary one.
#[derive(Default)]
pub(crate) struct WeightStore {
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
    /// Hash of the file of its tensors.
    pub(crate) checksum: String,
}

/// A whole model to write.
pub(crate) struct WholeModel<'m> {
    pub(crate) weights: &'m Weights,
    pub(crate) config: &'m Config,
    pub(crate) tokenizer: &'m Tokenizer,
    pub(crate) template: &'m ChatTemplate,
}

/// A whole model in the store.
pub(crate) struct StoredWeights {
    pub(crate) folder: PathBuf,
    /// [`Weights::checksum`].
    pub(crate) checksum: String,
    /// Path of the difference from the version before, with the checksum of that.
    pub(crate) delta: Option<(PathBuf, String)>,
}

impl WeightStore {
    /// Keeps new weights in this folder from now on. Those of an earlier process are removed.
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
        self.current.lock().folder = Some(folder);
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
        let (parent, partial) = self.partial(policy)?;
        adapter
            .save(&partial)
            .map_err(|source| Error::WeightFiles { path: partial.clone(), reason: source.to_string() })?;
        let hash = hash_file(&partial.join(TENSORS)).map_err(Error::RunFolder)?;
        let name = format!("{policy}@v{version}-{}", hash.get(..DIGITS).unwrap_or(&hash));
        let folder = parent.join(&name);
        if folder.exists() {
            // The same weights.
            fs::remove_dir_all(&partial).map_err(failed(&partial))?;
        } else {
            fs::rename(&partial, &folder).map_err(failed(&folder))?;
        }
        Ok(StoredAdapter { name, folder, checksum: hash })
    }

    /// Writes a whole model, and the difference from the version in the folder `before`.
    ///
    /// # Errors
    /// If a file can't be written, or the version before can't be read.
    pub(crate) fn write_weights(
        &self,
        policy: &str,
        version: u64,
        model: &WholeModel<'_>,
        before: Option<(&Path, &str)>,
    ) -> Result<StoredWeights, Error> {
        let (parent, partial) = self.partial(policy)?;
        let unusable = |source: pl_model::Error| Error::WeightFiles {
            path: partial.clone(),
            reason: source.to_string(),
        };
        let checksum = model.weights.checksum().map_err(unusable)?;
        let folder =
            parent.join(format!("{policy}@v{version}-{}", checksum.get(..DIGITS).unwrap_or(&checksum)));
        let WholeModel { weights, config, tokenizer, template } = model;
        // f32 keeps what was trained.
        weights.save_folder(&partial, config, tokenizer, template, Dtype::F32).map_err(unusable)?;
        if let Some((old, from)) = before {
            let old = Model::load(old, Device::Cpu, Dtype::F32).map_err(unusable)?;
            let delta = partial.join(DELTA);
            weights.save_delta(&old.weights, (from, &checksum), &delta).map_err(unusable)?;
        }
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(failed(&folder))?;
        }
        fs::rename(&partial, &folder).map_err(failed(&folder))?;
        let delta = before.map(|(_, from)| (folder.join(DELTA), from.to_owned()));
        Ok(StoredWeights { folder, checksum, delta })
    }

    /// Returns the store's folder, and an empty one in it for a policy.
    fn partial(&self, policy: &str) -> Result<(PathBuf, PathBuf), Error> {
        let parent = self.folder()?;
        let partial = parent.join(format!("{policy}{PARTIAL}"));
        if partial.exists() {
            fs::remove_dir_all(&partial).map_err(failed(&partial))?;
        }
        fs::create_dir_all(&partial).map_err(failed(&partial))?;
        Ok((parent, partial))
    }

    /// Removes weights that servers have unloaded.
    pub(crate) fn remove(folder: &Path) {
        if let Err(error) = fs::remove_dir_all(folder) {
            tracing::warn!(folder = %folder.display(), %error, "old weights were not removed");
        }
    }

    fn folder(&self) -> Result<PathBuf, Error> {
        let mut current = self.current.lock();
        if let Some(folder) = &current.folder {
            return Ok(folder.clone());
        }
        let temporary = tempfile::Builder::new()
            .prefix("pl-host-weights-")
            .tempdir()
            .map_err(failed(&std::env::temp_dir()))?;
        let folder = temporary.path().to_path_buf();
        (current.folder, current.temporary) = (Some(folder.clone()), Some(temporary));
        Ok(folder)
    }
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> Error + '_ {
    move |error| Error::WeightFiles { path: path.to_path_buf(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use pl_model::{Config, Projection};

    use super::*;

    #[test]
    fn names_stand_for_weights() {
        let folder = tempfile::tempdir().unwrap();
        let store = WeightStore::default();
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
        WeightStore::remove(&first.folder);
        assert!(!first.folder.exists() && other.folder.exists());
        store.keep_in(folder.path().join("adapters")).unwrap();
        assert!(!other.folder.exists(), "those of an earlier process are gone");
    }
}
