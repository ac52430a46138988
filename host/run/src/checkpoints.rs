//! Weights from the trainer and from checkpoints to the generators of policies.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pl_inference::WeightUpdate;
use pl_model::TensorSet;
use pl_record::RunFolder;
use pl_trainer::checkpoint::{CheckpointInfo, Checkpoints};
use pl_trainer::{ServedPolicy, Trainer};

use crate::error::Error;
use crate::generation::{PinnedVersion, PolicyRouter};
use crate::host::Host;

/// Loads the weights of a checkpoint, or of a run folder's newest checkpoint, and serves them.
pub(crate) fn restore(
    host: &Host,
    trainer: &mut Trainer,
    router: &PolicyRouter,
    path: &Path,
) -> Result<(), Error> {
    let folder = RunFolder::checkpoints(path);
    let checkpoint = if folder.is_dir() {
        newest(&folder)?.ok_or_else(|| Error::NoCheckpoint { path: path.to_path_buf() })?
    } else {
        path.to_path_buf()
    };
    trainer.load(&checkpoint).map_err(Error::setup)?;
    host.block_on(PolicyVersions::shared(trainer).publish(router))
}

/// Returns the newest checkpoint in a run's folder of checkpoints. Returns `None` if it has none.
pub(crate) fn newest(checkpoints: &Path) -> Result<Option<PathBuf>, Error> {
    Ok(newest_info(checkpoints)?.map(|entry| entry.path))
}

/// Returns the step of the newest checkpoint. Returns `None` if there is none.
pub(crate) fn newest_step(checkpoints: &Path) -> Result<Option<u64>, Error> {
    Ok(newest_info(checkpoints)?.map(|entry| entry.step))
}

fn newest_info(checkpoints: &Path) -> Result<Option<CheckpointInfo>, Error> {
    Checkpoints::new(checkpoints, 1).latest().map_err(Error::setup)
}

/// Weights of all trained policies at one moment.
pub(crate) struct PolicyVersions {
    /// Versions of all policies, in the workflow's order.
    pub versions: Vec<u64>,
    /// Index, weights and version of each trained policy.
    updates: Vec<(usize, WeightUpdate, u64)>,
}

impl PolicyVersions {
    /// The current weights. They share memory with the trainer's and must be published before its next update.
    pub fn shared(trainer: &Trainer) -> PolicyVersions {
        Self::collect(trainer, false)
    }

    /// Copies of the current weights, which later updates don't change.
    pub fn copied(trainer: &Trainer) -> PolicyVersions {
        Self::collect(trainer, true)
    }

    fn collect(trainer: &Trainer, copy: bool) -> PolicyVersions {
        let mut updates = Vec::new();
        for served in trainer.policies() {
            let ServedPolicy { policy, base, adapter, value_head, version, trained } = served;
            if let Some(head) = value_head {
                updates.push((policy, WeightUpdate::ValueHead(head), version));
            }
            if !trained {
                // The engine has had its weights since it started, and publishing would drop its prefix cache.
                continue;
            }
            let update = match (adapter, version) {
                (Some(adapter), _) => WeightUpdate::Adapter(if copy { adapter.copy() } else { adapter }),
                // The engine has had these weights since it started.
                (None, 0) => continue,
                (None, _) => {
                    let weights = &trainer.bases()[base].weights;
                    WeightUpdate::Weights(if copy { weights.copy() } else { weights.shallow() })
                }
            };
            updates.push((policy, update, version));
        }
        PolicyVersions { versions: trainer.versions(), updates }
    }

    /// Serves the weights in place of earlier ones. No request may be in progress.
    pub async fn publish(self, router: &PolicyRouter) -> Result<(), Error> {
        for (policy, update, version) in self.updates {
            router.publish(policy, update, version).await?;
        }
        Ok(())
    }

    /// Serves the weights beside others. [`PolicyRouter::keeps_versions`] must hold.
    pub fn pin(self, router: &Arc<PolicyRouter>) -> Result<PinnedVersion, Error> {
        PinnedVersion::new(Arc::clone(router), self.updates)
    }
}
