//! Checkpoints: everything of the learners in a folder, and back, bit for bit.
//!
//! ```text
//! checkpoints/step-00000020/
//!   policies/NAME/             the adapter in PEFT form, or the model as a Hugging Face folder: usable as it is
//!   optimizers/NAME.safetensors
//!   checkpoint.json            versions, optimiser steps, the run's own state, size and BLAKE3 of every file
//!   checkpoint.json.blake3     BLAKE3 of checkpoint.json
//! ```
//!
//! A checkpoint is written under a name that ends in `.partial`, synced to the disk, and renamed: under its own
//! name it is whole. Readers pass over `.partial` folders, and the next save removes them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use pl_model::{Adapter, Dtype, Model};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tch::{Device, Tensor, no_grad};

use crate::error::Error;
use crate::learner::Member;
use crate::trainer::Trainer;

const FORMAT: u32 = 1;
const MANIFEST: &str = "checkpoint.json";
const SEAL: &str = "checkpoint.json.blake3";
const POLICIES: &str = "policies";
const OPTIMIZERS: &str = "optimizers";
const PREFIX: &str = "step-";
const PARTIAL: &str = ".partial";

/// `checkpoint.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    format: u32,
    step: u64,
    score: Option<f64>,
    policies: Vec<Saved>,
    state: Value,
    /// By path within the checkpoint, with `/`.
    files: BTreeMap<String, Stamp>,
}

/// A policy's counters.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Saved {
    name: String,
    version: u64,
    optimizer_steps: u64,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    bytes: u64,
    blake3: String,
}

/// A checkpoint on disk.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Training steps done.
    pub step: u64,
    /// Its folder.
    pub path: PathBuf,
    /// What it scored when it was saved; the best is kept.
    pub score: Option<f64>,
}

/// What a checkpoint held besides the learners' state.
#[derive(Debug, Clone, PartialEq)]
pub struct Restored {
    /// Training steps done.
    pub step: u64,
    /// What it scored.
    pub score: Option<f64>,
    /// The run's own state, as it was handed to [`Checkpoints::save`].
    pub state: Value,
}

/// A run's folder of checkpoints.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    folder: PathBuf,
    keep: usize,
}

impl Checkpoints {
    /// The checkpoints in `folder` (made when first needed), of which the newest `keep` (at least one) and the one
    /// with the highest score stay.
    pub fn new(folder: impl Into<PathBuf>, keep: u32) -> Self {
        Checkpoints { folder: folder.into(), keep: keep.max(1) as usize }
    }

    /// All whole checkpoints, oldest first.
    pub fn list(&self) -> Result<Vec<Entry>, Error> {
        let mut entries = Vec::new();
        for path in children(&self.folder)? {
            let name = path.file_name().and_then(|name| name.to_str());
            let step = name.and_then(|name| name.strip_prefix(PREFIX)).and_then(|step| step.parse().ok());
            if let Some(step) = step {
                // A damaged one is still listed, so that loading it says what is wrong with it.
                let score = read_manifest(&path).ok().and_then(|manifest| manifest.score);
                entries.push(Entry { step, path, score });
            }
        }
        entries.sort_by_key(|entry| entry.step);
        Ok(entries)
    }

    /// The newest one.
    pub fn latest(&self) -> Result<Option<Entry>, Error> {
        Ok(self.list()?.pop())
    }

    /// The one with the highest score, the earliest of equals.
    pub fn best(&self) -> Result<Option<Entry>, Error> {
        Ok(best(self.list()?))
    }

    /// Saves the learners after `step` training steps, beside the run's own `state`, then removes checkpoints that
    /// are neither among the newest nor the best. One of the same step is replaced.
    pub fn save(
        &self,
        trainer: &Trainer,
        step: u64,
        score: Option<f64>,
        state: &Value,
    ) -> Result<PathBuf, Error> {
        fs::create_dir_all(&self.folder).map_err(io_error(&self.folder, "create the folder"))?;
        self.sweep()?;
        let path = self.folder.join(format!("{PREFIX}{step:08}"));
        let partial = with_suffix(&path, PARTIAL);
        trainer.write(&partial, step, score, state)?;
        if path.exists() {
            retire(&path, ".old")?;
        }
        fs::rename(&partial, &path).map_err(io_error(&path, "put the checkpoint in place"))?;
        sync(&self.folder)?;
        self.tidy()?;
        Ok(path)
    }

    /// Removes what an interrupted save or removal left.
    fn sweep(&self) -> Result<(), Error> {
        for path in children(&self.folder)? {
            let partial = path
                .file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(PARTIAL));
            if partial {
                fs::remove_dir_all(&path).map_err(io_error(&path, "remove the unfinished checkpoint"))?;
            }
        }
        Ok(())
    }

    /// Removes what an interrupted save or removal left, and checkpoints that are neither among the newest nor
    /// the best. A run that was killed while it tidied up does so when it resumes.
    pub fn tidy(&self) -> Result<(), Error> {
        self.sweep()?;
        let entries = self.list()?;
        let best = best(entries.clone());
        let surplus = entries.len().saturating_sub(self.keep);
        for entry in entries.iter().take(surplus).filter(|entry| Some(*entry) != best.as_ref()) {
            retire(&entry.path, "")?;
        }
        self.sweep()
    }
}

impl Trainer {
    /// Writes the trained policies into `folder`, one folder each: adapters in PEFT form, models as Hugging Face
    /// folders.
    pub fn export(&self, folder: &Path) -> Result<(), Error> {
        for learner in self.learners() {
            for member in learner.members() {
                let path = folder.join(&member.name);
                let saved = match &member.adapter {
                    Some(adapter) => adapter.save(&path),
                    None => {
                        let model = self.model_of(member.policy);
                        let (tokenizer, template) = (&model.tokenizer, &model.template);
                        let base = learner.base();
                        let weights = base.masters().unwrap_or(base.working());
                        weights.save_folder(&path, learner.config(), tokenizer, template, Dtype::F32)
                    }
                };
                saved.map_err(Error::model(&member.name))?;
            }
        }
        Ok(())
    }

    /// Takes up the state of a checkpoint: weights, optimisers and versions of all trained policies. The trainer
    /// is to be set up from the same workflow.
    ///
    /// # Errors
    /// When the checkpoint is unfinished, cut or changed, or is one of other policies. Every file is checked
    /// before anything is changed.
    pub fn load(&mut self, checkpoint: &Path) -> Result<Restored, Error> {
        let manifest = read_manifest(checkpoint)?;
        for (name, stamp) in &manifest.files {
            let path = checkpoint.join(name);
            if !path.is_file() {
                return Err(damaged(&path, "is missing"));
            }
            if Stamp::of(&path)? != *stamp {
                return Err(damaged(&path, "is not what was saved: it was cut or changed"));
            }
        }
        let mut saved: BTreeMap<&str, &Saved> =
            manifest.policies.iter().map(|saved| (saved.name.as_str(), saved)).collect();
        let members = self.learners().iter().flat_map(|learner| learner.members());
        for member in members.clone() {
            if saved.remove(member.name.as_str()).is_none() {
                let problem = format!(
                    "it holds no policy `{}`; resume with the workflow that it was made with",
                    member.name
                );
                return Err(Error::Checkpoint { path: checkpoint.to_path_buf(), problem });
            }
        }
        if let Some(name) = saved.keys().next() {
            let problem = format!(
                "it holds a policy `{name}` that the workflow does not train; resume with the workflow that it was \
                 made with"
            );
            return Err(Error::Checkpoint { path: checkpoint.to_path_buf(), problem });
        }
        for learner in self.learners_mut() {
            let config = learner.config().clone();
            for member in learner.members_mut() {
                let path = checkpoint.join(POLICIES).join(&member.name);
                let parameters = match &member.adapter {
                    Some(_) => Adapter::load(&path, &config).map(|adapter| adapter.parameters()),
                    None => {
                        Model::load(&path, Device::Cpu, Dtype::F32).map(|model| model.weights.parameters())
                    }
                }
                .map_err(Error::model(&member.name))?;
                let own = member.optimizer.parameters();
                let own = own.map(|(name, tensor)| (name.to_owned(), tensor.shallow_clone())).collect();
                restore(&path, own, parameters)?;
                let path = optimizer_path(checkpoint, member);
                let state = Tensor::read_safetensors(&path)
                    .map_err(|error| damaged(&path, &format!("can't be read ({error})")))?;
                restore(&path, member.optimizer.state(), state)?;
                if let Some(saved) = manifest.policies.iter().find(|saved| saved.name == member.name) {
                    member.version = saved.version;
                    member.optimizer.set_steps(saved.optimizer_steps);
                }
            }
            learner.base().publish().map_err(Error::model(&learner.names()))?;
        }
        let Manifest { step, score, state, .. } = manifest;
        Ok(Restored { step, score, state })
    }

    /// Writes a whole checkpoint into a new folder and syncs it.
    fn write(&self, folder: &Path, step: u64, score: Option<f64>, state: &Value) -> Result<(), Error> {
        self.export(&folder.join(POLICIES))?;
        let optimizers = folder.join(OPTIMIZERS);
        fs::create_dir_all(&optimizers).map_err(io_error(&optimizers, "create the folder"))?;
        let mut policies = Vec::new();
        for member in self.learners().iter().flat_map(|learner| learner.members()) {
            let path = optimizer_path(folder, member);
            let state = member.optimizer.state();
            let state: Vec<_> =
                state.into_iter().map(|(name, tensor)| (name, tensor.to_device(Device::Cpu))).collect();
            Tensor::write_safetensors(&state, &path)
                .map_err(Error::torch(format!("writing {}", path.display())))?;
            policies.push(Saved {
                name: member.name.clone(),
                version: member.version,
                optimizer_steps: member.optimizer.steps(),
            });
        }
        let mut files = BTreeMap::new();
        seal(folder, folder, &mut files)?;
        let state = state.clone();
        let manifest = Manifest { format: FORMAT, step, score, policies, state, files };
        let path = folder.join(MANIFEST);
        let text = serde_json::to_vec_pretty(&manifest)
            .map_err(|error| io_error(&path, "write the checkpoint's state")(error.into()))?;
        let hash = blake3::hash(&text).to_hex().to_string();
        for (path, bytes) in [(path, text), (folder.join(SEAL), hash.into_bytes())] {
            fs::write(&path, bytes).map_err(io_error(&path, "write the file"))?;
            sync(&path)?;
        }
        sync(folder)
    }
}

/// Copies tensors of equal names and shapes from `saved` into `own`, in place.
fn restore(path: &Path, own: Vec<(String, Tensor)>, saved: Vec<(String, Tensor)>) -> Result<(), Error> {
    let mut saved: BTreeMap<String, Tensor> = saved.into_iter().collect();
    for (name, mut tensor) in own {
        let Some(value) = saved.remove(&name).filter(|value| value.size() == tensor.size()) else {
            let problem = format!(
                "it has no tensor `{name}` of shape {:?}; resume with the workflow that it was made with",
                tensor.size()
            );
            return Err(Error::Checkpoint { path: path.to_path_buf(), problem });
        };
        no_grad(|| tensor.f_copy_(&value)).map_err(Error::torch(format!("reading {}", path.display())))?;
    }
    match saved.keys().next() {
        None => Ok(()),
        Some(name) => {
            let problem = format!(
                "it has a tensor `{name}` that the policy has not; resume with the workflow that it was made with"
            );
            Err(Error::Checkpoint { path: path.to_path_buf(), problem })
        }
    }
}

impl Stamp {
    fn of(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(io_error(path, "open the file"))?;
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(file).map_err(io_error(path, "read the file"))?;
        Ok(Stamp { bytes: hasher.count(), blake3: hasher.finalize().to_hex().to_string() })
    }
}

/// Syncs every file below `folder` and the folders themselves, and notes each file's stamp.
fn seal(root: &Path, folder: &Path, files: &mut BTreeMap<String, Stamp>) -> Result<(), Error> {
    for path in children(folder)? {
        if path.is_dir() {
            seal(root, &path, files)?;
            continue;
        }
        sync(&path)?;
        let parts = path.strip_prefix(root).unwrap_or(&path).components();
        let name: Vec<_> = parts.map(|part| part.as_os_str().to_string_lossy()).collect();
        files.insert(name.join("/"), Stamp::of(&path)?);
    }
    sync(folder)
}

fn read_manifest(checkpoint: &Path) -> Result<Manifest, Error> {
    let path = checkpoint.join(MANIFEST);
    if checkpoint.to_string_lossy().ends_with(PARTIAL) || !path.is_file() {
        let problem = "it is not a whole checkpoint; choose another".to_owned();
        return Err(Error::Checkpoint { path: checkpoint.to_path_buf(), problem });
    }
    let text = fs::read(&path).map_err(io_error(&path, "read the file"))?;
    let seal = fs::read(checkpoint.join(SEAL)).unwrap_or_default();
    if seal != blake3::hash(&text).to_hex().as_bytes() {
        return Err(damaged(&path, "is not what was saved: it was cut or changed"));
    }
    let manifest: Manifest = serde_json::from_slice(&text).map_err(|error| {
        let problem =
            format!("it was written by another version of the program ({error}); resume with that one");
        Error::Checkpoint { path: path.clone(), problem }
    })?;
    if manifest.format != FORMAT {
        let format = manifest.format;
        let problem = format!(
            "its format is {format}, and this program reads {FORMAT}; resume with the version \
                               that wrote it"
        );
        return Err(Error::Checkpoint { path, problem });
    }
    Ok(manifest)
}

fn damaged(path: &Path, what: &str) -> Error {
    let problem = format!(
        "the checkpoint is damaged: this file {what}; delete its folder and resume from an older one"
    );
    Error::Checkpoint { path: path.to_path_buf(), problem }
}

fn best(entries: Vec<Entry>) -> Option<Entry> {
    entries
        .into_iter()
        .filter(|entry| entry.score.is_some_and(|score| !score.is_nan()))
        .reduce(|best, entry| if entry.score > best.score { entry } else { best })
}

fn optimizer_path(checkpoint: &Path, member: &Member) -> PathBuf {
    checkpoint.join(OPTIMIZERS).join(format!("{}.safetensors", member.name))
}

/// Takes a checkpoint's name from it, so that a removal cut short leaves nothing that looks whole.
fn retire(path: &Path, infix: &str) -> Result<(), Error> {
    let aside = with_suffix(path, &format!("{infix}{PARTIAL}"));
    fs::rename(path, &aside).map_err(io_error(path, "set the old checkpoint aside"))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// What is in a folder, sorted; nothing if there is no such folder.
fn children(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_error(folder, "list the folder")(error)),
    };
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>();
    let mut paths = paths.map_err(io_error(folder, "list the folder"))?;
    paths.sort();
    Ok(paths)
}

/// Flushes a file, or a folder's list of names, to the disk.
fn sync(path: &Path) -> Result<(), Error> {
    let file = File::open(path).map_err(io_error(path, "open for syncing"))?;
    file.sync_all().map_err(io_error(path, "sync to the disk"))
}

fn io_error(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_path_buf();
    move |source| Error::Io { path, doing, source }
}

#[cfg(test)]
mod tests;
