//! Checks of what plugins return: nothing that another part of the program relies on is taken on trust.

use std::fmt;

use pl_types::Fact;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::{AgentScore, Scores};

/// A JSON document of any kind, that whoever reads it next can read too: not too deep, no number too large.
pub(crate) fn json(what: &str, text: &str) -> Result<(), String> {
    match serde_json::from_str::<Looked>(text) {
        Ok(Looked) => Ok(()),
        Err(error) => Err(not(what, "JSON", &error)),
    }
}

/// That a text is not what it should be.
pub(crate) fn not(what: &str, kind: &str, error: &serde_json::Error) -> String {
    let words = error.to_string();
    // The parser's own bound, which keeps it from the end of the host's stack.
    if words.starts_with("recursion limit") {
        return format!("{what} nests too deeply: 127 lists and objects in one another are the most");
    }
    format!("{what} is not {kind}: {words}")
}

/// A document that was looked at and not kept. Unlike serde's own way to skip one, it goes as deep as reading it
/// would.
struct Looked;

impl<'de> Deserialize<'de> for Looked {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Looked {
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

/// Exactly the declared facts, each of its kind.
pub(crate) fn facts(declared: &[Fact], text: &str) -> Result<Map<String, Value>, String> {
    let facts: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| not("the list of facts", "a JSON object", &error))?;
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

/// Finite numbers, and one score for each agent that acted, which come out in the order of the actions.
pub(crate) fn scores(mut scores: Scores, actions: &[(String, String)]) -> Result<Scores, String> {
    if !scores.team.is_finite() {
        return Err(format!("the team's reward is {}", scores.team));
    }
    let mut local: Vec<AgentScore> = Vec::with_capacity(actions.len());
    for (agent, _) in actions {
        let Some(at) = scores.local.iter().position(|score| score.agent == *agent) else {
            return Err(format!("{agent} acted and has no score"));
        };
        let score = scores.local.swap_remove(at);
        if !score.reward.is_finite() {
            return Err(format!("the reward of {agent} is {}", score.reward));
        }
        local.push(score);
    }
    if let Some(extra) = scores.local.first() {
        return Err(format!("there is a score too many, of {}", extra.agent));
    }
    scores.local = local;
    Ok(scores)
}
