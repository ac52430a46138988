//! The reward: passed or not for the team, the share of asserts that held for each agent.

use pl_sdk::prelude::*;

use crate::problems::{Action, Evidence, Facts};
use crate::run::Tally;

/// The team earns 1 when its newest program passes all tests, and 0 otherwise. An agent's own part is the share of
/// the tests' assert statements that held for its program: a group of programs that all fail has something to be
/// told apart by. What was no program, and what never got to its tests, earns nothing.
pub struct Score;

impl Reward for Score {
    const NAME: &'static str = "score";
    const DOC: &'static str =
        "For the team 1 when all tests pass; for each agent the share of asserts that held.";
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
    fn each_part_is_its_own() {
        assert_eq!(score((4, 4), (4, 4)), (1.0, true, 1.0, true));
        assert_eq!(score((3, 4), (3, 4)), (0.0, false, 0.75, false));
        assert_eq!(score((1, 4), (4, 4)), (1.0, true, 0.25, false));
        assert_eq!(score((0, 0), (4, 4)), (1.0, true, 0.0, false), "who says nothing lives on nobody's work");
        assert_eq!(score((0, 0), (0, 0)), (0.0, false, 0.0, false));
    }
}
