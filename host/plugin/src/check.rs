//! Validation of the values that plugins return.

use std::fmt;

use pl_types::Fact;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::values::{AgentScore, Scores};

/// Checks a JSON document, including its nesting and the range of its numbers, so that later readers accept
/// it.
pub(crate) fn json(name: &str, text: &str) -> Result<(), String> {
    match serde_json::from_str::<ValidJson>(text) {
        Ok(ValidJson) => Ok(()),
        Err(error) => Err(describe_json_error(name, "JSON", &error)),
    }
}

/// Describes the error of parsing `name` as `kind`.
pub(crate) fn describe_json_error(name: &str, kind: &str, error: &serde_json::Error) -> String {
    let message = error.to_string();
    // serde_json limits the nesting to protect the host's stack.
    if message.starts_with("recursion limit") {
        return format!("{name} nests too deeply: the limit is 127 levels of lists and objects");
    }
    format!("{name} is not {kind}: {message}")
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
pub(crate) fn facts(declared: &[Fact], text: &str) -> Result<Map<String, Value>, String> {
    let facts: Map<String, Value> = serde_json::from_str(text)
        .map_err(|error| describe_json_error("the list of facts", "a JSON object", &error))?;
    for fact in declared {
        match facts.get(&fact.name) {
            Some(value) if fact.kind.admits(value) => {}
            Some(value) => {
                let kind = format!("{:?}", fact.kind).to_lowercase();
                return Err(format!("the fact {} is declared as {kind} and is {value}", fact.name));
            }
            None => return Err(format!("the declared fact {} is missing", fact.name)),
        }
    }
    if facts.len() > declared.len()
        && let Some(name) = facts.keys().find(|name| !declared.iter().any(|fact| fact.name == **name))
    {
        return Err(format!("the fact {name} is not declared"));
    }
    Ok(facts)
}

/// Largest absolute value of a reward. Sums and squares of rewards stay finite, so that a reward that is out
/// of all proportion costs its episode and not the run.
const LARGEST_REWARD: f64 = 1e6;

/// Checks that all rewards are within [`LARGEST_REWARD`] and that each agent that acted has exactly one score.
/// Sorts the scores in the order of the actions.
pub(crate) fn scores(mut scores: Scores, actions: &[(String, String)]) -> Result<Scores, String> {
    check_reward("the team's reward", scores.team)?;
    let mut local: Vec<AgentScore> = Vec::with_capacity(actions.len());
    for (agent, _) in actions {
        let Some(index) = scores.local.iter().position(|score| score.agent == *agent) else {
            return Err(format!("{agent} acted and has no score"));
        };
        let score = scores.local.swap_remove(index);
        check_reward(&format!("the reward of {agent}"), score.reward)?;
        local.push(score);
    }
    if let Some(extra) = scores.local.first() {
        return Err(format!("there is a score for {}, which did not act", extra.agent));
    }
    scores.local = local;
    Ok(scores)
}

fn check_reward(name: &str, reward: f64) -> Result<(), String> {
    // False for a reward that is not a number.
    if reward.abs() <= LARGEST_REWARD {
        return Ok(());
    }
    Err(format!("{name} is {reward}, but rewards are between -{LARGEST_REWARD} and {LARGEST_REWARD}"))
}
