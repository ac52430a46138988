//! A reward: a function that scores a step.

use pl_sdk::prelude::*;

/// Settings in the workflow.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Reward of a wrong answer (no answer gets 0).
    #[schemars(range(min = 0, max = 1))]
    pub effort: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { effort: 0.1 }
    }
}

/// Action of an agent; the reward ignores all others.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SumsAction {
    Answer(String),
    #[serde(untagged)]
    Other(serde_json::Value),
}

/// The environment's facts; this reward reads none of them.
#[derive(Deserialize)]
pub struct Facts {}

/// The part of the environment's evidence that this reward reads.
#[derive(Deserialize)]
pub struct Evidence {
    gold: String,
}

pub struct Score;

impl Reward for Score {
    const NAME: &'static str = "score";
    const DOC: &'static str = "1 for the right answer, a little for any answer.";
    type Settings = Settings;
    type Action = SumsAction;
    type Facts = Facts;
    type Evidence = Evidence;

    fn score(settings: &Settings, step: &Transition<SumsAction, Facts, Evidence>) -> Result<Scores> {
        let local: Vec<AgentScore> = step.actions.iter().map(|action| {
            let (reward, success) = match &action.action {
                SumsAction::Answer(text) if text.trim() == step.evidence.gold => (1.0, true),
                SumsAction::Answer(_) => (settings.effort, false),
                SumsAction::Other(_) => (0.0, false),
            };
            AgentScore { agent: action.agent.clone(), reward, success }
        }).collect();
        let success = local.iter().any(|score| score.success);
        Ok(Scores { team: if success { 1.0 } else { 0.0 }, local, success })
    }
}

pl_sdk::export! { rewards: [Score] }

#[cfg(test)]
mod tests {
    use super::*;

    fn score(action: &str) -> Scores {
        let action = Action { agent: "a".to_owned(), action: serde_json::from_str(action).unwrap() };
        let step = Transition {
            task: Task::new("1", &()).unwrap(),
            actions: vec![action],
            done: false,
            truncated: false,
            facts: Facts {},
            evidence: Evidence { gold: "5".to_owned() },
        };
        Score::score(&Settings::default(), &step).unwrap()
    }

    #[test]
    fn right_is_more_than_wrong_and_wrong_more_than_nothing() {
        let rewards = [r#"{"answer": "5"}"#, r#"{"answer": "4"}"#, r#"{"none": "no number"}"#]
            .map(|action| score(action).local[0].reward);
        assert_eq!(rewards, [1.0, 0.1, 0.0]);
        assert!(score(r#"{"answer": " 5 "}"#).success);
    }
}
