//! Transitions of finished steps that a later update trains on, for policies whose updates train on several steps at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use pl_record::RunFolder;
use pl_types::{TrainedCompletion, Transition};

use crate::error::Error;
use crate::schedule::StepSchedule;

/// Transitions by the step that they were played for. Empty if every update trains on one step.
#[derive(Default)]
pub(super) struct CollectedSteps(BTreeMap<u64, Arc<Vec<Transition>>>);

impl CollectedSteps {
    /// Reads the steps up to `step` that later updates train on.
    ///
    /// # Errors
    /// If a step file can't be read.
    pub fn read(folder: &RunFolder, schedule: &StepSchedule, step: u64) -> Result<CollectedSteps, Error> {
        let read = |step: u64| Ok((step, Arc::new(folder.read_step(step)?)));
        (schedule.first_untrained(step)..=step).map(read).collect::<Result<_, Error>>().map(CollectedSteps)
    }

    /// Adds a finished step. Drops those that no later update trains on.
    pub fn finish(&mut self, schedule: &StepSchedule, step: u64, transitions: &Arc<Vec<Transition>>) {
        self.0.insert(step, Arc::clone(transitions));
        let first = schedule.first_untrained(step);
        self.0.retain(|step, _| *step >= first);
    }

    /// Returns the transitions of a step.
    pub fn get(&self, step: u64) -> Option<&Arc<Vec<Transition>>> {
        self.0.get(&step)
    }

    /// Takes those of `tokens` that are of collected steps, by the step.
    pub fn take_tokens(&self, tokens: &mut Vec<TrainedCompletion>) -> BTreeMap<u64, Vec<TrainedCompletion>> {
        let mut taken = BTreeMap::new();
        for (step, transitions) in &self.0 {
            let is_own =
                |own: &TrainedCompletion| transitions.binary_search_by(|one| one.key.cmp(&own.key)).is_ok();
            let (own, others): (Vec<_>, Vec<_>) = std::mem::take(tokens).into_iter().partition(is_own);
            *tokens = others;
            if !own.is_empty() {
                taken.insert(*step, own);
            }
        }
        taken
    }
}
