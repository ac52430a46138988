//! Weights of a learner's policies as bytes: adapters in PEFT form, whole models in Hugging Face form, both as f32.

use std::path::Path;
use std::sync::Arc;

use pl_inference::WeightUpdate;
use pl_model::{Adapter, ChatTemplate, Config, Model, Tokenizer};
use pl_trainer::{ServedPolicy, Trainer};
use pl_types::{Dtype, ModelDtype, ValueHeadWeights};
use serde::{Deserialize, Serialize};
use tch::Device;

use crate::checkpoints::PolicyVersions;
use crate::error::cluster::ClusterError;

use super::message;
use super::stored_files::{StoredFile, files_of, load_files};

/// Weights of a learner's policies after an update.
#[derive(Serialize, Deserialize)]
pub(super) struct LearnerWeights {
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
    update: PolicyFiles,
}

#[derive(Serialize, Deserialize)]
enum PolicyFiles {
    /// Files of a PEFT folder.
    Adapter(Vec<StoredFile>),
    /// Files of a model folder.
    Model(Vec<StoredFile>),
    ValueHead {
        weight: Vec<f32>,
        bias: f32,
    },
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
            WeightUpdate::Adapter(adapter) => PolicyFiles::Adapter(files_of(|folder| adapter.save(folder))?),
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
                PolicyFiles::Model(files_of(save)?)
            }
            WeightUpdate::ValueHead(head) => {
                PolicyFiles::ValueHead { weight: head.weight.clone(), bias: head.bias }
            }
            WeightUpdate::Version => continue,
        };
        policies.push(StoredPolicy { policy: *policy as u32, version: *version, update });
    }
    let stored = LearnerWeights { learner, update, policies };
    message::encode("the weights", &stored)
}

/// Dimensions, tokenizer and template of each policy's model.
pub(super) struct ModelFormats(Vec<ModelFormat>);

struct ModelFormat {
    config: Config,
    tokenizer: Arc<Tokenizer>,
    template: Arc<ChatTemplate>,
    dtype: ModelDtype,
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

impl LearnerWeights {
    /// Decodes weights.
    ///
    /// # Errors
    /// If they are not such.
    pub fn decode(bytes: &[u8]) -> Result<LearnerWeights, ClusterError> {
        message::decode("the weights", bytes)
    }

    /// Returns policies with these weights in place of their own.
    ///
    /// # Errors
    /// If they don't fit the models of the workflow.
    pub fn serve(
        self,
        mut served: Vec<ServedPolicy>,
        formats: &ModelFormats,
    ) -> Result<Vec<ServedPolicy>, ClusterError> {
        for (policy, update, version) in self.updates(formats)? {
            let own = served.iter_mut().find(|own| own.policy == policy);
            let own = own.ok_or_else(|| {
                ClusterError::unreadable("the weights", format!("policy {policy} is not of this learner"))
            })?;
            own.version = version;
            match update {
                WeightUpdate::Adapter(adapter) => own.adapter = Some(adapter),
                WeightUpdate::Weights(weights) => own.weights = Some(weights),
                WeightUpdate::ValueHead(head) => own.value_head = Some(head),
                WeightUpdate::Version => {}
            }
        }
        Ok(served)
    }

    /// Returns true if policies without an adapter are among them, whose weights replace earlier ones.
    pub fn has_models(&self) -> bool {
        self.policies.iter().any(|policy| matches!(policy.update, PolicyFiles::Model(_)))
    }

    /// Returns true if adapters are among them, which are used side by side with other versions.
    pub fn has_adapters(&self) -> bool {
        self.policies.iter().any(|policy| matches!(policy.update, PolicyFiles::Adapter(_)))
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
            let format = format.ok_or_else(|| {
                ClusterError::unreadable("the weights", format!("there is no policy {policy}"))
            })?;
            let update = match update {
                PolicyFiles::Adapter(files) => {
                    WeightUpdate::Adapter(load_files(files, |folder| Adapter::load(folder, &format.config))?)
                }
                PolicyFiles::Model(files) => {
                    let load = |folder: &Path| Model::load(folder, format.device, format.dtype);
                    WeightUpdate::Weights(load_files(files, load)?.weights)
                }
                PolicyFiles::ValueHead { weight, bias } => {
                    WeightUpdate::ValueHead(ValueHeadWeights { weight, bias })
                }
            };
            updates.push((policy, update, version));
        }
        Ok(updates)
    }
}
