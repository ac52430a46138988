//! The reward: a right answer for the team and for the agent that gives it, and passages with its evidence for the agent
//! that finds them.

use pl_sdk::prelude::*;
use serde::de::IgnoredAny;

use crate::matching::{exact, f1, lenient};
use crate::questions::{Action, Evidence};

/// Comparison of an answer with the right ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// 1 if they are equal except for case, articles, punctuation and spaces, as HotpotQA's script compares them.
    #[default]
    Exact,
    /// F1 of their words, as HotpotQA's script has it, from 0 to 1.
    F1,
    /// 1 if the answer contains a right one, with at most five other words.
    Lenient,
}

/// Settings of the reward.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-range" = [0, 1]))]
pub struct Settings {
    /// Reward of an answer: `exact`, `f1` or `lenient`. An episode succeeds with a lenient match if it is `lenient`, else
    /// with an exact one.
    pub metric: Metric,
    /// Reward of an agent that finds all of a question's supporting passages, or a part of it for each of them. If the
    /// record names none, a passage that mentions a right answer gives all of it. Nothing is paid twice.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub passage: f64,
}

impl Default for Settings {
    /// Half as much as an answer: a found passage is a means.
    fn default() -> Self {
        Self { metric: Metric::Exact, passage: 0.5 }
    }
}

/// Pays the answer when it is given, and each supporting passage when it is first found.
pub struct Score;

impl Reward for Score {
    const NAME: &'static str = "score";
    const DOC: &'static str =
        "1 for a right answer: the team's and its agent's; and 0.5 for finding the evidence.";
    type Settings = Settings;
    type Action = Action;
    type Facts = IgnoredAny;
    type Evidence = Evidence;

    fn score(settings: &Settings, transition: &Transition<Action, IgnoredAny, Evidence>) -> Result<Scores> {
        if !(0.0..=1.0).contains(&settings.passage) {
            let message = format!("passage = {}, but it is a part: set 0 to 1", settings.passage);
            return Err(Error::settings(message));
        }
        let Evidence { answers, answer, found } = &transition.evidence;
        let (team, success) = answer.as_ref().map_or((0.0, false), |answer| settings.grade(answers, answer));
        let mut answered = false;
        let local = transition.actions.iter().map(|pl_sdk::Action { agent, action }| {
            // Of several agents that answer side by side, the first one's answer counts.
            let own = matches!(action, Action::Answer(_)) && answer.is_some() && !answered;
            answered |= own;
            let found = settings.passage * found.get(agent).copied().unwrap_or_default();
            let reward = found + if own { team } else { 0.0 };
            AgentScore { agent: agent.clone(), reward, success: own && success }
        });
        Ok(Scores { team, local: local.collect(), success })
    }
}

impl Settings {
    /// Returns the reward of an answer, and true if it is right.
    fn grade(&self, answers: &[String], answer: &str) -> (f64, bool) {
        let amount = |right: bool| f64::from(u8::from(right));
        match self.metric {
            Metric::Exact => {
                let right = exact(answers, answer);
                (amount(right), right)
            }
            Metric::F1 => (f1(answers, answer), exact(answers, answer)),
            Metric::Lenient => {
                let right = lenient(answers, answer);
                (amount(right), right)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn score(settings: Settings, actions: &[(&str, Action)], found: &[(&str, f64)]) -> Scores {
        let answer = actions.iter().find_map(|(_, action)| match action {
            Action::Answer(answer) => Some(answer.clone()),
            _ => None,
        });
        let found: BTreeMap<String, f64> =
            found.iter().map(|(agent, share)| ((*agent).to_owned(), *share)).collect();
        let act = |(agent, action): &(&str, Action)| pl_sdk::Action {
            agent: (*agent).to_owned(),
            action: action.clone(),
        };
        let transition = Transition {
            task: Task::new("1", &()).unwrap(),
            actions: actions.iter().map(act).collect(),
            done: false,
            truncated: false,
            facts: IgnoredAny,
            evidence: Evidence { answers: vec!["Arrowhead Stadium".to_owned()], answer, found },
        };
        Score::score(&settings, &transition).unwrap()
    }

    fn answer(text: &str) -> Action {
        Action::Answer(text.to_owned())
    }

    #[test]
    fn answers_are_graded_by_the_metric() {
        let table = [
            (Metric::Exact, "the arrowhead stadium", 1.0, true),
            (Metric::Exact, "Arrowhead", 0.0, false),
            (Metric::F1, "Arrowhead", 2.0 / 3.0, false),
            (Metric::F1, "Arrowhead stadium!", 1.0, true),
            (Metric::Lenient, "at Arrowhead Stadium", 1.0, true),
            (Metric::Lenient, "Arrowhead", 0.0, false),
        ];
        for (metric, text, reward, success) in table {
            let settings = Settings { metric, ..Settings::default() };
            let scores = score(settings, &[("reason", answer(text))], &[]);
            assert!((scores.team - reward).abs() < 1e-12, "{metric:?} {text}");
            let own = &scores.local[0];
            assert_eq!(
                (scores.success, own.success, own.reward),
                (success, success, scores.team),
                "{metric:?} {text}"
            );
        }
    }

    #[test]
    fn found_evidence_pays_the_agent_that_found_it() {
        let search = || Action::Search("x".to_owned());
        let scores = score(Settings::default(), &[("search", search())], &[("search", 0.5)]);
        assert_eq!((scores.team, scores.local[0].reward, scores.success), (0.0, 0.25, false));
        let settings = Settings { passage: 0.0, ..Settings::default() };
        assert_eq!(score(settings, &[("search", search())], &[("search", 1.0)]).local[0].reward, 0.0);
    }

    /// An agent either searches or answers, so that it gets one of the two amounts.
    #[test]
    fn scores_are_within_the_declared_range() {
        let schema = schemars::schema_for!(Settings);
        let declared = schema.get("x-range").unwrap();
        let range = declared[0].as_f64().unwrap()..=declared[1].as_f64().unwrap();
        for metric in [Metric::Exact, Metric::F1, Metric::Lenient] {
            for text in ["Arrowhead Stadium", "Arrowhead Arrowhead Stadium Stadium", "Arrowhead", "", "no"] {
                for share in [0.0, 0.5, 1.0] {
                    let settings = Settings { metric, passage: 1.0 };
                    let actions = [("search", Action::Search("x".to_owned())), ("reason", answer(text))];
                    let scores = score(settings, &actions, &[("search", share)]);
                    let mut parts = scores.local.iter().map(|own| own.reward).chain([scores.team]);
                    assert!(parts.all(|part| range.contains(&part)), "{metric:?} {text}: {scores:?}");
                }
            }
        }
    }

    #[test]
    fn of_answers_side_by_side_the_first_counts() {
        let scores = score(
            Settings::default(),
            &[("a", answer("Arrowhead Stadium")), ("b", answer("Arrowhead Stadium"))],
            &[],
        );
        let rewards: Vec<f64> = scores.local.iter().map(|own| own.reward).collect();
        assert_eq!((scores.team, rewards), (1.0, vec![1.0, 0.0]));
    }
}
