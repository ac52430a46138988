//! The turn graph: stops and edges from what was written, and what is wrong with their shape.

use std::collections::HashMap;

use crate::catalog::Fact;
use crate::condition::{Surroundings, condition, has_switch, is_constant};
use crate::diagnostic::{Code, Place, Reports, suggest};
use crate::logic::{Finding, findings};
use crate::scope::Scope;
use crate::source::Span;
use crate::syntax::{Block, EdgeLine, Entry, Stop};
use crate::workflow::{Condition, Edge, Node, Target, Turns};

/// Where an edge line can stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spot {
    Start,
    End,
    Node(usize),
}

/// The graph as it grows.
struct Graph {
    nodes: Vec<Node>,
    /// Where each node was first written.
    spans: Vec<Span>,
    /// By the agents of the node, sorted: `[a, b]` and `[b, a]` are one.
    known: HashMap<Vec<usize>, usize>,
    start: Vec<Edge>,
    /// Spans of the edges' lines, beside `start` and each node's edges.
    start_lines: Vec<Span>,
    lines: Vec<Vec<Span>>,
}

/// Reads and checks `turns`. `agents` are all agents in order, by name and where each was declared. None:
/// something is amiss, and reported.
pub(crate) fn turns(
    block: &Block,
    max: Option<u32>,
    agents: &[(&str, Place)],
    around: &Surroundings,
    scope: &mut Scope,
    reports: &mut Reports,
) -> Option<Turns> {
    let mut graph = Graph {
        nodes: Vec::new(),
        spans: Vec::new(),
        known: HashMap::new(),
        start: Vec::new(),
        start_lines: Vec::new(),
        lines: Vec::new(),
    };
    let names: HashMap<&str, usize> = agents.iter().enumerate().map(|(at, (name, _))| (*name, at)).collect();
    let mut sound = block.body.complete && block.sound;
    let lines: Vec<&EdgeLine> = block
        .body
        .entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::Edge(line) => Some(line),
            _ => None,
        })
        .collect();
    // Node 0 is the first that `start` leads to, wherever its line stands.
    let from_start = |line: &EdgeLine| line.stops.first().is_some_and(|stop| is(stop, "start"));
    for line in lines.iter().filter(|line| from_start(line)) {
        if let Some(first) = line.stops.get(1).filter(|stop| !is(stop, "end") && !is(stop, "start")) {
            // What is wrong with the stop is said when its line is read.
            graph.node(first, &names, &mut Reports::new(&[]), around);
        }
    }
    for line in &lines {
        sound &= graph.line(line, &names, around, scope, reports).is_some();
    }
    if !sound {
        return None;
    }
    if graph.start.is_empty() {
        reports
            .error(Code::NoWayOn, block.keyword, "nothing leads on from `start`", "no edge from `start`")
            .help("say who begins, as in `start -> NAME`");
        return None;
    }
    let sound = graph.shape(agents, reports);
    if let (true, Some(facts), Some(max)) = (sound, around.facts, max) {
        graph.doubts(facts, max, reports);
    }
    (sound && max.is_some()).then(|| Turns { max: max.unwrap_or(1), start: graph.start, nodes: graph.nodes })
}

fn is(stop: &Stop, word: &str) -> bool {
    matches!(stop.names.as_slice(), [only] if only.text == word)
}

impl Graph {
    fn line(
        &mut self,
        line: &EdgeLine,
        names: &HashMap<&str, usize>,
        around: &Surroundings,
        scope: &mut Scope,
        reports: &mut Reports,
    ) -> Option<()> {
        let last = line.stops.len() - 1;
        let mut places = Vec::with_capacity(line.stops.len());
        for (at, stop) in line.stops.iter().enumerate() {
            let place = if is(stop, "start") {
                if at > 0 {
                    reports
                        .error(Code::BadEdge, stop.span, "no edge leads back to `start`", "")
                        .help("lead to the first agent instead");
                    places.push(None);
                    continue;
                }
                Some(Spot::Start)
            } else if is(stop, "end") {
                if at < last {
                    reports.error(Code::BadEdge, stop.span, "no edge leads on from `end`", "");
                    places.push(None);
                    continue;
                }
                Some(Spot::End)
            } else {
                self.node(stop, names, reports, around).map(Spot::Node)
            };
            places.push(place);
        }
        let at_start = is(&line.stops[0], "start");
        let mut when = None;
        if let Some(expression) = &line.when {
            if last > 1 {
                reports
                    .error(
                        Code::BadEdge,
                        expression.place,
                        "a condition stands behind a line of several arrows",
                        "of which edge?",
                    )
                    .help("give the edge with the condition a line of its own");
                return None;
            }
            let around = Surroundings { at_start, ..*around };
            when = Some(condition(expression, &around, scope, reports)?);
            if let Some(truth) = when.as_ref().and_then(is_constant) {
                // Params may well switch an edge on or off: true is as if there were no condition.
                if truth {
                    when = None;
                }
            }
        }
        let places = places.into_iter().collect::<Option<Vec<Spot>>>()?;
        let span = |at: usize| Span::new(line.stops[at].span.start, line.stops[at + 1].span.end);
        for (at, pair) in places.windows(2).enumerate() {
            let to = match pair[1] {
                Spot::Node(node) => Target::Node(node),
                _ => Target::End,
            };
            let edge = Edge { to, when: when.clone() };
            match pair[0] {
                Spot::Start if to == Target::End => {
                    reports
                        .error(Code::BadEdge, span(at), "this episode would end before it began", "")
                        .help("lead from `start` to an agent");
                    return None;
                }
                Spot::Start => {
                    self.start.push(edge);
                    self.start_lines.push(span(at));
                }
                Spot::Node(node) => {
                    // The same step within several lines, as in `a -> b -> c` and `a -> b -> d`, is one edge.
                    if !self.nodes[node].edges.contains(&edge) || edge.when.is_some() {
                        self.nodes[node].edges.push(edge);
                        self.lines[node].push(span(at));
                    }
                }
                Spot::End => {}
            }
        }
        Some(())
    }

    /// The node of a stop; a new one where it was not written before.
    fn node(
        &mut self,
        stop: &Stop,
        names: &HashMap<&str, usize>,
        reports: &mut Reports,
        around: &Surroundings,
    ) -> Option<usize> {
        let mut agents = Vec::with_capacity(stop.names.len());
        let mut sound = true;
        for name in &stop.names {
            match names.get(name.text.as_str()) {
                Some(agent) if agents.contains(agent) => {
                    let message = format!("`{}` stands twice side by side with itself", name.text);
                    reports.error(Code::BadEdge, name.place, message, "");
                    sound = false;
                }
                Some(agent) => agents.push(*agent),
                None if matches!(name.text.as_str(), "start" | "end") => {
                    let message =
                        format!("`{}` is no agent and can't stand side by side with one", name.text);
                    reports.error(Code::BadEdge, name.place, message, "");
                    sound = false;
                }
                // It may be the one whose name could not be read.
                None if !around.all_agents => sound = false,
                None => {
                    let message = format!("there is no agent `{}`", name.text);
                    let hint = suggest(&name.text, "the agents are", around.agents.iter().copied());
                    reports.error(Code::UnknownName, name.place, message, "").maybe_help(hint);
                    sound = false;
                }
            }
        }
        if !sound {
            return None;
        }
        let mut key = agents.clone();
        key.sort_unstable();
        if let Some(node) = self.known.get(&key) {
            return Some(*node);
        }
        let node = self.nodes.len();
        self.known.insert(key, node);
        self.nodes.push(Node { agents, edges: Vec::new() });
        self.spans.push(stop.span);
        self.lines.push(Vec::new());
        Some(node)
    }

    /// Checks the whole graph; false: something is wrong with it.
    fn shape(&self, agents: &[(&str, Place)], reports: &mut Reports) -> bool {
        let mut sound = true;
        let title = |node: usize| {
            let names: Vec<&str> = self.nodes[node].agents.iter().map(|agent| agents[*agent].0).collect();
            match names.as_slice() {
                [only] => format!("`{only}`"),
                several => format!("`[{}]`", several.join(", ")),
            }
        };
        let reached = self.reached(self.start.iter());
        for (node, edges) in self.nodes.iter().map(|node| &node.edges).enumerate() {
            if !reached[node] {
                let message = format!("nothing leads from `start` to {}", title(node));
                reports.error(Code::Unreachable, self.spans[node], message, "never reached");
                sound = false;
                continue;
            }
            if edges.is_empty() {
                let message = format!("nothing leads on from {}", title(node));
                reports
                    .error(Code::NoWayOn, self.spans[node], message, "no edge leaves from here")
                    .help(format!("add `{} -> end`", title(node).replace('`', "")));
                sound = false;
            }
            sound &= always_on(&title(node), edges, &self.lines[node], reports);
        }
        sound &= always_on("`start`", &self.start, &self.start_lines, reports);
        let mut placed = vec![false; agents.len()];
        for agent in self.nodes.iter().flat_map(|node| &node.agents) {
            placed[*agent] = true;
        }
        for ((name, place), placed) in agents.iter().zip(placed) {
            // An agent of a reserved name can have no place, and has its own message.
            if !placed && !matches!(*name, "start" | "end" | "team" | "success") {
                reports
                    .error(Code::AgentNotReached, *place, format!("no edge reaches agent `{name}`"), "")
                    .help("give it a place in `turns`, or remove it");
                sound = false;
            }
        }
        sound & self.ends(&reached, title, reports)
    }

    /// Says which conditions can't be what was meant.
    fn doubts(&self, facts: &[Fact], max: u32, reports: &mut Reports) {
        for (node, lines) in self.nodes.iter().zip(&self.lines) {
            // A param may well switch an edge on or off; that is no mistake.
            let edges: Vec<(&Condition, Span)> = node
                .edges
                .iter()
                .zip(lines)
                .filter_map(|(edge, line)| Some((edge.when.as_ref()?, *line)))
                .filter(|(when, _)| !has_switch(when))
                .collect();
            let conditions: Vec<&Condition> = edges.iter().map(|(when, _)| *when).collect();
            for (at, finding) in findings(&conditions, facts, max).into_iter().enumerate() {
                let place = edges[at].1;
                let (code, message) = match finding {
                    Finding::Fine => continue,
                    Finding::Never => (Code::NeverHolds, "this condition can never hold"),
                    Finding::Always => (Code::NeverHolds, "this condition always holds"),
                    Finding::CoveredBy(_) | Finding::Covered => {
                        (Code::Covered, "this edge is never taken: an edge before it holds whenever it does")
                    }
                };
                let diagnostic = reports.warning(code, place, message, "");
                if let Finding::CoveredBy(first) = finding {
                    diagnostic.also(edges[first].1.into(), "taken first");
                }
                diagnostic.help(match finding {
                    Finding::Always => "leave `when …` out, or ask for something else",
                    Finding::Never => "remove the edge, or ask for something else",
                    _ => "edges are tried in order: put the narrower one first",
                });
            }
        }
    }

    /// The nodes that edges lead to, directly or not.
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

    /// Whether `end` can be reached from every node that is reached itself.
    fn ends(&self, reached: &[bool], title: impl Fn(usize) -> String, reports: &mut Reports) -> bool {
        // Backwards from `end`, and from nodes where the turns can come to a stop: those have their own message.
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
            [only] => format!("{only} goes"),
            [first @ .., last] => format!("{} and {last} go", first.join(", ")),
            [] => return true,
        };
        let message = format!("{subject} round for ever: no edge leads out to `end`");
        let diagnostic =
            reports.error(Code::NoWayOut, self.spans[*first], message, "the loop is entered here");
        let agents: Vec<String> = names.iter().map(|name| name.replace('`', "")).collect();
        diagnostic.help(format!("add a way out, such as `{} -> end when …`", agents[agents.len() - 1]));
        false
    }
}

/// Whether there is always an edge to take, and none that is never taken.
fn always_on(title: &str, edges: &[Edge], lines: &[Span], reports: &mut Reports) -> bool {
    let mut sound = true;
    let always = edges.iter().position(|edge| edge.when.is_none());
    match always {
        Some(always) => {
            for line in lines.iter().skip(always + 1) {
                reports
                    .error(
                        Code::NeverTaken,
                        *line,
                        format!("this edge is never taken: one before it always leads on from {title}"),
                        "never taken",
                    )
                    .also(lines[always].into(), "always taken")
                    .help("edges are tried in order: put the one without a condition last");
                sound = false;
            }
        }
        None => {
            if let Some(line) = lines.last() {
                reports
                    .error(
                        Code::NoWayOn,
                        *line,
                        format!("if no condition holds, nothing leads on from {title}"),
                        "the last edge has a condition too",
                    )
                    .help("add an edge without `when` as the last one");
                sound = false;
            }
        }
    }
    sound
}
