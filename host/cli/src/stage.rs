//! The team at work in the training loop: plays steps, evaluates, shows progress.

use std::sync::Arc;

use indicatif::ProgressBar;
use pl_dsl::workflow::{Evaluation, Train};
use pl_record::{TraceFile, Traces};
use pl_rollout::{Batch, Cast, EpisodeId, Phase, Plan, Player, TaskSource, play_batch};
use pl_trainer::schedule::{Evaluated, Played, Seconds, Stage};
use pl_trainer::{Progress, Trainer};
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

use crate::checkpoints::publish_to;
use crate::evaluation::{self, Round, mean};
use crate::exit::Stop;
use crate::interrupt::Interrupt;
use crate::progress;
use crate::session::{Loaded, Team};

/// What [`Stage`] asks of a run.
pub struct Players<'a> {
    runtime: &'a Runtime,
    cast: Arc<Cast>,
    engine: pl_inference::Engine,
    train: Train,
    tasks: TaskSource,
    evaluations: Vec<(Evaluation, TaskSource)>,
    interrupt: Interrupt,
    seed: u64,
    updating: Option<ProgressBar>,
    traces: Option<Traces>,
}

impl<'a> Players<'a> {
    /// Opens all sources of tasks; a bad record is found here.
    pub fn new(
        loaded: &Loaded,
        team: &Team,
        runtime: &'a Runtime,
        interrupt: Interrupt,
        seed: u64,
    ) -> Result<Players<'a>, Stop> {
        let workflow = &loaded.workflow;
        let Some(train) = workflow.train.clone() else {
            return Err(Stop::input("the workflow has no `train` block"));
        };
        let (tasks, evaluations) = runtime.block_on(async {
            let wanted = &workflow.scenarios[0].environment.tasks;
            let tasks = loaded.tasks(wanted, &team.environment, Some(seed)).await?;
            let mut evaluations = Vec::new();
            for evaluation in &workflow.evaluations {
                let source = loaded.tasks(&evaluation.tasks, &team.environment, None).await?;
                evaluations.push((evaluation.clone(), source));
            }
            Ok::<_, Stop>((tasks, evaluations))
        })?;
        Ok(Players {
            runtime,
            cast: team.cast.clone(),
            engine: team.engine.clone(),
            train,
            tasks,
            evaluations,
            interrupt,
            seed,
            updating: None,
            traces: None,
        })
    }

    /// From now on every episode's trace is kept.
    pub fn keep_traces(&mut self, traces: Traces) {
        self.traces = Some(traces);
    }
}

impl Stage for Players<'_> {
    type Error = Stop;

    fn play(&mut self, step: u64, next_task: u64, versions: &[u64]) -> Result<Played, Stop> {
        let bar = progress::episodes(&format!("step {step}"), &self.engine);
        let batch = self.runtime.block_on(async {
            let tasks = self.tasks.take(next_task, self.train.tasks_per_step).await.map_err(Stop::failed)?;
            let plan = Plan {
                seed: self.seed,
                phase: Phase::Train,
                step,
                tasks,
                mode: self.train.rollout,
                samples: self.train.samples,
                in_flight: self.train.episodes as usize,
                versions: versions.into(),
            };
            Ok::<_, Stop>(play_batch(self.cast.clone(), &plan, |p| progress::follow(&bar, p)).await)
        })?;
        bar.finish_and_clear();
        let file = TraceFile { step, evaluation: None };
        let batch = self.keep(&file, batch)?;
        let failures = batch.failures.iter().map(|failure| json!(failure)).collect();
        let tokens = batch.episodes.iter().map(|e| e.tokens).sum();
        let metrics = self.metrics(&batch);
        Ok(Played { transitions: batch.transitions, metrics, failures, tokens })
    }

    fn serve(&mut self, trainer: &Trainer) -> Result<(), Stop> {
        if let Some(bar) = self.updating.take() {
            bar.finish_and_clear();
        }
        publish_to(&self.engine, trainer)
    }

    fn evaluate(&mut self, step: u64, last: bool, versions: &[u64]) -> Result<Vec<Evaluated>, Stop> {
        let due = |e: &Evaluation| e.every > 0 && (last || step.is_multiple_of(u64::from(e.every)));
        let mut results = Vec::new();
        for (evaluation, source) in self.evaluations.iter().filter(|(e, _)| due(e)) {
            let bar = progress::episodes(&evaluation.name, &self.engine);
            let in_flight = self.train.episodes as usize;
            let round = Round { seed: self.seed, step, versions, in_flight };
            let follow = |p| progress::follow(&bar, p);
            let file = TraceFile { step, evaluation: Some(evaluation.name.clone()) };
            let keep = |played| {
                bar.finish_and_clear();
                self.keep(&file, played)
            };
            let playing = evaluation::play(&self.cast, evaluation, source, &round, follow, keep);
            let (report, _) = self.runtime.block_on(playing)?;
            results.push(Evaluated {
                name: report.name.clone(),
                success: report.success,
                metrics: report.metrics(),
            });
        }
        Ok(results)
    }

    fn training(&mut self, progress: Progress) {
        let bar = self.updating.get_or_insert_with(|| progress::batches("training"));
        bar.set_length(progress.total);
        bar.set_position(progress.done);
    }

    fn wrote(&mut self, line: &Value, seconds: &Seconds) {
        let share = |value: &Value| value.as_f64().map_or("-".to_owned(), |v| format!("{:.0} %", 100.0 * v));
        let agents: Vec<String> = line["agents"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, agent)| format!("{name} {}", share(&agent["success"])))
            .collect();
        let (step, success, agents) = (&line["step"], share(&line["success"]), agents.join(", "));
        match line["name"].as_str() {
            Some(name) => eprintln!("after step {step}, {name}: success {success} ({agents})"),
            None => eprintln!(
                "step {step}/{}: success {success} ({agents}), {:.1} s played, {:.1} s trained",
                self.train.steps, seconds.play, seconds.train
            ),
        }
    }

    fn interrupted(&self) -> bool {
        self.interrupt.requested()
    }
}

impl Players<'_> {
    /// Keeps the traces of what was played, also where none of it came to its end, and says what failed.
    fn keep(&self, file: &TraceFile, played: Result<Batch, pl_rollout::Error>) -> Result<Batch, Stop> {
        let Some(traces) = &self.traces else { return played.map_err(Stop::failed) };
        let replay = |id: &EpisodeId| format!("pl-host replay {} {id}", traces.run().display());
        match played {
            Ok(batch) => {
                traces.write(file, &batch.traces)?;
                if let Some(first) = batch.failures.first() {
                    let words = first.in_words();
                    let (count, line) = (batch.failures.len(), words.lines().next().unwrap_or_default());
                    let faults =
                        if count == 1 { "1 fault".to_owned() } else { format!("{count} faults, first") };
                    eprintln!("{faults}: {line}\n  see: {}", replay(&first.episode));
                }
                Ok(batch)
            }
            Err(pl_rollout::Error::NoEpisode { traces: failed, episodes, step, cause }) => {
                traces.write(file, &failed)?;
                let first = failed.first().map(|trace| format!("\n  see: {}", replay(&trace.place.id())));
                let error = pl_rollout::Error::NoEpisode { traces: Vec::new(), episodes, step, cause };
                Err(Stop::failed(format!("{error}{}", first.unwrap_or_default())))
            }
            Err(error) => Err(Stop::failed(error)),
        }
    }

    /// `success` is of the episodes (of the path that a tree took), `agents` of all samples.
    fn metrics(&self, batch: &Batch) -> Map<String, Value> {
        let episodes = &batch.episodes;
        // Over every sample that is trained on, not only those that a tree went on from.
        let agent = |player: &Player| {
            let own = || batch.transitions.iter().filter(|t| t.agent == player.name);
            let reward = mean(own().map(|t| t.reward));
            let success = mean(own().map(|t| f64::from(t.success)));
            (player.name.clone(), json!({ "success": success, "reward": reward }))
        };
        let agents = self.cast.players.iter().map(agent).collect::<Map<_, _>>();
        let mut line = Map::new();
        line.insert("episodes".into(), episodes.len().into());
        line.insert("failures".into(), batch.failures.len().into());
        line.insert("lost".into(), batch.lost.into());
        line.insert("success".into(), json!(mean(episodes.iter().map(|e| f64::from(e.success)))));
        line.insert("agents".into(), Value::Object(agents));
        line.insert("turns".into(), json!(mean(episodes.iter().map(|e| f64::from(e.turns)))));
        line.insert("tokens".into(), json!(episodes.iter().map(|e| e.tokens).sum::<u64>()));
        line.insert("truncated".into(), json!(mean(episodes.iter().map(|e| f64::from(e.truncated)))));
        // Episodes in which a wall clock decided something: another run may differ from here on.
        let clocked = episodes.iter().filter(|e| !e.reproducible).count()
            + batch.failures.iter().filter(|f| !f.reproducible).count();
        line.insert("not_reproducible".into(), clocked.into());
        line
    }
}
