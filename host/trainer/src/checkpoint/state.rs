//! Saving and restoring the state of all learners.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use pl_model::{Config, Model, TensorSet};
use pl_types::Dtype;
use serde_json::Value;
use tch::{Device, Tensor};

use super::OTHER_WORKFLOW;
use super::earlier::{EarlierVersion, largest_versions};
use super::files::io_error;
use super::manifest::{EvaluationScore, Manifest, SavedPolicy};
use super::tensors::{
    VALUE_HEAD, check_bytes, check_size, count_numbers, largest_size, read_adapter, read_tensors,
    restore_tensors, write_tensors,
};
use crate::critic::{Critic, CriticModel};
use crate::error::Error;
use crate::learner::{Learner, TrainedPolicy};
use crate::trainer::Trainer;

const POLICIES: &str = "policies";
const OPTIMIZERS: &str = "optimizers";
/// Model card, in the folder of its policy.
const CARD: &str = "README.md";
/// Folder of a critic's own adapter or model, in the folder of its policy.
const CRITIC: &str = "critic";

/// Contents of a checkpoint apart from the learners' state.
#[derive(Debug, Clone, PartialEq)]
pub struct RestoredCheckpoint {
    /// Training steps done.
    pub step: u64,
    /// Score when it was saved.
    pub score: Option<EvaluationScore>,
    /// State of the run, as it was given to [`super::Checkpoints::save`].
    pub state: Value,
}

impl Trainer {
    /// Writes the trained policies into `folder`, one folder each: adapters in PEFT form, models as Hugging
    /// Face folders. The value head of a critic is a file beside them.
    ///
    /// # Errors
    /// If a folder cannot be written.
    pub fn export(&self, folder: &Path) -> Result<(), Error> {
        self.learners().iter().try_for_each(|learner| self.export_learner(learner, folder))
    }

    /// Writes the policies of a learner.
    fn export_learner(&self, learner: &Learner, folder: &Path) -> Result<(), Error> {
        for policy in learner.policies() {
            let path = folder.join(&policy.name);
            let result = match &policy.adapter {
                Some(adapter) => adapter.save(&path),
                None => {
                    let model = self.model_for(policy.policy);
                    let (tokenizer, template) = (&model.tokenizer, &model.template);
                    let base = learner.base();
                    let weights = base.masters().unwrap_or(base.working());
                    weights.save_folder(&path, learner.config(), tokenizer, template, Dtype::F32)
                }
            };
            result.map_err(Error::model(&policy.name))?;
            if let Some(critic) = &policy.critic {
                write_tensors(&path.join(VALUE_HEAD), critic.head_parameters())?;
                self.export_network(policy, critic, &path.join(CRITIC))?;
            }
        }
        Ok(())
    }

    /// Writes the adapter or model that a critic has of its own.
    fn export_network(&self, policy: &TrainedPolicy, critic: &Critic, path: &Path) -> Result<(), Error> {
        let own = critic.own_model();
        let result = match critic.learner_adapter().or(own.and_then(CriticModel::trained_adapter)) {
            Some(adapter) => adapter.save(path),
            None => {
                let Some((own, weights)) = own.and_then(|own| Some((own, own.trained_weights()?))) else {
                    return Ok(());
                };
                let Model { tokenizer, template, .. } = self.model_for(policy.policy);
                weights.save_folder(path, own.config(), tokenizer, template, Dtype::F32)
            }
        };
        result.map_err(Error::model(&policy.name))
    }

    /// Restores weights, optimisers and versions of all trained policies from a checkpoint. The trainer must
    /// be set up from the same workflow.
    ///
    /// # Errors
    /// If the checkpoint is unfinished, truncated or changed, or belongs to other policies. Every file is
    /// checked before anything is changed.
    pub fn load(&mut self, checkpoint: &Path) -> Result<RestoredCheckpoint, Error> {
        let manifest = read_checked(checkpoint, self.learners())?;
        for learner in self.learners_mut() {
            restore_learner(checkpoint, &manifest, learner)?;
        }
        let score = manifest.score();
        let Manifest { step, state, .. } = manifest;
        Ok(RestoredCheckpoint { step, score, state })
    }

    /// Writes a complete checkpoint into a new folder and syncs it.
    pub(super) fn write_checkpoint(
        &self,
        folder: &Path,
        step: u64,
        score: Option<EvaluationScore>,
        state: &Value,
        cards: &BTreeMap<String, String>,
        earlier: &[EarlierVersion],
    ) -> Result<(), Error> {
        let policies = self.write_learners(self.learners(), folder)?;
        for policy in self.learners().iter().flat_map(|learner| learner.policies()) {
            if let Some(card) = cards.get(&policy.name) {
                let path = folder.join(POLICIES).join(&policy.name).join(CARD);
                fs::write(&path, card).map_err(io_error(&path, "write the file"))?;
            }
        }
        let earlier = self.write_earlier(folder, earlier)?;
        Manifest::for_folder(folder, step, score, policies, earlier, state.clone())?.write(folder)
    }

    /// Writes the state of one learner into a new folder, in the form of a checkpoint of its policies alone.
    ///
    /// # Errors
    /// If there is no such learner, or a file operation fails.
    pub fn save_learner(&self, folder: &Path, learner: usize, step: u64) -> Result<(), Error> {
        let own = self.learners().get(learner).ok_or_else(|| no_learner(folder, learner))?;
        let policies = self.write_learners(std::slice::from_ref(own), folder)?;
        Manifest::for_folder(folder, step, None, policies, Vec::new(), Value::Null)?.write(folder)
    }

    /// Restores one learner from what [`Trainer::save_learner`] has written. Returns the step.
    ///
    /// # Errors
    /// If the folder was changed, or is of other policies.
    pub fn load_learner(&mut self, folder: &Path, learner: usize) -> Result<u64, Error> {
        let own = self.learners_mut().get_mut(learner).ok_or_else(|| no_learner(folder, learner))?;
        let manifest = read_checked(folder, std::slice::from_ref(own))?;
        restore_learner(folder, &manifest, own)?;
        Ok(manifest.step)
    }

    /// Writes the policies and optimisers of learners. Returns the entries of the manifest.
    fn write_learners(&self, learners: &[Learner], folder: &Path) -> Result<Vec<SavedPolicy>, Error> {
        for learner in learners {
            self.export_learner(learner, &folder.join(POLICIES))?;
        }
        let optimizers = folder.join(OPTIMIZERS);
        fs::create_dir_all(&optimizers).map_err(io_error(&optimizers, "create the folder"))?;
        let mut policies = Vec::new();
        for policy in learners.iter().flat_map(|learner| learner.policies()) {
            write_tensors(&optimizer_path(folder, policy), policy.optimizer.state())?;
            if let Some(critic) = &policy.critic {
                write_tensors(&critic_optimizer_path(folder, policy), critic.optimizer.state())?;
            }
            policies.push(SavedPolicy {
                name: policy.name.clone(),
                version: policy.version,
                optimizer_steps: policy.optimizer.steps(),
                objective: policy.state.clone(),
                critic_steps: policy.critic.as_ref().map(|critic| critic.optimizer.steps()),
            });
        }
        Ok(policies)
    }
}

fn no_learner(folder: &Path, learner: usize) -> Error {
    let problem = format!("the workflow has no learner {learner}");
    Error::Checkpoint { path: folder.to_path_buf(), problem }
}

/// Reads the manifest of a checkpoint after checks that the checkpoint is of these learners and that its files are as they
/// were written.
fn read_checked(checkpoint: &Path, learners: &[Learner]) -> Result<Manifest, Error> {
    let manifest = Manifest::read(checkpoint)?;
    check_policies(checkpoint, &manifest, learners)?;
    // Before the files are hashed: a sparse file would take hours.
    check_sizes(checkpoint, &manifest, learners)?;
    manifest.check_files(checkpoint)?;
    Ok(manifest)
}

/// Checks that no file of a policy is much larger than its tensors, and that all files of the manifest together, whatever their
/// names, are not much larger than all policies with their earlier versions.
fn check_sizes(checkpoint: &Path, manifest: &Manifest, learners: &[Learner]) -> Result<(), Error> {
    let mut largest: u64 = 0;
    for policy in learners.iter().flat_map(|learner| learner.policies()) {
        let path = checkpoint.join(POLICIES).join(&policy.name);
        let own: usize = policy.optimizer.parameters().map(|(_, tensor)| tensor.numel()).sum();
        let head = policy.critic.as_ref().map_or(0, |critic| count_numbers(&critic.head_parameters()));
        let optimizer = optimizer_path(checkpoint, policy);
        let mut files = vec![(path.clone(), own + head)];
        files.push((optimizer, count_numbers(&policy.optimizer.state())));
        if let Some(critic) = &policy.critic {
            files.push((path.join(CRITIC), count_numbers(&critic.network_parameters())));
            let path = critic_optimizer_path(checkpoint, policy);
            files.push((path, count_numbers(&critic.optimizer.state())));
        }
        for (path, numbers) in &files {
            check_size(path, *numbers)?;
            largest = largest.saturating_add(largest_size(*numbers));
        }
        let earlier = largest_versions(checkpoint, manifest, &policy.name, own + head);
        largest = largest.saturating_add(earlier);
    }
    check_bytes(checkpoint, manifest.total_bytes(), largest)
}

/// Checks that a checkpoint has the policies of learners, with their critics, and no others.
fn check_policies(checkpoint: &Path, manifest: &Manifest, learners: &[Learner]) -> Result<(), Error> {
    let differs = |problem: String| {
        let problem = format!("{problem}; {OTHER_WORKFLOW}");
        Err(Error::Checkpoint { path: checkpoint.to_path_buf(), problem })
    };
    let mut saved: BTreeMap<&str, &SavedPolicy> =
        manifest.policies.iter().map(|saved| (saved.name.as_str(), saved)).collect();
    let mut critics = Vec::new();
    for policy in learners.iter().flat_map(|learner| learner.policies()) {
        match saved.remove(policy.name.as_str()) {
            Some(own) => critics.push((policy, own.critic_steps.is_some())),
            None => return differs(format!("it contains no policy `{}`", policy.name)),
        }
    }
    if let Some(name) = saved.keys().next() {
        return differs(format!("it contains a policy `{name}` that the workflow does not train"));
    }
    for (policy, has_critic) in critics {
        if has_critic != policy.critic.is_some() {
            let has = if has_critic { "a" } else { "no" };
            let name = &policy.name;
            return differs(format!("its policy `{name}` has {has} critic, unlike that of the workflow"));
        }
    }
    Ok(())
}

/// Restores weights, optimisers and versions of a learner.
fn restore_learner(checkpoint: &Path, manifest: &Manifest, learner: &mut Learner) -> Result<(), Error> {
    let config = learner.config().clone();
    for policy in learner.policies_mut() {
        let path = checkpoint.join(POLICIES).join(&policy.name);
        let parameters = match &policy.adapter {
            Some(adapter) => read_adapter(&policy.name, &path, &config, adapter)?,
            None => read_model(&policy.name, &path)?,
        };
        let own = policy.optimizer.parameters();
        let own = own.map(|(name, tensor)| (name.to_owned(), tensor.shallow_clone())).collect();
        restore_tensors(&path, own, parameters)?;
        if let Some(critic) = &policy.critic {
            restore_network(&policy.name, critic, &path.join(CRITIC), &config)?;
            let path = path.join(VALUE_HEAD);
            restore_tensors(&path, critic.head_parameters(), read_tensors(&path)?)?;
            let path = critic_optimizer_path(checkpoint, policy);
            restore_tensors(&path, critic.optimizer.state(), read_tensors(&path)?)?;
        }
        let path = optimizer_path(checkpoint, policy);
        restore_tensors(&path, policy.optimizer.state(), read_tensors(&path)?)?;
        if let Some(saved) = manifest.policies.iter().find(|saved| saved.name == policy.name) {
            policy.version = saved.version;
            policy.optimizer.set_steps(saved.optimizer_steps);
            policy.state.clone_from(&saved.objective);
            if let (Some(critic), Some(steps)) = (&mut policy.critic, saved.critic_steps) {
                critic.optimizer.set_steps(steps);
            }
        }
    }
    let names = learner.names();
    learner.clear_gradients().map_err(Error::torch(format!("gradients of `{names}`")))?;
    learner.base().publish().map_err(Error::model(&names))
}

/// Restores the adapter or model that a policy's critic has of its own. `config` is that of the policy's model.
fn restore_network(policy: &str, critic: &Critic, path: &Path, config: &Config) -> Result<(), Error> {
    let own = critic.network_parameters();
    if own.is_empty() {
        return Ok(());
    }
    let model = critic.own_model();
    let saved = match critic.learner_adapter().or_else(|| model.and_then(CriticModel::trained_adapter)) {
        Some(adapter) => read_adapter(policy, path, model.map_or(config, CriticModel::config), adapter)?,
        None => read_model(policy, path)?,
    };
    restore_tensors(path, own, saved)?;
    model.map_or(Ok(()), CriticModel::publish).map_err(Error::model(policy))
}

fn read_model(policy: &str, path: &Path) -> Result<Vec<(String, Tensor)>, Error> {
    let model = Model::load(path, Device::Cpu, Dtype::F32).map_err(Error::model(policy))?;
    Ok(model.weights.parameters())
}

fn optimizer_path(checkpoint: &Path, policy: &TrainedPolicy) -> PathBuf {
    checkpoint.join(OPTIMIZERS).join(format!("{}.safetensors", policy.name))
}

fn critic_optimizer_path(checkpoint: &Path, policy: &TrainedPolicy) -> PathBuf {
    checkpoint.join(OPTIMIZERS).join(format!("{}.critic.safetensors", policy.name))
}
