//! Admission: which episode starts next, and which step is handed to the trainer next.
//!
//! Steps and evaluations wait in line in the order in which the learners' weights made them possible. An episode starts
//! as soon as one of the slots is free and every episode of the steps before it has started, so the stragglers of a
//! step play beside the first episodes of the steps after it. Finished steps wait until those before them have been
//! handed over, or their tasks are put into batches in the order in which they end ([`super::batches`]). Nothing here knows of time: the weights of an episode follow from its step alone ([`super::StepSchedule`]),
//! and the order of the steps never changes.
//!
//! A training run and the simulator ([`super::simulate`]) are driven by the same [`Admission`].
//!
//! ```text
//! staleness 2
//! slots      | 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 | 3 3 …
//!            | 1 1 1 1 | 2 2 2 2 2 2 2 | 3 3 3 3 3 …
//!            | 1 1 | 2 2 2 2 | 2 2 2 2 2 2 2 2 2 | 3 …
//! hand over                                  1, 2
//! ```

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use pl_record::schedule::RecordedBatch;

use super::StepSchedule;
use super::batches::Batches;

/// Rules of an [`Admission`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionRules {
    /// Largest number of episodes at a time.
    pub slots: usize,
    /// True if the tasks of a step follow from the results of the step before: with refills, and with a curriculum that
    /// rises by success.
    pub draws_in_turn: bool,
    /// True if episodes with different versions of the weights can play at the same time.
    pub keeps_versions: bool,
}

/// The next thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Run the evaluations after an update. No episode of a step is running. [`Admission::evaluated`] ends it.
    Evaluate {
        /// Number of updates in the weights.
        update: u64,
    },
    /// Draw the tasks of a step. [`Admission::add_episodes`] tells their number.
    Draw { step: u64 },
    /// Start an episode of a step. [`Admission::finished`] ends it.
    Start {
        step: u64,
        /// Position among the step's episodes, from 0.
        episode: usize,
    },
    /// All episodes of a step have ended, and the steps before it have been handed over. [`Admission::add_episodes`]
    /// adds others, [`Admission::close`] ends the step. With batches by arrival, other steps may be unfinished.
    Collect { step: u64 },
    /// Hand tasks that have ended to the trainer, for the update of a step.
    HandOver(RecordedBatch),
}

/// Steps and evaluations in progress, and those that wait.
#[derive(Debug, Clone)]
pub struct Admission {
    schedule: StepSchedule,
    rules: AdmissionRules,
    /// In the order in which they start.
    queue: VecDeque<Entry>,
    /// `None` if steps are handed over as they were drawn.
    batches: Option<Batches>,
    running: usize,
    /// Last step that was added.
    last_step: u64,
}

/// A step or an evaluation.
#[derive(Debug, Clone)]
struct Entry {
    /// Last update of each learner in its weights.
    updates: Vec<u64>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Evaluation { update: u64, begun: bool },
    Undrawn { step: u64 },
    Drawing { step: u64 },
    Playing { step: u64, total: usize, started: usize, ended: usize },
    Collecting { step: u64, total: usize },
}

impl Entry {
    fn step(&self) -> Option<u64> {
        match self.state {
            State::Evaluation { .. } => None,
            State::Undrawn { step }
            | State::Drawing { step }
            | State::Playing { step, .. }
            | State::Collecting { step, .. } => Some(step),
        }
    }
}

impl Admission {
    /// An admission without any work.
    pub fn new(schedule: StepSchedule, rules: AdmissionRules) -> Admission {
        Admission { schedule, rules, queue: VecDeque::new(), batches: None, running: 0, last_step: 0 }
    }

    /// Hands over tasks in batches by arrival.
    pub fn with_batches(self, batches: Option<Batches>) -> Admission {
        Admission { batches, ..self }
    }

    /// Adds the evaluations after an update of all learners.
    pub fn evaluate(&mut self, update: u64) {
        let updates = self.schedule.updates_after(update);
        self.queue.push_back(Entry { updates, state: State::Evaluation { update, begun: false } });
    }

    /// Adds steps whose weights are there.
    pub fn play(&mut self, steps: RangeInclusive<u64>) {
        self.last_step = self.last_step.max(*steps.end());
        let entry = |step| Entry { updates: self.schedule.updates(step), state: State::Undrawn { step } };
        self.queue.extend(steps.map(entry));
    }

    /// Returns the next thing to do, which counts as begun. Returns `None` if something has to end or to be handed over
    /// first.
    pub fn next_action(&mut self) -> Option<Action> {
        if let Some(batch) = self.batches.as_mut().and_then(Batches::take) {
            return Some(Action::HandOver(batch));
        }
        let by_arrival = self.batches.is_some();
        let oldest = self.queue.front()?.updates.clone();
        for (index, entry) in self.queue.iter_mut().enumerate() {
            let state = entry.state;
            // Another version of the weights, or results of the step before, have to be awaited.
            let waits = (!self.rules.keeps_versions && entry.updates != oldest) || self.rules.draws_in_turn;
            if index > 0 && waits {
                return None;
            }
            match state {
                State::Evaluation { update, begun } => {
                    if begun || index > 0 {
                        return None;
                    }
                    entry.state = State::Evaluation { update, begun: true };
                    return Some(Action::Evaluate { update });
                }
                State::Undrawn { step } => {
                    if self.running >= self.rules.slots.max(1) {
                        return None;
                    }
                    entry.state = State::Drawing { step };
                    return Some(Action::Draw { step });
                }
                State::Drawing { .. } => return None,
                State::Playing { step, total, started, ended } if started < total => {
                    if self.running >= self.rules.slots.max(1) {
                        return None;
                    }
                    self.running += 1;
                    entry.state = State::Playing { step, total, started: started + 1, ended };
                    return Some(Action::Start { step, episode: started });
                }
                State::Playing { step, total, ended, .. } if (index == 0 || by_arrival) && ended == total => {
                    entry.state = State::Collecting { step, total };
                    return Some(Action::Collect { step });
                }
                State::Playing { .. } | State::Collecting { .. } => {}
            }
        }
        None
    }

    /// Adds episodes to a step whose tasks have been drawn, or whose results have been collected, by the task that each
    /// belongs to.
    pub fn add_episodes(&mut self, of_step: u64, task_of: &[u32]) {
        if let Some(batches) = &mut self.batches {
            batches.add(of_step, task_of);
        }
        if let Some(entry) = self.entry(of_step) {
            let before = match entry.state {
                State::Drawing { .. } => 0,
                State::Collecting { total, .. } => total,
                _ => return,
            };
            let total = before + task_of.len();
            entry.state = State::Playing { step: of_step, total, started: before, ended: before };
        }
    }

    /// Ends an episode of a step, by its position.
    pub fn finished(&mut self, of_step: u64, episode: usize) {
        if let Some(batches) = &mut self.batches {
            batches.end_episode(of_step, episode);
        }
        if let Some(Entry { state: State::Playing { ended, .. }, .. }) = self.entry(of_step) {
            *ended += 1;
            self.running -= 1;
        }
    }

    /// Ends a step whose results have been collected.
    pub fn close(&mut self, of_step: u64) {
        self.queue.retain(|entry| entry.state_of(of_step).is_none_or(|state| !state.is_collecting()));
    }

    /// Ends the evaluations that have begun.
    pub fn evaluated(&mut self) {
        self.queue.retain(|entry| !matches!(entry.state, State::Evaluation { begun: true, .. }));
    }

    /// Drops everything that has not begun. Episodes that have not started never will, so their steps are not handed
    /// over.
    pub fn stop(&mut self) {
        self.queue.retain(|entry| matches!(entry.state, State::Playing { .. }));
        for entry in &mut self.queue {
            if let State::Playing { total, started, .. } = &mut entry.state {
                // More than there will be, so that the step is never collected.
                (*total, *started) = (usize::MAX, usize::MAX);
            }
        }
    }

    /// Number of episodes in progress.
    pub fn running(&self) -> usize {
        self.running
    }

    /// True if work uses a learner's weights after `update`, or steps that are added later will.
    pub fn uses(&self, learner: usize, update: u64) -> bool {
        let next = self.last_step + 1;
        let is_later =
            next <= self.schedule.steps() && self.schedule.updates(next).get(learner) <= Some(&update);
        is_later || self.queue.iter().any(|entry| entry.updates.get(learner) == Some(&update))
    }

    fn entry(&mut self, of_step: u64) -> Option<&mut Entry> {
        self.queue.iter_mut().find(|entry| entry.step() == Some(of_step))
    }
}

impl Entry {
    fn state_of(&self, of_step: u64) -> Option<State> {
        (self.step() == Some(of_step)).then_some(self.state)
    }
}

impl State {
    fn is_collecting(self) -> bool {
        matches!(self, State::Collecting { .. })
    }
}

#[cfg(test)]
pub(super) mod tests;
