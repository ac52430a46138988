//! What is kept of an attempt at an episode, a failed one too: enough to run its components again without a
//! model, and to see what they did.
//!
//! A trace is a list of entries in the order in which the interpreter goes, whatever the timing was: what an
//! agent was asked (token ids), what the model said, what that meant, what came of it, and what plugins did on the
//! side. Views are not kept: the environment shows them again.

use std::fmt;
use std::str::FromStr;

use pl_dsl::workflow::Rollout;
use pl_plugin::journal::Event;
use pl_plugin::{Finish, Outcome, Scores, Task};
use serde::{Deserialize, Serialize};

use crate::{Fault, Phase, Place};

/// An attempt at an episode (flat) or a tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    pub place: Place,
    pub task: Task,
    pub mode: Rollout,
    /// Tree: candidates per node.
    pub candidates: u32,
    /// Flat: whether the environment made room for others while a model was asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rests: bool,
    pub entries: Vec<Entry>,
    pub end: End,
}

/// Something that happened, and where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub at: Position,
    pub what: What,
}

/// Where in an episode something happened.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Position {
    /// Stops of the turn cursor before it.
    pub stop: u32,
    /// Of which of the stop's candidates; none: of what they share. Flat: always none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<Candidate>,
    /// The workflow's name of the agent in play, where one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// A try at a candidate of a tree's node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Candidate {
    pub branch: u32,
    /// Earlier tries at it that failed.
    pub retry: u32,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// An agent was asked.
    Asked {
        /// The agent's earlier visits.
        visit: u32,
        /// Token ids.
        prompt: Vec<u32>,
    },
    /// An agent sat the turn out.
    Skipped,
    /// The model answered.
    Said { text: String, finish: Finish, tokens: Vec<u32> },
    /// What the answer means: JSON.
    Means(String),
    /// What the joint action led to.
    Outcome(Outcome),
    /// What it earned.
    Scores(Scores),
    /// Tree: the branch that the episode goes on from.
    Chosen(u32),
    /// A plugin did this while a function of the contract was called.
    Did { function: String, events: Vec<Event> },
    /// It could not go on.
    Fault { stage: String, cause: String, reproducible: bool },
}

impl What {
    pub(crate) fn fault(fault: &Fault) -> What {
        What::Fault {
            stage: fault.stage.to_owned(),
            cause: fault.cause.clone(),
            reproducible: fault.reproducible,
        }
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The team's success after the last step.
    pub success: bool,
    /// Cut short.
    pub truncated: bool,
    /// Stops of the turn cursor.
    pub turns: u32,
    /// Tokens sampled.
    pub tokens: u64,
    /// Why it could not be played to its end, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// The name of an episode within a run: `12.3.0` (step, task and sample), `test@10.3.0` (of an evaluation),
/// `12.3.0#1` (one attempt of several; the first is 0).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct EpisodeId {
    pub evaluation: Option<String>,
    pub step: u64,
    pub task: u32,
    pub sample: u32,
    /// None: the last one.
    pub attempt: Option<u32>,
}

impl Place {
    /// The attempt's name within its run.
    pub fn id(&self) -> EpisodeId {
        EpisodeId {
            evaluation: match &self.phase {
                Phase::Evaluate(name) => Some(name.clone()),
                Phase::Train | Phase::Play => None,
            },
            step: self.step,
            task: self.task,
            sample: self.sample,
            attempt: Some(self.attempt),
        }
    }
}

impl EpisodeId {
    /// Whether it names the attempt at `place`, or one of the same episode where it names none.
    pub fn names(&self, place: &Place) -> bool {
        let id = place.id();
        let attempt = self.attempt.or(id.attempt);
        id == EpisodeId { attempt, ..self.clone() }
    }
}

impl fmt::Display for EpisodeId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(evaluation) = &self.evaluation {
            write!(out, "{evaluation}@")?;
        }
        write!(out, "{}.{}.{}", self.step, self.task, self.sample)?;
        self.attempt.map_or(Ok(()), |attempt| write!(out, "#{attempt}"))
    }
}

impl From<EpisodeId> for String {
    fn from(id: EpisodeId) -> String {
        id.to_string()
    }
}

impl TryFrom<String> for EpisodeId {
    type Error = String;

    fn try_from(text: String) -> Result<EpisodeId, String> {
        text.parse()
    }
}

impl FromStr for EpisodeId {
    type Err = String;

    fn from_str(text: &str) -> Result<EpisodeId, String> {
        let wrong = || {
            format!(
                "{text:?} names no episode: write STEP.TASK.SAMPLE, as in 12.3.0, with #ATTEMPT behind it or \
                 EVALUATION@ before it where that is meant"
            )
        };
        let (evaluation, rest) = match text.split_once('@') {
            Some((name, rest)) if !name.is_empty() => (Some(name.to_owned()), rest),
            Some(_) => return Err(wrong()),
            None => (None, text),
        };
        let (numbers, attempt) = match rest.split_once('#') {
            Some((numbers, attempt)) => (numbers, Some(attempt.parse().map_err(|_| wrong())?)),
            None => (rest, None),
        };
        let mut parts = numbers.split('.');
        let mut next = || parts.next().and_then(|part| part.parse::<u64>().ok());
        let (Some(step), Some(task), Some(sample), None) = (next(), next(), next(), parts.next()) else {
            return Err(wrong());
        };
        let narrow = |number: u64| u32::try_from(number).map_err(|_| wrong());
        Ok(EpisodeId { evaluation, step, task: narrow(task)?, sample: narrow(sample)?, attempt })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_episodes_are_read_as_they_are_written() {
        for text in ["12.3.0", "12.3.0#1", "test@10.3.0", "held_out@0.0.7#2"] {
            assert_eq!(text.parse::<EpisodeId>().unwrap().to_string(), text);
        }
        for text in ["", "12", "12.3", "1.2.3.4", "1.2.x", "@1.2.3", "1.2.3#", "1.2.4294967296", "-1.0.0"] {
            let message = text.parse::<EpisodeId>().unwrap_err();
            assert!(message.contains("STEP.TASK.SAMPLE"), "{message}");
        }
    }

    #[test]
    fn a_name_without_an_attempt_means_all_of_them() {
        let place = |phase, attempt| Place { seed: 1, phase, step: 4, task: 2, sample: 0, attempt };
        let id: EpisodeId = "4.2.0".parse().unwrap();
        assert!(id.names(&place(Phase::Train, 0)) && id.names(&place(Phase::Train, 3)));
        assert!(!id.names(&place(Phase::Evaluate("test".to_owned()), 0)));
        let second: EpisodeId = "test@4.2.0#1".parse().unwrap();
        assert!(second.names(&place(Phase::Evaluate("test".to_owned()), 1)));
        assert!(!second.names(&place(Phase::Evaluate("test".to_owned()), 0)));
    }
}
