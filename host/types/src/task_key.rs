//! Names of tasks within a run.

use std::fmt;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A task of a run, written `3.1` as the first part of its episodes' names ([`crate::EpisodeId`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskKey {
    /// Step that the task was drawn for.
    pub step: u64,
    /// Number within the step, from 0.
    pub task: u32,
}

impl fmt::Display for TaskKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.step, self.task)
    }
}

impl Serialize for TaskKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TaskKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TaskKey, D::Error> {
        let text = String::deserialize(deserializer)?;
        let parse = || {
            let (step, task) = text.split_once('.')?;
            Some(TaskKey { step: step.parse().ok()?, task: task.parse().ok()? })
        };
        parse().ok_or_else(|| D::Error::custom(format!("invalid task {text:?}: write STEP.TASK, as in 3.1")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_read_as_they_are_written() {
        let task = TaskKey { step: 3, task: 1 };
        assert_eq!(serde_json::to_string(&task).unwrap(), "\"3.1\"");
        assert_eq!(serde_json::from_str::<TaskKey>("\"3.1\"").unwrap(), task);
        for text in ["\"3\"", "\"3.x\"", "\"3.1.0\"", "3.1"] {
            assert!(serde_json::from_str::<TaskKey>(text).is_err(), "{text}");
        }
    }
}
