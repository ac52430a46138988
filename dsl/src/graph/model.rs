//! What there is to draw of a workflow, names and words ready, whatever the form.

use std::collections::HashMap;

use super::condition::harmless_text;
use crate::layout;
use crate::settings::{show_bytes, show_duration};
use crate::workflow::{self, Target, Workflow};

/// A workflow as a picture.
#[derive(Debug, Clone, PartialEq)]
pub struct Graph {
    pub workflow: String,
    /// As `layout = …` has it: `L0` to `L3`, or `mixed`.
    pub layout: &'static str,
    /// What that means, as half a sentence.
    pub layout_meaning: &'static str,
    /// Most visits of one agent in an episode.
    pub max_visits: u32,
    pub models: Vec<Model>,
    pub policies: Vec<Policy>,
    pub environment: Item,
    pub reward: Reward,
    /// Where the environment runs code that agents write, in words.
    pub sandbox: String,
    /// The first is [`Node::Start`], the last [`Node::End`].
    pub nodes: Vec<Node>,
    /// By node they leave from, and of one node in the order in which they are tried.
    pub edges: Vec<Edge>,
}

/// Weights that policies stand on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    pub name: String,
    pub source: String,
}

/// What speaks for agents.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    pub name: String,
    /// Position among the models; everything of one model has one colour.
    pub model: usize,
    pub adapter: Option<Adapter>,
    /// Whether a run changes it.
    pub trained: bool,
    /// A folder that it starts from.
    pub from: Option<String>,
}

/// Low-rank adaptation of a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adapter {
    pub rank: u32,
    pub alpha: f64,
}

/// Something that a plugin offers, under its name in the workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub name: String,
    /// `PLUGIN.ITEM`
    pub item: String,
}

/// How steps are rewarded.
#[derive(Debug, Clone, PartialEq)]
pub struct Reward {
    pub item: Item,
    pub team: f64,
    pub local: f64,
}

/// A place where the turns stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    Start,
    /// One agent, or several that act on one view side by side.
    Agents(Vec<Agent>),
    End,
}

/// Who acts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    pub item: Item,
    /// Position among the policies.
    pub policy: usize,
}

/// A way from one node to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// Position among the nodes.
    pub from: usize,
    /// Position among the nodes.
    pub to: usize,
    /// In the language's own words; none always holds.
    pub when: Option<String>,
}

/// All edges from one node to another, as one arrow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    pub from: usize,
    pub to: usize,
    /// What stands at the arrow, a line each.
    pub labels: Vec<String>,
}

impl Graph {
    /// The picture of a checked workflow.
    pub fn of(workflow: &Workflow) -> Graph {
        let plugin = |index: usize| workflow.plugins.get(index).map_or("", |plugin| plugin.name.as_str());
        let item = |name: &str, at: usize, item: &str| Item {
            name: name.to_owned(),
            item: format!("{}.{item}", plugin(at)),
        };
        let agents: Vec<Agent> = workflow
            .agents
            .iter()
            .map(|agent| Agent { item: item(&agent.name, agent.plugin, &agent.item), policy: agent.policy })
            .collect();
        let nothing = workflow::Turns { max: 0, start: Vec::new(), nodes: Vec::new() };
        let scenario = workflow.scenarios.first();
        let turns = scenario.map_or(&nothing, |scenario| &scenario.turns);
        let (nodes, edges) = turned(turns, &agents);
        let environment = scenario.map(|scenario| &scenario.environment);
        let reward = scenario.map(|scenario| &scenario.reward);
        Graph {
            workflow: workflow.name.clone(),
            layout: layout::word(workflow.layout),
            layout_meaning: layout::meaning(workflow.layout),
            max_visits: turns.max,
            models: workflow
                .models
                .iter()
                .map(|model| Model { name: model.name.clone(), source: harmless_text(&model.source) })
                .collect(),
            policies: workflow.policies.iter().map(|one| policy(one, workflow.train.is_some())).collect(),
            environment: environment
                .map_or_else(|| item("", 0, ""), |one| item(&one.name, one.plugin, &one.item)),
            reward: Reward {
                item: reward.map_or_else(|| item("", 0, ""), |one| item(&one.name, one.plugin, &one.item)),
                team: reward.map_or(0.0, |one| one.team),
                local: reward.map_or(0.0, |one| one.local),
            },
            sandbox: sandbox(&workflow.sandbox),
            nodes,
            edges,
        }
    }

    /// The position of the node `end`.
    pub(super) fn end(&self) -> usize {
        self.nodes.len().saturating_sub(1)
    }

    /// What a node is called in forms that need names without spaces.
    pub(super) fn id(&self, node: usize) -> String {
        match self.nodes.get(node) {
            Some(Node::Start) => "start".to_owned(),
            Some(Node::End) | None => "end".to_owned(),
            Some(Node::Agents(_)) => format!("n{node}"),
        }
    }

    /// A policy in words: its name, what it consists of, whether it learns.
    pub(super) fn policy_words(&self, policy: usize) -> String {
        let Some(policy) = self.policies.get(policy) else { return String::new() };
        let model = self.models.get(policy.model).map_or("", |model| model.name.as_str());
        let what = match (policy.adapter, policy.trained) {
            (Some(Adapter { rank, .. }), _) => format!("adapter of rank {rank} on {model}"),
            (None, true) => format!("all of {model}"),
            (None, false) => model.to_owned(),
        };
        let fixed = if policy.trained { "" } else { ", not trained" };
        format!("{}: {what}{fixed}", policy.name)
    }

    /// The model behind a policy, which says its colour.
    pub(super) fn model_of(&self, policy: usize) -> usize {
        self.policies.get(policy).map_or(0, |policy| policy.model)
    }

    /// The weights of the reward's parts in words.
    pub(super) fn reward_words(&self) -> String {
        format!("{} × team + {} × local", self.reward.team, self.reward.local)
    }

    /// What stands at each edge: its condition, with its place in the order where that matters, and `else` at
    /// the edge that is left where others have conditions.
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

    /// The edges with those of equal ends put together, in order of the first.
    pub(super) fn links(&self) -> Vec<Link> {
        let mut links: Vec<Link> = Vec::new();
        let mut known = HashMap::new();
        for (edge, label) in self.edges.iter().zip(self.labels()) {
            let Edge { from, to, .. } = *edge;
            let at = *known.entry((from, to)).or_insert_with(|| {
                links.push(Link { from, to, labels: Vec::new() });
                links.len() - 1
            });
            links[at].labels.extend(label);
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
        from: policy.from.as_deref().map(harmless_text),
    }
}

fn sandbox(sandbox: &workflow::Sandbox) -> String {
    let backend = serde_json::to_value(sandbox.backend).unwrap_or_default();
    format!(
        "{}, {}, {}",
        backend.as_str().unwrap_or("other"),
        show_duration(sandbox.timeout),
        show_bytes(sandbox.memory)
    )
}

/// Nodes and edges, `start` and `end` among them.
fn turned(turns: &workflow::Turns, agents: &[Agent]) -> (Vec<Node>, Vec<Edge>) {
    let acting = |node: &workflow::Node| {
        Node::Agents(node.agents.iter().filter_map(|at| agents.get(*at)).cloned().collect())
    };
    let mut nodes = vec![Node::Start];
    nodes.extend(turns.nodes.iter().map(acting));
    let end = nodes.len();
    nodes.push(Node::End);
    let leaving = std::iter::once(&turns.start).chain(turns.nodes.iter().map(|node| &node.edges));
    let edges = leaving
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
