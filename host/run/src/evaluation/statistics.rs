//! Statistics of an evaluation. An episode that was lost to faults counts as not solved.

use pl_rollout::{EpisodeSummary, RolloutBatch};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Report of an evaluation. Shares are between 0 and 1.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EvaluationReport {
    pub name: String,
    /// Number of tasks.
    pub tasks: usize,
    /// Number of episodes that were played to their end.
    pub episodes: usize,
    /// Number of episodes that failed in every attempt. They count as not solved in `success` and `pass_at`.
    pub lost: usize,
    /// Number of faults, including those that a later attempt made up for and those of single candidates.
    pub failures: usize,
    /// Share of all episodes, lost ones included, that the team solved.
    pub success: f64,
    /// Pairs of k and pass@k.
    pub pass_at: Vec<(u32, f64)>,
    pub agents: Vec<AgentReport>,
    /// Mean number of turns of an episode that was played to its end. `None` without one, as for the next two.
    pub turns: Option<f64>,
    /// Mean number of sampled tokens of an episode that was played to its end.
    pub tokens: Option<f64>,
    /// Share of episodes played to their end that were truncated.
    pub truncated: Option<f64>,
}

/// Results of one agent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgentReport {
    pub name: String,
    /// Share of the episodes in which the agent acted that it solved. `None` if it never acted.
    pub success: Option<f64>,
    /// Mean reward over all turns of the agent, as in the lines of steps. `None` if it never acted.
    pub reward: Option<f64>,
}

impl EvaluationReport {
    /// Computes the report of `samples` episodes for each of `tasks` tasks. `agents` are the positions and names of those
    /// that act.
    pub(crate) fn new(
        name: &str,
        tasks: usize,
        samples: u32,
        agents: &[(usize, String)],
        batch: &RolloutBatch,
    ) -> EvaluationReport {
        let (episodes, lost) = (batch.episodes.as_slice(), batch.lost);
        let average = |value: &dyn Fn(&EpisodeSummary) -> f64| mean_of(episodes.iter().map(value));
        let solved = episodes.iter().map(|e| f64::from(e.success));
        EvaluationReport {
            name: name.to_owned(),
            tasks,
            episodes: episodes.len(),
            lost,
            failures: batch.failures.len(),
            success: mean(solved.chain(std::iter::repeat_n(0.0, lost))),
            pass_at: pass_at(episodes, tasks, samples),
            agents: agents.iter().map(|(index, name)| AgentReport::new(*index, name, batch)).collect(),
            turns: average(&|e| f64::from(e.turns)),
            tokens: average(&|e| e.tokens as f64),
            truncated: average(&|e| f64::from(e.truncated)),
        }
    }

    /// Returns the fields of a line of metrics, except name and success.
    pub(crate) fn metrics(&self) -> Map<String, Value> {
        let agents = self
            .agents
            .iter()
            .map(|a| (a.name.clone(), json!({ "success": a.success, "reward": a.reward })))
            .collect::<Map<_, _>>();
        let pass = self.pass_at.iter().map(|(k, p)| (format!("pass@{k}"), json!(p)));
        let mut line = Map::new();
        line.insert("tasks".into(), self.tasks.into());
        line.insert("episodes".into(), self.episodes.into());
        line.insert("failures".into(), self.failures.into());
        line.insert("lost".into(), self.lost.into());
        line.extend(pass);
        line.insert("agents".into(), Value::Object(agents));
        line.insert("turns".into(), self.turns.into());
        line.insert("tokens".into(), self.tokens.into());
        line.insert("truncated".into(), self.truncated.into());
        line
    }
}

impl AgentReport {
    fn new(index: usize, name: &str, batch: &RolloutBatch) -> AgentReport {
        let last_turns = batch.episodes.iter().filter_map(|e| e.agents.get(index).copied().flatten());
        let turns = batch.transitions.iter().filter(|turn| turn.final_call && turn.agent == name);
        AgentReport {
            name: name.to_owned(),
            success: mean_of(last_turns.map(|(_, success)| f64::from(success))),
            reward: mean_of(turns.map(|turn| turn.reward)),
        }
    }
}

/// Returns the mean, or `None` without values.
pub(crate) fn mean_of(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// Returns the mean, or 0 without values.
pub(crate) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    mean_of(values).unwrap_or(0.0)
}

/// Returns pass@k for k = 1, 2, 4, … up to `samples`, averaged over tasks: the probability that at least one
/// of k episodes of a task solves it, drawn from its `samples` episodes without replacement (Chen et al.
/// 2021, arXiv:2107.03374). Episodes without a summary did not solve their task.
fn pass_at(episodes: &[EpisodeSummary], tasks: usize, samples: u32) -> Vec<(u32, f64)> {
    let mut solved = vec![0u32; tasks];
    for episode in episodes {
        if let Some(solved) = solved.get_mut(episode.task as usize) {
            *solved += u32::from(episode.success);
        }
    }
    std::iter::successors(Some(1u32), |k| k.checked_mul(2))
        .take_while(|&k| k <= samples)
        .map(|k| (k, mean(solved.iter().map(|&solved| pass_probability(samples, solved, k)))))
        .collect()
}

/// Returns 1 - C(n - c, k) / C(n, k) for `c` solved episodes of `n`, as a product that can't overflow.
fn pass_probability(n: u32, solved: u32, k: u32) -> f64 {
    let unsolved = n - solved;
    if unsolved < k {
        return 1.0;
    }
    1.0 - (0..k).map(|i| f64::from(unsolved - i) / f64::from(n - i)).product::<f64>()
}

#[cfg(test)]
mod tests {
    use pl_types::{Phase, Transition};

    use super::*;
    use crate::test_failures::failure;
    use crate::test_transitions::call;

    #[test]
    fn pass_at_k_is_the_unbiased_estimate() {
        // One of 4 episodes is solved: 3 of the 6 pairs contain it.
        assert!((pass_probability(4, 1, 2) - 0.5).abs() < 1e-12);
        assert_eq!(pass_probability(4, 0, 4), 0.0);
        assert_eq!(pass_probability(4, 1, 4), 1.0);
        assert_eq!(pass_probability(1, 1, 1), 1.0);
    }

    fn episode(task: u32, success: bool) -> EpisodeSummary {
        EpisodeSummary {
            task,
            task_id: format!("task {task}"),
            sample: 0,
            success,
            agents: vec![Some((1.0, success)), None],
            turns: 1,
            tokens: 2,
            truncated: false,
            reproducible: true,
        }
    }

    #[test]
    fn lost_episodes_count_as_not_solved() {
        // Two tasks of two samples each. One episode of the first and both of the second task are lost.
        let agents = [(0, "a".to_owned()), (1, "b".to_owned())];
        let failure = failure(Phase::Evaluate("e".to_owned()), 0, 0, "fault");
        let (episodes, failures) = (vec![episode(0, true)], vec![failure; 9]);
        let batch = RolloutBatch { episodes, failures, lost: 3, ..RolloutBatch::default() };
        let report = EvaluationReport::new("e", 2, 2, &agents, &batch);
        assert_eq!((report.episodes, report.lost, report.success), (1, 3, 0.25));
        assert_eq!(report.pass_at, [(1, 0.25), (2, 0.5)]);
        assert_eq!((&report.metrics()["lost"], &report.metrics()["failures"]), (&json!(3), &json!(9)));
        // Of the episodes in which the agent acted.
        assert_eq!((report.agents[0].success, report.agents[1].success), (Some(1.0), None));
    }

    /// A move's reward is lost to those that look at the last turn alone; calls of one turn have one reward.
    #[test]
    fn the_reward_of_an_agent_is_the_mean_over_all_of_its_turns() {
        let with_reward = |reward, transition| Transition { reward, ..transition };
        let calls = [(0.9, call(0, 0, false, 5)), (0.9, call(0, 1, true, 2)), (0.1, call(1, 0, true, 3))];
        let transitions = calls.map(|(reward, transition)| with_reward(reward, transition)).to_vec();
        let batch = RolloutBatch { transitions, episodes: vec![episode(0, true)], ..RolloutBatch::default() };
        let agents = [(0, "tool".to_owned()), (1, "reason".to_owned())];
        let report = EvaluationReport::new("e", 1, 1, &agents, &batch);
        assert_eq!(report.agents.iter().map(|own| own.reward).collect::<Vec<_>>(), [Some(0.5), None]);
        let line = report.metrics();
        assert!(
            line["agents"]["reason"]["reward"].is_null() && line["agents"]["reason"]["success"].is_null()
        );
    }

    #[test]
    fn without_episodes_nothing_is_solved_and_means_are_unknown() {
        let report = EvaluationReport::new("e", 0, 4, &[], &RolloutBatch::default());
        assert_eq!((report.success, report.turns, report.tokens, report.truncated), (0.0, None, None, None));
        assert_eq!(report.pass_at, [(1, 0.0), (2, 0.0), (4, 0.0)]);
    }
}
