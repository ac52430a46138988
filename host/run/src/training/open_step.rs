//! A step whose episodes play: drawn from its scenarios, and collected when all of them have ended.

use std::sync::Arc;
use std::time::Instant;

use pl_record::TraceFile;
use pl_rollout::{Attempt, EpisodeSetup, RolloutBatch, RolloutPlan, SPAN_TARGET};
use pl_trainer::filter::tasks_without_spread;
use pl_types::Phase;
use serde_json::{Map, json};

use crate::error::Error;
use crate::host::Host;
use crate::progress::Tracker;

use super::cursor::ScenarioCursor;
use super::mixture::deal;
use super::rollouts::{PlayedStep, Rollouts, ScenarioBatch};
use super::step_metrics::step_metrics;
use super::step_weights::StepWeights;

/// A step in progress.
pub(super) struct OpenStep {
    step: u64,
    weights: StepWeights,
    /// Positions in the tasks of the scenarios after those that were drawn.
    cursors: Vec<ScenarioCursor>,
    levels: Vec<Option<u32>>,
    /// Number of tasks that were drawn.
    tasks: u32,
    refills: u32,
    round: Vec<DrawnTasks>,
    /// Position in `round`, task and sample of each episode that was drawn, in the order in which they start.
    order: Vec<(usize, u32, u32)>,
    /// Number of episodes of earlier rounds.
    earlier: usize,
    /// Results of earlier rounds.
    batches: Vec<ScenarioBatch>,
    tracker: Box<dyn Tracker>,
    span: tracing::Span,
    ended: usize,
    /// Seconds of each episode that was drawn, in the order in which they start.
    episode_seconds: Vec<f64>,
    started: Option<Instant>,
    finished: Instant,
}

/// Tasks of a scenario in a round.
struct DrawnTasks {
    scenario: usize,
    setup: Arc<EpisodeSetup>,
    plan: Arc<RolloutPlan>,
    attempts: Vec<Attempt>,
}

/// An episode that has ended.
pub(super) struct EndedEpisode {
    pub step: u64,
    /// Position in the step.
    episode: usize,
    /// Position among the scenarios of its round.
    scenario: usize,
    attempts: Vec<Attempt>,
    seconds: f64,
}

impl OpenStep {
    /// Draws the tasks that come after `cursors`.
    ///
    /// # Errors
    /// If a task can't be read or generated.
    pub async fn draw(
        rollouts: &Rollouts,
        host: &Host,
        step: u64,
        cursors: &[ScenarioCursor],
        weights: StepWeights,
    ) -> Result<OpenStep, Error> {
        let mut cursors = cursors.to_vec();
        cursors.resize_with(rollouts.scenarios.len(), ScenarioCursor::default);
        let levels = rollouts
            .scenarios
            .iter()
            .zip(&cursors)
            .map(|(own, cursor)| Some(cursor.level(own.curriculum.as_ref()?, step)))
            .collect();
        let shares: Vec<f64> = rollouts.scenarios.iter().map(|scenario| scenario.weight).collect();
        let mut dealt: Vec<u64> = cursors.iter().map(|cursor| cursor.dealt).collect();
        let counts = deal(&shares, &mut dealt, rollouts.train.tasks_per_step);
        cursors.iter_mut().zip(dealt).for_each(|(cursor, dealt)| cursor.dealt = dealt);
        let mut open = OpenStep {
            step,
            weights,
            cursors,
            levels,
            tasks: 0,
            refills: 0,
            round: Vec::new(),
            order: Vec::new(),
            earlier: 0,
            batches: Vec::new(),
            tracker: rollouts.start_tracker(host, &format!("step {step}")),
            span: tracing::info_span!(target: SPAN_TARGET, "rollouts", step),
            ended: 0,
            episode_seconds: Vec::new(),
            started: None,
            finished: Instant::now(),
        };
        open.draw_round(rollouts, &counts).await?;
        Ok(open)
    }

    /// Draws tasks of each scenario.
    async fn draw_round(&mut self, rollouts: &Rollouts, counts: &[u32]) -> Result<(), Error> {
        let all: u32 = counts.iter().sum();
        self.earlier += self.order.len();
        for (scenario, own) in rollouts.scenarios.iter().enumerate() {
            let (count, Some(source)) = (counts[scenario], &own.tasks) else { continue };
            if count == 0 {
                continue;
            }
            let source = match self.levels[scenario] {
                Some(level) => &source.at_level(level),
                None => source,
            };
            let first = self.cursors[scenario].next_task;
            let plan = RolloutPlan {
                seed: rollouts.seed,
                phase: Phase::Train,
                step: self.step,
                tasks: source.take(first, count).await.map_err(Error::Tasks)?,
                first_task: self.tasks,
                mode: rollouts.train.rollout,
                samples: rollouts.train.samples,
                in_flight: share_of_episodes(rollouts.train.episodes, count, all),
                versions: self.weights.versions.as_slice().into(),
            };
            self.cursors[scenario].next_task += u64::from(count);
            self.tasks += count;
            let setup = self.weights.setup(&own.setup);
            self.round.push(DrawnTasks { scenario, setup, plan: Arc::new(plan), attempts: Vec::new() });
        }
        self.order = interleaved(self.round.iter().map(|drawn| drawn.plan.episodes()));
        self.episode_seconds.resize(self.episodes(), 0.0);
        self.tracker.update(self.ended as u64, self.episodes() as u64);
        Ok(())
    }

    /// Number of episodes that were drawn so far.
    fn episodes(&self) -> usize {
        self.earlier + self.order.len()
    }

    /// Number of episodes of the newest round.
    pub fn round_size(&self) -> usize {
        self.order.len()
    }

    /// Returns the positions in the tasks of the scenarios after those that were drawn.
    pub fn cursors(&self) -> &[ScenarioCursor] {
        &self.cursors
    }

    /// Returns the play of an episode, by its position in the step. `None` if there is no such episode.
    pub fn play(&mut self, episode: usize) -> Option<impl Future<Output = EndedEpisode> + Send + 'static> {
        let (scenario, task, sample) = *self.order.get(episode.checked_sub(self.earlier)?)?;
        let drawn = self.round.get(scenario)?;
        let (setup, plan) = (Arc::clone(&drawn.setup), Arc::clone(&drawn.plan));
        self.started.get_or_insert_with(Instant::now);
        let step = self.step;
        let playing = async move {
            let started = Instant::now();
            let attempts = plan.play(&setup, task, sample).await;
            EndedEpisode { step, episode, scenario, attempts, seconds: started.elapsed().as_secs_f64() }
        };
        Some(tracing::Instrument::instrument(playing, self.span.clone()))
    }

    /// Keeps the results of an episode.
    pub fn end(&mut self, ended: EndedEpisode) {
        if let Some(drawn) = self.round.get_mut(ended.scenario) {
            drawn.attempts.extend(ended.attempts);
        }
        if let Some(seconds) = self.episode_seconds.get_mut(ended.episode) {
            *seconds = ended.seconds;
        }
        self.ended += 1;
        self.finished = Instant::now();
        self.tracker.update(self.ended as u64, self.episodes() as u64);
    }

    /// Collects the results of a round. Draws others in place of tasks without a spread of returns, if the objectives
    /// leave these out, and returns true if there are any.
    ///
    /// # Errors
    /// If a task can't be read or generated.
    pub async fn refill(&mut self, rollouts: &Rollouts) -> Result<bool, Error> {
        let mut counts = vec![0; rollouts.scenarios.len()];
        let may_refill = self.refills < rollouts.train.max_refills;
        for DrawnTasks { scenario, plan, attempts, .. } in std::mem::take(&mut self.round) {
            let batch = plan.collect(attempts);
            if may_refill {
                counts[scenario] =
                    tasks_without_spread(&batch.transitions, &rollouts.trainings, self.step).len() as u32;
            }
            self.batches.push(ScenarioBatch { scenario, tasks: plan.tasks.len() as u32, batch });
        }
        if counts.iter().all(|count| *count == 0) {
            return Ok(false);
        }
        self.refills += 1;
        self.draw_round(rollouts, &counts).await?;
        Ok(true)
    }

    /// Returns the results of the step, and writes its traces.
    ///
    /// # Errors
    /// If every episode failed, or the traces can't be written.
    pub fn close(mut self, rollouts: &Rollouts, host: &Host) -> Result<PlayedStep, Error> {
        let by_scenario = rollouts.scenario_metrics(&self.batches, &self.levels, &mut self.cursors);
        let mut all = RolloutBatch::default();
        self.batches.into_iter().for_each(|one| all.append(one.batch));
        let played = all.with_episodes(self.step);
        let by_scenario = if played.is_ok() { by_scenario } else { Map::new() };
        let batch = rollouts.keep(host, &TraceFile { step: self.step, evaluation: None }, played)?;
        let mut metrics = step_metrics(&batch, &rollouts.scenarios[0].setup.agents);
        metrics.extend(by_scenario);
        if rollouts.train.max_refills > 0 {
            metrics.insert("refilled_tasks".into(), (self.tasks - rollouts.train.tasks_per_step).into());
        }
        let started = self.started.unwrap_or(self.finished);
        Ok(PlayedStep {
            step: self.step,
            cursors: self.cursors,
            seconds: self.finished.saturating_duration_since(started).as_secs_f64(),
            finished: Some(self.finished),
            episode_seconds: self.episode_seconds,
            failures: batch.failures.iter().map(|failure| json!(failure)).collect(),
            tokens: batch.episodes.iter().map(|e| e.tokens).sum(),
            metrics,
            transitions: batch.transitions,
        })
    }
}

/// Returns the number of episodes at a time that `count` of a round's `all` tasks may have.
fn share_of_episodes(episodes: u32, count: u32, all: u32) -> usize {
    let share = u64::from(episodes) * u64::from(count) / u64::from(all.max(1));
    usize::try_from(share).unwrap_or(usize::MAX).max(1)
}

/// Merges the episodes of scenarios, each evenly over the whole, so that scenarios share the engine's batches.
fn interleaved(scenarios: impl Iterator<Item = Vec<(u32, u32)>>) -> Vec<(usize, u32, u32)> {
    let mut all: Vec<(f64, usize, u32, u32)> = Vec::new();
    for (scenario, episodes) in scenarios.enumerate() {
        let count = episodes.len() as f64;
        let place = |index: usize| (index as f64 + 0.5) / count;
        let own = episodes.into_iter().enumerate();
        all.extend(own.map(|(index, (task, sample))| (place(index), scenario, task, sample)));
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    all.into_iter().map(|(_, scenario, task, sample)| (scenario, task, sample)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_are_interleaved_evenly_and_keep_their_order() {
        let episodes = |count| (0..count).map(|task| (task, 0)).collect::<Vec<_>>();
        let order = interleaved([episodes(4), episodes(2)].into_iter());
        assert_eq!(order.iter().map(|one| one.0).collect::<Vec<_>>(), [0, 1, 0, 0, 1, 0]);
        let own = |scenario| order.iter().filter(move |one| one.0 == scenario).map(|one| one.1);
        assert!(own(0).eq(0..4) && own(1).eq(0..2));
    }
}
