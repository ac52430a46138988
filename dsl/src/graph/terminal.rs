//! The drawing for a shell: boxes from top to bottom, and rails beside them for every way that is not the next step.
//!
//! Nodes stand one below the other in the order of their layers. What leads to the next box is an arrow between the
//! two. Everything else leaves its box to the right and joins the rail of the box that it leads to; a crossing is
//! `┼`, a rail is joined with `┤`. Where the screen has no room for one more rail, the name of the box stands instead.

use std::collections::BTreeMap;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::layers::layers;
use super::model::{Agent, Graph, Link, Node};

/// What the drawing is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Screen {
    /// Columns; below 40 there is no room for anything.
    pub width: usize,
    /// Whether colours of terminals may be used. They say nothing that the text does not say too.
    pub colour: bool,
    /// Nothing but ASCII for lines and arrows.
    pub ascii: bool,
}

/// Least width that is drawn for.
const NARROW: usize = 40;
/// Left of the boxes.
const INDENT: usize = 2;
/// Columns of a rail.
const RAIL: usize = 2;

/// Directions in which a cell's line goes.
const UP: u8 = 1;
const DOWN: u8 = 2;
const LEFT: u8 = 4;
const RIGHT: u8 = 8;

/// By the directions that meet, as bits in the order above.
const LINES: [char; 16] = [' ', '│', '│', '│', '─', '┘', '┐', '┤', '─', '└', '┌', '├', '─', '┴', '┬', '┼'];

/// By model, as in the SVG: blue, yellow, green, magenta, red, cyan.
const COLOURS: [u8; 6] = [34, 33, 32, 35, 31, 36];

#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    lines: u8,
    /// Instead of lines; a wide letter has an empty one behind it.
    letter: Option<char>,
    /// The second half of a wide letter.
    taken: bool,
    /// Position of the model whose colour it has.
    model: Option<usize>,
    bold: bool,
}

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
    to: usize,
    colour: Option<usize>,
}

impl Graph {
    /// The drawing as text of at most the screen's width.
    pub fn terminal(&self, screen: &Screen) -> String {
        let width = screen.width.max(NARROW);
        let mut out = self.head(width);
        let mut drawing = Drawing::new(self, width);
        drawing.draw();
        out.push_str(&drawing.show(screen));
        out.push_str(&self.foot(screen, &drawing.cut));
        if screen.ascii { plain(&out) } else { out }
    }

    fn head(&self, width: usize) -> String {
        let visits = if self.max_visits == 1 { "visit" } else { "visits" };
        let title = format!("{} · layout {}: {}", self.workflow, self.layout, self.layout_meaning);
        let limit = format!("at most {} {visits} of one agent", self.max_visits);
        if title.width() + limit.width() + 3 <= width {
            format!("{title} · {limit}\n\n")
        } else {
            format!("{}\n{limit}\n\n", shorten(&title, width))
        }
    }

    /// What surrounds the turns, and labels that were too long for the drawing.
    fn foot(&self, screen: &Screen, cut: &[String]) -> String {
        let (environment, reward) = (&self.environment, &self.reward.item);
        let mut rows: Vec<(String, String, String, Option<usize>)> = Vec::new();
        for (at, model) in self.models.iter().enumerate() {
            rows.push(("model".into(), model.name.clone(), model.source.clone(), Some(at)));
        }
        rows.push(("environment".into(), environment.name.clone(), environment.item.clone(), None));
        rows.push(("└ sandbox".into(), String::new(), self.sandbox.clone(), None));
        let score = format!("{}, {}", reward.item, self.reward_words());
        rows.push(("reward".into(), reward.name.clone(), score, None));
        let names = rows.iter().map(|row| row.1.width()).max().unwrap_or(0);
        let mut out = String::from("\n");
        for (kind, name, what, model) in rows {
            let what = shorten(&what, screen.width.max(NARROW).saturating_sub(names + 17));
            let (on, off) = match model.filter(|_| screen.colour) {
                Some(model) => (format!("\u{1b}[{}m", COLOURS[model % COLOURS.len()]), "\u{1b}[0m"),
                None => (String::new(), ""),
            };
            let gap = " ".repeat(names - name.width());
            out.push_str(&format!("  {kind:<11}  {on}{name}{off}{gap}  {what}"));
            out.truncate(out.trim_end().len());
            out.push('\n');
        }
        if !cut.is_empty() {
            out.push_str("\n  in full\n");
            for line in cut {
                out.push_str(&format!("    {line}\n"));
            }
        }
        out
    }

    /// The name of a node in text.
    fn title(&self, node: usize) -> String {
        match self.nodes.get(node) {
            Some(Node::Agents(agents)) => {
                let names: Vec<&str> = agents.iter().map(|agent| agent.item.name.as_str()).collect();
                if names.len() == 1 { names.concat() } else { format!("[{}]", names.join(", ")) }
            }
            _ => self.id(node),
        }
    }

    fn frame(&self, node: &Node, most: usize) -> Frame {
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
                        self.policy_words(agent.policy),
                    ];
                    column(lines, Some(self.model_of(agent.policy)))
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

/// The text without its end where it is wider than `width`.
fn shorten(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 1;
    for letter in text.chars() {
        used += letter.width().unwrap_or(0);
        if used > width {
            break;
        }
        out.push(letter);
    }
    out.push('…');
    out
}

/// Lines, arrows and dots that every machine can show.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '│' => out.push('|'),
            '─' => out.push('-'),
            '▼' => out.push('v'),
            '◀' => out.push('<'),
            '→' => out.push_str("->"),
            '·' => out.push('-'),
            '×' => out.push('x'),
            '…' => out.push('~'),
            letter if LINES.contains(&letter) && letter != ' ' => out.push('+'),
            letter => out.push(letter),
        }
    }
    out
}

/// The drawing while it grows.
struct Drawing<'g> {
    graph: &'g Graph,
    width: usize,
    cells: Vec<Vec<Cell>>,
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
    cut: Vec<String>,
}

impl<'g> Drawing<'g> {
    fn new(graph: &'g Graph, width: usize) -> Drawing<'g> {
        // What is left is for labels and rails.
        let most = (width / 2).saturating_sub(INDENT + 4).max(12);
        let frames: Vec<Frame> = graph.nodes.iter().map(|node| graph.frame(node, most)).collect();
        let links = graph.links();
        let ends: Vec<(usize, usize)> = links.iter().map(|link| (link.from, link.to)).collect();
        let found = layers(graph.nodes.len(), &ends);
        let mut order: Vec<usize> = (0..graph.nodes.len()).collect();
        order.sort_by_key(|node| (found.of[*node], *node));
        let widest = frames.iter().map(|frame| frame.width).max().unwrap_or(0);
        Drawing {
            graph,
            width,
            cells: Vec::new(),
            spine: INDENT + widest / 2,
            doors: vec![(0, 0); frames.len()],
            frames,
            order,
            links,
            exits: Vec::new(),
            cut: Vec::new(),
        }
    }

    fn draw(&mut self) {
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
        self.across(row, left, right, own);
        self.across(bottom, left, right, own);
        self.upright(left, row, bottom, own);
        self.upright(right, row, bottom, own);
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
                true => self.across(at, left, right, own),
                false => self.upright(at, row, bottom, own),
            }
        }
        for (y, x, text, model, first) in texts {
            self.write(y, x, &text, model.filter(|_| first), first);
        }
        self.doors[node] = (row + 1, right + 1);
        let mut door = row + 1 + usize::from(entered);
        for link in aside {
            let none = vec![String::new()];
            let labels = if link.labels.is_empty() { &none } else { &link.labels };
            for label in labels {
                let (left, label) = (right + 1, label.clone());
                self.exits.push(Exit { row: door, left, label, to: link.to, colour: own });
                self.cell(door, right).lines |= RIGHT;
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
        self.upright(self.spine, row - 1, end, None);
        for (at, label) in labels.iter().enumerate() {
            let room = self.width.saturating_sub(self.spine + 3);
            let shown = self.fit(node, link.to, label, room);
            self.write(row + at, self.spine + 2, &shown, None, false);
        }
        self.cell(end, self.spine).letter = Some('▼');
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
        let texts: usize = self.cells.iter().map(|row| row.len()).max().unwrap_or(0);
        let wanted =
            exits.iter().map(|exit| exit.left + exit.label.width() + 4).max().unwrap_or(0).max(texts);
        // A third of the screen is for rails at least, if they are needed.
        let first = wanted
            .min(self.width - (self.width / 3).min(RAIL * exits.len() + 1))
            .max(texts.min(self.width - RAIL));
        let columns = (self.width.saturating_sub(first + 1)) / RAIL + 1;
        let rails = self.columns(&exits, columns);
        let froms = self.owners();
        for exit in &exits {
            let rail = rails.get(&exit.to).map(|column| first + column * RAIL);
            let from = froms.iter().rev().find(|(row, _)| *row <= exit.row).map_or(0, |(_, node)| *node);
            let label = match rail {
                Some(_) => exit.label.clone(),
                None => format!("{} → {}", exit.label, self.graph.title(exit.to)).trim().to_owned(),
            };
            let end = rail.unwrap_or(self.width - 1);
            let room = if rail.is_some() { first } else { end }.saturating_sub(exit.left + 4);
            let shown = self.fit(from, exit.to, &label, room);
            match rail {
                Some(column) => {
                    for x in exit.left..column {
                        self.cell(exit.row, x).lines |= LEFT | RIGHT;
                    }
                    self.cell(exit.row, column).lines |= LEFT;
                    let (door, _) = self.doors[exit.to];
                    self.upright(column, door.min(exit.row), door.max(exit.row), None);
                }
                None => {
                    for x in exit.left..exit.left + 2 {
                        self.cell(exit.row, x).lines |= LEFT | RIGHT;
                    }
                }
            }
            if !shown.is_empty() {
                self.write(exit.row, exit.left + 1, &format!(" {shown} "), None, false);
            }
            // The line leaves its box in the colour of the box.
            self.cell(exit.row, exit.left - 1).model = exit.colour;
        }
        for (&to, &column) in &rails {
            let (row, left) = self.doors[to];
            for x in left + 1..first + column * RAIL {
                self.cell(row, x).lines |= LEFT | RIGHT;
            }
            self.cell(row, first + column * RAIL).lines |= LEFT;
            self.cell(row, left).letter = Some('◀');
        }
    }

    /// Boxes by their first row, from top to bottom.
    fn owners(&self) -> Vec<(usize, usize)> {
        self.order.iter().map(|node| (self.doors[*node].0, *node)).collect()
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

    fn cell(&mut self, row: usize, column: usize) -> &mut Cell {
        if self.cells.len() <= row {
            self.cells.resize_with(row + 1, Vec::new);
        }
        let cells = &mut self.cells[row];
        if cells.len() <= column {
            cells.resize(column + 1, Cell::default());
        }
        &mut cells[column]
    }

    fn across(&mut self, row: usize, left: usize, right: usize, model: Option<usize>) {
        for x in left..=right {
            let cell = self.cell(row, x);
            cell.lines |= if x > left { LEFT } else { 0 } | if x < right { RIGHT } else { 0 };
            cell.model = cell.model.or(model);
        }
    }

    fn upright(&mut self, column: usize, top: usize, low: usize, model: Option<usize>) {
        for y in top..=low {
            let cell = self.cell(y, column);
            cell.lines |= if y > top { UP } else { 0 } | if y < low { DOWN } else { 0 };
            cell.model = cell.model.or(model);
        }
    }

    fn write(&mut self, row: usize, column: usize, text: &str, model: Option<usize>, bold: bool) {
        let mut x = column;
        for letter in text.chars() {
            let wide = letter.width().unwrap_or(0);
            if wide == 0 {
                continue;
            }
            *self.cell(row, x) = Cell { letter: Some(letter), model, bold, ..Cell::default() };
            if wide == 2 {
                *self.cell(row, x + 1) = Cell { taken: true, ..Cell::default() };
            }
            x += wide;
        }
    }

    /// The cells as text.
    fn show(&self, screen: &Screen) -> String {
        let mut out = String::new();
        for row in &self.cells {
            let mut style = (None, false);
            let mut line = String::new();
            for cell in row.iter().filter(|cell| !cell.taken) {
                let wanted = (cell.model, cell.bold);
                if screen.colour && wanted != style {
                    line.push_str("\u{1b}[0m");
                    if let Some(model) = cell.model {
                        line.push_str(&format!("\u{1b}[{}m", COLOURS[model % COLOURS.len()]));
                    }
                    if cell.bold {
                        line.push_str("\u{1b}[1m");
                    }
                    style = wanted;
                }
                line.push(cell.letter.unwrap_or(LINES[usize::from(cell.lines & 15)]));
            }
            if style != (None, false) {
                line.push_str("\u{1b}[0m");
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}
