//! Boxes, arrows and rails in the grid.

use std::collections::BTreeMap;

use unicode_width::UnicodeWidthStr;

use super::super::model::{Agent, Graph, Link, Node};
use super::super::placement::PlacementError;
use super::cells::{Cells, LEFT, RIGHT, shorten};

/// Columns to the left of the boxes.
const INDENT: usize = 2;

/// Width of a rail in columns.
const RAIL_WIDTH: usize = 2;

/// Content and size of a box.
struct Frame {
    /// One column per agent.
    columns: Vec<Column>,
    /// Number of rows between the borders.
    rows: usize,
    /// Width including the borders.
    width: usize,
    /// Stacks the columns vertically, with a line between them.
    stacked: bool,
}

impl Frame {
    /// The box of a node, with lines no wider than `max_width`.
    fn new(graph: &Graph, node: &Node, max_width: usize) -> Frame {
        let column = |lines: Vec<String>, model: Option<usize>| {
            let lines: Vec<String> = lines.iter().map(|line| shorten(line, max_width)).collect();
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
                        agent.item.path.clone(),
                        graph.describe_policy(agent.policy),
                    ];
                    column(lines, Some(graph.model_of_policy(agent.policy)))
                })
                .collect(),
        };
        let total_width: usize = columns.iter().map(|column| column.width + 3).sum::<usize>() + 1;
        let stacked = columns.len() > 1 && total_width > max_width + 4;
        let lines = |column: &Column| column.lines.len();
        let (rows, width) = if stacked {
            let widest = columns.iter().map(|column| column.width).max().unwrap_or(0);
            (columns.iter().map(lines).sum::<usize>() + columns.len() - 1, widest + 4)
        } else {
            (columns.iter().map(lines).max().unwrap_or(1), total_width)
        };
        Frame { columns, rows, width, stacked }
    }
}

/// Lines of one agent in a box.
struct Column {
    lines: Vec<String>,
    model: Option<usize>,
    width: usize,
}

/// An edge that leaves a box on the right.
struct Exit {
    row: usize,
    left: usize,
    label: String,
    from: usize,
    to: usize,
    colour: Option<usize>,
}

/// The drawing in progress.
pub struct Drawing<'g> {
    graph: &'g Graph,
    width: usize,
    pub cells: Cells,
    /// Column of the arrows between boxes.
    spine: usize,
    frames: Vec<Frame>,
    /// Nodes from top to bottom.
    order: Vec<usize>,
    links: Vec<Link>,
    exits: Vec<Exit>,
    /// Anchors of each node: the row at which edges enter its box, and the column to the right of the box.
    entries: Vec<(usize, usize)>,
    /// Full text of shortened labels, with their edges.
    pub shortened: Vec<String>,
}

impl<'g> Drawing<'g> {
    pub fn new(graph: &'g Graph, width: usize) -> Result<Drawing<'g>, PlacementError> {
        // The other half is for labels and rails.
        let max_width = (width / 2).saturating_sub(INDENT + 4).max(12);
        let frames: Vec<Frame> = graph.nodes.iter().map(|node| Frame::new(graph, node, max_width)).collect();
        let links = graph.links();
        let placement = graph.place()?;
        let mut order: Vec<usize> = (0..graph.nodes.len()).collect();
        // `end` comes last even if its layer is not the lowest.
        let y =
            |node: usize| if node == graph.end() { f64::INFINITY } else { placement.nodes[node].center().1 };
        order.sort_by(|a, b| y(*a).total_cmp(&y(*b)).then(a.cmp(b)));
        let widest = frames.iter().map(|frame| frame.width).max().unwrap_or(0);
        Ok(Drawing {
            graph,
            width,
            cells: Cells::default(),
            spine: INDENT + widest / 2,
            entries: vec![(0, 0); frames.len()],
            frames,
            order,
            links,
            exits: Vec::new(),
            shortened: Vec::new(),
        })
    }

    /// Draws everything.
    pub fn draw(&mut self) {
        let order = self.order.clone();
        let links = std::mem::take(&mut self.links);
        let mut row = 0;
        for (index, &node) in order.iter().enumerate() {
            let next = order.get(index + 1).copied();
            let has_rail = links.iter().any(|link| {
                let direct = index > 0 && order[index - 1] == link.from;
                link.to == node && !direct
            });
            let side_links: Vec<&Link> =
                links.iter().filter(|link| link.from == node && Some(link.to) != next).collect();
            let direct = links.iter().find(|link| link.from == node && Some(link.to) == next);
            row = self.draw_box(node, row, &side_links, has_rail);
            row = self.draw_arrow(node, row, direct, next.is_some());
        }
        self.draw_rails();
    }

    /// Draws a box whose upper border is at `row`, and collects its exits. Returns the row below the box.
    fn draw_box(&mut self, node: usize, row: usize, side_links: &[&Link], has_rail: bool) -> usize {
        let exits: usize = side_links.iter().map(|link| link.labels.len().max(1)).sum();
        let frame = &self.frames[node];
        let (width, stacked) = (frame.width, frame.stacked);
        let rows = frame.rows.max(exits + usize::from(has_rail));
        let left = self.spine - width / 2;
        let right = left + width - 1;
        let colour = |frame: &Frame| match frame.columns.as_slice() {
            [only] => only.model,
            _ => None,
        };
        let own = colour(frame);
        let bottom = row + rows + 1;
        self.cells.horizontal(row, left, right, own);
        self.cells.horizontal(bottom, left, right, own);
        self.cells.vertical(left, row, bottom, own);
        self.cells.vertical(right, row, bottom, own);
        // Texts with their row, column, colour and weight.
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
        for (position, is_horizontal) in bars {
            match is_horizontal {
                true => self.cells.horizontal(position, left, right, own),
                false => self.cells.vertical(position, row, bottom, own),
            }
        }
        for (y, x, text, model, first) in texts {
            self.cells.write(y, x, &text, model.filter(|_| first), first);
        }
        self.entries[node] = (row + 1, right + 1);
        let mut exit_row = row + 1 + usize::from(has_rail);
        for link in side_links {
            let unlabelled = vec![String::new()];
            let labels = if link.labels.is_empty() { &unlabelled } else { &link.labels };
            for label in labels {
                let (left, label) = (right + 1, label.clone());
                self.exits.push(Exit { row: exit_row, left, label, from: node, to: link.to, colour: own });
                self.cells.cell(exit_row, right).lines |= RIGHT;
                exit_row += 1;
            }
        }
        bottom + 1
    }

    /// Draws the arrow from a box that ends above `row` to the next box. Returns the row of the next box.
    fn draw_arrow(&mut self, node: usize, row: usize, link: Option<&Link>, has_next: bool) -> usize {
        let Some(link) = link else { return row + usize::from(has_next) };
        let unlabelled = vec![String::new()];
        let labels = if link.labels.is_empty() { &unlabelled } else { &link.labels };
        let end = row + labels.len();
        self.cells.vertical(self.spine, row - 1, end, None);
        for (at, label) in labels.iter().enumerate() {
            let room = self.width.saturating_sub(self.spine + 3);
            let shown = self.fit(node, link.to, label, room);
            self.cells.write(row + at, self.spine + 2, &shown, None, false);
        }
        self.cells.cell(end, self.spine).letter = Some('▼');
        end
    }

    /// Shortens a label to `width` columns and keeps its full text for the footer.
    fn fit(&mut self, from: usize, to: usize, label: &str, width: usize) -> String {
        if label.width() > width {
            self.shortened.push(format!("{} -> {}  {label}", self.graph.title(from), self.graph.title(to)));
        }
        shorten(label, width)
    }

    /// Draws the edges that don't lead to the next box.
    fn draw_rails(&mut self) {
        let exits = std::mem::take(&mut self.exits);
        if exits.is_empty() {
            return;
        }
        let boxes = self.cells.width();
        let labels = exits.iter().map(|exit| exit.left + exit.label.width() + 4).max().unwrap_or(0);
        // Labels are shortened in favour of rails, which may take up to a third of the width; boxes are not.
        let for_rails = (RAIL_WIDTH * exits.len() + 1).min(self.width / 3);
        let first = labels.max(boxes).min(self.width - for_rails).max(boxes.min(self.width - RAIL_WIDTH));
        let columns = (self.width.saturating_sub(first + 1)) / RAIL_WIDTH + 1;
        let rails = self.rail_columns(&exits, columns);
        for exit in &exits {
            let rail = rails.get(&exit.to).map(|column| first + column * RAIL_WIDTH);
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
                    let (entry, _) = self.entries[exit.to];
                    self.cells.vertical(column, entry.min(exit.row), entry.max(exit.row), None);
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
            // The line starts in the colour of its box.
            self.cells.cell(exit.row, exit.left - 1).model = exit.colour;
        }
        for (&to, &column) in &rails {
            let (row, left) = self.entries[to];
            for x in left + 1..first + column * RAIL_WIDTH {
                self.cells.cell(row, x).lines |= LEFT | RIGHT;
            }
            self.cells.cell(row, first + column * RAIL_WIDTH).lines |= LEFT;
            self.cells.cell(row, left).letter = Some('◀');
        }
    }

    /// Rail of each box that needs one, as long as there is room; short rails are next to the boxes.
    fn rail_columns(&self, exits: &[Exit], count: usize) -> BTreeMap<usize, usize> {
        let mut spans: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
        for exit in exits {
            let (entry, _) = self.entries[exit.to];
            let (top, bottom) = spans.entry(exit.to).or_insert((entry, entry));
            (*top, *bottom) = ((*top).min(exit.row), (*bottom).max(exit.row));
        }
        let mut spans: Vec<(usize, (usize, usize))> = spans.into_iter().collect();
        spans.sort_by_key(|(_, (top, bottom))| bottom - top);
        let mut taken: Vec<Vec<(usize, usize)>> = vec![Vec::new(); count];
        let mut columns = BTreeMap::new();
        for (to, (top, bottom)) in spans {
            let free =
                |spans: &Vec<(usize, usize)>| spans.iter().all(|(start, end)| *end < top || bottom < *start);
            if let Some(column) = taken.iter().position(free) {
                taken[column].push((top, bottom));
                columns.insert(to, column);
            }
        }
        columns
    }
}
