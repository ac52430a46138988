//! Upper bounds of the amounts that a run plays and trains, from the workflow alone.
//!
//! Conditions, an environment that ends early, an agent that skips its turn and groups with equal rewards
//! make a run smaller. Repeated attempts after a fault are not included; they are exceptions, and each is in
//! `failures.jsonl`.

use pl_dsl::workflow::{Agent, Designer, ExecutorGroups, Rollout, Target, Train, Turns};
use serde::Serialize;

/// Bounds of one episode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct EpisodeBounds {
    /// Completions of one sample, one for each visit of an agent.
    pub completions: u64,
    /// Sampled tokens of one sample.
    pub tokens: u64,
    /// Different pairs of agent and earlier visits that occur in any episode.
    pub turns: u64,
}

impl EpisodeBounds {
    /// Computes the bounds of a turn graph.
    pub fn new(turns: &Turns, agents: &[Agent]) -> EpisodeBounds {
        let paths = Paths::new(turns, agents.len());
        let max_tokens = |agent| agents.get(agent).map_or(0, |agent: &Agent| u64::from(agent.max_tokens));
        EpisodeBounds {
            completions: paths.heaviest(|_| 1),
            tokens: paths.heaviest(max_tokens),
            turns: paths.visits.iter().sum(),
        }
    }
}

/// Bounds of one task of training.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TaskBounds {
    /// Flat: one for each sample. Tree: one, whose samples are branches. With a designer: its designs and their executions.
    pub episodes: u64,
    /// Groups of completions that are compared with each other.
    pub groups: u64,
    pub completions: u64,
    pub tokens: u64,
}

/// Bounds of one training step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StepBounds {
    pub tasks: u64,
    pub episodes: u64,
    /// Groups of completions that are compared with each other.
    pub groups: u64,
    pub completions: u64,
    pub tokens: u64,
    /// Optimizer steps of each trained policy.
    pub optimizer_steps: u64,
}

impl TaskBounds {
    /// Computes the bounds of a task that is played by a scenario's own team.
    pub fn new(train: &Train, episode: &EpisodeBounds) -> TaskBounds {
        let samples = u64::from(train.samples);
        let completions = samples.saturating_mul(episode.completions);
        // A task has one tree, whose groups are the node visits of one path. Flat episodes may take different
        // paths.
        let (episodes, groups) = match train.rollout {
            Rollout::Tree => (1, episode.completions),
            Rollout::Flat => (samples, episode.turns.min(completions)),
        };
        TaskBounds { episodes, groups, completions, tokens: samples.saturating_mul(episode.tokens) }
    }

    /// Computes the bounds of a task that a designer writes designs for, all of which are played. Each is bounded by its
    /// palette.
    pub fn designed(designer: &Designer) -> TaskBounds {
        let (palette, designs) = (&designer.palette, u64::from(designer.designs));
        let executions = designs.saturating_mul(u64::from(designer.executions));
        let turns = u64::from(palette.max_visits).saturating_mul(palette.max_agents as u64);
        let compared = match designer.executor_groups {
            ExecutorGroups::Design => designs,
            // Those of two agents with one role are apart.
            ExecutorGroups::Role => {
                let roles = palette.agents.len().saturating_mul(palette.policies.len()) as u64;
                designs.min(roles)
            }
        };
        let written = designs.saturating_mul(u64::from(designer.max_tokens));
        TaskBounds {
            episodes: designs.saturating_add(executions),
            groups: compared.saturating_mul(turns).saturating_add(1),
            completions: designs.saturating_add(executions.saturating_mul(turns)),
            tokens: written.saturating_add(executions.saturating_mul(palette.max_tokens)),
        }
    }

    /// Returns the bounds of a task of either of two scenarios.
    pub fn max(self, other: TaskBounds) -> TaskBounds {
        TaskBounds {
            episodes: self.episodes.max(other.episodes),
            groups: self.groups.max(other.groups),
            completions: self.completions.max(other.completions),
            tokens: self.tokens.max(other.tokens),
        }
    }
}

impl StepBounds {
    /// Computes the bounds of a step from those of a task.
    pub fn new(train: &Train, task: &TaskBounds) -> StepBounds {
        let tasks = u64::from(train.tasks_per_step);
        // Tasks that are replaced are played, and not trained on.
        let played = tasks.saturating_mul(1 + u64::from(train.max_refills));
        StepBounds {
            tasks: played,
            episodes: task.episodes.saturating_mul(played),
            groups: task.groups.saturating_mul(tasks),
            completions: task.completions.saturating_mul(played),
            tokens: task.tokens.saturating_mul(played),
            optimizer_steps: u64::from(train.epochs) * u64::from(train.mini_batches),
        }
    }
}

/// Bounds of one round of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct EvaluationBounds {
    pub tasks: u64,
    pub episodes: u64,
    pub completions: u64,
    pub tokens: u64,
}

impl EvaluationBounds {
    /// Computes the bounds for at most `limit` tasks. `records` is the number of tasks, if it is known.
    pub fn new(limit: u32, records: Option<u64>, samples: u32, episode: &EpisodeBounds) -> EvaluationBounds {
        let tasks = records.map_or(u64::from(limit), |records| records.min(u64::from(limit)));
        let episodes = tasks.saturating_mul(u64::from(samples));
        EvaluationBounds {
            tasks,
            episodes,
            completions: episodes.saturating_mul(episode.completions),
            tokens: episodes.saturating_mul(episode.tokens),
        }
    }
}

/// Returns the number of rounds of an evaluation in a run: before the first step, after each multiple of
/// `every`, and after the last step.
pub fn evaluation_rounds(every: u32, steps: u32) -> u64 {
    if every == 0 { 0 } else { 1 + u64::from(steps.div_ceil(every)) }
}

/// Returns the largest number of checkpoints that a run writes: after each multiple of `checkpoint_every`,
/// after each round of the scoring evaluation (every `scored_every` steps) that finds a better score, and
/// after the last step.
pub fn checkpoints(train: &Train, scored_every: Option<u32>) -> u64 {
    let regular = train.checkpoint_every.max(1);
    let due = |step: u32| {
        step == train.steps
            || step.is_multiple_of(regular)
            || scored_every.is_some_and(|every| step.is_multiple_of(every))
    };
    (1..=train.steps).filter(|step| due(*step)).count() as u64
}

/// Returns the largest number of checkpoints that exist at the end: the newest, and the best if an evaluation
/// scores them.
pub fn kept_checkpoints(train: &Train, scored_every: Option<u32>) -> u64 {
    let kept = u64::from(train.keep_checkpoints.max(1)) + u64::from(scored_every.is_some());
    checkpoints(train, scored_every).min(kept)
}

/// Bytes in a checkpoint of each trained parameter: its value and AdamW's two moments, all in f32.
pub const CHECKPOINT_BYTES: u64 = 12;

/// Paths through a turn graph, which may have loops.
struct Paths<'t> {
    turns: &'t Turns,
    /// Strongly connected component of each node, named by the first of its nodes.
    components: Vec<usize>,
    /// True for nodes that are on a loop.
    on_loop: Vec<bool>,
    /// Reverse topological order: each node comes before all nodes that lead to it.
    order: Vec<usize>,
    /// Largest number of visits of each agent in one episode.
    visits: Vec<u64>,
}

impl<'t> Paths<'t> {
    fn new(turns: &'t Turns, agents: usize) -> Paths<'t> {
        let reach: Vec<Vec<bool>> = (0..turns.nodes.len()).map(|node| reached(turns, node)).collect();
        let nodes = turns.nodes.len();
        let components = (0..nodes)
            .map(|node| (0..node).find(|other| reach[node][*other] && reach[*other][node]).unwrap_or(node))
            .collect();
        let on_loop: Vec<bool> = (0..nodes).map(|node| reach[node][node]).collect();
        let mut order: Vec<usize> = (0..nodes).collect();
        // A node that leads to another reaches at least as many nodes, counted with the node itself.
        order.sort_by_key(|node| {
            let others = reach[*node].iter().filter(|reached| **reached).count();
            others + usize::from(!reach[*node][*node])
        });
        let mut visits = vec![0; agents];
        let most = u64::from(turns.max);
        for (node, on_loop) in turns.nodes.iter().zip(&on_loop) {
            for agent in &node.agents {
                let more = if *on_loop { most } else { 1 };
                visits[*agent] = most.min(visits[*agent] + more);
            }
        }
        Paths { turns, components, on_loop, order, visits }
    }

    /// Returns the largest sum of weights that the visits of one path can have.
    fn heaviest(&self, weight: impl Fn(usize) -> u64) -> u64 {
        let mut from = vec![0_u64; self.turns.nodes.len()];
        let mut most = 0;
        for &node in &self.order {
            let component = self.components[node];
            if component != node {
                continue;
            }
            let members: Vec<usize> =
                (0..self.components.len()).filter(|other| self.components[*other] == component).collect();
            let mut agents: Vec<usize> =
                members.iter().flat_map(|member| self.turns.nodes[*member].agents.iter().copied()).collect();
            agents.sort_unstable();
            agents.dedup();
            let times = if self.on_loop[node] { u64::from(self.turns.max) } else { 1 };
            let own: u64 = agents.into_iter().map(|agent| times * weight(agent)).sum();
            let next = members.iter().flat_map(|member| &self.turns.nodes[*member].edges);
            let next = next.filter_map(|edge| match edge.to {
                Target::Node(to) if self.components[to] != component => Some(from[self.components[to]]),
                _ => None,
            });
            from[component] = own + next.max().unwrap_or(0);
            most = most.max(from[component]);
        }
        // On no path does an agent act more often than `max` allows.
        let all = self.visits.iter().enumerate().map(|(agent, visits)| visits * weight(agent)).sum();
        most.min(all)
    }
}

/// Returns the nodes that can be reached from a node. The node itself is included only if it is on a loop.
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

    /// Returns a graph from the agents of each node and the nodes that follow it. Every node may also end the
    /// episode.
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

    fn bounds(turns: &Turns) -> (u64, u64, u64) {
        let agents = [agent(10), agent(100), agent(1000)];
        let EpisodeBounds { completions, tokens, turns } = EpisodeBounds::new(turns, &agents);
        (completions, tokens, turns)
    }

    #[test]
    fn a_chain_has_one_visit_of_each_node() {
        assert_eq!(bounds(&turns(4, &[(&[0], &[1]), (&[1], &[])])), (2, 110, 2));
    }

    #[test]
    fn a_loop_repeats_as_often_as_agents_may_act() {
        assert_eq!(bounds(&turns(2, &[(&[0], &[1]), (&[1], &[0])])), (4, 220, 4));
        // A node that follows itself, before another node and after one.
        assert_eq!(bounds(&turns(3, &[(&[0], &[1]), (&[1], &[1])])), (4, 310, 4));
        assert_eq!(bounds(&turns(3, &[(&[0], &[0, 1]), (&[1], &[])])), (4, 130, 4));
    }

    #[test]
    fn the_longer_of_two_branches_counts_but_groups_come_from_both() {
        assert_eq!(bounds(&turns(4, &[(&[0], &[1, 2]), (&[1], &[]), (&[2], &[])])), (2, 1010, 3));
    }

    #[test]
    fn agents_of_one_node_each_complete() {
        assert_eq!(bounds(&turns(2, &[(&[0, 1], &[0, 1]), (&[2], &[])])), (5, 1220, 5));
    }

    #[test]
    fn an_agent_in_several_nodes_acts_at_most_max_times() {
        // [0] -> [0, 1] -> [0]: without `max`, the first agent would act three times.
        assert_eq!(bounds(&turns(1, &[(&[0], &[1]), (&[0, 1], &[])])), (2, 110, 2));
    }

    #[test]
    fn samples_of_a_tree_are_candidates_and_flat_ones_episodes() {
        let mut train: Train = serde_json::from_value(serde_json::json!({
            "rollout": "tree", "samples": 4, "tasks_per_step": 3, "steps": 25, "schedule": "sync",
            "epochs": 2, "mini_batches": 3, "shuffle_rewards": false, "token_budget": 1024, "gradient_checkpointing": false, "record_tokens": false, "checkpoint_every": 10,
            "keep_checkpoints": 2, "episodes": 8,
        }))
        .unwrap();
        // Two branches after one agent: each path has two node visits, all paths together have three.
        let episode = EpisodeBounds { completions: 2, tokens: 30, turns: 3 };
        let tree = StepBounds::new(&train, &TaskBounds::new(&train, &episode));
        assert_eq!((tree.episodes, tree.groups, tree.completions, tree.tokens), (3, 6, 24, 360));
        assert_eq!(tree.optimizer_steps, 6);
        train.rollout = Rollout::Flat;
        let flat = StepBounds::new(&train, &TaskBounds::new(&train, &episode));
        assert_eq!((flat.episodes, flat.groups, flat.completions, flat.tokens), (12, 9, 24, 360));
        // After steps 10, 20 and 25; the best of them may be the first.
        assert_eq!((checkpoints(&train, None), checkpoints(&train, Some(10))), (3, 3));
        assert_eq!((kept_checkpoints(&train, None), kept_checkpoints(&train, Some(10))), (2, 3));
        // After steps 8, 10, 16, 20, 24 and 25, if every evaluation is better than the last.
        assert_eq!(checkpoints(&train, Some(8)), 6);
    }

    #[test]
    fn designs_and_their_executions_are_counted() {
        let designer: Designer = serde_json::from_value(serde_json::json!({
            "name": "d", "policy": 0, "designs": 4, "executions": 3, "patterns": [], "instructions": null,
            "constrained": true, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0,
            "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "max_tokens": 200,
            "palette": { "agents": ["a.b"], "policies": ["p"], "max_agents": 2, "max_visits": 5, "max_tokens": 1000 },
        }))
        .unwrap();
        let bounds = TaskBounds::designed(&designer);
        assert_eq!((bounds.episodes, bounds.completions), (4 + 12, 4 + 12 * 10));
        assert_eq!((bounds.tokens, bounds.groups), (4 * 200 + 12 * 1000, 1 + 4 * 10));
        let by_role = Designer { executor_groups: ExecutorGroups::Role, ..designer };
        assert_eq!(TaskBounds::designed(&by_role).groups, 1 + 10);
    }

    #[test]
    fn rounds_of_evaluations_are_counted_as_the_loop_runs_them() {
        // After steps 0, 10, 20 and 25.
        assert_eq!(evaluation_rounds(10, 25), 4);
        assert_eq!(evaluation_rounds(10, 20), 3);
        assert_eq!(evaluation_rounds(0, 20), 0);
        let episode = EpisodeBounds { completions: 4, tokens: 40, turns: 4 };
        let round = EvaluationBounds::new(200, Some(30), 2, &episode);
        assert_eq!(round, EvaluationBounds { tasks: 30, episodes: 60, completions: 240, tokens: 2400 });
    }
}
