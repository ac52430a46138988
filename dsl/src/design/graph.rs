//! The graph of a design, drawn from its text alone: nothing is checked and no plugin is asked.

use super::mistakes::LARGEST;
use crate::diagnostic::reports::Reports;
use crate::graph::{Agent, Edge, Graph, ItemRef, Node};
use crate::source::Location;
use crate::syntax::block_kind::BlockKind;
use crate::syntax::parse::parse;
use crate::syntax::tree::{Block, EdgeLine, Entry, File, NodeRef, Value, ValueKind};
use crate::workflow::Workflow;

/// Most nodes of a drawing, besides `end`. A palette has room for 64 agents.
const MOST_NODES: usize = 65;

/// Most edges of a drawing.
const MOST_EDGES: usize = 400;

/// Returns the graph of a design for a scenario of a workflow. Returns `None` if the design is too large to be drawn
/// or has a syntax error. Names that it lacks are drawn as agents without an item.
pub fn design_graph(workflow: &Workflow, scenario: usize, fragment: &str) -> Option<Graph> {
    if fragment.len() > LARGEST {
        return None;
    }
    let mut reports = Reports::new(&[]);
    let file = parse(fragment, 0..fragment.len(), 0, &mut reports);
    let turns = file.blocks.iter().find(|block| block.kind == BlockKind::Turns);
    let turns = turns.filter(|_| !reports.failed())?;
    let lines = turns.body.entries.iter().filter_map(|entry| match entry {
        Entry::Edge(line) => Some(line),
        _ => None,
    });
    let mut drawn = Drawn { fragment, nodes: vec![vec!["start"]], edges: Vec::new() };
    lines.for_each(|line| drawn.add(line));
    let Drawn { nodes, mut edges, .. } = drawn;
    if nodes.len() > MOST_NODES || edges.len() > MOST_EDGES {
        return None;
    }
    let end = nodes.len();
    edges.iter_mut().filter(|edge| edge.to == usize::MAX).for_each(|edge| edge.to = end);
    edges.sort_by_key(|edge| edge.from);
    let agent = |name: &&str| agent(&file, workflow, name);
    let agents = nodes[1..].iter().map(|names| Node::Agents(names.iter().map(agent).collect()));
    Some(Graph {
        max_visits: setting(turns, "max").and_then(number).unwrap_or(0),
        nodes: std::iter::once(Node::Start).chain(agents).chain([Node::End]).collect(),
        edges,
        ..Graph::new(workflow, scenario)
    })
}

struct Drawn<'f> {
    fragment: &'f str,
    /// Names of each node. The first is `start`.
    nodes: Vec<Vec<&'f str>>,
    /// Edges to `end` lead to `usize::MAX`.
    edges: Vec<Edge>,
}

impl<'f> Drawn<'f> {
    fn add(&mut self, line: &'f EdgeLine) {
        let text = |value: &Value| match value.location {
            Location::Span(span) => span.slice(self.fragment).trim().to_owned(),
            Location::Override(_) => String::new(),
        };
        let when = line.when.as_ref().map(text);
        for pair in line.nodes.windows(2) {
            let [from, to] = pair else { continue };
            let (from, to) = (self.node(from), self.node(to));
            self.edges.push(Edge { from, to, when: when.clone() });
        }
    }

    /// Position of a node, which is added if it is new.
    fn node(&mut self, node: &'f NodeRef) -> usize {
        let mut names: Vec<&str> = node.names.iter().map(|name| name.text.as_str()).collect();
        if names == ["end"] {
            return usize::MAX;
        }
        names.sort_unstable();
        self.nodes.iter().position(|known| *known == names).unwrap_or_else(|| {
            self.nodes.push(names);
            self.nodes.len() - 1
        })
    }
}

/// Returns the agent of a name.
fn agent(file: &File, workflow: &Workflow, name: &str) -> Agent {
    let is_named = |block: &&Block| {
        block.kind == BlockKind::Agent && block.name.as_ref().is_some_and(|own| own.text == name)
    };
    let block = file.blocks.iter().find(is_named);
    let path = block.and_then(|block| path_of(block.value.as_ref()?)).unwrap_or_default();
    let policy = block.and_then(|block| path_of(setting(block, "policy")?));
    let policy = workflow.policies.iter().position(|own| Some(&own.name) == policy.as_ref());
    Agent { item: ItemRef { name: name.to_owned(), path }, policy: policy.unwrap_or_default() }
}

fn setting<'f>(block: &'f Block, key: &str) -> Option<&'f Value> {
    block.body.entries.iter().find_map(|entry| match entry {
        Entry::Setting(setting) if setting.key.text == key => Some(&setting.value),
        _ => None,
    })
}

fn path_of(value: &Value) -> Option<String> {
    match &value.kind {
        ValueKind::Path(names) => Some(names.join(".")),
        _ => None,
    }
}

fn number(value: &Value) -> Option<u32> {
    match &value.kind {
        ValueKind::Number(number) => number.parse().ok(),
        _ => None,
    }
}
