//! `pl-host evaluate`: success per agent and for the team, pass@k, turns, tokens.

use std::io::Write;

use mas_dsl::workflow::{Evaluation, Resampling, Tasks};

use crate::arguments::Evaluate;
use crate::evaluation::{Round, measure};
use crate::exit::{Outcome, Stop};
use crate::progress;
use crate::session::{self, Loaded};

/// Episodes in flight where no `train` block says how many.
const IN_FLIGHT: usize = 64;

pub fn run(options: &Evaluate) -> Outcome {
    let runtime = tokio::runtime::Runtime::new().map_err(Stop::failed)?;
    let (loaded, team) =
        session::open(&runtime, &options.source, &options.machine, options.checkpoint.as_deref())?;
    let mut out = std::io::stdout().lock();
    for evaluation in evaluations(&loaded) {
        let bar = progress::episodes(&evaluation.name, &team.engine);
        let round = Round {
            seed: options.machine.seed,
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
        sampling: Resampling::default(),
    }]
}
