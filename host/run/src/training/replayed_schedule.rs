//! The schedule of an earlier run, which a run repeats: all that depended on timing there.

use std::path::Path;

use pl_dsl::workflow::objective::UpdateSteps;
use pl_dsl::workflow::{Evaluation, InFlight, PolicyTraining, Train, Workflow};
use pl_record::RunFolder;
use pl_record::schedule::read_schedule;

use crate::error::Error;
use crate::error::repeat::RepeatError;
use crate::schedule::StepSchedule;
use crate::schedule::batches::{BatchRule, RepeatingRun};
use crate::stored::StoredWorkflow;

use super::barriers::is_barrier;
use super::in_flight::RepeatedVersions;
use super::rollouts::Rollouts;
use super::train_block;

/// Schedule of an earlier run.
#[derive(Default)]
pub(super) struct RepeatedSchedule {
    /// Tasks of each update, if those that ended first were trained on first.
    pub order: Option<BatchRule>,
    /// Versions of each completion, if weights took over while episodes played.
    pub versions: Option<RepeatedVersions>,
}

impl RepeatedSchedule {
    /// Reads what a run has recorded, to repeat it with `seed`.
    ///
    /// # Errors
    /// If the new run can't repeat it, or the record can't be read.
    pub fn read(
        run: &Path,
        workflow: &Workflow,
        seed: u64,
        schedule: &StepSchedule,
        rollouts: &Rollouts,
    ) -> Result<RepeatedSchedule, Error> {
        let refused = |source| Error::Schedule { run: run.to_path_buf(), source };
        let train = train_block(workflow)?;
        let (by_arrival, in_flight) = (schedule.is_by_arrival(), train.in_flight != InFlight::Off);
        if !by_arrival && !in_flight {
            return Err(refused(RepeatError::NothingToRepeat));
        }
        let lock = RunFolder::read_lock(run).map_err(Error::RunFolder)?;
        if lock.seed != seed {
            return Err(refused(RepeatError::OtherSeed { recorded: lock.seed, seed }));
        }
        if in_flight {
            let other = StoredWorkflow::read(run)?.workflow;
            let settings = differences(workflow, train, &other);
            if !settings.is_empty() {
                return Err(refused(RepeatError::OtherSettings { settings: settings.join(", ") }));
            }
        }
        let versions = in_flight.then(|| RepeatedVersions::read(run)).transpose()?;
        let order = match by_arrival {
            true => {
                let batches = read_schedule(run)?.ok_or_else(|| refused(RepeatError::NoRecord))?;
                let is_barrier = |step| is_barrier(train, rollouts, step);
                let tasks = train.tasks_per_step as usize;
                let repeating = RepeatingRun { schedule, tasks, is_barrier: &is_barrier };
                Some(repeating.rule(batches).map_err(refused)?)
            }
            false => None,
        };
        Ok(RepeatedSchedule { order, versions })
    }
}

/// Returns the names of settings that decide which versions a completion can have, and that differ.
fn differences(workflow: &Workflow, train: &Train, other: &Workflow) -> Vec<&'static str> {
    let Some(theirs) = &other.train else { return vec!["`train`"] };
    let staleness = |workflow: &Workflow| -> Vec<u32> {
        (0..workflow.policies.len()).map(|policy| workflow.staleness(policy)).collect()
    };
    let updates = |workflow: &Workflow| -> Vec<Option<UpdateSteps>> {
        let policies = workflow.policies.iter();
        policies.map(|own| own.training.as_ref().map(PolicyTraining::update_steps)).collect()
    };
    let evaluations = |workflow: &Workflow| -> Vec<(String, u32)> {
        let name = |own: &Evaluation| (own.name.clone(), own.every);
        workflow.evaluations.iter().map(name).collect()
    };
    let settings = [
        ("`in_flight`", train.in_flight == theirs.in_flight),
        ("`order`", train.order == theirs.order),
        ("`steps`", train.steps == theirs.steps),
        ("`staleness`", staleness(workflow) == staleness(other)),
        ("`freeze`, `update_every` or `tasks_per_update`", updates(workflow) == updates(other)),
        ("`tasks_per_step`", train.tasks_per_step == theirs.tasks_per_step),
        ("`samples`", train.samples == theirs.samples),
        ("`episodes`", train.episodes == theirs.episodes),
        ("`checkpoint_every`", train.checkpoint_every == theirs.checkpoint_every),
        ("evaluations", evaluations(workflow) == evaluations(other)),
    ];
    settings.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
}
