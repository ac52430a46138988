//! The content of a drawing, independent of its format.

use std::collections::HashMap;

use super::condition::sanitize;
use crate::settings::{show_bytes, show_duration};
use crate::workflow::layout;
use crate::workflow::{self, Target, Workflow};

/// Content of a drawing of a workflow's scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Graph {
    pub workflow: String,
    /// Name of the scenario. `None` in a file without `scenario` blocks.
    pub scenario: Option<String>,
    /// `L0` to `L3`, or `mixed`, as in `layout = …`.
    pub layout: &'static str,
    /// Explanation of the layout.
    pub layout_meaning: &'static str,
    /// Largest number of visits of one agent in an episode.
    pub max_visits: u32,
    pub models: Vec<Model>,
    pub policies: Vec<Policy>,
    pub environment: ItemRef,
    pub reward: Reward,
    /// Description of the sandbox that runs code written by agents.
    pub sandbox: String,
    /// The first is [`Node::Start`], the last [`Node::End`].
    pub nodes: Vec<Node>,
    /// Sorted by source; the edges of one source are in the order in which they are tried.
    pub edges: Vec<Edge>,
}

/// A base model of policies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    pub name: String,
    pub source: String,
}

/// A policy of agents.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    pub name: String,
    /// Index of the model, which also determines the colour.
    pub model: usize,
    pub adapter: Option<Adapter>,
    /// True if training changes it.
    pub trained: bool,
    /// Folder of the initial weights.
    pub from: Option<String>,
}

/// Low-rank adaptation of a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adapter {
    pub rank: u32,
    pub alpha: f64,
}

/// An item of a plugin, under its name in the workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemRef {
    pub name: String,
    /// `PLUGIN.ITEM`.
    pub path: String,
}

/// The reward and the weights of its parts.
#[derive(Debug, Clone, PartialEq)]
pub struct Reward {
    pub item: ItemRef,
    pub team: f64,
    pub local: f64,
}

/// A node of the turn graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    Start,
    /// One agent, or several that act in parallel on the same view.
    Agents(Vec<Agent>),
    End,
}

/// An agent of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    pub item: ItemRef,
    /// Index of the policy.
    pub policy: usize,
}

/// An edge of the turn graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// Index of a node.
    pub from: usize,
    /// Index of a node.
    pub to: usize,
    /// Condition in the syntax of the language. An edge without one is always taken.
    pub when: Option<String>,
}

/// All edges from one node to another, drawn as one arrow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    pub from: usize,
    pub to: usize,
    /// Lines of the arrow's label.
    pub labels: Vec<String>,
}

impl Graph {
    /// Collects the content of the drawings of all scenarios, in order of writing.
    pub fn of_scenarios(workflow: &Workflow) -> Vec<Graph> {
        (0..workflow.scenarios.len()).map(|scenario| Graph::new(workflow, scenario)).collect()
    }

    /// Collects the content of a drawing of a scenario. Without such a scenario, it has no nodes but `start` and `end`.
    pub fn new(workflow: &Workflow, scenario: usize) -> Graph {
        let plugin = |index: usize| workflow.plugins.get(index).map_or("", |plugin| plugin.name.as_str());
        let item = |name: &str, index: usize, item: &str| ItemRef {
            name: name.to_owned(),
            path: format!("{}.{item}", plugin(index)),
        };
        let agents: Vec<Agent> = workflow
            .agents
            .iter()
            .map(|agent| Agent { item: item(&agent.name, agent.plugin, &agent.item), policy: agent.policy })
            .collect();
        let nothing = workflow::Turns { max: 0, start: Vec::new(), nodes: Vec::new() };
        let scenario = workflow.scenarios.get(scenario);
        let turns = scenario.map_or(&nothing, |scenario| &scenario.turns);
        let (nodes, edges) = nodes_and_edges(turns, &agents);
        let environment = scenario.map(|scenario| &scenario.environment);
        let reward = scenario.map(|scenario| &scenario.reward);
        Graph {
            workflow: workflow.name.clone(),
            scenario: scenario.and_then(|scenario| scenario.name.clone()),
            layout: layout::keyword(workflow.layout),
            layout_meaning: layout::describe(workflow.layout),
            max_visits: turns.max,
            models: workflow
                .models
                .iter()
                .map(|model| Model { name: model.name.clone(), source: sanitize(&model.source) })
                .collect(),
            policies: workflow.policies.iter().map(|one| policy(one, workflow.train.is_some())).collect(),
            environment: environment
                .map_or_else(|| item("", 0, ""), |one| item(&one.name, one.plugin, &one.item)),
            reward: Reward {
                item: reward.map_or_else(|| item("", 0, ""), |one| item(&one.name, one.plugin, &one.item)),
                team: reward.map_or(0.0, |one| one.team),
                local: reward.map_or(0.0, |one| one.local),
            },
            sandbox: describe_sandbox(&workflow.sandbox),
            nodes,
            edges,
        }
    }

    /// Name of the workflow, with that of the scenario if it has one.
    pub(super) fn full_name(&self) -> String {
        match &self.scenario {
            Some(scenario) => format!("{}, scenario {scenario}", self.workflow),
            None => self.workflow.clone(),
        }
    }

    /// Index of the node `end`.
    pub(super) fn end(&self) -> usize {
        self.nodes.len().saturating_sub(1)
    }

    /// Identifier of a node, without spaces.
    pub(super) fn id(&self, node: usize) -> String {
        match self.nodes.get(node) {
            Some(Node::Start) => "start".to_owned(),
            Some(Node::End) | None => "end".to_owned(),
            Some(Node::Agents(_)) => format!("n{node}"),
        }
    }

    /// Description of a policy, such as `coder: adapter of rank 16 on base`.
    pub(super) fn describe_policy(&self, policy: usize) -> String {
        let Some(policy) = self.policies.get(policy) else { return String::new() };
        let model = self.models.get(policy.model).map_or("", |model| model.name.as_str());
        let weights = match (policy.adapter, policy.trained) {
            (Some(Adapter { rank, .. }), _) => format!("adapter of rank {rank} on {model}"),
            (None, true) => format!("all of {model}"),
            (None, false) => model.to_owned(),
        };
        let fixed = if policy.trained { "" } else { ", not trained" };
        format!("{}: {weights}{fixed}", policy.name)
    }

    /// Index of a policy's model, which determines its colour.
    pub(super) fn model_of_policy(&self, policy: usize) -> usize {
        self.policies.get(policy).map_or(0, |policy| policy.model)
    }

    /// Weights of the parts of the reward.
    pub(super) fn describe_reward(&self) -> String {
        format!("{} × team + {} × local", self.reward.team, self.reward.local)
    }

    /// Label of each edge: its condition, with its number if several edges of the node have conditions, or `else`.
    pub(super) fn labels(&self) -> Vec<Option<String>> {
        let mut conditions = vec![0_usize; self.nodes.len()];
        for edge in self.edges.iter().filter(|edge| edge.when.is_some()) {
            conditions[edge.from] += 1;
        }
        let mut seen = vec![0_usize; self.nodes.len()];
        self.edges
            .iter()
            .map(|edge| {
                seen[edge.from] += 1;
                match (&edge.when, conditions[edge.from]) {
                    (Some(when), 1) => Some(format!("when {when}")),
                    (Some(when), _) => Some(format!("{}: when {when}", seen[edge.from])),
                    (None, 0) => None,
                    (None, _) => Some("else".to_owned()),
                }
            })
            .collect()
    }

    /// Edges grouped by their ends, in order of the first edge of each group.
    pub(super) fn links(&self) -> Vec<Link> {
        let mut links: Vec<Link> = Vec::new();
        let mut indexes = HashMap::new();
        for (edge, label) in self.edges.iter().zip(self.labels()) {
            let Edge { from, to, .. } = *edge;
            let index = *indexes.entry((from, to)).or_insert_with(|| {
                links.push(Link { from, to, labels: Vec::new() });
                links.len() - 1
            });
            links[index].labels.extend(label);
        }
        links
    }
}

fn policy(policy: &workflow::Policy, trains: bool) -> Policy {
    Policy {
        name: policy.name.clone(),
        model: policy.model,
        adapter: policy.lora.as_ref().map(|lora| Adapter { rank: lora.rank, alpha: lora.alpha }),
        trained: policy.train && trains,
        from: policy.from.as_deref().map(sanitize),
    }
}

fn describe_sandbox(sandbox: &workflow::Sandbox) -> String {
    let backend = serde_json::to_value(sandbox.backend).unwrap_or_default();
    format!(
        "{}, {}, {}",
        backend.as_str().unwrap_or("other"),
        show_duration(sandbox.timeout),
        show_bytes(sandbox.memory)
    )
}

/// Nodes and edges, including `start` and `end`.
fn nodes_and_edges(turns: &workflow::Turns, agents: &[Agent]) -> (Vec<Node>, Vec<Edge>) {
    let agents_of = |node: &workflow::Node| {
        Node::Agents(node.agents.iter().filter_map(|index| agents.get(*index)).cloned().collect())
    };
    let mut nodes = vec![Node::Start];
    nodes.extend(turns.nodes.iter().map(agents_of));
    let end = nodes.len();
    nodes.push(Node::End);
    let edges_by_node = std::iter::once(&turns.start).chain(turns.nodes.iter().map(|node| &node.edges));
    let edges = edges_by_node
        .enumerate()
        .flat_map(|(from, edges)| edges.iter().map(move |edge| (from, edge)))
        .map(|(from, edge)| Edge {
            from,
            to: match edge.to {
                Target::Node(node) => (node + 1).min(end),
                Target::End => end,
            },
            when: edge.when.as_ref().map(ToString::to_string),
        })
        .collect();
    (nodes, edges)
}
