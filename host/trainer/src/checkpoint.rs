//! Checkpoints: the full state of the learners in a folder, restored bit for bit.
//!
//! ```text
//! checkpoints/step-00000020/
//!   policies/NAME/             the adapter in PEFT form, or the model as a Hugging Face folder, for use by other programs
//!   policies/NAME/README.md    its model card, if the run has given one
//!   policies/NAME/value_head.safetensors      weight [1, H] and bias [1] of its critic, if it has one
//!   policies/NAME/critic/      the critic's adapter or model, if it has one of its own, in the same forms
//!   optimizers/NAME.safetensors, optimizers/NAME.critic.safetensors
//!   earlier/UPDATE/NAME/       the adapter after an earlier update, if steps that are not played yet use it
//!   checkpoint.json            versions, optimiser steps, the run's own state, size and BLAKE3 of every file
//!   checkpoint.json.blake3     BLAKE3 of checkpoint.json
//! checkpoints/best             symbolic link to the checkpoint with the highest score
//! ```
//!
//! A checkpoint is written under a name that ends in `.partial`, synced to the disk, and renamed, so that a
//! checkpoint under its final name is complete. Readers ignore `.partial` folders, and the next save removes
//! them.

mod earlier;
mod files;
mod manifest;
mod state;
mod tensors;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

pub use self::earlier::EarlierVersion;
pub use self::manifest::EvaluationScore;
pub use self::state::RestoredCheckpoint;

use self::files::{io_error, list_folder, sync, with_suffix};
use self::manifest::{Manifest, PARTIAL};
use crate::error::Error;
use crate::trainer::Trainer;

const PREFIX: &str = "step-";

/// End of messages about a checkpoint that does not fit the workflow.
const OTHER_WORKFLOW: &str = "the checkpoint is from another workflow; use the one that wrote it";

const BEST: &str = "best";

/// A checkpoint on disk.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckpointInfo {
    /// Training steps done.
    pub step: u64,
    /// Folder of the checkpoint.
    pub path: PathBuf,
    /// Score when it was saved. `None` if it was not evaluated.
    pub score: Option<EvaluationScore>,
}

/// A run's folder of checkpoints.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    folder: PathBuf,
    keep: usize,
}

impl Checkpoints {
    /// Manages the checkpoints in `folder`, which is created when it is needed. The newest `keep` (at least
    /// one) and the best are kept. The symbolic link `best` points to the best. If the evaluation was changed, the
    /// best by earlier evaluations are kept too.
    pub fn new(folder: impl Into<PathBuf>, keep: u32) -> Self {
        Self { folder: folder.into(), keep: keep.max(1) as usize }
    }

    /// All complete checkpoints, oldest first.
    ///
    /// # Errors
    /// If the folder or the manifest of a checkpoint cannot be read.
    pub fn list(&self) -> Result<Vec<CheckpointInfo>, Error> {
        let mut checkpoints = Vec::new();
        for path in list_folder(&self.folder)? {
            let name = path.file_name().and_then(|name| name.to_str());
            let step = name.and_then(|name| name.strip_prefix(PREFIX)).and_then(|step| step.parse().ok());
            if let Some(step) = step {
                let score = match Manifest::read(&path) {
                    Ok(manifest) => manifest.score(),
                    // Without its score, another checkpoint would be the best.
                    Err(error @ Error::Io { .. }) => return Err(error),
                    // A damaged checkpoint is listed too, so that loading it reports the damage.
                    Err(_) => None,
                };
                checkpoints.push(CheckpointInfo { step, path, score });
            }
        }
        checkpoints.sort_by_key(|checkpoint| checkpoint.step);
        Ok(checkpoints)
    }

    /// The newest checkpoint, or `None` if there is none.
    ///
    /// # Errors
    /// The errors of [`Checkpoints::list`].
    pub fn latest(&self) -> Result<Option<CheckpointInfo>, Error> {
        Ok(self.list()?.pop())
    }

    /// Returns the checkpoint with the highest score, the earliest of equals. Only scores of the evaluation
    /// that scored the newest scored checkpoint count.
    ///
    /// # Errors
    /// The errors of [`Checkpoints::list`].
    pub fn best(&self) -> Result<Option<CheckpointInfo>, Error> {
        Ok(best(&self.list()?).cloned())
    }

    /// Saves the learners after `step` training steps together with the run's `state`, then removes
    /// checkpoints that are neither among the newest nor the best of an evaluation. Replaces a checkpoint of the same step.
    /// Returns the checkpoint's folder.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn save(
        &self,
        trainer: &Trainer,
        step: u64,
        score: Option<EvaluationScore>,
        state: &Value,
    ) -> Result<PathBuf, Error> {
        self.save_with(trainer, step, score, state, &BTreeMap::new(), &[])
    }

    /// Saves as [`Checkpoints::save`] does, with a `README.md` in the folder of each policy that has a model card in
    /// `cards`, by its name, and with `earlier` versions of the policies.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn save_with(
        &self,
        trainer: &Trainer,
        step: u64,
        score: Option<EvaluationScore>,
        state: &Value,
        cards: &BTreeMap<String, String>,
        earlier: &[EarlierVersion],
    ) -> Result<PathBuf, Error> {
        fs::create_dir_all(&self.folder).map_err(io_error(&self.folder, "create the folder"))?;
        self.remove_partial()?;
        let path = self.folder.join(format!("{PREFIX}{step:08}"));
        let partial = with_suffix(&path, PARTIAL);
        trainer.write_checkpoint(&partial, step, score, state, cards, earlier)?;
        if path.exists() {
            retire(&path, ".old")?;
        }
        fs::rename(&partial, &path).map_err(io_error(&path, "put the checkpoint in place"))?;
        sync(&self.folder)?;
        self.tidy()?;
        Ok(path)
    }

    /// Removes the remains of an interrupted save or removal.
    fn remove_partial(&self) -> Result<(), Error> {
        for path in list_folder(&self.folder)? {
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

    /// Removes the remains of interrupted operations, and checkpoints that are neither among the newest nor
    /// the best of an evaluation. A resumed run calls this, because it may have been killed during a removal.
    ///
    /// # Errors
    /// If a file operation fails.
    pub fn tidy(&self) -> Result<(), Error> {
        self.remove_partial()?;
        let checkpoints = self.list()?;
        self.link_best(best(&checkpoints))?;
        // Scores of different evaluations tell nothing about each other.
        let is_best = |info: &CheckpointInfo| {
            let score = info.score.as_ref();
            score.is_some_and(|score| best_by(&checkpoints, &score.evaluation) == Some(info))
        };
        let surplus = checkpoints.len().saturating_sub(self.keep);
        for checkpoint in checkpoints.iter().take(surplus).filter(|info| !is_best(info)) {
            retire(&checkpoint.path, "")?;
        }
        self.remove_partial()
    }

    /// Points the symbolic link `best` to a checkpoint, or removes it.
    fn link_best(&self, best: Option<&CheckpointInfo>) -> Result<(), Error> {
        let link = self.folder.join(BEST);
        let new = self.folder.join(format!("{BEST}.new"));
        if new.is_symlink() {
            // Left by a run that was killed.
            fs::remove_file(&new).map_err(io_error(&new, "remove the link"))?;
        }
        let Some(name) = best.and_then(|best| best.path.file_name()) else {
            return match fs::remove_file(&link) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(io_error(&link, "remove the link")(error))
                }
                _ => Ok(()),
            };
        };
        if fs::read_link(&link).is_ok_and(|target| target == Path::new(name)) {
            return Ok(());
        }
        // Renames the new link over the old one, so that a link always exists.
        std::os::unix::fs::symlink(name, &new).map_err(io_error(&new, "create the link"))?;
        fs::rename(&new, &link).map_err(io_error(&link, "replace the link"))
    }
}

/// The best checkpoint by the evaluation that scored the newest scored one.
fn best(checkpoints: &[CheckpointInfo]) -> Option<&CheckpointInfo> {
    let newest = checkpoints.iter().rev().find_map(|checkpoint| checkpoint.score.as_ref())?;
    best_by(checkpoints, &newest.evaluation)
}

/// The checkpoint with the highest score of an evaluation, the earliest of equals.
fn best_by<'c>(checkpoints: &'c [CheckpointInfo], evaluation: &str) -> Option<&'c CheckpointInfo> {
    let value = |checkpoint: &CheckpointInfo| {
        checkpoint
            .score
            .as_ref()
            .filter(|score| score.evaluation == evaluation)
            .map_or(f64::NAN, |score| score.value)
    };
    checkpoints
        .iter()
        .filter(|checkpoint| !value(checkpoint).is_nan())
        .reduce(|best, checkpoint| if value(checkpoint) > value(best) { checkpoint } else { best })
}

/// Renames a checkpoint to a partial one, so that an interrupted removal leaves nothing that looks complete.
fn retire(path: &Path, infix: &str) -> Result<(), Error> {
    let aside = with_suffix(path, &format!("{infix}{PARTIAL}"));
    fs::rename(path, &aside).map_err(io_error(path, "set the old checkpoint aside"))
}

#[cfg(test)]
mod tests;
