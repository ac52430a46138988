//! SVG: the drawing on its own, for pages and slides. No scripts, no other files; light and dark by the reader's wish.

use std::fmt::Write;

use unicode_width::UnicodeWidthStr;

use super::arrange::{Arranged, Join, Rect, arrange};
use super::model::{Agent, Graph, Link, Node};

/// A colour in light and in dark.
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

/// A colour for each model, in turn. Their lines keep apart also for those who do not tell red from green.
pub(super) const TINTS: [Tint; 6] = [
    tint("#e3effc", "#1f6fc4", "#14283f", "#6cb0f5"),
    tint("#fdeedb", "#b8630b", "#3a2710", "#f0a860"),
    tint("#e4f4ea", "#1d7d4d", "#12301f", "#63c892"),
    tint("#f3e8fb", "#8040b0", "#2d1c3b", "#c592ea"),
    tint("#fbe6ea", "#b8324f", "#3b161f", "#f08aa0"),
    tint("#e2f4f5", "#14757d", "#0f2e31", "#5cc4cc"),
];

/// Of a line of text, and of one letter of it. The family's widest member is a little narrower.
const LINE: f64 = 17.0;
const LETTER: f64 = 7.4;
const PADDING: f64 = 11.0;
/// Around everything.
const MARGIN: f64 = 24.0;
/// Most agents beside each other in one box.
const ABREAST: usize = 4;
/// Radius of a line's corners.
const CORNER: f64 = 6.0;

const STYLE: &str = "\
text{font-family:ui-monospace,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:12px;fill:#1b1f24}
.head{font-size:16px;font-weight:700}.name{font-weight:700}.dim{fill:#57606a}
.paper{fill:#ffffff}.wire{fill:none;stroke:#57606a;stroke-width:1.4}.tip{fill:#57606a}
.link{fill:none;stroke:#57606a;stroke-width:1.2;stroke-dasharray:4 4}
.box{stroke-width:1.4}.round{fill:#f3f4f6;stroke:#57606a;stroke-width:1.4}
.pill{fill:#ffffff;stroke:#c3c9d0;stroke-width:1}.group{fill:none;stroke:#57606a;stroke-width:1.2;stroke-dasharray:5 4}
";

const DARK: &str = "\
text{fill:#e6edf3}.dim{fill:#9aa4af}.paper{fill:#0f1318}.wire,.link{stroke:#9aa4af}.tip{fill:#9aa4af}
.round{fill:#1c2229;stroke:#9aa4af}.pill{fill:#0f1318;stroke:#3d454e}.group{stroke:#9aa4af}
";

impl Graph {
    /// The drawing as an SVG document.
    pub fn svg(&self) -> String {
        let links = self.links();
        let sizes: Vec<(f64, f64)> = self.nodes.iter().map(|node| self.size(node)).collect();
        let joins: Vec<Join> = links
            .iter()
            .map(|Link { from, to, labels }| {
                let label = (!labels.is_empty()).then(|| text_size(labels));
                Join { from: *from, to: *to, label }
            })
            .collect();
        let arranged = arrange(&sizes, &joins);
        let mut canvas = Canvas::default();
        self.header(&mut canvas);
        let left = MARGIN;
        canvas.down += 12.0;
        canvas.turns(self, &arranged, &links, (left, canvas.down));
        canvas.reach(left + arranged.width, canvas.down + arranged.height);
        self.footer(&mut canvas);
        canvas.document(&format!("The turns of workflow {}", self.workflow), self.models.len())
    }

    /// What a node's box takes.
    fn size(&self, node: &Node) -> (f64, f64) {
        match node {
            Node::Start | Node::End => (text_width("start") + 4.0 * PADDING, LINE + PADDING),
            Node::Agents(agents) => {
                let (width, height) = self.agent_size(agents);
                match agents.len() {
                    0 | 1 => (width, height),
                    several => {
                        let (columns, rows) = grid(several);
                        let across = columns as f64 * (width + PADDING) + PADDING;
                        let high = rows as f64 * (height + PADDING) + PADDING + LINE;
                        (across.max(text_width(BESIDE) + 2.0 * PADDING), high)
                    }
                }
            }
        }
    }

    /// What the largest of some agents takes.
    fn agent_size(&self, agents: &[Agent]) -> (f64, f64) {
        let width = agents
            .iter()
            .flat_map(|agent| self.agent_lines(agent))
            .map(|line| text_width(&line))
            .fold(0.0, f64::max);
        (width + 2.0 * PADDING, 3.0 * LINE + PADDING)
    }

    fn agent_lines(&self, agent: &Agent) -> [String; 3] {
        [agent.item.name.clone(), agent.item.item.clone(), self.policy_words(agent.policy)]
    }

    /// What the workflow is, and which colour stands for which model.
    fn header(&self, canvas: &mut Canvas) {
        canvas.down = MARGIN;
        canvas.line("head", MARGIN, &self.workflow, 1.35);
        canvas.down += 5.0;
        let visits = if self.max_visits == 1 { "visit" } else { "visits" };
        let layout = format!("layout {}: {}", self.layout, self.layout_meaning);
        canvas.line("dim", MARGIN, &layout, 1.0);
        canvas.line("dim", MARGIN, &format!("at most {} {visits} of one agent", self.max_visits), 1.0);
        for (at, model) in self.models.iter().enumerate() {
            let y = canvas.down + 4.0;
            let class = format!("box m{}", at % TINTS.len());
            canvas.rect(&class, &Rect { x: MARGIN, y, width: 14.0, height: 12.0 }, 3.0);
            canvas.line("", MARGIN + 22.0, &format!("model {} = {}", model.name, model.source), 1.0);
        }
    }

    /// What the turns are played in and rewarded by.
    fn footer(&self, canvas: &mut Canvas) {
        let (environment, reward) = (&self.environment, &self.reward.item);
        let boxes = [
            vec![format!("environment {}", environment.name), environment.item.clone()],
            vec!["sandbox".to_owned(), self.sandbox.clone()],
            vec![format!("reward {}", reward.name), reward.item.clone(), self.reward_words()],
        ];
        let top = canvas.down + 26.0;
        let high = 3.0 * LINE + PADDING;
        let mut x = MARGIN;
        let mut rects = Vec::new();
        for lines in &boxes {
            let width = text_size(lines).0 + 10.0;
            rects.push(Rect { x, y: top, width, height: high });
            x += width + 34.0;
        }
        for (pair, class) in rects.windows(2).zip(["wire", "link"]) {
            let y = top + high / 2.0;
            // The reward hangs on the environment too, past the sandbox.
            if class == "wire" {
                canvas.path(class, &[(pair[0].x + pair[0].width, y), (pair[1].x, y)]);
            } else {
                let (from, to) = (rects[0].x + rects[0].width / 2.0, rects[2].x + rects[2].width / 2.0);
                let (below, edge) = (top + high + 16.0, top + high);
                canvas.path(class, &[(from, edge), (from, below), (to, below), (to, edge)]);
            }
        }
        for (rect, lines) in rects.iter().zip(&boxes) {
            canvas.rect("round", rect, 5.0);
            canvas.text_lines(rect, lines);
        }
        canvas.reach(x - 34.0, top + high + 18.0);
    }
}

/// Written above agents that act together.
const BESIDE: &str = "side by side";

/// Columns and rows for agents side by side.
fn grid(count: usize) -> (usize, usize) {
    let columns = count.clamp(1, ABREAST);
    (columns, count.div_ceil(columns))
}

fn text_width(text: &str) -> f64 {
    text.width() as f64 * LETTER
}

/// Lines of text with a little room around them.
fn text_size(lines: &[String]) -> (f64, f64) {
    let width = lines.iter().map(|line| text_width(line)).fold(0.0, f64::max);
    (width + 14.0, lines.len() as f64 * LINE + 5.0)
}

/// What has been drawn, and how far it reaches.
#[derive(Default)]
struct Canvas {
    body: String,
    /// Below what has been drawn.
    down: f64,
    width: f64,
}

impl Canvas {
    fn reach(&mut self, right: f64, down: f64) {
        self.width = self.width.max(right);
        self.down = self.down.max(down);
    }

    /// A line of text below everything.
    fn line(&mut self, class: &str, x: f64, text: &str, scale: f64) {
        self.down += LINE * scale;
        self.text(class, (x, self.down - 4.0), text, "start");
        self.reach(x + text_width(text) * scale, self.down);
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

    /// Lines in the middle of a box, the first as its name.
    fn text_lines(&mut self, rect: &Rect, lines: &[String]) {
        let top = rect.y + (rect.height - lines.len() as f64 * LINE) / 2.0;
        for (at, line) in lines.iter().enumerate() {
            let class = if at == 0 { "name" } else { "dim" };
            let y = top + (at + 1) as f64 * LINE - 4.5;
            self.text(class, (rect.x + rect.width / 2.0, y), line, "middle");
        }
    }

    /// A line with round corners.
    fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        let Some(((x, y), rest)) = points.split_first() else { return };
        let mut data = format!("M{x:.1} {y:.1}");
        let mut last = (*x, *y);
        for (at, &(x, y)) in rest.iter().enumerate() {
            let Some(&next) = rest.get(at + 1) else {
                let _ = write!(data, "L{x:.1} {y:.1}");
                break;
            };
            let length = |(ax, ay): (f64, f64)| (ax - x).abs() + (ay - y).abs();
            let radius = CORNER.min(length(last) / 2.0).min(length(next) / 2.0);
            let towards = |(ax, ay): (f64, f64)| {
                let share = radius / length((ax, ay)).max(0.001);
                (x + (ax - x) * share, y + (ay - y) * share)
            };
            let ((ax, ay), (bx, by)) = (towards(last), towards(next));
            let _ = write!(data, "L{ax:.1} {ay:.1}Q{x:.1} {y:.1} {bx:.1} {by:.1}");
            last = (x, y);
        }
        let _ = writeln!(self.body, "<path class=\"{class}\" d=\"{data}\"/>");
    }

    /// Nodes, arrows and labels, moved to `at`.
    fn turns(&mut self, graph: &Graph, arranged: &Arranged, links: &[Link], (right, down): (f64, f64)) {
        let moved = |rect: &Rect| Rect { x: rect.x + right, y: rect.y + down, ..*rect };
        let mut tips: Vec<(f64, f64)> = Vec::new();
        for wire in &arranged.wires {
            let mut points: Vec<(f64, f64)> =
                wire.points.iter().map(|(x, y)| (x + right, y + down)).collect();
            if let Some(end) = points.last_mut().filter(|_| wire.arrow) {
                if !tips.contains(end) {
                    tips.push(*end);
                }
                // The line ends within its tip.
                end.1 -= 3.0;
            }
            self.path("wire", &points);
        }
        for (x, y) in tips {
            let _ = writeln!(self.body, "<path class=\"tip\" d=\"M{x:.1} {y:.1}l-4.5 -8.5h9z\"/>");
        }
        for (rect, link) in arranged.labels.iter().zip(links) {
            let Some(rect) = rect.as_ref().map(moved) else { continue };
            self.rect("pill", &rect, 9.0);
            for (at, line) in link.labels.iter().enumerate() {
                let y = rect.y + (at + 1) as f64 * LINE - 2.0;
                self.text("", (rect.x + rect.width / 2.0, y), line, "middle");
            }
        }
        for (rect, node) in arranged.nodes.iter().map(moved).zip(&graph.nodes) {
            match node {
                Node::Start => self.stop(&rect, "start"),
                Node::End => self.stop(&rect, "end"),
                Node::Agents(agents) => self.agents(graph, &rect, agents),
            }
        }
    }

    fn stop(&mut self, rect: &Rect, word: &str) {
        self.rect("round", rect, rect.height / 2.0);
        self.text_lines(rect, &[word.to_owned()]);
    }

    fn agents(&mut self, graph: &Graph, rect: &Rect, agents: &[Agent]) {
        let one = |canvas: &mut Canvas, rect: &Rect, agent: &Agent| {
            let class = format!("box m{}", graph.model_of(agent.policy) % TINTS.len());
            canvas.rect(&class, rect, 6.0);
            canvas.text_lines(rect, &graph.agent_lines(agent));
        };
        if let [agent] = agents {
            return one(self, rect, agent);
        }
        self.rect("group", rect, 8.0);
        let middle = rect.x + rect.width / 2.0;
        self.text("dim", (middle, rect.y + LINE), BESIDE, "middle");
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

    /// The whole document.
    fn document(self, title: &str, models: usize) -> String {
        let (width, height) = ((self.width + MARGIN).ceil(), (self.down + MARGIN).ceil());
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
             <rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>\n{}</svg>\n",
            escape(title),
            self.body
        )
    }
}

/// Text in XML, and in the labels of DOT that look like it.
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
