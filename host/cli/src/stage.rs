//! The team at work in the training loop: plays steps, evaluates, shows progress.

use std::sync::Arc;

use indicatif::ProgressBar;
use mas_dsl::workflow::{Evaluation, Train};
use pl_rollout::{Batch, Cast, Phase, Plan, Player, TaskSource, play_batch};
use pl_trainer::schedule::{Evaluated, Played, Seconds, Stage};
use pl_trainer::{Progress, Trainer};
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

use crate::checkpoints::publish_to;
use crate::evaluation::{Round, mean, measure};
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
        })
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
            play_batch(self.cast.clone(), &plan, |p| progress::follow(&bar, p)).await.map_err(Stop::failed)
        })?;
        bar.finish_and_clear();
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
            let report = self.runtime.block_on(measure(&self.cast, evaluation, source, &round, follow))?;
            bar.finish_and_clear();
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
