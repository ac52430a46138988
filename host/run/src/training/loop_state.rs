//! State of the outer loop that checkpoints keep.

use std::sync::Arc;

use pl_inference::EngineStats;
use pl_record::{LogLengths, RunFolder};
use pl_trainer::checkpoint::EvaluationScore;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::design::DesignRecord;
use crate::error::Error;

use super::cursor::{ScenarioCursor, cursors};
use super::rollouts::PlayedStep;

/// State of the loop after a step, part of every checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoopState {
    /// Number of finished steps.
    pub step: u64,
    /// Positions in the tasks of the scenarios after the finished steps. Empty before the first step.
    #[serde(alias = "next_task", deserialize_with = "cursors")]
    pub scenarios: Vec<ScenarioCursor>,
    /// Lengths of the run folder's append-only files.
    pub lengths: LogLengths,
    /// Score of the untrained team. `None` without an evaluation that scores checkpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untrained: Option<EvaluationScore>,
    /// Steps that were played and not trained on yet, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ahead: Vec<StepAhead>,
}

/// A step that was played ahead of its update. Its transitions are in its step file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepAhead {
    step: u64,
    metrics: Map<String, Value>,
    failures: Vec<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    designs: Vec<DesignRecord>,
    tokens: u64,
    #[serde(alias = "next_task", deserialize_with = "cursors")]
    scenarios: Vec<ScenarioCursor>,
}

impl From<&PlayedStep> for StepAhead {
    fn from(played: &PlayedStep) -> Self {
        StepAhead {
            step: played.step,
            metrics: played.metrics.clone(),
            failures: played.failures.clone(),
            designs: played.designs.clone(),
            tokens: played.tokens,
            scenarios: played.cursors.clone(),
        }
    }
}

impl StepAhead {
    /// Reads the step's transitions from the run folder.
    pub(super) fn read(self, folder: &RunFolder) -> Result<PlayedStep, Error> {
        let transitions = Arc::new(folder.read_step(self.step)?);
        let StepAhead { step, metrics, failures, designs, tokens, scenarios: cursors } = self;
        Ok(PlayedStep {
            step,
            transitions,
            metrics,
            failures,
            designs,
            tokens,
            cursors,
            seconds: 0.0,
            episode_times: Vec::new(),
            episode_tasks: Vec::new(),
            finished: None,
            tasks: Vec::new(),
            published: Vec::new(),
            engine: EngineStats::default(),
            versions: None,
        })
    }
}
