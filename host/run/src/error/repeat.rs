//! Errors of runs that repeat the schedule of another one.

use pl_record::schedule::SCHEDULE;
use pl_record::versions::VERSIONS;
use pl_types::TaskKey;

/// Reason why a run can't repeat a recorded order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RepeatError {
    /// Nothing in the run depends on timing.
    #[error("only a run with `order = arrival` or `in_flight` repeats the schedule of another one")]
    NothingToRepeat,
    /// The run has other tasks and samples.
    #[error("its seed is {recorded}, and that of this run is {seed}; `--seed {recorded}` repeats it")]
    OtherSeed { recorded: u64, seed: u64 },
    /// The run's settings lead to another schedule.
    #[error("it has other {settings} than this run; set them as they were")]
    OtherSettings { settings: String },
    /// The other run's episodes kept the weights that they began with.
    #[error("it has no {VERSIONS}")]
    NoVersions,
    /// The other run has no record.
    #[error("it has no {SCHEDULE}")]
    NoRecord,
    /// A step has another number of tasks.
    #[error("step {step} has {found} tasks, but a step of this run has {expected}")]
    Count { step: u64, found: usize, expected: usize },
    /// A step has a task that is drawn later in this run, or never.
    #[error(
        "step {step} has task {task}, which this run does not have by then; set tasks_per_step, staleness, steps, \
         checkpoint_every and the evaluations as they were"
    )]
    NotDrawn { step: u64, task: TaskKey },
    /// Several steps have a task.
    #[error("task {task} is in two steps")]
    Twice { task: TaskKey },
    /// A step is missing.
    #[error("it has no tasks of step {step}; this run has {steps} steps")]
    Missing { step: u64, steps: u64 },
}
