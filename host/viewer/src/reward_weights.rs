//! Weights of rewards: settings of a scenario's reward, by which the recorded parts of a reward are added up.

use serde_json::{Map, Value};

use crate::event::ScoresRecord;

/// Weights of the shared and of the agents' own parts of a reward.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RewardWeights {
    pub(crate) team: f64,
    pub(crate) local: f64,
}

impl RewardWeights {
    /// Reads the weights of a scenario; each is 1 if it is missing.
    fn from_scenario(scenario: &Value) -> RewardWeights {
        let weight = |name: &str| scenario.get("reward").and_then(|reward| reward.get(name)?.as_f64());
        RewardWeights { team: weight("team").unwrap_or(1.0), local: weight("local").unwrap_or(1.0) }
    }

    /// Returns the reward of an agent for a step.
    pub(crate) fn reward(self, scores: &ScoresRecord, agent: &str) -> f64 {
        let local = scores.local.iter().find(|score| score.agent == agent).map_or(0.0, |score| score.reward);
        self.team * scores.team + self.local * local
    }
}

/// Weights of a run's scenarios.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScenarioWeights {
    /// Weights of episodes without a scenario's name: those of the first one.
    first: RewardWeights,
    named: Vec<(String, RewardWeights)>,
}

impl ScenarioWeights {
    /// Reads the weights from the stored workflow; all are 1 if it has none.
    pub(crate) fn from_workflow(workflow: &Map<String, Value>) -> ScenarioWeights {
        let scenarios = workflow.get("scenarios").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let named = scenarios.iter().filter_map(|scenario| {
            let name = scenario.get("name")?.as_str()?;
            Some((name.to_owned(), RewardWeights::from_scenario(scenario)))
        });
        let first = RewardWeights::from_scenario(scenarios.first().unwrap_or(&Value::Null));
        ScenarioWeights { first, named: named.collect() }
    }

    /// Returns the weights of a scenario.
    pub(crate) fn for_scenario(&self, scenario: Option<&str>) -> RewardWeights {
        let own = scenario.and_then(|scenario| self.named.iter().find(|(name, _)| name == scenario));
        own.map_or(self.first, |(_, weights)| *weights)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_scenario_has_its_own_weights_and_missing_ones_are_1() {
        let weights = |workflow: Value| ScenarioWeights::from_workflow(workflow.as_object().unwrap());
        let pair = |weights: RewardWeights| (weights.team, weights.local);
        let two = weights(json!({ "scenarios": [
            { "name": "sums", "reward": { "team": 1.0, "local": 0.5 } },
            { "name": "maze", "reward": { "team": 0.25 } },
        ] }));
        assert_eq!(pair(two.for_scenario(Some("sums"))), (1.0, 0.5));
        assert_eq!(pair(two.for_scenario(Some("maze"))), (0.25, 1.0));
        let unnamed = weights(json!({ "scenarios": [{ "name": null, "reward": { "local": 0.5 } }] }));
        assert_eq!(pair(unnamed.for_scenario(None)), (1.0, 0.5));
        assert_eq!(pair(weights(json!({})).for_scenario(Some("sums"))), (1.0, 1.0));
    }
}
