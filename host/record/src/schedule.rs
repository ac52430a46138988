//! `schedule.jsonl`: the tasks that each update has trained on, in runs whose tasks are trained on in the order in which they
//! end.

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

/// Returns the step whose update trains on a task: the one that it was drawn for, unless the record of the run says otherwise.
///
/// # Errors
/// Those of [`read_schedule`].
pub fn trained_in(run: &Path, task: TaskKey) -> Result<u64, Error> {
    let batches = read_schedule(run)?.unwrap_or_default();
    let own = batches.into_iter().find(|batch| batch.tasks.contains(&task));
    Ok(own.map_or(task.step, |batch| batch.step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_found_in_the_step_that_trains_on_it() {
        let run = tempfile::tempdir().unwrap();
        let task = |step, task| TaskKey { step, task };
        assert_eq!(trained_in(run.path(), task(4, 0)).unwrap(), 4);
        assert_eq!(read_schedule(run.path()).unwrap(), None);
        let text = "{\"step\":1,\"tasks\":[\"1.1\",\"2.0\"]}\n{\"step\":2,\"tasks\":[\"1.0\",\"2.1\"]}\n";
        std::fs::write(run.path().join(SCHEDULE), text).unwrap();
        assert_eq!(trained_in(run.path(), task(2, 0)).unwrap(), 1);
        assert_eq!(trained_in(run.path(), task(1, 0)).unwrap(), 2);
        // Played, and in no batch yet.
        assert_eq!(trained_in(run.path(), task(3, 0)).unwrap(), 3);
        // The rest of the last line is not written yet.
        std::fs::write(run.path().join(SCHEDULE), format!("{text}{{\"step\":3,")).unwrap();
        assert_eq!(trained_in(run.path(), task(1, 0)).unwrap(), 2);
        std::fs::write(run.path().join(SCHEDULE), "{\"step\":1,\"tasks\":[\"1\"]}\n").unwrap();
        assert!(trained_in(run.path(), task(1, 0)).unwrap_err().to_string().contains("write STEP.TASK"));
    }
}
