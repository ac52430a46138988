//! The body of a lease: the task with its random streams and its team.

use std::sync::Arc;

use pl_dsl::workflow::Rollout;
use pl_plugin::Task;
use pl_rollout::RolloutPlan;
use pl_types::Phase;
use serde::{Deserialize, Serialize};

use crate::error::cluster::ClusterError;

use super::message;

/// Reference to the team that plays a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TeamRef {
    /// The team of the scenario at this position in the workflow's.
    Scenario(u32),
    /// The team of the evaluation at this position in the workflow's, with its roles and its sampling.
    Evaluation(u32),
}

/// A task with its tree, or its group of episodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TaskToPlay {
    pub team: TeamRef,
    pub seed: u64,
    pub phase: Phase,
    pub step: u64,
    /// Number within the step.
    pub number: u32,
    pub task: Task,
    pub mode: Rollout,
    pub samples: u32,
    pub first_sample: u32,
    /// Versions of all policies.
    pub versions: Vec<u64>,
}

impl TaskToPlay {
    /// Takes a task from the plan of a step. Returns `None` if the plan has no such task.
    pub fn of_plan(team: TeamRef, plan: &RolloutPlan, task: u32) -> Option<TaskToPlay> {
        Some(TaskToPlay {
            team,
            seed: plan.seed,
            phase: plan.phase.clone(),
            step: plan.step,
            number: plan.first_task + task,
            task: plan.tasks.get(task as usize)?.as_ref().clone(),
            mode: plan.mode,
            samples: plan.samples,
            first_sample: plan.first_sample,
            versions: plan.versions.to_vec(),
        })
    }

    /// Decodes the body of the lease of a task.
    ///
    /// # Errors
    /// [`ClusterError::Unreadable`] if it is not one.
    pub fn decode(task: &str, body: &[u8]) -> Result<TaskToPlay, ClusterError> {
        message::decode(&format!("task {task}"), body)
    }

    /// Name in messages: `train 3.1`, `test 10.4`.
    pub fn name(&self) -> String {
        let phase = match &self.phase {
            Phase::Train => "train",
            Phase::Play => "play",
            Phase::Evaluate(name) => name,
        };
        format!("{phase} {}.{}", self.step, self.number)
    }

    /// Returns the plan of this task alone.
    pub fn plan(&self) -> RolloutPlan {
        RolloutPlan {
            seed: self.seed,
            phase: self.phase.clone(),
            step: self.step,
            tasks: vec![Arc::new(self.task.clone())],
            first_task: self.number,
            mode: self.mode,
            samples: self.samples,
            first_sample: self.first_sample,
            in_flight: self.samples.max(1) as usize,
            versions: self.versions.as_slice().into(),
        }
    }
}

#[cfg(test)]
impl TaskToPlay {
    /// A group of two samples of a task, for tests.
    pub fn example() -> TaskToPlay {
        TaskToPlay {
            team: TeamRef::Scenario(0),
            seed: 1,
            phase: Phase::Train,
            step: 3,
            number: 2,
            task: Task { id: "t".to_owned(), data: "{}".to_owned() },
            mode: Rollout::Flat,
            samples: 2,
            first_sample: 0,
            versions: vec![0],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_in_another_form_is_an_error_that_says_what_to_do() {
        let task = TaskToPlay::example();
        let mut body = postcard::to_allocvec(&task).unwrap();
        assert_eq!(TaskToPlay::decode("train 3.2", &body).unwrap(), task);
        let cut = body[..4].to_vec();
        // A later version may have fields that this one lacks.
        body.push(0);
        for body in [cut, body] {
            let error = TaskToPlay::decode("train 3.2", &body).unwrap_err().to_string();
            assert!(error.starts_with("task train 3.2 can't be read"), "{error}");
            assert!(error.contains("another version of pl-host"), "{error}");
        }
    }
}
