//! A self-contained SVG document, without scripts, in light and dark colours.

use std::fmt::Write;

use unicode_width::UnicodeWidthStr;

use super::model::{Agent, Graph, Link, Node};
use super::placement::{EdgeInput, Placement, PlacementError, Rect, place};

/// A colour in the light and in the dark scheme.
pub(super) struct Tint {
    pub fill: &'static str,
    pub line: &'static str,
    dark_fill: &'static str,
    dark_line: &'static str,
}

const fn tint(
    fill: &'static str,
    line: &'static str,
    dark_fill: &'static str,
    dark_line: &'static str,
) -> Tint {
    Tint { fill, line, dark_fill, dark_line }
}

/// Colours of the models, in turn. Their lines can be distinguished by readers who are blind to red and green.
pub(super) const TINTS: [Tint; 6] = [
    tint("#e3effc", "#1f6fc4", "#14283f", "#6cb0f5"),
    tint("#fdeedb", "#b8630b", "#3a2710", "#f0a860"),
    tint("#e4f4ea", "#1d7d4d", "#12301f", "#63c892"),
    tint("#f3e8fb", "#8040b0", "#2d1c3b", "#c592ea"),
    tint("#fbe6ea", "#b8324f", "#3b161f", "#f08aa0"),
    tint("#e2f4f5", "#14757d", "#0f2e31", "#5cc4cc"),
];

/// Height of a line of text.
const LINE: f64 = 17.0;
/// Width of a letter; the widest font of the family is a little narrower.
const LETTER: f64 = 7.4;
const PADDING: f64 = 11.0;
/// Margin around the drawing.
const MARGIN: f64 = 24.0;
/// Largest number of columns of agents in one box.
const MAX_COLUMNS: usize = 4;
const STYLE: &str = "\
text{font-family:ui-monospace,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:12px;fill:#1b1f24}
.head{font-size:16px;font-weight:700}.name{font-weight:700}.dim{fill:#57606a}
.paper{fill:#ffffff}.edge{fill:none;stroke:#57606a;stroke-width:1.4;marker-end:url(#arrow)}.tip{fill:#57606a}
.line{fill:none;stroke:#57606a;stroke-width:1.4}
.link{fill:none;stroke:#57606a;stroke-width:1.2;stroke-dasharray:4 4}
.box{stroke-width:1.4}.round{fill:#f3f4f6;stroke:#57606a;stroke-width:1.4}
.pill{fill:#ffffff;stroke:#c3c9d0;stroke-width:1}.group{fill:none;stroke:#57606a;stroke-width:1.2;stroke-dasharray:5 4}
";

const DARK: &str = "\
text{fill:#e6edf3}.dim{fill:#9aa4af}.paper{fill:#0f1318}.edge,.line,.link{stroke:#9aa4af}.tip{fill:#9aa4af}
.round{fill:#1c2229;stroke:#9aa4af}.pill{fill:#0f1318;stroke:#3d454e}.group{stroke:#9aa4af}
";

impl Graph {
    /// The drawing as an SVG document.
    ///
    /// # Errors
    /// The graph can't be arranged.
    pub fn svg(&self) -> Result<String, PlacementError> {
        let placement = self.place()?;
        let mut canvas = Canvas::default();
        self.header(&mut canvas);
        canvas.bottom += 12.0;
        canvas.turn_graph(self, &placement, (MARGIN, canvas.bottom));
        canvas.extend(MARGIN + placement.width, canvas.bottom + placement.height);
        self.footer(&mut canvas);
        Ok(canvas.document(&format!("The turns of workflow {}", self.full_name()), self.models.len()))
    }

    /// Positions of the nodes, and of the edges in the order of [`Graph::links`].
    pub(super) fn place(&self) -> Result<Placement, PlacementError> {
        let sizes: Vec<(f64, f64)> = self.nodes.iter().map(|node| self.node_size(node)).collect();
        let edges: Vec<EdgeInput> = self
            .links()
            .iter()
            .map(|Link { from, to, labels }| {
                let label = (!labels.is_empty()).then(|| text_size(labels));
                EdgeInput { from: *from, to: *to, label }
            })
            .collect();
        place(&sizes, &edges)
    }

    /// Width and height of a node.
    fn node_size(&self, node: &Node) -> (f64, f64) {
        match node {
            Node::Start | Node::End => (text_width("start") + 4.0 * PADDING, LINE + PADDING),
            Node::Agents(agents) => {
                let (width, height) = self.agent_size(agents);
                match agents.len() {
                    0 | 1 => (width, height),
                    several => {
                        let (columns, rows) = grid(several);
                        let total_width = columns as f64 * (width + PADDING) + PADDING;
                        let total_height = rows as f64 * (height + PADDING) + PADDING + LINE;
                        (total_width.max(text_width(IN_PARALLEL) + 2.0 * PADDING), total_height)
                    }
                }
            }
        }
    }

    /// Width and height of the largest of several agents.
    fn agent_size(&self, agents: &[Agent]) -> (f64, f64) {
        let width = agents
            .iter()
            .flat_map(|agent| self.agent_lines(agent))
            .map(|line| text_width(&line))
            .fold(0.0, f64::max);
        (width + 2.0 * PADDING, 3.0 * LINE + PADDING)
    }

    fn agent_lines(&self, agent: &Agent) -> [String; 3] {
        [agent.item.name.clone(), agent.item.path.clone(), self.describe_policy(agent.policy)]
    }

    /// Title, and the legend of the models' colours.
    fn header(&self, canvas: &mut Canvas) {
        canvas.bottom = MARGIN;
        canvas.line("head", MARGIN, &self.full_name(), 1.35);
        canvas.bottom += 5.0;
        let visits = if self.max_visits == 1 { "visit" } else { "visits" };
        let layout = format!("layout {}: {}", self.layout, self.layout_meaning);
        canvas.line("dim", MARGIN, &layout, 1.0);
        canvas.line("dim", MARGIN, &format!("at most {} {visits} of one agent", self.max_visits), 1.0);
        for (at, model) in self.models.iter().enumerate() {
            let y = canvas.bottom + 4.0;
            let class = format!("box m{}", at % TINTS.len());
            canvas.rect(&class, &Rect { x: MARGIN, y, width: 14.0, height: 12.0 }, 3.0);
            canvas.line("", MARGIN + 22.0, &format!("model {} = {}", model.name, model.source), 1.0);
        }
    }

    /// Environment, sandbox and reward.
    fn footer(&self, canvas: &mut Canvas) {
        let (environment, reward) = (&self.environment, &self.reward.item);
        let boxes = [
            vec![format!("environment {}", environment.name), environment.path.clone()],
            vec!["sandbox".to_owned(), self.sandbox.clone()],
            vec![format!("reward {}", reward.name), reward.path.clone(), self.describe_reward()],
        ];
        let top = canvas.bottom + 26.0;
        let height = 3.0 * LINE + PADDING;
        let mut x = MARGIN;
        let mut rects = Vec::new();
        for lines in &boxes {
            let width = text_size(lines).0 + 10.0;
            rects.push(Rect { x, y: top, width, height });
            x += width + 34.0;
        }
        if let [environment, sandbox, reward] = rects.as_slice() {
            let (right, y) = (environment.x + environment.width, top + height / 2.0);
            canvas.path("line", &format!("M{right:.1} {y:.1}H{:.1}", sandbox.x));
            // The reward reads the environment; its line passes below the sandbox.
            let (from, to, y) = (environment.center().0, reward.center().0, top + height);
            canvas.path("link", &format!("M{from:.1} {y:.1}v10q0 6 6 6H{:.1}q6 0 6 -6V{y:.1}", to - 6.0));
        }
        for (rect, lines) in rects.iter().zip(&boxes) {
            canvas.rect("round", rect, 5.0);
            canvas.text_lines(rect, lines);
        }
        canvas.extend(x - 34.0, top + height + 18.0);
    }
}

/// Title of a box of several agents.
const IN_PARALLEL: &str = "in parallel";

/// Number of columns and rows of a box of several agents.
fn grid(count: usize) -> (usize, usize) {
    let columns = count.clamp(1, MAX_COLUMNS);
    (columns, count.div_ceil(columns))
}

fn text_width(text: &str) -> f64 {
    text.width() as f64 * LETTER
}

/// Width and height of lines of text with padding.
fn text_size(lines: &[String]) -> (f64, f64) {
    let width = lines.iter().map(|line| text_width(line)).fold(0.0, f64::max);
    (width + 14.0, lines.len() as f64 * LINE + 5.0)
}

/// Elements drawn so far, and their extent.
#[derive(Default)]
struct Canvas {
    body: String,
    bottom: f64,
    width: f64,
}

impl Canvas {
    fn extend(&mut self, right: f64, bottom: f64) {
        self.width = self.width.max(right);
        self.bottom = self.bottom.max(bottom);
    }

    /// Appends a line of text below everything.
    fn line(&mut self, class: &str, x: f64, text: &str, scale: f64) {
        self.bottom += LINE * scale;
        self.text(class, (x, self.bottom - 4.0), text, "start");
        self.extend(x + text_width(text) * scale, self.bottom);
    }

    fn text(&mut self, class: &str, (x, y): (f64, f64), text: &str, anchor: &str) {
        let text = escape(text);
        let _ = writeln!(
            self.body,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" xml:space=\"preserve\">{text}</text>"
        );
    }

    fn rect(&mut self, class: &str, rect: &Rect, radius: f64) {
        let Rect { x, y, width, height } = rect;
        let _ = writeln!(
            self.body,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"{radius}\"/>"
        );
    }

    /// Lines in the middle of a box; the first is the name.
    fn text_lines(&mut self, rect: &Rect, lines: &[String]) {
        let top = rect.y + (rect.height - lines.len() as f64 * LINE) / 2.0;
        for (at, line) in lines.iter().enumerate() {
            let class = if at == 0 { "name" } else { "dim" };
            let y = top + (at + 1) as f64 * LINE - 4.5;
            self.text(class, (rect.x + rect.width / 2.0, y), line, "middle");
        }
    }

    fn path(&mut self, class: &str, data: &str) {
        let _ = writeln!(self.body, "<path class=\"{class}\" d=\"{data}\"/>");
    }

    /// Nodes, edges and labels of the turn graph, with its upper left corner at the given point.
    fn turn_graph(&mut self, graph: &Graph, placement: &Placement, (left, top): (f64, f64)) {
        let _ = writeln!(self.body, "<g transform=\"translate({left:.1} {top:.1})\">");
        for edge in &placement.edges {
            self.path("edge", &edge.path);
        }
        for (edge, link) in placement.edges.iter().zip(graph.links()) {
            let Some(rect) = &edge.label else { continue };
            self.rect("pill", rect, 9.0);
            for (index, line) in link.labels.iter().enumerate() {
                let y = rect.y + (index + 1) as f64 * LINE - 2.0;
                self.text("", (rect.center().0, y), line, "middle");
            }
        }
        for (rect, node) in placement.nodes.iter().zip(&graph.nodes) {
            match node {
                Node::Start => self.terminal_node(rect, "start"),
                Node::End => self.terminal_node(rect, "end"),
                Node::Agents(agents) => self.agents(graph, rect, agents),
            }
        }
        self.body.push_str("</g>\n");
    }

    fn terminal_node(&mut self, rect: &Rect, name: &str) {
        self.rect("round", rect, rect.height / 2.0);
        self.text_lines(rect, &[name.to_owned()]);
    }

    fn agents(&mut self, graph: &Graph, rect: &Rect, agents: &[Agent]) {
        let one = |canvas: &mut Canvas, rect: &Rect, agent: &Agent| {
            let class = format!("box m{}", graph.model_of_policy(agent.policy) % TINTS.len());
            canvas.rect(&class, rect, 6.0);
            canvas.text_lines(rect, &graph.agent_lines(agent));
        };
        if let [agent] = agents {
            return one(self, rect, agent);
        }
        self.rect("group", rect, 8.0);
        let middle = rect.x + rect.width / 2.0;
        self.text("dim", (middle, rect.y + LINE), IN_PARALLEL, "middle");
        let (columns, _) = grid(agents.len());
        let (width, height) = graph.agent_size(agents);
        let left = rect.x + (rect.width - columns as f64 * (width + PADDING) + PADDING) / 2.0;
        for (at, agent) in agents.iter().enumerate() {
            let (column, row) = (at % columns, at / columns);
            let x = left + column as f64 * (width + PADDING);
            let y = rect.y + LINE + PADDING + row as f64 * (height + PADDING);
            one(self, &Rect { x, y, width, height }, agent);
        }
    }

    /// The complete document.
    fn document(self, title: &str, models: usize) -> String {
        let (width, height) = ((self.width + MARGIN).ceil(), (self.bottom + MARGIN).ceil());
        let mut light = String::new();
        let mut dark = String::new();
        for (at, tint) in TINTS.iter().enumerate().take(models.max(1)) {
            let Tint { fill, line, dark_fill, dark_line } = tint;
            let _ = writeln!(light, ".m{at}{{fill:{fill};stroke:{line}}}");
            let _ = writeln!(dark, ".m{at}{{fill:{dark_fill};stroke:{dark_line}}}");
        }
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>{}</title>\n<style>\n{STYLE}{light}\
             @media (prefers-color-scheme: dark) {{\n{DARK}{dark}}}\n</style>\n\
             <defs><marker id=\"arrow\" viewBox=\"0 0 10 10\" refX=\"8\" refY=\"5\" markerWidth=\"9\" markerHeight=\"9\" \
             markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path class=\"tip\" d=\"M0 0L10 5L0 10z\"/></marker></defs>\n\
             <rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>\n{}</svg>\n",
            escape(title),
            self.body
        )
    }
}

/// Escapes text for XML and for the HTML labels of DOT.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            letter => out.push(letter),
        }
    }
    out
}
