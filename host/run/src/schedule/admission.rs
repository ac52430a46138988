//! Admission: which episode starts next, and which step is handed to the trainer next.
//!
//! Steps and evaluations wait in line in the order in which the learners' weights made them possible, each step in as many
//! parts as there are lanes ([`super::lanes`]); of parts that have not begun, those of older steps come first. An episode starts
//! as soon as one of the slots is free and every episode of the parts before it has started, so the stragglers of a step play
//! beside the first episodes of the steps after it. Finished parts wait until those of the same lane before them have been
//! handed over, or their tasks are put into batches in the order in which they end ([`super::batches`]). Nothing here knows of
//! time: the weights of an episode follow from its step alone ([`super::StepSchedule`]), and the order of a lane's steps never
//! changes.
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

use super::batches::Batches;
use super::lanes::StepPart;
use super::{StepSchedule, UpdateKey};

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
    /// Draw the tasks of a part. [`Admission::add_episodes`] tells their number.
    Draw { part: StepPart },
    /// Start an episode of a part. [`Admission::finished`] ends it.
    Start {
        part: StepPart,
        /// Position among the part's episodes, from 0.
        episode: usize,
    },
    /// All episodes of a part have ended, and those of its lane before it have been handed over. [`Admission::add_episodes`]
    /// adds others, [`Admission::close`] ends the part. With batches by arrival, other steps may be unfinished.
    Collect { part: StepPart },
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
    /// Last step that was added, of each lane.
    last_steps: Vec<u64>,
}

/// A part of a step or an evaluation.
#[derive(Debug, Clone)]
struct Entry {
    /// Last update of each of its learners in its weights.
    updates: Vec<UpdateKey>,
    work: Work,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Evaluation { update: u64, begun: bool },
    Part(StepPart, State),
}

/// State of a part of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Undrawn,
    Drawing,
    Playing { total: usize, started: usize, ended: usize },
    Collecting { total: usize },
}

impl Admission {
    /// An admission without any work.
    pub fn new(schedule: StepSchedule, rules: AdmissionRules) -> Admission {
        let last_steps = vec![0; schedule.lanes().count()];
        Admission { schedule, rules, queue: VecDeque::new(), batches: None, running: 0, last_steps }
    }

    /// Hands over tasks in batches by arrival.
    pub fn with_batches(self, batches: Option<Batches>) -> Admission {
        Admission { batches, ..self }
    }

    /// Adds the evaluations after an update of all learners.
    pub fn evaluate(&mut self, update: u64) {
        let updates = self.schedule.updates_after(update);
        self.queue.push_back(Entry { updates, work: Work::Evaluation { update, begun: false } });
    }

    /// Adds the parts of a lane of steps whose weights are there.
    pub fn play(&mut self, lane: usize, steps: RangeInclusive<u64>) {
        if let Some(last) = self.last_steps.get_mut(lane) {
            *last = (*last).max(*steps.end());
        }
        for step in steps {
            let updates = self.schedule.lane_updates(lane, step);
            let entry = Entry { updates, work: Work::Part(StepPart { step, lane }, State::Undrawn) };
            // A lane that is ahead waits for slots behind the others.
            let is_later =
                |other: &&Entry| matches!(other.work, Work::Part(own, State::Undrawn) if own.step > step);
            let later = self.queue.iter().rev().take_while(is_later).count();
            self.queue.insert(self.queue.len() - later, entry);
        }
    }

    /// Returns the next thing to do, which counts as begun. Returns `None` if something has to end or to be handed over
    /// first.
    pub fn next_action(&mut self) -> Option<Action> {
        if let Some(batch) = self.batches.as_mut().and_then(Batches::take) {
            return Some(Action::HandOver(batch));
        }
        self.next_collected().or_else(|| self.next_start())
    }

    /// Returns the next part to collect: the oldest of its lane, or with batches by arrival any.
    fn next_collected(&mut self) -> Option<Action> {
        let by_arrival = self.batches.is_some();
        let mut seen = vec![false; self.last_steps.len()];
        for entry in &mut self.queue {
            let Work::Part(part, state) = &mut entry.work else { return None };
            let is_next = by_arrival || !std::mem::replace(&mut seen[part.lane], true);
            if let State::Playing { total, ended, .. } = *state
                && is_next
                && ended == total
            {
                *state = State::Collecting { total };
                return Some(Action::Collect { part: *part });
            }
        }
        None
    }

    /// Returns the next evaluation, the next part to draw, or the next episode.
    fn next_start(&mut self) -> Option<Action> {
        let is_full = self.running >= self.rules.slots.max(1);
        // Position of the oldest part of each lane.
        let mut oldest = vec![None; self.last_steps.len()];
        for index in 0..self.queue.len() {
            let (part, state) = match &mut self.queue[index].work {
                Work::Evaluation { begun, .. } if *begun || index > 0 => return None,
                Work::Evaluation { update, begun } => {
                    *begun = true;
                    return Some(Action::Evaluate { update: *update });
                }
                Work::Part(part, state) => (*part, *state),
            };
            let first: usize = *oldest[part.lane].get_or_insert(index);
            let has_same = || self.queue[first].updates == self.queue[index].updates;
            // Another version of the weights, or results of the step before, have to be awaited.
            if first != index && (self.rules.draws_in_turn || !(self.rules.keeps_versions || has_same())) {
                continue;
            }
            match state {
                State::Drawing => return None,
                State::Undrawn if is_full => return None,
                State::Undrawn => {
                    self.queue[index].work = Work::Part(part, State::Drawing);
                    return Some(Action::Draw { part });
                }
                State::Playing { total, started, .. } if started < total && is_full => return None,
                State::Playing { total, started, ended } if started < total => {
                    self.running += 1;
                    let state = State::Playing { total, started: started + 1, ended };
                    self.queue[index].work = Work::Part(part, state);
                    return Some(Action::Start { part, episode: started });
                }
                State::Playing { .. } | State::Collecting { .. } => {}
            }
        }
        None
    }

    /// Adds episodes to a part whose tasks have been drawn, or whose results have been collected, by the task that each
    /// belongs to.
    pub fn add_episodes(&mut self, part: StepPart, task_of: &[u32]) {
        if let Some(batches) = &mut self.batches {
            batches.add(part.step, task_of);
        }
        if let Some(state) = self.state(part) {
            let before = match *state {
                State::Drawing => 0,
                State::Collecting { total } => total,
                State::Undrawn | State::Playing { .. } => return,
            };
            *state = State::Playing { total: before + task_of.len(), started: before, ended: before };
        }
    }

    /// Ends an episode of a part, by its position.
    pub fn finished(&mut self, part: StepPart, episode: usize) {
        if let Some(batches) = &mut self.batches {
            batches.end_episode(part.step, episode);
        }
        if let Some(State::Playing { ended, .. }) = self.state(part) {
            *ended += 1;
            self.running -= 1;
        }
    }

    /// Ends a part whose results have been collected.
    pub fn close(&mut self, part: StepPart) {
        let is_closed =
            |work: &Work| matches!(work, Work::Part(own, State::Collecting { .. }) if *own == part);
        self.queue.retain(|entry| !is_closed(&entry.work));
    }

    /// Ends the evaluations that have begun.
    pub fn evaluated(&mut self) {
        self.queue.retain(|entry| !matches!(entry.work, Work::Evaluation { begun: true, .. }));
    }

    /// Drops everything that has not begun. Episodes that have not started never will, so their steps are not handed
    /// over.
    pub fn stop(&mut self) {
        self.queue.retain(|entry| matches!(entry.work, Work::Part(_, State::Playing { .. })));
        for entry in &mut self.queue {
            if let Work::Part(_, State::Playing { total, started, .. }) = &mut entry.work {
                // More than there will be, so that the part is never collected.
                (*total, *started) = (usize::MAX, usize::MAX);
            }
        }
    }

    /// Number of episodes in progress.
    pub fn running(&self) -> usize {
        self.running
    }

    /// True if work uses a learner's weights after an update, or steps that are added later will.
    pub fn uses(&self, update: UpdateKey) -> bool {
        let UpdateKey { learner, step } = update;
        let lane = self.schedule.lanes().of_learner(learner);
        let next = self.last_steps.get(lane).map_or(0, |last| last + 1);
        let is_later =
            next <= self.schedule.steps() && self.schedule.updates(next).get(learner) <= Some(&step);
        is_later || self.queue.iter().any(|entry| entry.updates.contains(&update))
    }

    fn state(&mut self, of: StepPart) -> Option<&mut State> {
        self.queue.iter_mut().find_map(|entry| match &mut entry.work {
            Work::Part(part, state) if *part == of => Some(state),
            _ => None,
        })
    }
}

#[cfg(test)]
pub(super) mod tests;
