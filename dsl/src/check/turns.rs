//! Builds the turn graph from the edges of `turns`, and checks its shape.

use std::collections::{BTreeSet, HashMap};

use pl_types::Fact;

use super::condition::{ConditionContext, condition, constant_value, has_switch};
use super::logic::{Finding, findings};
use crate::diagnostic::DiagnosticCode;
use crate::diagnostic::reports::Reports;
use crate::diagnostic::spelling::suggest;
use crate::eval::scope::Scope;
use crate::source::Location;
use crate::source::Span;
use crate::syntax::tree::{Body, EdgeLine, Entry, NodeRef};
use crate::workflow::{Condition, Edge, Node, Target, Turns};

/// An end of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    Start,
    End,
    Node(usize),
}

/// The graph under construction.
struct Graph {
    nodes: Vec<Node>,
    /// Span of the first occurrence of each node.
    spans: Vec<Span>,
    /// Nodes by their sorted agents: `[a, b]` and `[b, a]` are one node.
    index: HashMap<Vec<usize>, usize>,
    start: Vec<Edge>,
    /// Places of the edges that leave from `start`.
    start_lines: Vec<EdgePlace>,
    /// Places of the edges that leave from each node.
    lines: Vec<Vec<EdgePlace>>,
}

/// Place of an edge in the text.
#[derive(Debug, Clone, Copy)]
struct EdgePlace {
    span: Span,
    /// True if the edge has a condition, which a param makes true.
    is_switched_on: bool,
}

/// Result of the check of `turns`.
#[derive(Default)]
pub(crate) struct CheckedTurns {
    /// `None` if an error was reported.
    pub turns: Option<Turns>,
    /// Positions of the agents that its edges name. `None` if not all edges are known.
    pub agents: Option<BTreeSet<usize>>,
}

impl CheckedTurns {
    /// Turns of a scenario whose designer writes them.
    pub fn to_be_designed() -> Self {
        let end = Edge { to: Target::End, when: None };
        let turns = Turns { max: 1, start: vec![end], nodes: Vec::new() };
        CheckedTurns { turns: Some(turns), agents: Some(BTreeSet::new()) }
    }
}

/// Checks `turns { … }`, whose keyword is at `keyword`. `agents` are the names of all agents in order.
pub(crate) fn turns(
    body: &Body,
    keyword: Location,
    max: Option<u32>,
    agents: &[&str],
    context: &ConditionContext,
    scope: &mut Scope,
    reports: &mut Reports,
) -> CheckedTurns {
    let mut graph = Graph {
        nodes: Vec::new(),
        spans: Vec::new(),
        index: HashMap::new(),
        start: Vec::new(),
        start_lines: Vec::new(),
        lines: Vec::new(),
    };
    let names: HashMap<&str, usize> = agents.iter().enumerate().map(|(at, name)| (*name, at)).collect();
    let mut sound = body.complete;
    let lines: Vec<&EdgeLine> = body
        .entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::Edge(line) => Some(line),
            _ => None,
        })
        .collect();
    // Node 0 is the first one that `start` leads to, even if its line comes later.
    let from_start = |line: &EdgeLine| line.nodes.first().is_some_and(|node_ref| is_word(node_ref, "start"));
    for line in lines.iter().filter(|line| from_start(line)) {
        if let Some(first) =
            line.nodes.get(1).filter(|written| !is_word(written, "end") && !is_word(written, "start"))
        {
            // Errors in the node are reported with its line.
            graph.node(first, &names, &mut Reports::new(&[]), context);
        }
    }
    for line in &lines {
        sound &= graph.line(line, &names, context, scope, reports).is_some();
    }
    if !sound {
        return CheckedTurns::default();
    }
    if graph.start.is_empty() {
        reports
            .error(
                DiagnosticCode::NoWayOn,
                keyword,
                "no edge leads from `start` to an agent",
                "no edge from `start`",
            )
            .help("add the first agent, as in `start -> NAME`");
        return CheckedTurns::default();
    }
    let named = graph.nodes.iter().flat_map(|node| node.agents.iter().copied()).collect();
    let sound = graph.check_shape(agents, reports);
    if let (true, Some(facts), Some(max)) = (sound, context.facts, max) {
        graph.warn_about_conditions(facts, max, reports);
    }
    graph.switch_off_untaken();
    let turns = max.filter(|_| sound).map(|max| Turns { max, start: graph.start, nodes: graph.nodes });
    CheckedTurns { turns, agents: Some(named) }
}

fn is_word(node_ref: &NodeRef, word: &str) -> bool {
    matches!(node_ref.names.as_slice(), [only] if only.text == word)
}

impl Graph {
    fn line(
        &mut self,
        line: &EdgeLine,
        names: &HashMap<&str, usize>,
        context: &ConditionContext,
        scope: &mut Scope,
        reports: &mut Reports,
    ) -> Option<()> {
        let last = line.nodes.len() - 1;
        let mut locations = Vec::with_capacity(line.nodes.len());
        for (at, node_ref) in line.nodes.iter().enumerate() {
            let location = if is_word(node_ref, "start") {
                if at > 0 {
                    reports
                        .error(DiagnosticCode::BadEdge, node_ref.span, "no edge may lead to `start`", "")
                        .help("lead to the first agent instead");
                    locations.push(None);
                    continue;
                }
                Some(Endpoint::Start)
            } else if is_word(node_ref, "end") {
                if at < last {
                    reports.error(DiagnosticCode::BadEdge, node_ref.span, "no edge may leave from `end`", "");
                    locations.push(None);
                    continue;
                }
                Some(Endpoint::End)
            } else {
                self.node(node_ref, names, reports, context).map(Endpoint::Node)
            };
            locations.push(location);
        }
        let at_start = is_word(&line.nodes[0], "start");
        let mut when = None;
        let mut is_switched_on = false;
        if let Some(expression) = &line.when {
            if last > 1 {
                reports
                    .error(
                        DiagnosticCode::BadEdge,
                        expression.location,
                        "a condition follows several arrows",
                        "unclear which edge it belongs to",
                    )
                    .help("write the edge with the condition on a line of its own");
                return None;
            }
            let context = ConditionContext { at_start, ..*context };
            when = Some(condition(expression, &context, scope, reports)?);
            if let Some(truth) = when.as_ref().and_then(constant_value) {
                // A param may switch an edge on or off. A condition that is always true is dropped.
                is_switched_on = truth;
                if truth {
                    when = None;
                }
            }
        }
        let locations = locations.into_iter().collect::<Option<Vec<Endpoint>>>()?;
        let span = |at: usize| Span::new(line.nodes[at].span.start, line.nodes[at + 1].span.end);
        for (at, pair) in locations.windows(2).enumerate() {
            let to = match pair[1] {
                Endpoint::Node(node) => Target::Node(node),
                _ => Target::End,
            };
            let edge = Edge { to, when: when.clone() };
            match pair[0] {
                Endpoint::Start if to == Target::End => {
                    reports
                        .error(
                            DiagnosticCode::BadEdge,
                            span(at),
                            "an episode can't go from `start` to `end` directly",
                            "",
                        )
                        .help("lead from `start` to an agent");
                    return None;
                }
                Endpoint::Start => {
                    self.start.push(edge);
                    self.start_lines.push(EdgePlace { span: span(at), is_switched_on });
                }
                Endpoint::Node(node) => {
                    let (edges, places) = (&mut self.nodes[node].edges, &mut self.lines[node]);
                    // An edge that several lines share, as in `a -> b -> c` and `a -> b -> d`, is one edge. One that is
                    // switched on stays apart, as it does with another value of its param.
                    let is_plain = |edge: &Edge, is_switched_on: bool| edge.when.is_none() && !is_switched_on;
                    let is_shared = is_plain(&edge, is_switched_on)
                        && edges
                            .iter()
                            .zip(&*places)
                            .any(|(other, place)| *other == edge && is_plain(other, place.is_switched_on));
                    if !is_shared {
                        edges.push(edge);
                        places.push(EdgePlace { span: span(at), is_switched_on });
                    }
                }
                Endpoint::End => {}
            }
        }
        Some(())
    }

    /// Returns the index of a node, adding it if it is new.
    fn node(
        &mut self,
        node_ref: &NodeRef,
        names: &HashMap<&str, usize>,
        reports: &mut Reports,
        context: &ConditionContext,
    ) -> Option<usize> {
        let mut agents = Vec::with_capacity(node_ref.names.len());
        let mut sound = true;
        for name in &node_ref.names {
            match names.get(name.text.as_str()) {
                Some(agent) if agents.contains(agent) => {
                    let message = format!("`{}` is listed twice in one node", name.text);
                    reports.error(DiagnosticCode::BadEdge, name.location, message, "");
                    sound = false;
                }
                Some(agent) => agents.push(*agent),
                None if matches!(name.text.as_str(), "start" | "end") => {
                    let message = format!("`{}` is not an agent and can't be combined with one", name.text);
                    reports.error(DiagnosticCode::BadEdge, name.location, message, "");
                    sound = false;
                }
                // It may be the agent whose name could not be parsed.
                None if !context.all_agents => sound = false,
                None => {
                    let message = format!("there is no agent `{}`", name.text);
                    let hint = suggest(&name.text, "the agents are", context.agents.iter().copied());
                    reports.error(DiagnosticCode::UnknownName, name.location, message, "").maybe_help(hint);
                    sound = false;
                }
            }
        }
        if !sound {
            return None;
        }
        let mut key = agents.clone();
        key.sort_unstable();
        if let Some(node) = self.index.get(&key) {
            return Some(*node);
        }
        let node = self.nodes.len();
        self.index.insert(key, node);
        self.nodes.push(Node { agents, edges: Vec::new() });
        self.spans.push(node_ref.span);
        self.lines.push(Vec::new());
        Some(node)
    }

    /// Checks the whole graph. Returns false if an error was reported.
    fn check_shape(&self, agents: &[&str], reports: &mut Reports) -> bool {
        let mut sound = true;
        let title = |node: usize| {
            let names: Vec<&str> = self.nodes[node].agents.iter().map(|agent| agents[*agent]).collect();
            match names.as_slice() {
                [only] => format!("`{only}`"),
                several => format!("`[{}]`", several.join(", ")),
            }
        };
        let reached = self.reached(self.start.iter());
        for (node, edges) in self.nodes.iter().map(|node| &node.edges).enumerate() {
            if !reached[node] {
                let message = format!("no path leads from `start` to {}", title(node));
                reports.error(DiagnosticCode::Unreachable, self.spans[node], message, "never reached");
                sound = false;
                continue;
            }
            if edges.is_empty() {
                let message = format!("no edge leads on from {}", title(node));
                reports
                    .error(DiagnosticCode::NoWayOn, self.spans[node], message, "no edge leaves from here")
                    .help(format!("add `{} -> end`", title(node).replace('`', "")));
                sound = false;
            }
            sound &= check_exits(&title(node), edges, &self.lines[node], reports);
        }
        sound &= check_exits("`start`", &self.start, &self.start_lines, reports);
        sound & self.check_end_reachable(&reached, title, reports)
    }

    /// Warns about conditions that are always true, never true, or covered by earlier ones.
    fn warn_about_conditions(&self, facts: &[Fact], max: u32, reports: &mut Reports) {
        for (node, lines) in self.nodes.iter().zip(&self.lines) {
            // Switching an edge on or off with a param is not a mistake.
            let edges: Vec<(&Condition, Span)> = node
                .edges
                .iter()
                .zip(lines)
                .filter_map(|(edge, place)| Some((edge.when.as_ref()?, place.span)))
                .filter(|(when, _)| !has_switch(when))
                .collect();
            let conditions: Vec<&Condition> = edges.iter().map(|(when, _)| *when).collect();
            for (at, finding) in findings(&conditions, facts, max).into_iter().enumerate() {
                let location = edges[at].1;
                let (code, message) = match finding {
                    Finding::Fine => continue,
                    Finding::Never => (DiagnosticCode::NeverHolds, "this condition is never true"),
                    Finding::Always => (DiagnosticCode::NeverHolds, "this condition is always true"),
                    Finding::CoveredBy(_) | Finding::Covered => (
                        DiagnosticCode::Covered,
                        "this edge is never taken: whenever its condition is true, so is that of an earlier edge",
                    ),
                };
                let diagnostic = reports.warning(code, location, message, "");
                if let Finding::CoveredBy(first) = finding {
                    diagnostic.also(edges[first].1.into(), "taken first");
                }
                diagnostic.help(match finding {
                    Finding::Always => "remove `when …`, or change the condition",
                    Finding::Never => "remove the edge, or change the condition",
                    _ => "edges are tried in order: put the more specific one first",
                });
            }
        }
    }

    /// Makes the condition of each edge after one that is always taken false, as a param does that switches it off.
    fn switch_off_untaken(&mut self) {
        for edges in self.nodes.iter_mut().map(|node| &mut node.edges).chain([&mut self.start]) {
            let after = edges.iter().position(|edge| edge.when.is_none()).map_or(edges.len(), |at| at + 1);
            for edge in edges.iter_mut().skip(after) {
                edge.when = Some(Condition::Literal(false.into()));
            }
        }
    }

    /// Marks the nodes that can be reached from the given edges.
    fn reached<'e>(&self, from: impl Iterator<Item = &'e Edge>) -> Vec<bool> {
        let mut reached = vec![false; self.nodes.len()];
        let mut waiting: Vec<Target> = from.map(|edge| edge.to).collect();
        while let Some(target) = waiting.pop() {
            if let Target::Node(node) = target
                && !std::mem::replace(&mut reached[node], true)
            {
                waiting.extend(self.nodes[node].edges.iter().map(|edge| edge.to));
            }
        }
        reached
    }

    /// Checks that every reached node can reach `end`. Returns false if an error was reported.
    fn check_end_reachable(
        &self,
        reached: &[bool],
        title: impl Fn(usize) -> String,
        reports: &mut Reports,
    ) -> bool {
        // Walk backwards from `end`, and from nodes where the turns can get stuck, which are reported elsewhere.
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        let mut ends = vec![false; self.nodes.len()];
        let mut waiting = Vec::new();
        for (node, Node { edges, .. }) in self.nodes.iter().enumerate() {
            let can_stop = edges.iter().all(|edge| edge.when.is_some());
            if can_stop || edges.iter().any(|edge| edge.to == Target::End) {
                waiting.push(node);
            }
            for edge in edges {
                if let Target::Node(to) = edge.to {
                    before[to].push(node);
                }
            }
        }
        while let Some(node) = waiting.pop() {
            if !std::mem::replace(&mut ends[node], true) {
                waiting.extend(&before[node]);
            }
        }
        let stuck: Vec<usize> = (0..self.nodes.len()).filter(|node| reached[*node] && !ends[*node]).collect();
        let Some(first) = stuck.first() else { return true };
        let names: Vec<String> = stuck.iter().map(|node| title(*node)).collect();
        let subject = match names.as_slice() {
            [only] => format!("{only} loops"),
            [first @ .., last] => format!("{} and {last} loop", first.join(", ")),
            [] => return true,
        };
        let message = format!("{subject} forever: no edge leads to `end`");
        let diagnostic =
            reports.error(DiagnosticCode::NoWayOut, self.spans[*first], message, "the loop is entered here");
        let agents: Vec<String> = names.iter().map(|name| name.replace('`', "")).collect();
        diagnostic.help(format!("add an exit, such as `{} -> end when …`", agents[agents.len() - 1]));
        false
    }
}

/// Checks that an edge can always be taken, and that none is unreachable. Returns false if an error was reported.
fn check_exits(title: &str, edges: &[Edge], places: &[EdgePlace], reports: &mut Reports) -> bool {
    if edges.iter().all(|edge| edge.when.is_some()) {
        let Some(last) = places.last() else { return true };
        reports
            .error(
                DiagnosticCode::NoWayOn,
                last.span,
                format!("if no condition is true, no edge leads on from {title}"),
                "the last edge has a condition too",
            )
            .help("add an edge without `when` as the last one");
        return false;
    }
    // With another value of its param, an edge that is switched on leaves the turn to later ones.
    let always =
        edges.iter().zip(places).position(|(edge, place)| edge.when.is_none() && !place.is_switched_on);
    let Some(always) = always else { return true };
    let mut sound = true;
    for place in &places[always + 1..] {
        reports
            .error(
                DiagnosticCode::NeverTaken,
                place.span,
                format!("this edge is never taken: an earlier edge from {title} has no condition"),
                "never taken",
            )
            .also(places[always].span.into(), "always taken")
            .help("edges are tried in order: put the one without a condition last");
        sound = false;
    }
    sound
}
