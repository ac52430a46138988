//! Weights from the trainer and from checkpoints to the generators of policies.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use pl_inference::WeightUpdate;
use pl_record::RunFolder;
use pl_trainer::checkpoint::{CheckpointInfo, Checkpoints};
use pl_trainer::{ServedPolicy, Trainer};

use crate::error::Error;
use crate::generation::{PinnedVersion, PolicyRouter};
use crate::host::Host;
use crate::progress::Notice;

/// Loads the weights of a checkpoint, or of a run folder's newest checkpoint, and serves them.
///
/// # Errors
/// [`Error::NoFolder`]; [`Error::NoCheckpoint`] of a run that has none yet; if a checkpoint can't be loaded.
pub(crate) fn restore(
    host: &Host,
    trainer: &mut Trainer,
    router: &PolicyRouter,
    path: &Path,
) -> Result<(), Error> {
    if !path.exists() {
        return Err(Error::NoFolder { path: path.to_path_buf() });
    }
    let is_run = RunFolder::checkpoints(path).is_dir() || RunFolder::require(path).is_ok();
    let checkpoint = if is_run {
        newest(path)?.ok_or_else(|| Error::NoCheckpoint { path: path.to_path_buf() })?.path
    } else {
        path.to_path_buf()
    };
    trainer.load(&checkpoint).map_err(Error::setup)?;
    host.block_on(PolicyVersions::new(trainer.policies()).publish(router))
}

/// Warns about adapters of a run's checkpoint that were trained on other models than those of `hashes`, by their names in the
/// workflow. A checkpoint outside of a run folder doesn't say on which.
pub(crate) fn warn_of_other_models(
    host: &Host,
    trainer: &Trainer,
    hashes: &BTreeMap<String, String>,
    path: &Path,
) {
    let is_run = RunFolder::require(path).is_ok();
    let run = if is_run { Some(path.to_path_buf()) } else { RunFolder::entry_of(path).map(|(run, _)| run) };
    let Some((run, lock)) = run.and_then(|run| Some((run.clone(), RunFolder::read_lock(&run).ok()?))) else {
        return;
    };
    let adapters = trainer.policies().into_iter().filter(|policy| policy.trained && policy.adapter.is_some());
    let used: BTreeSet<&str> = adapters.map(|policy| trainer.bases()[policy.base].hash.as_str()).collect();
    for (model, hash) in hashes {
        if used.contains(hash.as_str()) && !lock.models.values().any(|recorded| recorded == hash) {
            host.notify(Notice::OtherModel { model: model.clone(), run: run.clone() });
        }
    }
}

/// Returns the newest complete checkpoint of a run. Returns `None` before the first one.
pub(crate) fn newest(run: &Path) -> Result<Option<CheckpointInfo>, Error> {
    Checkpoints::new(RunFolder::checkpoints(run), 1).latest().map_err(Error::setup)
}

/// Returns the step of the last complete checkpoint in a run folder. Returns `None` before the first one.
///
/// # Errors
/// If the folder of checkpoints can't be read.
pub fn last_checkpoint(run: &Path) -> Result<Option<u64>, Error> {
    Ok(newest(run)?.map(|checkpoint| checkpoint.step))
}

/// Weights of trained policies at one moment.
pub(crate) struct PolicyVersions {
    /// Index, weights and version of each policy.
    updates: Vec<(usize, WeightUpdate, u64)>,
    /// Index and version of each trained policy.
    versions: Vec<(usize, u64)>,
    /// Weights of whole models that an engine has had since it started.
    initial: Vec<(usize, WeightUpdate, u64)>,
}

impl PolicyVersions {
    /// Weights of `policies`, which may share memory with the trainer's. If shared, publish them before the next update.
    pub fn new(policies: impl IntoIterator<Item = ServedPolicy>) -> PolicyVersions {
        let mut all = PolicyVersions { updates: Vec::new(), versions: Vec::new(), initial: Vec::new() };
        for served in policies {
            let ServedPolicy { policy, adapter, weights, value_head, version, trained, .. } = served;
            if let Some(head) = value_head {
                all.updates.push((policy, WeightUpdate::ValueHead(head), version));
            }
            if !trained {
                // The engine has had its weights since it started, and publishing would drop its prefix cache.
                continue;
            }
            all.versions.push((policy, version));
            let update = match (adapter, weights) {
                (Some(adapter), _) => WeightUpdate::Adapter(adapter),
                (None, Some(weights)) if version > 0 => WeightUpdate::Weights(weights),
                (None, Some(weights)) => {
                    all.initial.push((policy, WeightUpdate::Weights(weights), version));
                    continue;
                }
                (None, None) => continue,
            };
            all.updates.push((policy, update, version));
        }
        all
    }

    /// Index and version of each trained policy.
    pub fn versions(&self) -> &[(usize, u64)] {
        &self.versions
    }

    /// Returns the weights of all policies, those that an engine has had since it started included.
    pub fn all_updates(&self) -> impl Iterator<Item = &(usize, WeightUpdate, u64)> {
        self.updates.iter().chain(&self.initial)
    }

    /// Serves the weights in place of earlier ones. No request may be in progress.
    pub async fn publish(self, router: &PolicyRouter) -> Result<(), Error> {
        for (policy, update, version) in self.updates {
            router.publish(policy, update, version).await?;
        }
        Ok(())
    }

    /// Serves the weights in place of earlier ones, also for completions in progress. Value heads stay as they are: with a
    /// staleness, the trainer computes the values.
    pub fn take_over(self, router: &PolicyRouter) -> Result<(), Error> {
        for (policy, update, version) in self.updates {
            if !matches!(update, WeightUpdate::ValueHead(_)) {
                router.publish_embedded(policy, update, version)?;
            }
        }
        Ok(())
    }

    /// Serves the weights beside others. [`PolicyRouter::keeps_versions`] must hold.
    pub fn pin(self, router: &Arc<PolicyRouter>) -> Result<PinnedVersion, Error> {
        PinnedVersion::new(Arc::clone(router), self.updates)
    }
}
