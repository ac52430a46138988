//! `schedule.jsonl`: the tasks that each update has trained on, in runs whose tasks are trained on in the order in which they
//! end.

use std::collections::HashMap;
use std::path::Path;

use pl_types::TaskKey;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::jsonl::parse_lines;
use crate::text_file::{LARGEST_TEXT, read_text};

/// Name of the file in a run folder.
pub const SCHEDULE: &str = "schedule.jsonl";

/// The tasks of an update. A line of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedBatch {
    pub step: u64,
    pub tasks: Vec<TaskKey>,
}

/// Reads the tasks of each update of a run. Returns `None` if each update trains on the tasks that were drawn for it.
///
/// # Errors
/// [`Error::Io`], also if the file is larger than 64 MiB; [`Error::Line`].
pub fn read_schedule(run: &Path) -> Result<Option<Vec<RecordedBatch>>, Error> {
    let path = run.join(SCHEDULE);
    if !path.is_file() {
        return Ok(None);
    }
    let text = read_text(&path, LARGEST_TEXT).map_err(Error::io("read", &path))?;
    parse_lines(&path, &text).map(Some)
}

/// The steps whose updates train on the tasks of a run.
#[derive(Debug)]
pub struct TrainedSteps(HashMap<TaskKey, u64>);

impl TrainedSteps {
    /// Reads the record of a run.
    ///
    /// # Errors
    /// Those of [`read_schedule`].
    pub fn read(run: &Path) -> Result<TrainedSteps, Error> {
        let batches = read_schedule(run)?.unwrap_or_default().into_iter();
        let steps = batches.flat_map(|batch| batch.tasks.into_iter().map(move |task| (task, batch.step)));
        Ok(TrainedSteps(steps.collect()))
    }

    /// Returns the step whose update trains on a task: the one that it was drawn for, unless the record says otherwise.
    pub fn step_of(&self, task: TaskKey) -> u64 {
        self.0.get(&task).copied().unwrap_or(task.step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_found_in_the_step_that_trains_on_it() {
        let run = tempfile::tempdir().unwrap();
        let task = |step, task| TaskKey { step, task };
        let trained_in = |task| TrainedSteps::read(run.path()).unwrap().step_of(task);
        assert_eq!(trained_in(task(4, 0)), 4);
        assert_eq!(read_schedule(run.path()).unwrap(), None);
        let text = "{\"step\":1,\"tasks\":[\"1.1\",\"2.0\"]}\n{\"step\":2,\"tasks\":[\"1.0\",\"2.1\"]}\n";
        std::fs::write(run.path().join(SCHEDULE), text).unwrap();
        assert_eq!(trained_in(task(2, 0)), 1);
        assert_eq!(trained_in(task(1, 0)), 2);
        // Played, and in no batch yet.
        assert_eq!(trained_in(task(3, 0)), 3);
        // The rest of the last line is not written yet.
        std::fs::write(run.path().join(SCHEDULE), format!("{text}{{\"step\":3,")).unwrap();
        assert_eq!(trained_in(task(1, 0)), 2);
        std::fs::write(run.path().join(SCHEDULE), "{\"step\":1,\"tasks\":[\"1\"]}\n").unwrap();
        assert!(TrainedSteps::read(run.path()).unwrap_err().to_string().contains("write STEP.TASK"));
    }
}
