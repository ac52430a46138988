//! Simulation of schedules: the [`Admission`] of a real run under a virtual clock.
//!
//! Rollouts and training are taken to run side by side without slowing each other down, as on devices of their
//! own. Costs come from a run's `timings.jsonl`, with how much its episodes have slowed each other down (the module `contention`), or
//! are given.

mod contention;
mod costs;
pub mod pools;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use serde::Serialize;

use pl_dsl::workflow::objective::UpdateSteps;
use pl_dsl::workflow::{BatchOrder, Workflow};

use self::contention::slowdown;
pub use self::costs::read_costs;
use super::StepSchedule;
use super::admission::{Action, Admission, AdmissionRules};
use super::batches::{BatchRule, Batches};
use super::lanes::{Lanes, StepPart};
use crate::evaluation::is_evaluation_due;

/// Seconds that the parts of one step take.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StepCosts {
    /// Each episode alone, in the order in which they start.
    pub episodes: Vec<f64>,
    /// Task of each episode, from 0. Empty if they are not known.
    pub tasks: Vec<u32>,
    /// Lane of each episode. Empty if all are in the first.
    pub lanes: Vec<usize>,
    /// Each learner.
    pub train: Vec<f64>,
    /// Publishing of the weights before the step, in which no episode starts.
    pub publish: f64,
}

/// Costs of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunCosts {
    /// Largest number of episodes at a time.
    pub slots: usize,
    /// Relative slowdown of an episode per concurrent one.
    pub contention: f64,
    /// The steps, from step 1 on. Repeated if there are more.
    pub steps: Vec<StepCosts>,
    /// Names of the policies of each learner. Empty if they are not known.
    pub policies: Vec<Vec<String>>,
    pub lanes: Lanes,
    pub evaluations: EvaluationCosts,
}

/// Evaluations of a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EvaluationCosts {
    /// Seconds of the evaluations after a step, and of those of the untrained team.
    pub seconds: f64,
    /// Interval of each evaluation in steps, as in the workflow: 0 for none.
    pub every: Vec<u32>,
}

/// Simulated run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Simulation {
    pub staleness: u64,
    /// Duration of the whole run in seconds.
    pub seconds: f64,
    /// Share of the slots' time in which they play no episode of a step and no evaluation.
    pub rollout_idle: f64,
    /// Share of the time in which a learner does not train, the mean over the learners.
    pub train_idle: f64,
}

/// End of something in progress, on the virtual clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Evaluation,
    /// The weights of a part of a step are published.
    Publishing {
        part: StepPart,
    },
    Update {
        learner: usize,
    },
}

/// Time on the virtual clock. Ordered, since none is NaN.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Time(f64);

impl Eq for Time {}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl StepCosts {
    /// Returns the times of the episodes of a lane, in the order in which they start.
    fn of_lane(&self, lane: usize) -> Vec<f64> {
        let lanes = self.lanes.iter().copied().chain(std::iter::repeat(0));
        self.episodes.iter().zip(lanes).filter(|(_, own)| *own == lane).map(|(seconds, _)| *seconds).collect()
    }
}

impl RunCosts {
    /// Returns the costs of these steps in one lane, with an episode at a time that nothing slows down, and no evaluation.
    pub fn of_steps(steps: Vec<StepCosts>) -> RunCosts {
        RunCosts {
            slots: 1,
            contention: 0.0,
            steps,
            policies: Vec::new(),
            lanes: Lanes::ONE,
            evaluations: EvaluationCosts::default(),
        }
    }

    /// Number of learners.
    pub fn learners(&self) -> usize {
        self.steps.iter().map(|step| step.train.len()).max().unwrap_or(0)
    }

    /// Number of tasks of each step, if it is known and the same for all.
    pub fn tasks(&self) -> Option<usize> {
        let count = |step: &StepCosts| {
            let is_known = !step.tasks.is_empty() && step.tasks.len() == step.episodes.len();
            is_known.then(|| step.tasks.iter().copied().collect::<BTreeSet<_>>().len())
        };
        let first = count(self.steps.first()?)?;
        self.steps.iter().all(|step| count(step) == Some(first)).then_some(first)
    }
}

impl Simulation {
    /// Simulates a run whose versions can be used side by side, with the same staleness for every learner.
    pub fn new(steps: u64, staleness: u64, costs: &RunCosts) -> Simulation {
        let schedule = StepSchedule::new(steps, vec![staleness; costs.learners()]);
        Simulation::of(schedule.with_lanes(costs.lanes.clone()), 0, staleness, costs)
    }

    /// Simulates a run that trains on tasks in the order in which they end. Returns `None` if the costs don't tell the tasks of
    /// episodes, or the staleness leaves no choice.
    pub fn by_arrival(steps: u64, staleness: u64, costs: &RunCosts) -> Option<Simulation> {
        let schedule = StepSchedule::by_arrival(steps, staleness, costs.learners());
        let is_possible = schedule.is_by_arrival() && costs.tasks().is_some();
        is_possible.then(|| Simulation::of(schedule, 0, staleness, costs))
    }

    /// Simulates the run of a workflow, with the staleness of each policy and its checkpoints. Returns `None` if it is not
    /// trained, or trains on tasks in the order in which they end and the costs don't tell the tasks of episodes.
    pub fn of_workflow(workflow: &Workflow, costs: &RunCosts) -> Option<Simulation> {
        let train = workflow.train.as_ref()?;
        let largest = u64::from(workflow.largest_staleness());
        let steps = u64::from(train.steps);
        let position = |name: &String| workflow.policies.iter().position(|own| own.name == *name);
        let schedule = match train.order {
            BatchOrder::Keys => {
                let staleness = |learner: usize| {
                    let policy = costs.policies.get(learner).and_then(|names| position(names.first()?));
                    policy.map_or(largest, |policy| u64::from(workflow.staleness(policy)))
                };
                StepSchedule::new(steps, (0..costs.learners()).map(staleness).collect())
            }
            BatchOrder::Arrival => StepSchedule::by_arrival(steps, largest, costs.learners()),
        };
        let update_steps =
            |name: &String| Some(workflow.policies.get(position(name)?)?.training.as_ref()?.update_steps());
        let of_learner = |learner: usize| {
            let names = costs.policies.get(learner).into_iter().flatten();
            let own: Vec<UpdateSteps> = names.filter_map(update_steps).collect();
            if own.is_empty() { vec![UpdateSteps::ALL] } else { own }
        };
        let schedule = schedule.with_updates((0..costs.learners()).map(of_learner).collect());
        let schedule = schedule.with_lanes(costs.lanes.clone());
        let is_possible = !schedule.is_by_arrival() || costs.tasks().is_some();
        is_possible.then(|| Simulation::of(schedule, u64::from(train.checkpoint_every), largest, costs))
    }

    /// Simulates a schedule. Learners wait for each other every `checkpoint_every` steps, never if it is 0.
    fn of(schedule: StepSchedule, checkpoint_every: u64, staleness: u64, costs: &RunCosts) -> Simulation {
        let simulation = Simulator::new(schedule, checkpoint_every, costs).run();
        Simulation { staleness, ..simulation }
    }
}

/// Learners and episodes around an [`Admission`].
struct Simulator<'c> {
    schedule: StepSchedule,
    checkpoint_every: u64,
    costs: &'c RunCosts,
    admission: Admission,
    now: f64,
    ends: BinaryHeap<Reverse<(Time, End)>>,
    /// Seconds that an episode would have taken alone which had run all the time.
    work: f64,
    /// Part and position of the episodes in progress, by the `work` at which they end.
    episodes: BinaryHeap<Reverse<(Time, StepPart, usize)>>,
    /// Times of the episodes of each part in progress.
    open: BTreeMap<StepPart, Vec<f64>>,
    /// Last step of each lane that has been handed to its learners.
    played: Vec<u64>,
    /// Last step of each lane that was handed to the admission.
    planned: Vec<u64>,
    learners: Vec<LearnerState>,
    /// Last update with an evaluation that has ended.
    evaluated: u64,
    slot_seconds: f64,
    train_seconds: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct LearnerState {
    /// Number of updates.
    trained: u64,
    is_training: bool,
}

impl<'c> Simulator<'c> {
    fn new(schedule: StepSchedule, checkpoint_every: u64, costs: &'c RunCosts) -> Simulator<'c> {
        let batches = schedule.is_by_arrival().then(|| {
            let rule = BatchRule::Arrival { late: schedule.late() };
            Batches::new(rule, costs.tasks().unwrap_or_default(), 0)
        });
        let rules = AdmissionRules { slots: costs.slots.max(1), draws_in_turn: false, keeps_versions: true };
        let lanes = schedule.lanes().count();
        let mut simulator = Simulator {
            admission: Admission::new(schedule.clone(), rules).with_batches(batches),
            checkpoint_every,
            learners: vec![LearnerState::default(); schedule.learners()],
            schedule,
            costs,
            now: 0.0,
            ends: BinaryHeap::new(),
            work: 0.0,
            episodes: BinaryHeap::new(),
            open: BTreeMap::new(),
            played: vec![0; lanes],
            planned: vec![0; lanes],
            evaluated: 0,
            slot_seconds: 0.0,
            train_seconds: 0.0,
        };
        // Nothing else happens while the untrained team is evaluated.
        simulator.now = simulator.evaluation_seconds(0);
        simulator.slot_seconds = simulator.now * costs.slots.max(1) as f64;
        simulator
    }

    /// Returns the seconds of the evaluations after a step. 0 if none is due.
    fn evaluation_seconds(&self, step: u64) -> f64 {
        let EvaluationCosts { seconds, every } = &self.costs.evaluations;
        let last = step == self.schedule.steps();
        if every.iter().any(|every| is_evaluation_due(*every, step, last)) { *seconds } else { 0.0 }
    }

    fn step_costs(&self, step: u64) -> &'c StepCosts {
        let steps = &self.costs.steps;
        &steps[(step - 1) as usize % steps.len()]
    }

    fn end_after(&mut self, seconds: f64, end: End) {
        self.ends.push(Reverse((Time(self.now + seconds), end)));
    }

    fn run(mut self) -> Simulation {
        self.play_ahead();
        loop {
            while let Some(action) = self.admission.next_action() {
                self.act(action);
            }
            self.train();
            if !self.advance() {
                break;
            }
        }
        let slots = self.costs.slots.max(1) as f64;
        let idle = |busy: f64| if self.now > 0.0 { 1.0 - busy / self.now } else { 0.0 };
        Simulation {
            staleness: self.schedule.staleness(),
            seconds: self.now,
            rollout_idle: idle(self.slot_seconds / slots),
            train_idle: idle(self.train_seconds / self.learners.len().max(1) as f64),
        }
    }

    /// Hands the steps to the admission whose weights are there.
    fn play_ahead(&mut self) {
        let trained: Vec<u64> = self.learners.iter().map(|learner| learner.trained).collect();
        for (lane, planned) in self.planned.iter_mut().enumerate() {
            let steps = self.schedule.steps_to_play(lane, &trained, *planned);
            *planned = (*planned).max(*steps.end());
            self.admission.play(lane, steps);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Evaluate { update } => {
                let seconds = self.evaluation_seconds(update);
                self.slot_seconds += seconds * self.costs.slots.max(1) as f64;
                self.end_after(seconds, End::Evaluation);
            }
            Action::Draw { part } => {
                let lanes = self.played.len() as f64;
                self.end_after(self.step_costs(part.step).publish / lanes, End::Publishing { part });
            }
            Action::Start { part, episode } => {
                let seconds = self.open.get(&part).map_or(0.0, |episodes| episodes[episode]);
                self.episodes.push(Reverse((Time(self.work + seconds), part, episode)));
            }
            Action::Collect { part } => {
                self.open.remove(&part);
                self.admission.close(part);
                if !self.schedule.is_by_arrival() {
                    self.played[part.lane] = part.step;
                }
            }
            Action::HandOver(batch) => self.played[0] = batch.step,
        }
    }

    /// Starts the next update of every learner that is free, if its step is there. An evaluation stops all of them.
    fn train(&mut self) {
        for index in 0..self.learners.len() {
            let LearnerState { trained, is_training } = self.learners[index];
            let awaits_evaluation = trained > self.evaluated && self.evaluation_seconds(trained) > 0.0;
            let awaits_others = self.is_checkpoint(trained) && self.slowest() < trained;
            let played = self.played[self.schedule.lanes().of_learner(index)];
            if is_training || awaits_evaluation || awaits_others || trained >= played {
                continue;
            }
            self.learners[index].is_training = true;
            let seconds = self.update_seconds(index, trained + 1);
            self.train_seconds += seconds;
            self.end_after(seconds, End::Update { learner: index });
        }
    }

    /// Returns the seconds of a learner's update after a step: those of the steps that it trains on. The policies of a learner
    /// are taken to need the same time each.
    fn update_seconds(&self, learner: usize, step: u64) -> f64 {
        let policies = self.schedule.updates_of(learner);
        let steps = policies.iter().flat_map(|policy| policy.trained(step));
        let seconds = |step: u64| self.step_costs(step).train.get(learner).copied().unwrap_or(0.0);
        steps.map(seconds).sum::<f64>() / policies.len().max(1) as f64
    }

    /// Goes on to the next end of something. Returns false if nothing is in progress.
    fn advance(&mut self) -> bool {
        let running = self.episodes.len();
        let slowdown = slowdown(self.costs.contention, running as i64);
        let episode = self.episodes.peek().map(|Reverse((Time(work), part, episode))| {
            (self.now + (work - self.work) * slowdown, *work, *part, *episode)
        });
        let other = self.ends.peek().map(|Reverse((Time(now), _))| *now);
        let (now, work) = match (episode, other) {
            (Some((now, work, ..)), other) if other.is_none_or(|other| now <= other) => (now, work),
            (_, Some(other)) => (other, self.work + (other - self.now) / slowdown),
            (_, None) => return false,
        };
        self.slot_seconds += (now - self.now) * running as f64;
        (self.now, self.work) = (now, work);
        match episode {
            Some((end, _, part, episode)) if end <= now => {
                self.episodes.pop();
                self.admission.finished(part, episode);
            }
            _ => {
                if let Some(Reverse((_, end))) = self.ends.pop() {
                    self.end(end);
                }
            }
        }
        true
    }

    fn end(&mut self, end: End) {
        match end {
            End::Publishing { part } => {
                let costs = self.step_costs(part.step);
                let episodes = match self.played.len() {
                    1 => costs.episodes.clone(),
                    _ => costs.of_lane(part.lane),
                };
                let each = (0..episodes.len() as u32).collect::<Vec<_>>();
                self.admission
                    .add_episodes(part, if self.schedule.is_by_arrival() { &costs.tasks } else { &each });
                self.open.insert(part, episodes);
            }
            End::Evaluation => {
                self.admission.evaluated();
                self.evaluated = self.slowest();
            }
            End::Update { learner } => {
                let before = self.slowest();
                let own = &mut self.learners[learner];
                (own.trained, own.is_training) = (own.trained + 1, false);
                let update = self.slowest();
                if update > before && self.evaluation_seconds(update) > 0.0 {
                    self.admission.evaluate(update);
                }
                self.play_ahead();
            }
        }
    }

    fn is_checkpoint(&self, step: u64) -> bool {
        self.checkpoint_every > 0 && step.is_multiple_of(self.checkpoint_every)
    }

    /// Returns the number of updates that all learners have done.
    fn slowest(&self) -> u64 {
        self.learners.iter().map(|learner| learner.trained).min().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
