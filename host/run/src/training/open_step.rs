//! Part of a step whose episodes play: drawn from its scenarios, and collected when all of them have ended, or task by task.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use pl_record::TraceFile;
use pl_rollout::{Attempt, PlayEpisodes, RolloutPlan, SPAN_TARGET, Trace};
use pl_trainer::filter::tasks_without_spread;
use pl_types::{Phase, TaskKey};

use crate::cluster::TeamRef;
use crate::error::Error;
use crate::host::Host;
use crate::progress::Tracker;
use crate::schedule::lanes::{Lanes, StepPart};

use super::cursor::ScenarioCursor;
use super::designer_player::designer_player;
use super::designs::{Executions, StepDesigns};
use super::mixture::deal;
use super::rollouts::{Rollouts, ScenarioBatch};
use super::step_results::{StepResults, TaskResults};
use super::step_times::EpisodeTime;
use super::step_weights::StepWeights;

/// A lane's part of a step, in progress.
pub(super) struct OpenStep {
    part: StepPart,
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
    /// Designs for the tasks of scenarios with a designer.
    designs: Vec<StepDesigns>,
    tracker: Box<dyn Tracker>,
    span: tracing::Span,
    ended: usize,
    /// Times of the episodes that have ended, by their position.
    times: BTreeMap<usize, EpisodeTime>,
    /// Traces of the tasks that were taken.
    traces: Vec<Trace>,
}

/// Tasks of a scenario in a round.
struct DrawnTasks {
    scenario: usize,
    /// Lane of the scenario, for simulations of other schedules.
    lane: usize,
    part: Part,
    player: Arc<dyn PlayEpisodes>,
    plan: Arc<RolloutPlan>,
    attempts: Vec<Attempt>,
}

/// Part that the episodes on drawn tasks have in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The scenario's own team plays.
    Team,
    /// The designer writes.
    Designer,
    /// The team of a design plays, by its position among those of its scenario.
    Design(usize),
}

/// An episode that has ended.
pub(super) struct EndedEpisode {
    pub part: StepPart,
    /// Position in the part.
    pub episode: usize,
    /// Position among the scenarios of its round.
    scenario: usize,
    attempts: Vec<Attempt>,
    time: EpisodeTime,
}

impl OpenStep {
    /// Draws the tasks of a part that come after `cursors`. Those that the other lanes draw for the step are counted, so that
    /// tasks have the same numbers whichever lane is ahead.
    ///
    /// # Errors
    /// If a task can't be read or generated.
    pub async fn draw(
        rollouts: &Rollouts,
        host: &Host,
        (part, lanes): (StepPart, &Lanes),
        cursors: &[ScenarioCursor],
        weights: StepWeights,
    ) -> Result<OpenStep, Error> {
        let step = part.step;
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
            part,
            weights,
            cursors,
            levels,
            tasks: 0,
            refills: 0,
            round: Vec::new(),
            order: Vec::new(),
            earlier: 0,
            batches: Vec::new(),
            designs: Vec::new(),
            tracker: rollouts.start_tracker(host, &rollouts.part_title(part, lanes)),
            span: tracing::info_span!(target: SPAN_TARGET, "rollouts", step, lane = part.lane),
            ended: 0,
            times: BTreeMap::new(),
            traces: Vec::new(),
        };
        open.draw_round(rollouts, &counts, |scenario| lanes.of_scenario(scenario) == part.lane).await?;
        Ok(open)
    }

    /// Draws tasks of each scenario of its own.
    async fn draw_round(
        &mut self,
        rollouts: &Rollouts,
        counts: &[u32],
        is_own: impl Fn(usize) -> bool,
    ) -> Result<(), Error> {
        let all: u32 = counts.iter().sum();
        let mut round = Vec::new();
        for (scenario, own) in rollouts.scenarios.iter().enumerate() {
            let (count, Some(source)) = (counts[scenario], &own.tasks) else { continue };
            if count == 0 || !is_own(scenario) {
                self.tasks += count;
                continue;
            }
            let source = match self.levels[scenario] {
                Some(level) => &source.at_level(level),
                None => source,
            };
            let (part, samples, player) = match &own.designer {
                Some(designer) => {
                    let player = designer_player(designer, &self.weights);
                    (Part::Designer, designer.designer().designs, player)
                }
                None => {
                    let player = self.weights.player(TeamRef::Scenario(scenario as u32), &own.setup);
                    (Part::Team, rollouts.train.samples, player)
                }
            };
            let first = self.cursors[scenario].next_task;
            let plan = RolloutPlan {
                seed: rollouts.seed,
                phase: Phase::Train,
                step: self.part.step,
                tasks: source.take(first, count).await.map_err(Error::Tasks)?,
                first_task: self.tasks,
                mode: rollouts.train.rollout,
                samples,
                first_sample: 0,
                in_flight: share_of_episodes(rollouts.train.episodes, count, all),
                versions: self.weights.versions.as_slice().into(),
            };
            self.cursors[scenario].next_task += u64::from(count);
            self.tasks += count;
            let (lane, plan) = (rollouts.lanes.of_scenario(scenario), Arc::new(plan));
            round.push(DrawnTasks { scenario, lane, part, player, plan, attempts: Vec::new() });
        }
        self.begin_round(round);
        Ok(())
    }

    fn begin_round(&mut self, round: Vec<DrawnTasks>) {
        self.earlier += self.order.len();
        self.round = round;
        self.order = interleaved(self.round.iter().map(|drawn| drawn.plan.episodes()));
        self.tracker.update(self.ended as u64, self.episodes() as u64);
    }

    /// Number of episodes that were drawn so far.
    fn episodes(&self) -> usize {
        self.earlier + self.order.len()
    }

    /// Returns the task of each episode of the newest round, by its number within the step.
    pub fn task_of(&self) -> Vec<u32> {
        let number = |(scenario, task, _): &(usize, u32, u32)| self.round[*scenario].plan.first_task + task;
        self.order.iter().map(number).collect()
    }

    /// Returns the positions in the tasks of the scenarios after those that were drawn.
    pub fn cursors(&self) -> &[ScenarioCursor] {
        &self.cursors
    }

    /// Returns the play of an episode, by its position in the step, with other `versions` than those of the step if it has
    /// its own. `None` if there is no such episode.
    pub fn play(
        &self,
        episode: usize,
        versions: Option<Vec<u64>>,
    ) -> Option<impl Future<Output = Result<EndedEpisode, pl_rollout::Error>> + Send + 'static> {
        let (scenario, task, sample) = *self.order.get(episode.checked_sub(self.earlier)?)?;
        let drawn = self.round.get(scenario)?;
        let player = Arc::clone(&drawn.player);
        let plan = match versions {
            Some(versions) => {
                Arc::new(RolloutPlan { versions: versions.into(), ..RolloutPlan::clone(&drawn.plan) })
            }
            None => Arc::clone(&drawn.plan),
        };
        let (part, lane) = (self.part, drawn.lane);
        let key = TaskKey { step: part.step, task: plan.first_task + task };
        let playing = async move {
            let started = Instant::now();
            let attempts = player.play(&plan, task, sample).await?;
            let tokens = attempts.iter().map(|attempt| attempt.result.summary.tokens).sum();
            let time = EpisodeTime { task: key, lane, started, ended: Instant::now(), tokens };
            Ok(EndedEpisode { part, episode, scenario, attempts, time })
        };
        Some(tracing::Instrument::instrument(playing, self.span.clone()))
    }

    /// Keeps the results of an episode.
    pub fn end(&mut self, ended: EndedEpisode) {
        if let Some(drawn) = self.round.get_mut(ended.scenario) {
            drawn.attempts.extend(ended.attempts);
        }
        self.times.insert(ended.episode, ended.time);
        self.ended += 1;
        self.tracker.update(self.ended as u64, self.episodes() as u64);
    }

    /// Collects the results of a round. Draws the episodes of the designs that were written in it, and others in place of
    /// tasks without a spread of returns, if the objectives leave these out. Returns true if there are any.
    ///
    /// # Errors
    /// If a task can't be read or generated.
    pub async fn refill(&mut self, rollouts: &Rollouts) -> Result<bool, Error> {
        let mut counts = vec![0; rollouts.scenarios.len()];
        let may_refill = self.refills < rollouts.train.max_refills;
        let mut executions = Vec::new();
        for DrawnTasks { scenario, lane, part, plan, attempts, .. } in std::mem::take(&mut self.round) {
            let tasks = plan.tasks.len();
            let batch = plan.collect(tasks, attempts);
            match (part, &rollouts.scenarios[scenario].designer) {
                (Part::Designer, Some(designer)) => {
                    let (designs, all) = StepDesigns::new(scenario, designer, &plan, batch);
                    self.designs.push(designs);
                    executions.extend(all.into_iter().map(|one| self.draw_executions((scenario, lane), one)));
                    continue;
                }
                (Part::Design(design), _) => {
                    let own = self.designs.iter_mut().find(|designs| designs.scenario == scenario);
                    if let Some(designs) = own {
                        designs.end_executions(design, batch);
                    }
                    continue;
                }
                (Part::Team | Part::Designer, _) => {}
            }
            if may_refill {
                counts[scenario] =
                    tasks_without_spread(&batch.transitions, &rollouts.trainings, self.part.step).len()
                        as u32;
            }
            self.batches.push(ScenarioBatch { scenario, tasks: tasks as u32, batch, designs: None });
        }
        if !executions.is_empty() {
            self.begin_round(executions);
            return Ok(true);
        }
        if counts.iter().all(|count| *count == 0) {
            return Ok(false);
        }
        self.refills += 1;
        // A run with refills has one lane.
        self.draw_round(rollouts, &counts, |_| true).await?;
        Ok(true)
    }

    fn draw_executions(&self, (scenario, lane): (usize, usize), executions: Executions) -> DrawnTasks {
        let Executions { design, setup, plan } = executions;
        let player = self.weights.setup(&Arc::new(setup));
        DrawnTasks {
            scenario,
            lane,
            part: Part::Design(design),
            player,
            plan: Arc::new(plan),
            attempts: Vec::new(),
        }
    }

    /// Returns the results of the part.
    pub fn close(mut self, rollouts: &Rollouts) -> StepResults {
        let mut designs = Vec::new();
        for own in self.designs {
            if let Some(designer) = &rollouts.scenarios[own.scenario].designer {
                let (batch, records) = own.finish(self.part.step, designer.designer());
                self.batches.push(batch);
                designs.extend(records);
            }
        }
        let refills = rollouts.train.max_refills > 0;
        StepResults {
            step: self.part.step,
            versions: self.weights.versions,
            cursors: self.cursors,
            levels: self.levels,
            batches: self.batches,
            times: self.times.into_values().collect(),
            refilled: refills.then(|| self.tasks - rollouts.train.tasks_per_step),
            tasks: Vec::new(),
            designs,
        }
    }

    /// Takes the results of a task whose episodes have ended. Its traces stay with the step. Returns `None` if they were taken
    /// before.
    pub fn take(&mut self, task: u32) -> Option<TaskResults> {
        let own = |drawn: &DrawnTasks| {
            task.checked_sub(drawn.plan.first_task).is_some_and(|own| (own as usize) < drawn.plan.tasks.len())
        };
        let position = self.round.iter().position(own)?;
        let drawn = &mut self.round[position];
        let (attempts, others): (Vec<Attempt>, _) =
            std::mem::take(&mut drawn.attempts).into_iter().partition(|one| one.trace.key.task == task);
        drawn.attempts = others;
        if attempts.is_empty() {
            return None;
        }
        let mut batch = drawn.plan.collect(1, attempts);
        self.traces.append(&mut batch.traces);
        let first_task = drawn.plan.first_task;
        let episodes = self.order.iter().enumerate();
        let episodes = episodes.filter(|(_, own)| (own.0, first_task + own.1) == (position, task));
        let times = episodes.filter_map(|(episode, _)| self.times.get(&episode).copied()).collect();
        let scenario = ScenarioBatch { scenario: drawn.scenario, tasks: 1, batch, designs: None };
        Some(TaskResults { task: TaskKey { step: self.part.step, task }, scenario, times })
    }

    /// Returns the levels of the tasks of the scenarios.
    pub fn levels(&self) -> &[Option<u32>] {
        &self.levels
    }

    /// Writes the traces of the tasks that were taken, of a step whose episodes have all ended.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn write_traces(mut self, rollouts: &Rollouts) -> Result<(), Error> {
        self.traces.sort_by_key(|trace| (trace.key.task, trace.key.sample, trace.key.attempt));
        rollouts.write_traces(&TraceFile { step: self.part.step, evaluation: None }, &self.traces)
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
