//! Weights of a learner's policies as bytes: adapters in PEFT form, whole models in Hugging Face form, both as f32.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use pl_inference::WeightUpdate;
use pl_model::{Adapter, ChatTemplate, Config, Model, Tokenizer};
use pl_trainer::{ServedPolicy, Trainer};
use pl_types::{Dtype, ValueHeadWeights};
use serde::{Deserialize, Serialize};
use tch::Device;

use crate::checkpoints::PolicyVersions;
use crate::error::cluster::ClusterError;

/// Weights of a learner's policies after an update.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredWeights {
    pub learner: u32,
    pub update: u64,
    pub policies: Vec<StoredPolicy>,
}

/// New weights of one policy.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredPolicy {
    /// Index in the workflow.
    policy: u32,
    version: u64,
    update: StoredUpdate,
}

#[derive(Serialize, Deserialize)]
enum StoredUpdate {
    /// Files of a PEFT folder.
    Adapter(Vec<StoredFile>),
    /// Files of a model folder.
    Model(Vec<StoredFile>),
    ValueHead {
        weight: Vec<f32>,
        bias: f32,
    },
}

#[derive(Serialize, Deserialize)]
struct StoredFile {
    name: String,
    bytes: Vec<u8>,
}

/// Encodes a learner's weights, those of the start included. Whole models are stored in their `formats`.
///
/// # Errors
/// If a temporary file can't be written.
pub(super) fn encode(
    learner: u32,
    update: u64,
    versions: &PolicyVersions,
    formats: &ModelFormats,
) -> Result<Vec<u8>, ClusterError> {
    let mut policies = Vec::new();
    for (policy, weights, version) in versions.all_updates() {
        let update = match weights {
            WeightUpdate::Adapter(adapter) => StoredUpdate::Adapter(files_of(|folder| adapter.save(folder))?),
            WeightUpdate::Weights(weights) => {
                let Some(format) = formats.0.get(*policy) else { continue };
                let save = |folder: &Path| {
                    weights.save_folder(
                        folder,
                        &format.config,
                        &format.tokenizer,
                        &format.template,
                        Dtype::F32,
                    )
                };
                StoredUpdate::Model(files_of(save)?)
            }
            WeightUpdate::ValueHead(head) => {
                StoredUpdate::ValueHead { weight: head.weight.clone(), bias: head.bias }
            }
            WeightUpdate::Version => continue,
        };
        policies.push(StoredPolicy { policy: *policy as u32, version: *version, update });
    }
    let stored = StoredWeights { learner, update, policies };
    postcard::to_allocvec(&stored).map_err(|error| unreadable(error.to_string()))
}

/// Dimensions, tokenizer and template of each policy's model.
pub(super) struct ModelFormats(Vec<ModelFormat>);

struct ModelFormat {
    config: Config,
    tokenizer: Arc<Tokenizer>,
    template: Arc<ChatTemplate>,
    dtype: Dtype,
    device: Device,
}

impl ModelFormats {
    pub fn of(trainer: &Trainer) -> ModelFormats {
        let bases = trainer.bases();
        let format = |served: ServedPolicy| {
            let base = &bases[served.base];
            ModelFormat {
                config: base.config.clone(),
                tokenizer: base.tokenizer.clone(),
                template: base.template.clone(),
                dtype: base.dtype,
                device: base.weights.device(),
            }
        };
        ModelFormats(trainer.policies().into_iter().map(format).collect())
    }
}

impl StoredWeights {
    /// Decodes weights.
    ///
    /// # Errors
    /// If they are not such.
    pub fn decode(bytes: &[u8]) -> Result<StoredWeights, ClusterError> {
        postcard::from_bytes(bytes).map_err(|error| unreadable(error.to_string()))
    }

    /// Returns true if policies without an adapter are among them, whose weights replace earlier ones.
    pub fn has_models(&self) -> bool {
        self.policies.iter().any(|policy| matches!(policy.update, StoredUpdate::Model(_)))
    }

    /// Returns true if adapters are among them, which are used side by side with other versions.
    pub fn has_adapters(&self) -> bool {
        self.policies.iter().any(|policy| matches!(policy.update, StoredUpdate::Adapter(_)))
    }

    /// Reads the weights for the engine.
    ///
    /// # Errors
    /// If they don't fit the models of the workflow.
    pub fn updates(self, formats: &ModelFormats) -> Result<Vec<(usize, WeightUpdate, u64)>, ClusterError> {
        let mut updates = Vec::new();
        for StoredPolicy { policy, version, update } in self.policies {
            let policy = policy as usize;
            let format = formats.0.get(policy);
            let format = format.ok_or_else(|| unreadable(format!("there is no policy {policy}")))?;
            let update = match update {
                StoredUpdate::Adapter(files) => {
                    WeightUpdate::Adapter(read(files, |folder| Adapter::load(folder, &format.config))?)
                }
                StoredUpdate::Model(files) => {
                    let load = |folder: &Path| Model::load(folder, format.device, format.dtype);
                    WeightUpdate::Weights(read(files, load)?.weights)
                }
                StoredUpdate::ValueHead { weight, bias } => {
                    WeightUpdate::ValueHead(ValueHeadWeights { weight, bias })
                }
            };
            updates.push((policy, update, version));
        }
        Ok(updates)
    }
}

/// Returns the files that `save` writes into a folder.
fn files_of(
    save: impl FnOnce(&Path) -> Result<(), pl_model::Error>,
) -> Result<Vec<StoredFile>, ClusterError> {
    let folder = temporary()?;
    save(folder.path()).map_err(|error| unreadable(error.to_string()))?;
    let failed = |source| ClusterError::File { path: folder.path().to_path_buf(), source };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder.path()).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let bytes = fs::read(&path).map_err(|source| ClusterError::File { path: path.clone(), source })?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        files.push(StoredFile { name, bytes });
    }
    // The order of a folder's entries is the file system's.
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

/// Writes files into a folder from which `load` reads.
fn read<T>(
    files: Vec<StoredFile>,
    load: impl FnOnce(&Path) -> Result<T, pl_model::Error>,
) -> Result<T, ClusterError> {
    let folder = temporary()?;
    for StoredFile { name, bytes } in files {
        // A name with a folder in it would lead elsewhere.
        let Some(name) = Path::new(&name).file_name() else { continue };
        let path = folder.path().join(name);
        fs::write(&path, bytes).map_err(|source| ClusterError::File { path, source })?;
    }
    load(folder.path()).map_err(|error| unreadable(error.to_string()))
}

fn temporary() -> Result<tempfile::TempDir, ClusterError> {
    let folder = tempfile::Builder::new().prefix("pl-host-weights-").tempdir();
    folder.map_err(|source| ClusterError::File { path: std::env::temp_dir(), source })
}

fn unreadable(reason: String) -> ClusterError {
    ClusterError::Unreadable { what: "the weights".to_owned(), reason }
}
