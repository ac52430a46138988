//! Names of episodes within a run.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::seed::{Phase, StreamKey};

/// The name of an episode within a run: `12.3.0` (step, task and sample), `test@10.3.0` (in an evaluation),
/// `12.3.0#1` (one of several attempts, counted from 0).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct EpisodeId {
    /// Name of the evaluation. `None` for training and play.
    pub evaluation: Option<String>,
    pub step: u64,
    pub task: u32,
    pub sample: u32,
    /// `None` for the last attempt.
    pub attempt: Option<u32>,
}

/// A text that is not an episode's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid episode {0:?}: write STEP.TASK.SAMPLE, as in 12.3.0; add #ATTEMPT for one of several attempts, and \
     put EVALUATION@ in front for an episode of an evaluation"
)]
pub struct InvalidEpisodeId(String);

impl EpisodeId {
    /// The name of an attempt within its run.
    pub fn from_key(key: &StreamKey) -> EpisodeId {
        EpisodeId {
            evaluation: match &key.phase {
                Phase::Evaluate(name) => Some(name.clone()),
                Phase::Train | Phase::Play => None,
            },
            step: key.step,
            task: key.task,
            sample: key.sample,
            attempt: Some(key.attempt),
        }
    }

    /// True if this names the attempt with that key, or all attempts of its episode.
    pub fn matches(&self, key: &StreamKey) -> bool {
        let id = EpisodeId::from_key(key);
        let attempt = self.attempt.or(id.attempt);
        id == EpisodeId { attempt, ..self.clone() }
    }

    fn parse(text: &str) -> Option<EpisodeId> {
        let (evaluation, rest) = match text.split_once('@') {
            Some(("", _)) => return None,
            Some((name, rest)) => (Some(name.to_owned()), rest),
            None => (None, text),
        };
        let (numbers, attempt) = match rest.split_once('#') {
            Some((numbers, attempt)) => (numbers, Some(attempt.parse().ok()?)),
            None => (rest, None),
        };
        let mut parts = numbers.split('.');
        let step = parts.next()?.parse().ok()?;
        let task = parts.next()?.parse().ok()?;
        let sample = parts.next()?.parse().ok()?;
        parts.next().is_none().then_some(EpisodeId { evaluation, step, task, sample, attempt })
    }
}

impl fmt::Display for EpisodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(evaluation) = &self.evaluation {
            write!(f, "{evaluation}@")?;
        }
        write!(f, "{}.{}.{}", self.step, self.task, self.sample)?;
        self.attempt.map_or(Ok(()), |attempt| write!(f, "#{attempt}"))
    }
}

impl From<EpisodeId> for String {
    fn from(id: EpisodeId) -> String {
        id.to_string()
    }
}

impl TryFrom<String> for EpisodeId {
    type Error = InvalidEpisodeId;

    fn try_from(text: String) -> Result<EpisodeId, InvalidEpisodeId> {
        text.parse()
    }
}

impl FromStr for EpisodeId {
    type Err = InvalidEpisodeId;

    fn from_str(text: &str) -> Result<EpisodeId, InvalidEpisodeId> {
        EpisodeId::parse(text).ok_or_else(|| InvalidEpisodeId(text.to_owned()))
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
            let message = text.parse::<EpisodeId>().unwrap_err().to_string();
            assert!(message.contains("STEP.TASK.SAMPLE"), "{message}");
        }
    }

    #[test]
    fn a_name_without_an_attempt_means_all_of_them() {
        let key = |phase, attempt| StreamKey { seed: 1, phase, step: 4, task: 2, sample: 0, attempt };
        let id: EpisodeId = "4.2.0".parse().unwrap();
        assert!(id.matches(&key(Phase::Train, 0)) && id.matches(&key(Phase::Train, 3)));
        assert!(!id.matches(&key(Phase::Evaluate("test".to_owned()), 0)));
        let second: EpisodeId = "test@4.2.0#1".parse().unwrap();
        assert!(second.matches(&key(Phase::Evaluate("test".to_owned()), 1)));
        assert!(!second.matches(&key(Phase::Evaluate("test".to_owned()), 0)));
    }
}
