//! The reward: the value that the environment computed for an action.

use pl_sdk::prelude::*;
use serde::de::IgnoredAny;

use crate::environment::Evidence;

/// Hands on the scores of the evidence. The team gets the value of the ending (goal, bonus, failure); an agent gets the
/// costs of its moves and the change of the state's potential, or the whole worth of the plan that its program printed.
///
/// It declares no range: costs and potentials grow with the puzzle of a task file, and answers without a plan add up.
pub struct Score;

impl Reward for Score {
    const NAME: &'static str = "score";
    const DOC: &'static str =
        "For the team the value of the ending; for each agent the costs and the progress of its own plan.";
    type Settings = NoSettings;
    type Action = IgnoredAny;
    type Facts = IgnoredAny;
    type Evidence = Evidence;

    fn score(
        _settings: &NoSettings,
        transition: &Transition<IgnoredAny, IgnoredAny, Evidence>,
    ) -> Result<Scores> {
        let Evidence { team, solved, own } = &transition.evidence;
        let local = own.iter().map(|(agent, score)| AgentScore {
            agent: agent.clone(),
            reward: score.reward,
            success: score.solves,
        });
        Ok(Scores { team: *team, local: local.collect(), success: *solved })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::environment::OwnScore;

    #[test]
    fn scores_are_those_of_the_evidence() {
        let own = BTreeMap::from([("tool".to_owned(), OwnScore { reward: 2.5, solves: true })]);
        let transition = Transition {
            task: Task::new("1", &()).unwrap(),
            actions: Vec::new(),
            done: false,
            truncated: false,
            facts: IgnoredAny,
            evidence: Evidence { team: -1.0, solved: false, own },
        };
        let scores = Score::score(&NoSettings {}, &transition).unwrap();
        assert_eq!((scores.team, scores.success), (-1.0, false));
        let local: Vec<_> = scores.local.iter().map(|s| (s.agent.as_str(), s.reward, s.success)).collect();
        assert_eq!(local, [("tool", 2.5, true)]);
    }
}
