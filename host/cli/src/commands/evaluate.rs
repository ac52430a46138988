//! `pl-host evaluate`: success per agent and for the team, pass@k, turns, tokens.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use pl_dsl::workflow::{Evaluation, Resampling, Tasks};
use pl_rollout::Batch;

use crate::arguments::Evaluate;
use crate::evaluation::{Report, Round, play, write_completions};
use crate::exit::{Outcome, Stop};
use crate::progress;
use crate::session::{self, Loaded};

/// Episodes in flight where no `train` block says how many.
const IN_FLIGHT: usize = 64;

pub fn run(options: &Evaluate) -> Outcome {
    // Opened first: a path that can't be written to is found before hours of playing.
    let mut completions = options.out.as_deref().map(create).transpose()?;
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
        let started = Instant::now();
        let (report, batch) = runtime.block_on(async {
            let source = loaded.tasks(&evaluation.tasks, &team.environment, None).await?;
            let follow = |p| progress::follow(&bar, p);
            play(&team.cast, &evaluation, &source, &round, follow, |played| played.map_err(Stop::failed))
                .await
        })?;
        bar.finish_and_clear();
        tell_speed(&report, &batch, started);
        if let Some((path, file)) = &mut completions {
            write_completions(file, &evaluation.name, &batch, |policy, tokens| team.text(policy, tokens))
                .and_then(|()| file.flush())
                .map_err(|e| Stop::failed(format!("cannot write {}: {e}", path.display())))?;
        }
        if options.json {
            writeln!(out, "{}", serde_json::to_string(&report).map_err(Stop::failed)?)?;
        } else {
            report.write(&mut out)?;
        }
    }
    Ok(())
}

fn create(path: &Path) -> Result<(&Path, BufWriter<File>), Stop> {
    let file = File::create(path).map_err(|e| Stop::input(format!("--out {}: {e}", path.display())))?;
    Ok((path, BufWriter::new(file)))
}

/// Figures of the clock, which are no part of a report: they differ from run to run.
fn tell_speed(report: &Report, batch: &Batch, started: Instant) {
    let seconds = started.elapsed().as_secs_f64();
    let tokens: u64 = batch.episodes.iter().map(|episode| episode.tokens).sum();
    let rate = tokens as f64 / seconds;
    eprintln!("{}: {tokens} tokens in {seconds:.1} s, {rate:.1} tokens/s", report.name);
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
