//! Boxes, arrows and rails, each to its cells.

use std::collections::BTreeMap;

use unicode_width::UnicodeWidthStr;

use super::super::layers::layers;
use super::super::model::{Agent, Graph, Link, Node};
use super::INDENT;
use super::cells::{Cells, LEFT, RIGHT, shorten};

/// Columns of a rail.
const RAIL: usize = 2;

/// A box before it has its place.
struct Frame {
    /// What stands in it, columns beside each other.
    columns: Vec<Column>,
    /// Inner rows.
    rows: usize,
    /// From border to border.
    width: usize,
    /// Lines under each other instead, with a line between them.
    stacked: bool,
}

impl Frame {
    /// The box of a node, its lines no wider than `most`.
    fn of(graph: &Graph, node: &Node, most: usize) -> Frame {
        let column = |lines: Vec<String>, model: Option<usize>| {
            let lines: Vec<String> = lines.iter().map(|line| shorten(line, most)).collect();
            let width = lines.iter().map(|line| line.width()).max().unwrap_or(0);
            Column { lines, model, width }
        };
        let columns: Vec<Column> = match node {
            Node::Start => vec![column(vec!["start".into()], None)],
            Node::End => vec![column(vec!["end".into()], None)],
            Node::Agents(agents) => agents
                .iter()
                .map(|agent: &Agent| {
                    let lines = vec![
                        agent.item.name.clone(),
                        agent.item.item.clone(),
                        graph.policy_words(agent.policy),
                    ];
                    column(lines, Some(graph.model_of(agent.policy)))
                })
                .collect(),
        };
        let beside: usize = columns.iter().map(|column| column.width + 3).sum::<usize>() + 1;
        let stacked = columns.len() > 1 && beside > most + 4;
        let lines = |column: &Column| column.lines.len();
        let (rows, width) = if stacked {
            let widest = columns.iter().map(|column| column.width).max().unwrap_or(0);
            (columns.iter().map(lines).sum::<usize>() + columns.len() - 1, widest + 4)
        } else {
            (columns.iter().map(lines).max().unwrap_or(1), beside)
        };
        Frame { columns, rows, width, stacked }
    }
}

/// What stands in a box of one agent.
struct Column {
    lines: Vec<String>,
    model: Option<usize>,
    width: usize,
}

/// A way that leaves a box to the right.
struct Exit {
    row: usize,
    left: usize,
    label: String,
    from: usize,
    to: usize,
    colour: Option<usize>,
}

/// The drawing while it grows.
pub struct Drawing<'g> {
    graph: &'g Graph,
    width: usize,
    pub cells: Cells,
    /// Where arrows between boxes run.
    spine: usize,
    frames: Vec<Frame>,
    /// Nodes from top to bottom.
    order: Vec<usize>,
    links: Vec<Link>,
    exits: Vec<Exit>,
    /// Per node: the first inner row of its box, and the column right of it.
    doors: Vec<(usize, usize)>,
    /// Labels that were shortened, whole, with their edge.
    pub cut: Vec<String>,
}

impl<'g> Drawing<'g> {
    pub fn new(graph: &'g Graph, width: usize) -> Drawing<'g> {
        // What is left is for labels and rails.
        let most = (width / 2).saturating_sub(INDENT + 4).max(12);
        let frames: Vec<Frame> = graph.nodes.iter().map(|node| Frame::of(graph, node, most)).collect();
        let links = graph.links();
        let ends: Vec<(usize, usize)> = links.iter().map(|link| (link.from, link.to)).collect();
        let found = layers(graph.nodes.len(), &ends);
        let mut order: Vec<usize> = (0..graph.nodes.len()).collect();
        order.sort_by_key(|node| (found.of[*node], *node));
        let widest = frames.iter().map(|frame| frame.width).max().unwrap_or(0);
        Drawing {
            graph,
            width,
            cells: Cells::default(),
            spine: INDENT + widest / 2,
            doors: vec![(0, 0); frames.len()],
            frames,
            order,
            links,
            exits: Vec::new(),
            cut: Vec::new(),
        }
    }

    /// Draws everything.
    pub fn draw(&mut self) {
        let order = self.order.clone();
        let links = std::mem::take(&mut self.links);
        let mut row = 0;
        for (at, &node) in order.iter().enumerate() {
            let next = order.get(at + 1).copied();
            let entered_aside = links.iter().any(|link| {
                let direct = at > 0 && order[at - 1] == link.from;
                link.to == node && !direct
            });
            let aside: Vec<&Link> =
                links.iter().filter(|link| link.from == node && Some(link.to) != next).collect();
            let direct = links.iter().find(|link| link.from == node && Some(link.to) == next);
            row = self.enclose(node, row, &aside, entered_aside);
            row = self.lead_on(node, row, direct, next.is_some());
        }
        self.rails();
    }

    /// Draws a box whose upper border is at `row`, and notes what leaves it to the right. The row below it.
    fn enclose(&mut self, node: usize, row: usize, aside: &[&Link], entered: bool) -> usize {
        let exits: usize = aside.iter().map(|link| link.labels.len().max(1)).sum();
        let frame = &self.frames[node];
        let (width, stacked) = (frame.width, frame.stacked);
        let rows = frame.rows.max(exits + usize::from(entered));
        let left = self.spine - width / 2;
        let right = left + width - 1;
        let colour = |frame: &Frame| match frame.columns.as_slice() {
            [only] => only.model,
            _ => None,
        };
        let own = colour(frame);
        let bottom = row + rows + 1;
        self.cells.across(row, left, right, own);
        self.cells.across(bottom, left, right, own);
        self.cells.upright(left, row, bottom, own);
        self.cells.upright(right, row, bottom, own);
        // Each text with its row, its column and its colour.
        let mut texts = Vec::new();
        let mut bars = Vec::new();
        let (mut x, mut y) = (left + 2, row + 1);
        for (at, column) in self.frames[node].columns.iter().enumerate() {
            if at > 0 && stacked {
                bars.push((y, true));
                y += 1;
            } else if at > 0 {
                bars.push((x - 2, false));
            }
            for (line, text) in column.lines.iter().enumerate() {
                let inset = if width > column.width + 4 && self.frames[node].columns.len() == 1 {
                    (width - 4 - column.width) / 2
                } else {
                    0
                };
                texts.push((y + line, x + inset, text.clone(), column.model, line == 0));
            }
            if stacked {
                y += column.lines.len();
            } else {
                x += column.width + 3;
            }
        }
        for (at, lies) in bars {
            match lies {
                true => self.cells.across(at, left, right, own),
                false => self.cells.upright(at, row, bottom, own),
            }
        }
        for (y, x, text, model, first) in texts {
            self.cells.write(y, x, &text, model.filter(|_| first), first);
        }
        self.doors[node] = (row + 1, right + 1);
        let mut door = row + 1 + usize::from(entered);
        for link in aside {
            let none = vec![String::new()];
            let labels = if link.labels.is_empty() { &none } else { &link.labels };
            for label in labels {
                let (left, label) = (right + 1, label.clone());
                self.exits.push(Exit { row: door, left, label, from: node, to: link.to, colour: own });
                self.cells.cell(door, right).lines |= RIGHT;
                door += 1;
            }
        }
        bottom + 1
    }

    /// The arrow from a box that ends above `row` to the next one. The row where that begins.
    fn lead_on(&mut self, node: usize, row: usize, direct: Option<&Link>, more: bool) -> usize {
        let Some(link) = direct else { return row + usize::from(more) };
        let none = vec![String::new()];
        let labels = if link.labels.is_empty() { &none } else { &link.labels };
        let end = row + labels.len();
        self.cells.upright(self.spine, row - 1, end, None);
        for (at, label) in labels.iter().enumerate() {
            let room = self.width.saturating_sub(self.spine + 3);
            let shown = self.fit(node, link.to, label, room);
            self.cells.write(row + at, self.spine + 2, &shown, None, false);
        }
        self.cells.cell(end, self.spine).letter = Some('▼');
        end
    }

    /// The label as far as there is room for it; what is cut is kept whole.
    fn fit(&mut self, from: usize, to: usize, label: &str, room: usize) -> String {
        if label.width() > room {
            self.cut.push(format!("{} -> {}  {label}", self.graph.title(from), self.graph.title(to)));
        }
        shorten(label, room)
    }

    /// Draws what leads anywhere but to the next box.
    fn rails(&mut self) {
        let exits = std::mem::take(&mut self.exits);
        if exits.is_empty() {
            return;
        }
        let texts = self.cells.width();
        let labels = exits.iter().map(|exit| exit.left + exit.label.width() + 4).max().unwrap_or(0);
        // Labels give way to rails, which may take up to a third of the screen; boxes do not.
        let for_rails = (RAIL * exits.len() + 1).min(self.width / 3);
        let first = labels.max(texts).min(self.width - for_rails).max(texts.min(self.width - RAIL));
        let columns = (self.width.saturating_sub(first + 1)) / RAIL + 1;
        let rails = self.columns(&exits, columns);
        for exit in &exits {
            let rail = rails.get(&exit.to).map(|column| first + column * RAIL);
            let label = match rail {
                Some(_) => exit.label.clone(),
                None => format!("{} → {}", exit.label, self.graph.title(exit.to)).trim().to_owned(),
            };
            let end = rail.unwrap_or(self.width - 1);
            let room = if rail.is_some() { first } else { end }.saturating_sub(exit.left + 4);
            let shown = self.fit(exit.from, exit.to, &label, room);
            match rail {
                Some(column) => {
                    for x in exit.left..column {
                        self.cells.cell(exit.row, x).lines |= LEFT | RIGHT;
                    }
                    self.cells.cell(exit.row, column).lines |= LEFT;
                    let (door, _) = self.doors[exit.to];
                    self.cells.upright(column, door.min(exit.row), door.max(exit.row), None);
                }
                None => {
                    for x in exit.left..exit.left + 2 {
                        self.cells.cell(exit.row, x).lines |= LEFT | RIGHT;
                    }
                }
            }
            if !shown.is_empty() {
                self.cells.write(exit.row, exit.left + 1, &format!(" {shown} "), None, false);
            }
            // The line leaves its box in the colour of the box.
            self.cells.cell(exit.row, exit.left - 1).model = exit.colour;
        }
        for (&to, &column) in &rails {
            let (row, left) = self.doors[to];
            for x in left + 1..first + column * RAIL {
                self.cells.cell(row, x).lines |= LEFT | RIGHT;
            }
            self.cells.cell(row, first + column * RAIL).lines |= LEFT;
            self.cells.cell(row, left).letter = Some('◀');
        }
    }

    /// A rail for each box that needs one, as far as there is room: short ones next to the boxes.
    fn columns(&self, exits: &[Exit], most: usize) -> BTreeMap<usize, usize> {
        let mut spans: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
        for exit in exits {
            let (door, _) = self.doors[exit.to];
            let (top, low) = spans.entry(exit.to).or_insert((door, door));
            (*top, *low) = ((*top).min(exit.row), (*low).max(exit.row));
        }
        let mut spans: Vec<(usize, (usize, usize))> = spans.into_iter().collect();
        spans.sort_by_key(|(_, (top, low))| low - top);
        let mut taken: Vec<Vec<(usize, usize)>> = vec![Vec::new(); most];
        let mut columns = BTreeMap::new();
        for (to, (top, low)) in spans {
            let free = |spans: &Vec<(usize, usize)>| spans.iter().all(|(t, l)| *l < top || low < *t);
            if let Some(at) = taken.iter().position(free) {
                taken[at].push((top, low));
                columns.insert(to, at);
            }
        }
        columns
    }
}
