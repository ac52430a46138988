//! Validation of the values that plugins return.

use std::fmt;

use pl_types::Fact;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::values::{AgentScore, Scores};

/// Violation of the contract by a value that a plugin returned.
#[derive(Debug, Error)]
pub(crate) enum InvalidValue {
    /// Exceeds serde_json's limit of nesting, which protects the host's stack.
    #[error("{name} nests too deeply: the limit is 127 levels of lists and objects")]
    TooDeep { name: String },
    #[error("{name} is not {kind}: {source}")]
    Syntax { name: String, kind: &'static str, source: serde_json::Error },
    #[error("the fact {name} is declared as {kind} and is {value}")]
    FactKind { name: String, kind: String, value: Value },
    #[error("the declared fact {0} is missing")]
    MissingFact(String),
    #[error("the fact {0} is not declared")]
    UndeclaredFact(String),
    #[error("{0} acted and has no score")]
    MissingScore(String),
    #[error("there is a score for {0}, which did not act")]
    ExtraScore(String),
    #[error("there are several scores for {0}")]
    RepeatedScore(String),
    #[error("{name} is {reward}, but rewards are between -{LARGEST_REWARD} and {LARGEST_REWARD}")]
    RewardRange { name: String, reward: f64 },
    #[error("a prompt without messages")]
    NoMessages,
    #[error("a stop string is empty, which would end every completion at once")]
    EmptyStopString,
    #[error("a drawing has {0} bytes, more than {MAX_DRAWING}")]
    DrawingSize(usize),
    #[error("{expected} results of tool calls were expected and {found} were returned")]
    ToolResultCount { expected: usize, found: usize },
    #[error("{expected} tasks were requested and {found} were returned")]
    TaskCount { expected: u32, found: usize },
}

/// Largest drawing, in bytes: a board of 100 x 100 cells, and small enough for a page with many.
pub const MAX_DRAWING: usize = 256 << 10;

/// Checks a drawing.
pub(crate) fn drawing(text: String) -> Result<String, InvalidValue> {
    match text.len() {
        ..=MAX_DRAWING => Ok(text),
        bytes => Err(InvalidValue::DrawingSize(bytes)),
    }
}

/// Checks a JSON document, including its nesting and the range of its numbers, so that later readers accept
/// it.
pub(crate) fn json(name: &str, text: &str) -> Result<(), InvalidValue> {
    match serde_json::from_str::<ValidJson>(text) {
        Ok(ValidJson) => Ok(()),
        Err(error) => Err(json_error(name, "JSON", error)),
    }
}

/// Creates the error of parsing `name` as `kind`.
pub(crate) fn json_error(
    name: impl Into<String>,
    kind: &'static str,
    source: serde_json::Error,
) -> InvalidValue {
    let name = name.into();
    if source.to_string().starts_with("recursion limit") {
        return InvalidValue::TooDeep { name };
    }
    InvalidValue::Syntax { name, kind, source }
}

/// A document that is validated and not kept. Unlike [`serde::de::IgnoredAny`], it is subject to the parser's
/// limit of nesting.
struct ValidJson;

impl<'de> Deserialize<'de> for ValidJson {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for ValidJson {
    type Value = Self;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self, A::Error> {
        while entries.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }
}

/// Parses an outcome's facts, which must be exactly the declared ones, each of its kind.
pub(crate) fn facts(declared: &[Fact], text: &str) -> Result<Map<String, Value>, InvalidValue> {
    let facts: Map<String, Value> = serde_json::from_str(text)
        .map_err(|error| json_error("the list of facts", "a JSON object", error))?;
    for fact in declared {
        match facts.get(&fact.name) {
            Some(value) if fact.kind.admits(value) => {}
            Some(value) => {
                let kind = format!("{:?}", fact.kind).to_lowercase();
                let (name, value) = (fact.name.clone(), value.clone());
                return Err(InvalidValue::FactKind { name, kind, value });
            }
            None => return Err(InvalidValue::MissingFact(fact.name.clone())),
        }
    }
    if facts.len() > declared.len()
        && let Some(name) = facts.keys().find(|name| !declared.iter().any(|fact| fact.name == **name))
    {
        return Err(InvalidValue::UndeclaredFact(name.clone()));
    }
    Ok(facts)
}

/// Largest absolute value of a reward. Sums and squares of rewards stay finite, so that a reward that is out
/// of all proportion costs its episode and not the run.
pub const LARGEST_REWARD: f64 = 1e6;

/// Checks that all rewards are within [`LARGEST_REWARD`] and that each agent that acted has exactly one score.
/// Sorts the scores in the order of the actions.
pub(crate) fn scores(mut scores: Scores, actions: &[(String, String)]) -> Result<Scores, InvalidValue> {
    check_reward("the team's reward", scores.team)?;
    let mut local: Vec<AgentScore> = Vec::with_capacity(actions.len());
    for (agent, _) in actions {
        let Some(index) = scores.local.iter().position(|score| score.agent == *agent) else {
            return Err(InvalidValue::MissingScore(agent.clone()));
        };
        let score = scores.local.swap_remove(index);
        check_reward(&format!("the reward of {agent}"), score.reward)?;
        local.push(score);
    }
    if let Some(extra) = scores.local.first() {
        let agent = extra.agent.clone();
        let has_acted = local.iter().any(|score| score.agent == agent);
        return Err(if has_acted {
            InvalidValue::RepeatedScore(agent)
        } else {
            InvalidValue::ExtraScore(agent)
        });
    }
    scores.local = local;
    Ok(scores)
}

fn check_reward(name: &str, reward: f64) -> Result<(), InvalidValue> {
    // False for a reward that is not a number.
    if reward.abs() <= LARGEST_REWARD {
        return Ok(());
    }
    Err(InvalidValue::RewardRange { name: name.to_owned(), reward })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_agent_that_acted_has_one_score() {
        let check = |agents: &[&str]| {
            let score = |agent: &&str| AgentScore { agent: (*agent).to_owned(), reward: 0.0, success: false };
            let local = agents.iter().map(score).collect();
            let actions = ["a", "b"].map(|agent| (agent.to_owned(), String::new()));
            scores(Scores { team: 0.0, local, success: false }, &actions)
                .map(|_| ())
                .map_err(|e| e.to_string())
        };
        assert_eq!(check(&["b", "a"]), Ok(()));
        assert_eq!(check(&["a"]), Err("b acted and has no score".to_owned()));
        assert_eq!(check(&["a", "b", "c"]), Err("there is a score for c, which did not act".to_owned()));
        assert_eq!(check(&["a", "b", "b"]), Err("there are several scores for b".to_owned()));
    }

    #[test]
    fn rewards_of_any_size_within_the_range_pass_and_no_others() {
        let check = |team: f64, local: f64| {
            let local = vec![AgentScore { agent: "a".to_owned(), reward: local, success: false }];
            scores(Scores { team, local, success: false }, &[("a".to_owned(), String::new())])
        };
        for reward in [0.0, -0.0, 5e-324, 1.0, LARGEST_REWARD, -LARGEST_REWARD] {
            assert!(check(reward, reward).is_ok(), "{reward}");
        }
        for reward in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.7e308, -1.7e308, 1_000_001.0] {
            for (team, local) in [(reward, 0.0), (0.0, reward)] {
                let refused = check(team, local);
                assert!(matches!(refused, Err(InvalidValue::RewardRange { .. })), "{reward}: {refused:?}");
            }
        }
    }
}
