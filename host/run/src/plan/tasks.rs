//! Tasks of a plan: their source, and the number of records of a file.

use std::io;
use std::path::{Path, PathBuf};

use pl_dsl::workflow;
use serde::Serialize;

use crate::data;
use crate::error::Error;
use crate::workflow::CheckedWorkflow;

/// Largest file of tasks or passages that is read for a plan, in bytes. It takes a few seconds.
const LARGEST_FILE: u64 = 4 << 30;

/// Tasks of an environment or an evaluation.
#[derive(Serialize)]
pub struct TaskPlan {
    /// Name of the environment or of the evaluation.
    pub name: String,
    pub file: Option<PathBuf>,
    pub records: Option<u64>,
    /// Generator in words, if there is no file.
    pub generator: Option<String>,
    /// Reason for which the file can't be read or played.
    pub problem: Option<String>,
}

impl TaskPlan {
    pub(super) fn new(checked: &CheckedWorkflow, name: &str, tasks: &workflow::Tasks) -> TaskPlan {
        let empty =
            TaskPlan { name: name.to_owned(), file: None, records: None, generator: None, problem: None };
        match tasks {
            workflow::Tasks::Generated { split, level } => {
                TaskPlan { generator: Some(format!("split {split}, level {level}")), ..empty }
            }
            workflow::Tasks::Named(data) => match data::count(data) {
                Ok((file, records)) => TaskPlan { file: Some(file), records: Some(records), ..empty },
                Err(problem) => TaskPlan { problem: Some(problem.to_string()), ..empty },
            },
            workflow::Tasks::File(path) => match records(checked, path) {
                Ok((file, 0)) => {
                    let problem = Some(format!("{} has no tasks", file.display()));
                    TaskPlan { file: Some(file), records: Some(0), problem, ..empty }
                }
                Ok((file, records)) => TaskPlan { file: Some(file), records: Some(records), ..empty },
                Err(problem) => {
                    TaskPlan { file: Some(path.into()), problem: Some(problem.to_string()), ..empty }
                }
            },
        }
    }
}

/// Returns a task file, or the first of a folder's split, and the number of records.
fn records(checked: &CheckedWorkflow, written: &str) -> Result<(PathBuf, u64), Error> {
    let sources = checked.task_sources(written).map_err(Error::LocateTasks)?;
    let mut count = 0;
    for source in &sources {
        check_planned(checked, source.path())?;
        count += pl_data::count_records(source).map_err(|error| Error::LocateTasks(error.into()))?;
    }
    let first = sources.first().map_or_else(|| written.into(), |source| source.path().to_path_buf());
    Ok((first, count))
}

/// Checks that a file may be read, that it is one, and that it does not take minutes.
pub(super) fn check_planned(checked: &CheckedWorkflow, path: &Path) -> Result<(), Error> {
    checked.check_read(path).map_err(Error::NotRead)?;
    match path.metadata() {
        // Opening a pipe would wait for a writer.
        Ok(file) if !file.is_file() => {
            Err(Error::Read { path: path.to_path_buf(), source: io::Error::other("it is not a file") })
        }
        Ok(file) if file.len() > LARGEST_FILE => {
            Err(Error::NotPlanned { path: path.to_path_buf(), largest: LARGEST_FILE })
        }
        _ => Ok(()),
    }
}
