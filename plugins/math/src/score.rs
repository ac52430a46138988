//! The reward: 1 for a right answer, for each agent and for the team.

use pl_sdk::prelude::*;
use serde::de::IgnoredAny;

use crate::grader;
use crate::problems::{Action, Evidence};

/// 1 for a right answer, else 0. It grades any environment whose evidence has `gold`, `answer` and `latest`;
/// the facts don't matter.
pub struct Score;

impl Reward for Score {
    const NAME: &'static str = "score";
    const DOC: &'static str = "1 for a right answer: each agent's own one, and the current one of the team.";
    type Settings = NoSettings;
    type Action = Action;
    type Facts = IgnoredAny;
    type Evidence = Evidence;

    fn score(
        _settings: &NoSettings,
        transition: &Transition<Action, IgnoredAny, Evidence>,
    ) -> Result<Scores> {
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
            AgentScore { agent: action.agent.clone(), reward: reward(success), success }
        });
        Ok(Scores { team: reward(team), local: local.collect(), success: team })
    }
}

fn reward(success: bool) -> f64 {
    if success { 1.0 } else { 0.0 }
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
        let scores = Score::score(&NoSettings {}, &transition).unwrap();
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
}
