//! Batches by arrival: which tasks each update trains on, if those that end first are trained on first.
//!
//! Every update trains on the same number of tasks. A batch takes the tasks that have ended, in the order in which they
//! ended, but a task that would be too stale for the next update is always in it, and is waited for. The order is all that
//! depends on time, so a run can be repeated from its record.

use std::collections::{BTreeMap, BTreeSet};

use pl_record::schedule::RecordedBatch;
use pl_types::TaskKey;

use super::StepSchedule;
use crate::error::repeat::RepeatError;

/// Order in which tasks are put into batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchRule {
    /// The order in which they end.
    Arrival {
        /// Number of updates that may pass before a task is trained on, after the one that it was drawn for.
        late: u64,
    },
    /// Order of an earlier run: the tasks of each update.
    Recorded(BTreeMap<u64, Vec<TaskKey>>),
}

/// Tasks that are played and the batch that comes next.
#[derive(Debug, Clone)]
pub struct Batches {
    rule: BatchRule,
    /// Number of tasks of a batch.
    size: usize,
    /// Update that the next batch is for.
    next: u64,
    /// Last step whose tasks were drawn.
    drawn: u64,
    open: BTreeMap<u64, OpenTasks>,
    /// Tasks that have ended and are in no batch, in the order in which they ended.
    ended: Vec<TaskKey>,
}

/// Tasks of a step that have not all ended.
#[derive(Debug, Clone)]
struct OpenTasks {
    /// Task of each episode.
    task_of: Vec<u32>,
    /// Number of episodes of each task that have not ended.
    remaining: BTreeMap<u32, usize>,
}

impl Batches {
    /// Batches of `size` tasks, after those of the first `played` steps, of which no task is left.
    pub fn new(rule: BatchRule, size: usize, played: u64) -> Batches {
        Batches {
            rule,
            size: size.max(1),
            next: played + 1,
            drawn: played,
            open: BTreeMap::new(),
            ended: Vec::new(),
        }
    }

    /// Adds the episodes of a step, by the task that each of them belongs to.
    pub fn add(&mut self, step: u64, task_of: &[u32]) {
        let mut remaining = BTreeMap::new();
        task_of.iter().for_each(|task| *remaining.entry(*task).or_default() += 1);
        self.drawn = self.drawn.max(step);
        self.open.insert(step, OpenTasks { task_of: task_of.to_vec(), remaining });
    }

    /// Ends an episode of a step.
    pub fn end_episode(&mut self, step: u64, episode: usize) {
        let Some(open) = self.open.get_mut(&step) else { return };
        let Some(task) = open.task_of.get(episode).copied() else { return };
        let Some(remaining) = open.remaining.get_mut(&task) else { return };
        *remaining -= 1;
        if *remaining > 0 {
            return;
        }
        open.remaining.remove(&task);
        if open.remaining.is_empty() {
            self.open.remove(&step);
        }
        self.ended.push(TaskKey { step, task });
    }

    /// Returns the next batch, sorted, with the update that it is for. Returns `None` if some of its tasks have not ended.
    pub fn take(&mut self) -> Option<RecordedBatch> {
        let mut tasks = match &self.rule {
            BatchRule::Arrival { late } => self.first_to_end(self.next.saturating_sub(*late))?,
            BatchRule::Recorded(batches) => {
                let tasks = batches.get(&self.next)?;
                tasks.iter().all(|task| self.ended.contains(task)).then(|| tasks.clone())?
            }
        };
        self.ended.retain(|task| !tasks.contains(task));
        tasks.sort_unstable();
        let batch = RecordedBatch { step: self.next, tasks };
        self.next += 1;
        Some(batch)
    }

    /// Returns the tasks of the next batch: all that are left of the steps up to `due`, and those that ended first.
    fn first_to_end(&self, due: u64) -> Option<Vec<TaskKey>> {
        let has_all = self.drawn >= due && self.open.keys().all(|step| *step > due);
        if !has_all || self.ended.len() < self.size {
            return None;
        }
        let of_due = self.ended.iter().filter(|task| task.step <= due);
        let others = self.ended.iter().filter(|task| task.step > due);
        Some(of_due.chain(others).take(self.size).copied().collect())
    }
}

/// A run that repeats the record of another one.
pub struct RepeatingRun<'r> {
    pub schedule: &'r StepSchedule,
    /// Number of tasks of each step.
    pub tasks: usize,
    /// True for the steps after which a checkpoint may be saved.
    pub is_barrier: &'r dyn Fn(u64) -> bool,
}

impl RepeatingRun<'_> {
    /// Checks that the run can repeat a recorded order.
    ///
    /// # Errors
    /// [`RepeatError`] if a step is missing or has another number of tasks, or if a task is in several, is drawn too late for
    /// its step, or is drawn after a barrier that its step does not wait for.
    pub fn rule(&self, batches: Vec<RecordedBatch>) -> Result<BatchRule, RepeatError> {
        let steps = self.schedule.steps();
        let mut seen = BTreeSet::new();
        let mut by_update = BTreeMap::new();
        for RecordedBatch { step, tasks } in batches.into_iter().take_while(|batch| batch.step <= steps) {
            let (found, expected) = (tasks.len(), self.tasks);
            if found != expected {
                return Err(RepeatError::Count { step, found, expected });
            }
            let last = self.last_drawn(step);
            for task in &tasks {
                if task.step == 0 || task.step > last || task.task as usize >= expected {
                    return Err(RepeatError::NotDrawn { step, task: *task });
                }
                if !seen.insert(*task) {
                    return Err(RepeatError::Twice { task: *task });
                }
            }
            by_update.insert(step, tasks);
        }
        match (1..=steps).find(|step| !by_update.contains_key(step)) {
            Some(step) => Err(RepeatError::Missing { step, steps }),
            None => Ok(BatchRule::Recorded(by_update)),
        }
    }

    /// Returns the last step that may have been drawn when the tasks of a step are put together. A checkpoint waits for them
    /// before later steps are drawn.
    fn last_drawn(&self, step: u64) -> u64 {
        let ahead = self.schedule.staleness();
        let barriers = step.saturating_sub(ahead).max(1)..step;
        let barrier = barriers.clone().find(|step| (self.is_barrier)(*step)).unwrap_or(step);
        (barrier + ahead).min(self.schedule.steps())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(step: u64, task: u32) -> TaskKey {
        TaskKey { step, task }
    }

    /// The rule of a run of two steps with two tasks each, one of which is played ahead.
    fn repeat(record: &[RecordedBatch], is_barrier: &dyn Fn(u64) -> bool) -> Result<BatchRule, RepeatError> {
        let schedule = StepSchedule::by_arrival(2, 2, 1);
        RepeatingRun { schedule: &schedule, tasks: 2, is_barrier }.rule(record.to_vec())
    }

    fn batches(late: u64) -> Batches {
        Batches::new(BatchRule::Arrival { late }, 2, 0)
    }

    #[test]
    fn a_task_ends_with_its_last_episode() {
        let mut batches = batches(1);
        batches.add(1, &[0, 1, 0, 1]);
        batches.end_episode(1, 0);
        batches.end_episode(1, 1);
        batches.end_episode(1, 3);
        assert_eq!(batches.take(), None);
        batches.end_episode(1, 2);
        let first = batches.take().unwrap();
        assert_eq!((first.step, first.tasks), (1, vec![task(1, 0), task(1, 1)]));
    }

    #[test]
    fn a_slow_task_is_trained_on_by_a_later_update_but_not_too_late() {
        let mut batches = batches(1);
        batches.add(1, &[0, 1]);
        batches.add(2, &[0, 1]);
        batches.add(3, &[0, 1]);
        batches.end_episode(2, 1);
        batches.end_episode(1, 1);
        assert_eq!(batches.take().unwrap().tasks, [task(1, 1), task(2, 1)]);
        // Update 2 is the last for the tasks of step 1, however many others have ended.
        for (step, episode) in [(2, 0), (3, 0), (3, 1)] {
            batches.end_episode(step, episode);
            assert_eq!(batches.take(), None);
        }
        batches.end_episode(1, 0);
        assert_eq!(batches.take().unwrap().tasks, [task(1, 0), task(2, 0)]);
        assert_eq!(batches.take().unwrap().tasks, [task(3, 0), task(3, 1)]);
        assert_eq!(batches.take(), None);
    }

    #[test]
    fn a_record_is_repeated_whatever_ends_first() {
        let record = [(1, [task(1, 1), task(2, 0)]), (2, [task(1, 0), task(2, 1)])]
            .map(|(step, tasks)| RecordedBatch { step, tasks: tasks.into() });
        let rule = repeat(&record, &|_| false).unwrap();
        let mut batches = Batches::new(rule, 2, 0);
        batches.add(1, &[0, 1]);
        batches.add(2, &[0, 1]);
        batches.end_episode(1, 0);
        batches.end_episode(1, 1);
        assert_eq!(batches.take(), None);
        batches.end_episode(2, 0);
        assert_eq!(batches.take(), Some(record[0].clone()));
        batches.end_episode(2, 1);
        assert_eq!(batches.take(), Some(record[1].clone()));
    }

    #[test]
    fn a_record_of_another_run_is_refused() {
        let record = |step, tasks: &[TaskKey]| RecordedBatch { step, tasks: tasks.to_vec() };
        let error = |batches: &[RecordedBatch]| repeat(batches, &|_| false).unwrap_err().to_string();
        let whole = [record(1, &[task(1, 0), task(1, 1)]), record(2, &[task(2, 0), task(2, 1)])];
        assert!(repeat(&whole, &|_| true).is_ok());
        assert!(error(&whole[..1]).contains("no tasks of step 2"));
        assert!(error(&[record(1, &[task(1, 0)])]).contains("1 tasks"));
        assert!(error(&[record(1, &[task(1, 0), task(1, 0)])]).contains("in two steps"));
        assert!(error(&[record(1, &[task(1, 0), task(3, 0)])]).contains("does not have by then"));
        assert!(error(&[record(1, &[task(1, 0), task(1, 2)])]).contains("does not have by then"));
    }
}
