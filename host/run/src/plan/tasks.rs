//! Tasks of a plan: their source, and the number of records of a file.

use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use pl_dsl::workflow;
use pl_types::SourcePath;
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
    /// Reason for which the file can't be read.
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
                Ok((file, records)) => TaskPlan { file: Some(file), records: Some(records), ..empty },
                Err(problem) => {
                    TaskPlan { file: Some(path.into()), problem: Some(problem.to_string()), ..empty }
                }
            },
        }
    }
}

/// Returns a task file and its number of records. As in a run, these are the lines that are not blank.
fn records(checked: &CheckedWorkflow, path: &str) -> Result<(PathBuf, u64), Error> {
    let source = checked.task_file(path).map_err(Error::LocateTasks)?;
    let path = source.path().to_path_buf();
    check_planned(checked, &path)?;
    if data::is_converted(&path) {
        let records = pl_data::read_file(source).map_err(|error| Error::LocateTasks(error.into()))?;
        return Ok((path, records.len() as u64));
    }
    match count_lines(&source) {
        Ok(count) => Ok((path, count)),
        Err(source) => Err(Error::Read { path, source }),
    }
}

/// Counts the lines that are not blank.
fn count_lines(source: &SourcePath) -> io::Result<u64> {
    let mut file = BufReader::with_capacity(1 << 20, source.open()?);
    let (mut count, mut blank) = (0, true);
    loop {
        let bytes = file.fill_buf()?;
        if bytes.is_empty() {
            return Ok(count + u64::from(!blank));
        }
        for byte in bytes {
            match byte {
                b'\n' => {
                    count += u64::from(!blank);
                    blank = true;
                }
                byte => blank = blank && byte.is_ascii_whitespace(),
            }
        }
        let read = bytes.len();
        file.consume(read);
    }
}

/// Checks that a file may be read, and that it does not take minutes.
pub(super) fn check_planned(checked: &CheckedWorkflow, path: &Path) -> Result<(), Error> {
    checked.check_read(path).map_err(Error::NotRead)?;
    match path.metadata() {
        Ok(file) if file.len() > LARGEST_FILE => {
            Err(Error::NotPlanned { path: path.to_path_buf(), largest: LARGEST_FILE })
        }
        _ => Ok(()),
    }
}
