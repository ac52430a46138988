//! Weights from checkpoints to the engine.

use std::path::{Path, PathBuf};

use pl_inference::{Engine, Update};
use pl_record::RunFolder;
use pl_trainer::checkpoint::Checkpoints;
use pl_trainer::{Served, Trainer};

use crate::exit::Stop;
use crate::session::Team;

/// Gives the team the weights of a checkpoint, or of a run folder's newest one.
pub fn restore(team: &mut Team, given: &Path) -> Result<(), Stop> {
    let run = RunFolder::checkpoints(given);
    let checkpoint = if run.is_dir() {
        newest(&run)?.ok_or_else(|| Stop::input(format!("{} has no checkpoint yet", given.display())))?
    } else {
        given.to_path_buf()
    };
    team.trainer.load(&checkpoint).map_err(Stop::input)?;
    publish_to(&team.engine, &team.trainer)
}

/// The newest checkpoint in a run's folder of checkpoints.
pub fn newest(checkpoints: &Path) -> Result<Option<PathBuf>, Stop> {
    let newest = Checkpoints::new(checkpoints, 1).latest().map_err(Stop::input)?;
    Ok(newest.map(|entry| entry.path))
}

/// Serves a trainer's trained policies as they are now.
pub fn publish_to(engine: &Engine, trainer: &Trainer) -> Result<(), Stop> {
    for served in trainer.policies() {
        let Served { policy, base, adapter, version } = served;
        let update = match (adapter, version) {
            (Some(adapter), _) => Update::Adapter(adapter),
            // Never updated: the engine has it.
            (None, 0) => continue,
            (None, _) => Update::Weights(trainer.bases()[base].weights.shallow()),
        };
        engine.publish(policy, update, version).map_err(Stop::failed)?;
    }
    Ok(())
}
