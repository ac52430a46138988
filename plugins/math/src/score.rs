//! The reward: 1 for a right answer, for each agent and for the team; or the reference's amounts for each agent.

use pl_sdk::prelude::*;
use serde::de::IgnoredAny;

use crate::agents::NO_PROGRAM;
use crate::grader;
use crate::problems::{Action, Evidence};

/// Rules of the rewards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rules {
    /// 1 for a right answer, else 0.
    #[default]
    Sound,
    /// The amounts of the reference's program (PettingLLMs), for comparison with published numbers: an agent that runs
    /// programs gets 1, 0 for a wrong result and -1 without a result; an agent that answers in words gets 2 or 0.
    /// The team part stays 1 or 0.
    Reference,
}

/// Settings of the reward.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
// An item declares one range, whatever its settings are: this one has room for the reference's amounts.
#[schemars(extend("x-range" = [-1, 2]))]
pub struct Settings {
    /// Rules of the rewards: `sound`, or `reference` to compare with published numbers.
    pub rules: Rules,
}

/// 1 for a right answer, else 0, unless the rules are the reference's. It grades any environment whose evidence has
/// `gold`, `answer` and `latest`; the facts don't matter.
pub struct Score;

impl Reward for Score {
    const NAME: &'static str = "score";
    const DOC: &'static str = "1 for a right answer: each agent's own one, and the current one of the team.";
    type Settings = Settings;
    type Action = Action;
    type Facts = IgnoredAny;
    type Evidence = Evidence;

    fn score(settings: &Settings, transition: &Transition<Action, IgnoredAny, Evidence>) -> Result<Scores> {
        let evidence = &transition.evidence;
        let right =
            |answer: Option<&String>| answer.is_some_and(|answer| grader::grade(&evidence.gold, answer));
        // The team's answer is the newest one in words or, if there is none, that of its program.
        let answer = evidence.answer.as_ref().or(evidence.tool_answer.as_ref());
        let team = right(answer);
        let local = transition.actions.iter().map(|action| {
            let own = evidence.latest.get(&action.agent).and_then(Option::as_ref);
            // Usually the agent has just given the team's answer. Grading is the expensive part of a turn.
            let success = if own == answer { team } else { right(own) };
            let reward = match settings.rules {
                Rules::Sound => amount(success),
                Rules::Reference => reference_amount(&action.action, own.is_some(), success),
            };
            AgentScore { agent: action.agent.clone(), reward, success }
        });
        Ok(Scores { team: amount(team), local: local.collect(), success: team })
    }
}

fn amount(success: bool) -> f64 {
    if success { 1.0 } else { 0.0 }
}

/// Returns an agent's own reward by the reference's rules.
fn reference_amount(action: &Action, answered: bool, success: bool) -> f64 {
    match action {
        Action::Python(_) if !answered => -1.0,
        Action::Python(_) => amount(success),
        Action::Answer(_) | Action::Solution(_) => 2.0 * amount(success),
        Action::None(reason) if reason == NO_PROGRAM => -1.0,
        Action::None(_) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn score(
        action: Action,
        tool: Option<&str>,
        answer: Option<&str>,
        own: Option<&str>,
    ) -> (f64, f64, bool, bool) {
        score_by(Rules::Sound, action, tool, answer, own)
    }

    fn score_by(
        rules: Rules,
        action: Action,
        tool: Option<&str>,
        answer: Option<&str>,
        own: Option<&str>,
    ) -> (f64, f64, bool, bool) {
        let text = |text: Option<&str>| text.map(str::to_owned);
        let evidence = Evidence {
            gold: "7".to_owned(),
            tool_answer: text(tool),
            answer: text(answer),
            latest: BTreeMap::from([("a".to_owned(), text(own))]),
        };
        let transition = Transition {
            task: Task::new("1", &()).unwrap(),
            actions: vec![pl_sdk::Action { agent: "a".to_owned(), action }],
            done: false,
            truncated: false,
            facts: IgnoredAny,
            evidence,
        };
        let scores = Score::score(&Settings { rules }, &transition).unwrap();
        (scores.team, scores.local[0].reward, scores.success, scores.local[0].success)
    }

    #[test]
    fn team_and_local_rewards_are_independent() {
        let python = || Action::Python(String::new());
        let answer = || Action::Answer(String::new());
        assert_eq!(score(python(), Some("7"), None, Some("7")), (1.0, 1.0, true, true));
        assert_eq!(score(python(), Some("8"), Some("7"), Some("8")), (1.0, 0.0, true, false));
        assert_eq!(score(python(), Some("7"), Some("8"), Some("7")), (0.0, 1.0, false, true));
        assert_eq!(score(answer(), Some("8"), Some("7 apples"), Some("7 apples")), (1.0, 1.0, true, true));
        // An agent without an answer gets no reward for the team's.
        assert_eq!(score(Action::None(String::new()), Some("7"), Some("7"), None), (1.0, 0.0, true, false));
        assert_eq!(score(python(), None, None, None), (0.0, 0.0, false, false));
    }

    #[test]
    fn the_references_amounts() {
        let python = || Action::Python(String::new());
        let answer = || Action::Answer(String::new());
        let none = |reason: &str| Action::None(reason.to_owned());
        // Action, result of the program, answer in words, the agent's own newest one: its reward, worked out by hand.
        // The right answer is 7.
        let table = [
            (python(), Some("7"), None, Some("7"), 1.0),
            (python(), Some("8"), None, Some("8"), 0.0),
            (python(), Some("8"), Some("7"), Some("8"), 0.0),
            (python(), None, None, None, -1.0),
            (python(), None, Some("7"), None, -1.0),
            (none(NO_PROGRAM), None, None, None, -1.0),
            (answer(), None, Some("7"), Some("7"), 2.0),
            (answer(), Some("7"), Some("8"), Some("8"), 0.0),
            (none("no answer"), Some("7"), None, None, 0.0),
        ];
        for (action, tool, answer, own, expected) in table {
            let shown = format!("{action:?}, {tool:?}, {answer:?}, {own:?}");
            let (team, reward, team_success, _) = score_by(Rules::Reference, action, tool, answer, own);
            assert_eq!(reward, expected, "{shown}");
            assert_eq!(team, if team_success { 1.0 } else { 0.0 }, "{shown}");
        }
    }

    #[test]
    fn scores_are_within_the_declared_range() {
        let schema = schemars::schema_for!(Settings);
        let declared = schema.get("x-range").unwrap();
        let (low, high) = (declared[0].as_f64().unwrap(), declared[1].as_f64().unwrap());
        let actions = [
            Action::Python(String::new()),
            Action::Answer(String::new()),
            Action::None(NO_PROGRAM.to_owned()),
            Action::None(String::new()),
        ];
        let mut seen: Vec<f64> = Vec::new();
        for rules in [Rules::Sound, Rules::Reference] {
            for action in &actions {
                for own in [None, Some("7"), Some("8")] {
                    let (team, reward, ..) = score_by(rules, action.clone(), None, own, own);
                    let range = if rules == Rules::Sound { 0.0..=1.0 } else { low..=high };
                    assert!((0.0..=1.0).contains(&team) && range.contains(&reward), "{action:?}");
                    seen.extend([team, reward]);
                }
            }
        }
        // The range is no wider than the scores are.
        assert!(seen.contains(&low) && seen.contains(&high), "{seen:?}");
    }
}
