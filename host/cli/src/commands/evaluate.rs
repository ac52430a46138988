//! `pl-host evaluate`: success per agent and for the team, pass@k, turns, tokens.

use std::io::Write;
use std::path::{Path, PathBuf};

use mas_dsl::workflow::{Evaluation, Tasks};
use pl_inference::{Engine, Update};
use pl_record::RunFolder;
use pl_trainer::{Served, Trainer};
use pl_trainer::checkpoint::Checkpoints;

use crate::arguments::{Evaluate, Format};
use crate::evaluation::{Round, measure};
use crate::exit::{Outcome, Stop};
use crate::progress;
use crate::session::{Loaded, Team, device};

/// Episodes in flight where no `train` block says how many.
const IN_FLIGHT: usize = 64;

pub fn run(options: &Evaluate) -> Outcome {
    let runtime = tokio::runtime::Runtime::new().map_err(Stop::failed)?;
    let loaded = Loaded::open(&runtime, &options.source.file, &options.source.overrides, Format::Human)?;
    let seed = options.machine.seed;
    let mut team = Team::assemble(&loaded, device(options.machine.device)?, seed)?;
    if let Some(checkpoint) = &options.checkpoint {
        restore(&mut team, checkpoint)?;
    }
    let mut out = std::io::stdout().lock();
    for evaluation in evaluations(&loaded) {
        let bar = progress::bar(&evaluation.name, "episodes");
        let round = Round {
            seed,
            step: 0,
            versions: &team.trainer.versions(),
            in_flight: loaded.workflow.train.as_ref().map_or(IN_FLIGHT, |t| t.episodes as usize),
        };
        let report = runtime.block_on(async {
            let source = loaded.tasks(&evaluation.tasks, &team.environment, None).await?;
            measure(&team.cast, &evaluation, &source, &round, |p| progress::follow(&bar, p)).await
        })?;
        bar.finish_and_clear();
        if options.json {
            writeln!(out, "{}", serde_json::to_string(&report).map_err(Stop::failed)?)?;
        } else {
            report.write(&mut out)?;
        }
    }
    Ok(())
}

/// The file's evaluations; a file without any is measured on its environment's tasks.
fn evaluations(loaded: &Loaded) -> Vec<Evaluation> {
    let written = &loaded.workflow.evaluations;
    if !written.is_empty() {
        return written.clone();
    }
    let environment = &loaded.workflow.scenarios[0].environment;
    let tasks = match &environment.tasks {
        Tasks::Generated { level, .. } => Tasks::Generated { split: "test".to_owned(), level: *level },
        file => file.clone(),
    };
    vec![Evaluation {
        name: environment.name.clone(),
        every: 0,
        tasks,
        limit: 100,
        samples: 1,
        temperature: None,
    }]
}

/// Gives the team the weights of a checkpoint.
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
