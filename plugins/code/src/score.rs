//! The reward: 1 for the team if all tests pass, the share of tests that hold for each agent.

use pl_sdk::prelude::*;

use crate::attempt::Tally;
use crate::problems::{Action, Evidence, Facts};

/// The team gets 1 if its newest program passes all tests, else 0. An agent's local reward is the share of tests
/// (assert statements, or inputs) that hold for its program, which distinguishes programs in a group of
/// failures. An action without a program, or a program that can't be loaded, gets 0. No reward is outside of 0
/// to 1.
pub struct Score;

impl Reward for Score {
    const NAME: &'static str = "score";
    const DOC: &'static str =
        "For the team 1 if all tests pass; for each agent the share of tests that hold.";
    type Settings = NoSettings;
    type Action = Action;
    type Facts = Facts;
    type Evidence = Evidence;

    fn score(_settings: &NoSettings, transition: &Transition<Action, Facts, Evidence>) -> Result<Scores> {
        let Evidence { team, latest } = &transition.evidence;
        let local = transition.actions.iter().map(|action| {
            let own = latest.get(&action.agent).copied().unwrap_or_default();
            AgentScore { agent: action.agent.clone(), reward: own.share(), success: own.passed() }
        });
        let success = Tally::passed(*team);
        Ok(Scores { team: if success { 1.0 } else { 0.0 }, local: local.collect(), success })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn score(own: (u32, u32), team: (u32, u32)) -> (f64, bool, f64, bool) {
        let tally = |(held, total)| Tally { held, total };
        let transition = Transition {
            task: Task::new("1", &()).unwrap(),
            actions: vec![pl_sdk::Action { agent: "a".to_owned(), action: Action::Python(String::new()) }],
            done: false,
            truncated: false,
            facts: Facts { passed: false, ran: false },
            evidence: Evidence { team: tally(team), latest: BTreeMap::from([("a".to_owned(), tally(own))]) },
        };
        let scores = Score::score(&NoSettings {}, &transition).unwrap();
        (scores.team, scores.success, scores.local[0].reward, scores.local[0].success)
    }

    #[test]
    fn team_and_local_rewards_are_independent() {
        assert_eq!(score((4, 4), (4, 4)), (1.0, true, 1.0, true));
        assert_eq!(score((3, 4), (3, 4)), (0.0, false, 0.75, false));
        assert_eq!(score((1, 4), (4, 4)), (1.0, true, 0.25, false));
        assert_eq!(
            score((0, 0), (4, 4)),
            (1.0, true, 0.0, false),
            "an agent without a program gets no reward for the team's"
        );
        assert_eq!(score((0, 0), (0, 0)), (0.0, false, 0.0, false));
    }
}
