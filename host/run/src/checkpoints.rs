//! Weights from checkpoints to the inference engine.

use std::path::{Path, PathBuf};

use pl_inference::{Engine, WeightUpdate};
use pl_model::TensorSet;
use pl_record::RunFolder;
use pl_trainer::checkpoint::Checkpoints;
use pl_trainer::{ServedPolicy, Trainer};

use crate::error::Error;

/// Loads the weights of a checkpoint, or of a run folder's newest checkpoint, and serves them.
pub(crate) fn restore(trainer: &mut Trainer, engine: &Engine, path: &Path) -> Result<(), Error> {
    let folder = RunFolder::checkpoints(path);
    let checkpoint = if folder.is_dir() {
        newest(&folder)?.ok_or_else(|| Error::NoCheckpoint { path: path.to_path_buf() })?
    } else {
        path.to_path_buf()
    };
    trainer.load(&checkpoint).map_err(Error::setup)?;
    publish(engine, trainer)
}

/// Returns the newest checkpoint in a run's folder of checkpoints. Returns `None` if it has none.
pub(crate) fn newest(checkpoints: &Path) -> Result<Option<PathBuf>, Error> {
    let newest = Checkpoints::new(checkpoints, 1).latest().map_err(Error::setup)?;
    Ok(newest.map(|entry| entry.path))
}

/// Serves the current weights of all trained policies.
pub(crate) fn publish(engine: &Engine, trainer: &Trainer) -> Result<(), Error> {
    for served in trainer.policies() {
        let ServedPolicy { policy, base, adapter, version, trained } = served;
        if !trained {
            // The engine has had its weights since it started, and publishing would drop its prefix cache.
            continue;
        }
        let update = match (adapter, version) {
            (Some(adapter), _) => WeightUpdate::Adapter(adapter),
            // The engine has had these weights since it started.
            (None, 0) => continue,
            (None, _) => WeightUpdate::Weights(trainer.bases()[base].weights.shallow()),
        };
        engine.publish(policy, update, version).map_err(Error::Engine)?;
    }
    Ok(())
}
