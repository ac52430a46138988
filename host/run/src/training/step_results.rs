//! Results of the tasks that an update trains on: those that were drawn for it, or those that ended first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use pl_inference::EngineStats;
use pl_record::TraceFile;
use pl_rollout::RolloutBatch;
use pl_types::{TaskKey, Transition};
use serde_json::{Map, json};

use crate::design::DesignRecord;
use crate::error::Error;
use crate::host::Host;
use crate::schedule::lanes::Lanes;

use super::cursor::ScenarioCursor;
use super::rollouts::{PlayedStep, Rollouts, ScenarioBatch};
use super::step_metrics::step_metrics;
use super::step_times::EpisodeTime;

/// Results of one task.
pub(super) struct TaskResults {
    pub task: TaskKey,
    pub scenario: ScenarioBatch,
    /// Times of its episodes.
    pub times: Vec<EpisodeTime>,
}

/// Results of the tasks of a step.
pub(super) struct StepResults {
    pub step: u64,
    /// Versions of the policies that episodes started with. Of a lane's part, 0 for those of other lanes. Empty if the episodes of
    /// a step have different ones.
    pub versions: Vec<u64>,
    /// Positions in the tasks of the scenarios after those that were drawn for the step.
    pub cursors: Vec<ScenarioCursor>,
    /// Levels of the tasks of the scenarios.
    pub levels: Vec<Option<u32>>,
    pub batches: Vec<ScenarioBatch>,
    /// Times of the episodes, in the order in which they started.
    pub times: Vec<EpisodeTime>,
    /// Number of tasks that were played in place of others. `None` if none can be.
    pub refilled: Option<u32>,
    /// Tasks in the order of their results. Empty if they are those that were drawn for the step.
    pub tasks: Vec<TaskKey>,
    /// Designs that were written for the tasks.
    pub designs: Vec<DesignRecord>,
}

impl StepResults {
    /// Results of tasks that ended first, in the order of their keys.
    pub fn by_arrival(
        step: u64,
        cursors: Vec<ScenarioCursor>,
        levels: Vec<Option<u32>>,
        results: Vec<TaskResults>,
    ) -> StepResults {
        let refilled = None;
        let (mut batches, mut times, mut tasks) = (Vec::new(), Vec::new(), Vec::new());
        for TaskResults { task, scenario, times: own } in results {
            tasks.push(task);
            batches.push(scenario);
            times.extend(own);
        }
        times.sort_by_key(|time| time.started);
        let (versions, designs) = (Vec::new(), Vec::new());
        StepResults { step, versions, cursors, levels, batches, times, refilled, tasks, designs }
    }

    /// Puts the parts of a step together, by their lanes. Every transition gets the versions of all policies, if the episodes of
    /// the step have the same.
    pub fn merge(lanes: &Lanes, parts: BTreeMap<usize, StepResults>) -> Option<StepResults> {
        let mut parts = parts.into_iter();
        let (_, mut all) = parts.next()?;
        for (lane, part) in parts {
            let of_lane = |scenario: usize| lanes.of_scenario(scenario) == lane;
            let cursors = part.cursors.into_iter().enumerate();
            cursors
                .filter(|(scenario, _)| of_lane(*scenario))
                .for_each(|(scenario, own)| all.cursors[scenario] = own);
            let levels = part.levels.into_iter().enumerate();
            levels
                .filter(|(scenario, _)| of_lane(*scenario))
                .for_each(|(scenario, own)| all.levels[scenario] = own);
            all.versions.iter_mut().zip(part.versions).for_each(|(all, own)| *all = own.max(*all));
            all.batches.extend(part.batches);
            all.times.extend(part.times);
            all.designs.extend(part.designs);
        }
        all.times.sort_by_key(|time| time.started);
        if lanes.count() > 1 && !all.versions.is_empty() {
            let transitions = all.batches.iter_mut().flat_map(|one| &mut one.batch.transitions);
            transitions.for_each(|one| one.versions.clone_from(&all.versions));
        }
        Some(all)
    }

    /// Returns a copy of the transitions of a part, sorted by key, for learners that train on it before the step is whole.
    pub fn transitions(&self) -> Vec<Transition> {
        let mut all: Vec<Transition> =
            self.batches.iter().flat_map(|one| &one.batch.transitions).cloned().collect();
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all
    }

    /// Returns the step that the trainer gets. Writes the traces of a step whose tasks were drawn for it.
    ///
    /// # Errors
    /// If every episode failed, or the traces can't be written.
    pub fn into_step(self, rollouts: &Rollouts, host: &Host) -> Result<PlayedStep, Error> {
        let StepResults { step, mut cursors, levels, batches, times, refilled, tasks, designs, .. } = self;
        let by_scenario = rollouts.scenario_metrics(&batches, &levels, &mut cursors);
        let mut all = RolloutBatch::default();
        batches.into_iter().for_each(|one| all.append(one.batch));
        // A step whose designs all have mistakes has no episode, and its designer learns from that.
        let played = if designs.is_empty() { all.with_episodes(step) } else { Ok(all) };
        let by_scenario = if played.is_ok() { by_scenario } else { Map::new() };
        let file = tasks.is_empty().then_some(TraceFile { step, evaluation: None });
        let batch = rollouts.keep(host, file.as_ref(), played)?;
        let mut metrics = step_metrics(&batch, &rollouts.agent_names());
        metrics.extend(by_scenario);
        metrics.extend(refilled.map(|tasks| ("refilled_tasks".to_owned(), tasks.into())));
        if !tasks.is_empty() {
            let late = tasks.iter().filter(|task| task.step < step).count();
            metrics.insert("late_tasks".into(), late.into());
        }
        let started = times.iter().map(|time| time.started).min();
        let finished = times.iter().map(|time| time.ended).max();
        let lasted = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64();
        Ok(PlayedStep {
            step,
            cursors,
            seconds: started.zip(finished).map_or(0.0, |(from, to)| lasted(from, to)),
            finished,
            episode_tasks: numbered(times.iter().map(|time| time.task)),
            episode_times: times,
            failures: batch.failures.iter().map(|failure| json!(failure)).collect(),
            tokens: batch.episodes.iter().map(|episode| episode.tokens).sum::<u64>()
                + designs.iter().map(|design| design.designer_tokens).sum::<u64>(),
            designs,
            metrics,
            transitions: Arc::new(batch.transitions),
            tasks,
            published: Vec::new(),
            engine: EngineStats::default(),
            versions: None,
        })
    }
}

/// Returns the number of each task, counted from 0 in the order of their first places.
fn numbered(tasks: impl Iterator<Item = TaskKey>) -> Vec<u32> {
    let mut numbers = BTreeMap::new();
    let mut number = |task| {
        let next = numbers.len() as u32;
        *numbers.entry(task).or_insert(next)
    };
    tasks.map(&mut number).collect()
}
