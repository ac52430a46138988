//! The tasks of a step: from a file, which is read and checked as a whole before anything is played, or from
//! the environment's generator.

use std::sync::Arc;

use pl_data::Line;
use pl_plugin::Task;
use pl_plugin::call_log::CallLog;
use pl_types::{SourcePath, seed};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value};

use crate::components::{Environment, TaskGenerator};
use crate::error::Error;

/// An endless sequence of tasks, addressed by position. Position n is the same task in every run.
#[derive(Clone)]
pub enum TaskSource {
    File(Arc<TaskFile>),
    Generated { environment: String, generator: Arc<dyn TaskGenerator>, split: String, level: u32 },
}

/// The records of a JSONL file, in an order that is shuffled on each pass.
pub struct TaskFile {
    tasks: Vec<Task>,
    /// Seed of the shuffle. `None` keeps the file's order.
    shuffle: Option<u64>,
}

impl TaskSource {
    /// The tasks at positions `start..start + count`.
    pub async fn take(&self, start: u64, count: u32) -> Result<Vec<Arc<Task>>, Error> {
        match self {
            TaskSource::File(file) => Ok(file.take(start, count)),
            TaskSource::Generated { environment, generator, split, level } => {
                let failed = |cause: String| Error::TaskGenerator { environment: environment.clone(), cause };
                let tasks = generator
                    .tasks(split, start, count, *level)
                    .await
                    .map_err(|fault| failed(fault.to_string()))?;
                if tasks.len() != count as usize {
                    return Err(failed(format!(
                        "the task generator returned {} of {count} tasks",
                        tasks.len()
                    )));
                }
                Ok(tasks.into_iter().map(Arc::new).collect())
            }
        }
    }

    /// The same tasks at another level. Tasks of a file have no levels.
    pub fn at_level(&self, level: u32) -> TaskSource {
        match self.clone() {
            TaskSource::Generated { environment, generator, split, .. } => {
                TaskSource::Generated { environment, generator, split, level }
            }
            file => file,
        }
    }

    /// Number of different tasks. `None` if it is unlimited.
    pub fn size(&self) -> Option<usize> {
        match self {
            TaskSource::File(file) => Some(file.tasks.len()),
            TaskSource::Generated { .. } => None,
        }
    }
}

impl TaskFile {
    /// Reads a JSONL file and starts an episode on every record, so that a bad record is found now and not in
    /// the middle of a run.
    ///
    /// # Errors
    /// [`Error::TaskFile`]; [`Error::Record`] with the file and the line of the first record that the environment refuses;
    /// [`Error::NoTasks`].
    pub async fn read(
        source: impl Into<SourcePath>,
        environment: &dyn Environment,
        shuffle: Option<u64>,
    ) -> Result<TaskFile, Error> {
        let source = source.into();
        let path = source.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let mut tasks = Vec::new();
        for Line { number, text } in pl_data::read_lines(&source)? {
            let task = Task { id: format!("{stem}:{number}"), data: text };
            let started = environment.start(&task, 0, [0; 32], &CallLog::default()).await;
            started.map_err(|fault| Error::Record {
                path: path.to_path_buf(),
                line: number,
                message: format!("{}{}", fault.cause, fields_of(&task.data, &fault.cause)),
            })?;
            tasks.push(task);
        }
        if tasks.is_empty() {
            return Err(Error::NoTasks { path: path.to_path_buf() });
        }
        Ok(TaskFile { tasks, shuffle })
    }

    /// The tasks at positions `start..start + count`, which may span several passes.
    fn take(&self, start: u64, count: u32) -> Vec<Arc<Task>> {
        let size = self.tasks.len() as u64;
        let mut order: Option<(u64, Vec<usize>)> = None;
        let mut taken = Vec::with_capacity(count as usize);
        for position in start..start.saturating_add(u64::from(count)) {
            let (pass, offset) = (position / size, (position % size) as usize);
            let index = match self.shuffle {
                None => offset,
                Some(seed) => match &order {
                    Some((shuffled, order)) if *shuffled == pass => order[offset],
                    _ => order.insert((pass, self.order(seed, pass))).1[offset],
                },
            };
            taken.push(Arc::new(self.tasks[index].clone()));
        }
        taken
    }

    /// The order of one pass: a Fisher-Yates shuffle with its own random stream.
    fn order(&self, seed: u64, pass: u64) -> Vec<usize> {
        let mut stream = ChaCha8Rng::from_seed(seed::task_order(seed, pass));
        let mut order: Vec<usize> = (0..self.tasks.len()).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, (stream.next_u64() % (last as u64 + 1)) as usize);
        }
        order
    }
}

/// Returns a record's fields in words, to follow the reason for which an environment refused it. Empty for a record without
/// fields, or if the reason has them.
fn fields_of(record: &str, reason: &str) -> String {
    let record: Map<String, Value> = serde_json::from_str(record).unwrap_or_default();
    let has_null = record.values().any(Value::is_null);
    if record.is_empty() || !has_null && record.keys().all(|name| reason.contains(name.as_str())) {
        return String::new();
    }
    let field = |(name, value): (&String, &Value)| match value {
        Value::Null => format!("{name} (null)"),
        _ => name.clone(),
    };
    format!("; the record has {}", record.iter().map(field).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_refused_record_is_described_by_its_fields() {
        let fields = |record: Value, reason: &str| fields_of(&record.to_string(), reason);
        let record = json!({ "prompt": "1 + 1?", "target": 2 });
        assert_eq!(fields(record.clone(), "no answer"), "; the record has prompt, target");
        assert_eq!(fields(record, "no answer; this one has: prompt, target"), "");
        let null = json!({ "question": "1 + 1?", "answer": null });
        let reason = "no answer; this one has: question, answer";
        assert_eq!(fields(null, reason), "; the record has question, answer (null)");
        assert_eq!(fields(json!({}), "no answer"), "");
    }

    #[test]
    fn a_pass_has_every_task_once_and_the_next_pass_another_order() {
        let tasks = (0..50).map(|n| Task { id: n.to_string(), data: String::new() }).collect();
        let file = TaskFile { tasks, shuffle: Some(3) };
        let pass = |p: u64| file.take(p * 50, 50).iter().map(|task| task.id.clone()).collect::<Vec<_>>();
        let mut sorted = pass(0);
        sorted.sort_by_key(|id| id.parse::<u32>().unwrap());
        assert_eq!(sorted, (0..50).map(|n| n.to_string()).collect::<Vec<_>>());
        assert_ne!(pass(0), pass(1));
        assert_eq!(pass(1), pass(1));
    }
}
