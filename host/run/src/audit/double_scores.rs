//! Scores that count twice: an agent's own score that is the team's score too.

use std::collections::BTreeMap;

use pl_rollout::{EventKind, Trace};

/// Largest difference of scores that are equal up to rounding.
const ROUNDING: f64 = 1e-9;

/// Comparison of agents' own scores with the team's.
#[derive(Default)]
pub(super) struct DoubleScores {
    agents: BTreeMap<String, Comparison>,
}

/// Comparison of an agent's own score with the team's, over the turns in which the latter isn't 0.
#[derive(Default)]
struct Comparison {
    /// True if they differed in any turn.
    differs: bool,
    /// True if there was such a turn in which the task was not solved.
    unsolved: bool,
}

impl DoubleScores {
    /// Adds the turns of episodes.
    pub(super) fn add(&mut self, traces: &[Trace]) {
        for event in traces.iter().flat_map(|trace| &trace.events) {
            let EventKind::Scores(scores) = &event.kind else { continue };
            if scores.team == 0.0 {
                continue;
            }
            for own in &scores.local {
                let comparison = self.agents.entry(own.agent.clone()).or_default();
                comparison.differs |= (own.reward - scores.team).abs() > ROUNDING;
                comparison.unsolved |= !scores.success;
            }
        }
    }

    /// Returns the agents whose scores count twice. An agent that is paid like the team for solutions alone is not one of
    /// them: mixing both scores is meant to do that.
    pub(super) fn found(self) -> Vec<String> {
        let twice = |(_, comparison): &(String, Comparison)| !comparison.differs && comparison.unsolved;
        self.agents.into_iter().filter(twice).map(|(agent, _)| agent).collect()
    }
}

#[cfg(test)]
mod tests {
    use pl_plugin::{AgentScore, Scores};

    use super::*;
    use crate::audit::fixtures;

    fn found(turns: &[(f64, f64, bool)]) -> Vec<String> {
        let scores = |&(team, reward, success): &(f64, f64, bool)| {
            let own = AgentScore { agent: "one".to_owned(), reward, success };
            EventKind::Scores(Scores { team, local: vec![own], success })
        };
        let mut double_scores = DoubleScores::default();
        double_scores.add(&[fixtures::trace("a", None, turns.iter().map(scores).collect())]);
        double_scores.found()
    }

    #[test]
    fn an_agent_that_gets_the_teams_score_in_every_turn_is_found() {
        assert_eq!(found(&[(0.1 + 0.2, 0.3, false), (0.0, -2.0, false), (1.0, 1.0, true)]), ["one"]);
        // An ending that costs or pays the team, and a score for solutions alone.
        assert!(found(&[(-5.0, -0.1, false), (1.0, 1.0, true)]).is_empty());
        assert!(found(&[(0.0, 0.0, false), (1.0, 1.0, true)]).is_empty());
        assert!(found(&[]).is_empty());
    }
}
