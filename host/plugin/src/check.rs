//! Checks of what plugins return: nothing that another part of the program relies on is taken on trust.

use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use crate::{AgentScore, Fact, Scores};

/// A JSON document of any kind.
pub(crate) fn json(what: &str, text: &str) -> Result<(), String> {
    serde_json::from_str::<IgnoredAny>(text)
        .map(|_| ())
        .map_err(|error| format!("{what} is not JSON: {error}"))
}

/// Exactly the declared facts, each of its kind.
pub(crate) fn facts(declared: &[Fact], text: &str) -> Result<Map<String, Value>, String> {
    let facts: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| format!("the facts are not a JSON object: {error}"))?;
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
