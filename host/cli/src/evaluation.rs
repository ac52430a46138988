//! A team measured on tasks kept apart.

use std::io::Write;
use std::sync::Arc;

use pl_dsl::workflow::{Evaluation, Rollout};
use pl_rollout::{Batch, Cast, Phase, Plan, Progress, Summary, TaskSource, play_batch};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::exit::Stop;
use crate::sampling;

/// What an evaluation found. Shares are of episodes, 0 to 1.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    pub name: String,
    pub tasks: usize,
    pub episodes: usize,
    /// Given up after repeated faults; counted as not solved nowhere.
    pub lost: usize,
    pub success: f64,
    /// (k, pass@k).
    pub pass_at: Vec<(u32, f64)>,
    pub agents: Vec<AgentReport>,
    /// Means per episode.
    pub turns: f64,
    pub tokens: f64,
    pub truncated: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgentReport {
    pub name: String,
    /// Of the episodes in which the agent acted.
    pub success: f64,
    pub reward: f64,
}

/// Where and when an evaluation is played.
pub struct Round<'a> {
    pub seed: u64,
    pub step: u64,
    pub versions: &'a [u64],
    pub in_flight: usize,
}

/// Plays an evaluation. `keep` is handed what was played, whether or not any of it came to its end.
pub async fn play(
    cast: &Arc<Cast>,
    evaluation: &Evaluation,
    source: &TaskSource,
    round: &Round<'_>,
    progress: impl FnMut(Progress),
    keep: impl FnOnce(Result<Batch, pl_rollout::Error>) -> Result<Batch, Stop>,
) -> Result<(Report, Batch), Stop> {
    let available = source.size().unwrap_or(usize::MAX);
    let count = (evaluation.limit as usize).min(available) as u32;
    let plan = Plan {
        seed: round.seed,
        phase: Phase::Evaluate(evaluation.name.clone()),
        step: round.step,
        tasks: source.take(0, count).await.map_err(Stop::input)?,
        mode: Rollout::Flat,
        samples: evaluation.samples,
        in_flight: round.in_flight,
        versions: round.versions.into(),
    };
    let mut cast = Cast::clone(cast);
    for player in &mut cast.players {
        player.sampling = sampling::over(&player.sampling, &evaluation.sampling);
    }
    let cast = Arc::new(cast);
    let batch = keep(play_batch(Arc::clone(&cast), &plan, progress).await)?;
    let report = report(&evaluation.name, plan.tasks.len(), evaluation.samples, &cast, &batch);
    Ok((report, batch))
}

/// Every completion of an evaluation, a line of JSON each, in the order of tasks, samples and turns:
/// `evaluation`, `task` (its id), `sample`, `agent`, `turn` (the agent's earlier visits), `prompt` and `completion`
/// (token ids), `text`, `action` (JSON), `reward` and `success` (the agent's own).
/// `text` gives the text of tokens of a policy.
pub fn write_completions(
    out: &mut impl Write,
    evaluation: &str,
    batch: &Batch,
    text: impl Fn(usize, &[u32]) -> String,
) -> std::io::Result<()> {
    for transition in &batch.transitions {
        let key = &transition.key;
        let action = &transition.action;
        let line = json!({
            "evaluation": evaluation,
            "task": transition.task_id,
            "sample": key.sample,
            "agent": transition.agent,
            "turn": transition.turn,
            "prompt": transition.prompt,
            "completion": transition.completion,
            "text": text(transition.policy as usize, &transition.completion),
            "action": serde_json::from_str::<Value>(action).unwrap_or_else(|_| action.as_str().into()),
            "reward": transition.reward,
            "success": transition.success,
        });
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn report(name: &str, tasks: usize, samples: u32, cast: &Cast, batch: &Batch) -> Report {
    let episodes = &batch.episodes;
    let mean = |value: &dyn Fn(&Summary) -> f64| mean(episodes.iter().map(value));
    Report {
        name: name.to_owned(),
        tasks,
        episodes: episodes.len(),
        lost: batch.lost,
        success: mean(&|e| f64::from(e.success)),
        pass_at: pass_at(episodes, tasks, samples),
        agents: agents(cast, episodes),
        turns: mean(&|e| f64::from(e.turns)),
        tokens: mean(&|e| e.tokens as f64),
        truncated: mean(&|e| f64::from(e.truncated)),
    }
}

/// Success and reward of each agent over the episodes in which it acted.
fn agents(cast: &Cast, episodes: &[Summary]) -> Vec<AgentReport> {
    let of = |index: usize| episodes.iter().filter_map(move |e| e.agents.get(index).copied().flatten());
    cast.players
        .iter()
        .enumerate()
        .map(|(index, player)| AgentReport {
            name: player.name.clone(),
            success: mean(of(index).map(|(_, success)| f64::from(success))),
            reward: mean(of(index).map(|(reward, _)| reward)),
        })
        .collect()
}

/// 0 of nothing.
pub fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    if count == 0 { 0.0 } else { sum / f64::from(count) }
}

/// pass@k for k = 1, 2, 4, … up to the samples of a task: the chance that one of k episodes drawn without
/// replacement solves the task (Chen et al. 2021, arXiv:2107.03374), averaged over tasks.
fn pass_at(episodes: &[Summary], tasks: usize, samples: u32) -> Vec<(u32, f64)> {
    let mut played = vec![(0u32, 0u32); tasks];
    for episode in episodes {
        if let Some((n, solved)) = played.get_mut(episode.task as usize) {
            *n += 1;
            *solved += u32::from(episode.success);
        }
    }
    std::iter::successors(Some(1u32), |k| k.checked_mul(2))
        .take_while(|&k| k <= samples)
        .map(|k| {
            let of_task = |&(n, solved): &(u32, u32)| chance(n, solved, k);
            (k, mean(played.iter().filter(|(n, _)| *n >= k).map(of_task)))
        })
        .collect()
}

/// 1 - C(n - c, k) / C(n, k), as a product that can't overflow.
fn chance(n: u32, solved: u32, k: u32) -> f64 {
    let missed = n - solved;
    if missed < k {
        return 1.0;
    }
    1.0 - (0..k).map(|i| f64::from(missed - i) / f64::from(n - i)).product::<f64>()
}

impl Report {
    /// The fields of a line of metrics, name and success apart.
    pub fn metrics(&self) -> Map<String, Value> {
        let agents = self
            .agents
            .iter()
            .map(|a| (a.name.clone(), json!({ "success": a.success, "reward": a.reward })))
            .collect::<Map<_, _>>();
        let pass = self.pass_at.iter().map(|(k, p)| (format!("pass@{k}"), json!(p)));
        let mut line = Map::new();
        line.insert("tasks".into(), self.tasks.into());
        line.insert("episodes".into(), self.episodes.into());
        line.insert("lost".into(), self.lost.into());
        line.extend(pass);
        line.insert("agents".into(), Value::Object(agents));
        line.insert("turns".into(), self.turns.into());
        line.insert("tokens".into(), self.tokens.into());
        line.insert("truncated".into(), self.truncated.into());
        line
    }

    /// For people.
    pub fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        writeln!(out, "{}: {} episodes of {} tasks", self.name, self.episodes, self.tasks)?;
        writeln!(out, "  team      {}", percent(self.success))?;
        for agent in &self.agents {
            writeln!(out, "  {:<9} {}, reward {:.3}", agent.name, percent(agent.success), agent.reward)?;
        }
        for (k, share) in &self.pass_at {
            writeln!(out, "  pass@{k:<4} {}", percent(*share))?;
        }
        writeln!(out, "  turns     {:.2} per episode, tokens {:.1}", self.turns, self.tokens)?;
        writeln!(out, "  cut short {}", percent(self.truncated))?;
        if self.lost > 0 {
            writeln!(out, "  lost      {} episodes (faults; see failures)", self.lost)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pass_at_k_is_the_unbiased_estimate() {
        // Of 4 episodes 1 solved: a pair holds it in 3 of 6 cases.
        assert!((chance(4, 1, 2) - 0.5).abs() < 1e-12);
        assert_eq!(chance(4, 0, 4), 0.0);
        assert_eq!(chance(4, 1, 4), 1.0);
        assert_eq!(chance(1, 1, 1), 1.0);
    }
}
