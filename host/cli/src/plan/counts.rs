//! How much a run will play and train at most, from the workflow alone.
//!
//! Everything here is a bound: conditions, an environment that is done early, an agent that skips its turn and groups
//! that teach nothing make it less. Tries after a fault are not counted; they are the exception, and each is in
//! `failures.jsonl`.

use pl_dsl::workflow::{Agent, Rollout, Target, Train, Turns};
use serde::Serialize;

/// The longest that one episode can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Episode {
    /// Completions of one sample: visits of agents.
    pub completions: u64,
    /// Sampled tokens of one sample.
    pub tokens: u64,
    /// Different (agent, earlier visits) pairs of any two episodes.
    pub turns: u64,
}

impl Episode {
    /// Of a turn graph.
    pub fn longest(turns: &Turns, agents: &[Agent]) -> Episode {
        let ways = Ways::new(turns, agents.len());
        Episode {
            completions: ways.heaviest(|_| 1),
            tokens: ways.heaviest(|agent| agents.get(agent).map_or(0, |agent| u64::from(agent.max_tokens))),
            turns: ways.visits.iter().sum(),
        }
    }
}

/// One training step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Step {
    pub tasks: u64,
    /// Flat: every sample is one. Tree: one for each task, whose samples branch within it.
    pub episodes: u64,
    /// Completions that are compared with each other.
    pub groups: u64,
    pub completions: u64,
    pub tokens: u64,
    /// Of each trained policy.
    pub optimizer_steps: u64,
}

impl Step {
    /// A step of this training.
    pub fn of(train: &Train, episode: &Episode) -> Step {
        let (tasks, samples) = (u64::from(train.tasks_per_step), u64::from(train.samples));
        let all = tasks.saturating_mul(samples);
        let completions = all.saturating_mul(episode.completions);
        // Trees of a task are one, so that its groups are the stops of one way. Flat episodes may go different ways.
        let (episodes, groups) = match train.rollout {
            Rollout::Tree => (tasks, tasks.saturating_mul(episode.completions)),
            Rollout::Flat => (all, tasks.saturating_mul(episode.turns).min(completions)),
        };
        Step {
            tasks,
            episodes,
            groups,
            completions,
            tokens: all.saturating_mul(episode.tokens),
            optimizer_steps: u64::from(train.epochs) * u64::from(train.mini_batches),
        }
    }
}

/// One round of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Round {
    pub tasks: u64,
    pub episodes: u64,
    pub completions: u64,
    pub tokens: u64,
}

impl Round {
    /// Of at most `limit` of the tasks, of which there are `records` where that is known.
    pub fn of(limit: u32, records: Option<u64>, samples: u32, episode: &Episode) -> Round {
        let tasks = records.map_or(u64::from(limit), |records| records.min(u64::from(limit)));
        let episodes = tasks.saturating_mul(u64::from(samples));
        Round {
            tasks,
            episodes,
            completions: episodes.saturating_mul(episode.completions),
            tokens: episodes.saturating_mul(episode.tokens),
        }
    }
}

/// Rounds of an evaluation in a run: before the first step, after each multiple of `every`, and after the last.
pub fn rounds(every: u32, steps: u32) -> u64 {
    if every == 0 { 0 } else { 1 + u64::from(steps.div_ceil(every)) }
}

/// Checkpoints of a run: after each multiple of `checkpoint_every`, and after the last step.
pub fn checkpoints(train: &Train) -> u64 {
    u64::from(train.steps.div_ceil(train.checkpoint_every.max(1)))
}

/// Checkpoints that are there in the end: the newest, and the best where an evaluation says which that is.
pub fn kept(train: &Train, scored: bool) -> u64 {
    checkpoints(train).min(u64::from(train.keep_checkpoints.max(1)) + u64::from(scored))
}

/// Bytes in a checkpoint of each trained number: itself and AdamW's two means, all f32.
pub const CHECKPOINT_BYTES: u64 = 12;

/// What can follow on what in a turn graph.
struct Ways<'t> {
    turns: &'t Turns,
    /// The loop that each node is in: the first of its nodes, by which nodes are told apart that are in none.
    rings: Vec<usize>,
    /// Whether a node can be come back to.
    returns: Vec<bool>,
    /// Nodes so that each comes before all that lead to it.
    order: Vec<usize>,
    /// Most visits of each agent in one episode.
    visits: Vec<u64>,
}

impl<'t> Ways<'t> {
    fn new(turns: &'t Turns, agents: usize) -> Ways<'t> {
        let reach: Vec<Vec<bool>> = (0..turns.nodes.len()).map(|node| reached(turns, node)).collect();
        let nodes = turns.nodes.len();
        let rings = (0..nodes)
            .map(|node| (0..node).find(|other| reach[node][*other] && reach[*other][node]).unwrap_or(node))
            .collect();
        let returns: Vec<bool> = (0..nodes).map(|node| reach[node][node]).collect();
        let mut order: Vec<usize> = (0..nodes).collect();
        // Whoever leads to a node reaches all that it reaches; counted with the node itself, that is more.
        order.sort_by_key(|node| {
            let others = reach[*node].iter().filter(|reached| **reached).count();
            others + usize::from(!reach[*node][*node])
        });
        let mut visits = vec![0; agents];
        let most = u64::from(turns.max);
        for (node, returns) in turns.nodes.iter().zip(&returns) {
            for agent in &node.agents {
                let more = if *returns { most } else { 1 };
                visits[*agent] = most.min(visits[*agent] + more);
            }
        }
        Ways { turns, rings, returns, order, visits }
    }

    /// The most that the visits of one way can weigh together.
    fn heaviest(&self, weight: impl Fn(usize) -> u64) -> u64 {
        let mut from = vec![0_u64; self.turns.nodes.len()];
        let mut most = 0;
        for &node in &self.order {
            let ring = self.rings[node];
            if ring != node {
                continue;
            }
            let members: Vec<usize> =
                (0..self.rings.len()).filter(|other| self.rings[*other] == ring).collect();
            let mut agents: Vec<usize> =
                members.iter().flat_map(|member| self.turns.nodes[*member].agents.iter().copied()).collect();
            agents.sort_unstable();
            agents.dedup();
            let times = if self.returns[node] { u64::from(self.turns.max) } else { 1 };
            let own: u64 = agents.into_iter().map(|agent| times * weight(agent)).sum();
            let next = members.iter().flat_map(|member| &self.turns.nodes[*member].edges);
            let next = next.filter_map(|edge| match edge.to {
                Target::Node(to) if self.rings[to] != ring => Some(from[self.rings[to]]),
                _ => None,
            });
            from[ring] = own + next.max().unwrap_or(0);
            most = most.max(from[ring]);
        }
        // No agent comes more often than it may, whatever the way.
        let all = self.visits.iter().enumerate().map(|(agent, visits)| visits * weight(agent)).sum();
        most.min(all)
    }
}

/// The nodes behind a node; itself only where a loop leads back.
fn reached(turns: &Turns, node: usize) -> Vec<bool> {
    let mut reached = vec![false; turns.nodes.len()];
    let mut waiting = vec![node];
    while let Some(node) = waiting.pop() {
        for edge in &turns.nodes[node].edges {
            if let Target::Node(to) = edge.to
                && !std::mem::replace(&mut reached[to], true)
            {
                waiting.push(to);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use pl_dsl::workflow::{Edge, Node};

    use super::*;

    /// `agents` of each node, and the nodes that follow; none of them is the end.
    fn turns(max: u32, nodes: &[(&[usize], &[usize])]) -> Turns {
        let edge = |to: &usize| Edge { to: Target::Node(*to), when: None };
        let node = |(agents, next): &(&[usize], &[usize])| Node {
            agents: agents.to_vec(),
            edges: next.iter().map(edge).chain([Edge { to: Target::End, when: None }]).collect(),
        };
        Turns { max, start: vec![edge(&0)], nodes: nodes.iter().map(node).collect() }
    }

    fn agent(max_tokens: u32) -> Agent {
        serde_json::from_value(serde_json::json!({
            "name": "a", "plugin": 0, "item": "i", "policy": 0, "temperature": 1.0, "top_k": 0, "top_p": 1.0,
            "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
            "max_tokens": max_tokens, "stop": [], "thinking": null, "settings": {},
        }))
        .unwrap()
    }

    fn longest(turns: &Turns) -> (u64, u64, u64) {
        let agents = [agent(10), agent(100), agent(1000)];
        let Episode { completions, tokens, turns } = Episode::longest(turns, &agents);
        (completions, tokens, turns)
    }

    #[test]
    fn a_chain_is_as_long_as_it_is() {
        assert_eq!(longest(&turns(4, &[(&[0], &[1]), (&[1], &[])])), (2, 110, 2));
    }

    #[test]
    fn a_loop_is_gone_round_as_often_as_agents_may_come() {
        assert_eq!(longest(&turns(2, &[(&[0], &[1]), (&[1], &[0])])), (4, 220, 4));
        // A node that follows on itself, before another and behind one.
        assert_eq!(longest(&turns(3, &[(&[0], &[1]), (&[1], &[1])])), (4, 310, 4));
        assert_eq!(longest(&turns(3, &[(&[0], &[0, 1]), (&[1], &[])])), (4, 130, 4));
    }

    #[test]
    fn of_two_branches_the_longer_counts_but_groups_come_from_both() {
        assert_eq!(longest(&turns(4, &[(&[0], &[1, 2]), (&[1], &[]), (&[2], &[])])), (2, 1010, 3));
    }

    #[test]
    fn agents_side_by_side_each_speak() {
        assert_eq!(longest(&turns(2, &[(&[0, 1], &[0, 1]), (&[2], &[])])), (5, 1220, 5));
    }

    #[test]
    fn an_agent_in_several_nodes_comes_no_more_often_than_it_may() {
        // [0] -> [0, 1] -> [0]: three visits of the first but for `max`.
        assert_eq!(longest(&turns(1, &[(&[0], &[1]), (&[0, 1], &[])])), (2, 110, 2));
    }

    #[test]
    fn samples_of_a_tree_are_candidates_and_flat_ones_episodes() {
        let mut train: Train = serde_json::from_value(serde_json::json!({
            "algorithm": "at_grpo", "rollout": "tree", "samples": 4, "tasks_per_step": 3, "steps": 25,
            "schedule": "sync", "learning_rate": 1e-4, "lr_schedule": "constant", "warmup": 0,
            "weight_decay": 0.0, "max_grad_norm": 1.0, "epochs": 2, "mini_batches": 3, "clip_low": 0.2,
            "clip_high": 0.2, "dual_clip": 0.0, "normalize": true, "shuffle_rewards": false,
            "token_budget": 1024, "gradient_checkpointing": false, "checkpoint_every": 10,
            "keep_checkpoints": 2, "episodes": 8,
        }))
        .unwrap();
        // Two branches behind one agent: one way has two stops, all ways have three.
        let episode = Episode { completions: 2, tokens: 30, turns: 3 };
        let tree = Step::of(&train, &episode);
        assert_eq!((tree.episodes, tree.groups, tree.completions, tree.tokens), (3, 6, 24, 360));
        assert_eq!(tree.optimizer_steps, 6);
        train.rollout = Rollout::Flat;
        let flat = Step::of(&train, &episode);
        assert_eq!((flat.episodes, flat.groups, flat.completions, flat.tokens), (12, 9, 24, 360));
        // After steps 10, 20 and 25; the best of them may be the first.
        assert_eq!((checkpoints(&train), kept(&train, false), kept(&train, true)), (3, 2, 3));
    }

    #[test]
    fn evaluations_and_checkpoints_are_counted_as_the_loop_makes_them() {
        // Steps 0, 10, 20, 25; checkpoints likewise, but for the first.
        assert_eq!(rounds(10, 25), 4);
        assert_eq!(rounds(10, 20), 3);
        assert_eq!(rounds(0, 20), 0);
        let episode = Episode { completions: 4, tokens: 40, turns: 4 };
        let round = Round::of(200, Some(30), 2, &episode);
        assert_eq!(round, Round { tasks: 30, episodes: 60, completions: 240, tokens: 2400 });
    }
}
