//! The drawing for a shell: boxes from top to bottom, and vertical rails on the right.
//!
//! Nodes are in the order of their layers. An edge to the next box is an arrow between the two. Every other edge leaves its
//! box on the right and joins the rail of its target; `┼` is a crossing, `┤` joins a rail. If there is no room for another
//! rail, the edge ends with the name of its target.

mod cells;
mod drawing;

use unicode_width::UnicodeWidthStr;

use self::cells::{COLOURS, shorten, to_ascii};
use self::drawing::Drawing;
use super::model::{Graph, Node};
use super::placement::PlacementError;

/// Options of the drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalOptions {
    /// Number of columns; at least 40 are used.
    pub width: usize,
    /// Uses colours. They only repeat information of the text.
    pub colour: bool,
    /// Uses only ASCII for lines and arrows.
    pub ascii: bool,
}

/// Smallest width of a drawing.
const MIN_WIDTH: usize = 40;

impl Graph {
    /// The drawing as text. Its lines are no wider than the options allow.
    ///
    /// # Errors
    /// The graph can't be arranged.
    pub fn terminal(&self, options: &TerminalOptions) -> Result<String, PlacementError> {
        let width = options.width.max(MIN_WIDTH);
        let mut out = self.terminal_header(width);
        let mut drawing = Drawing::new(self, width)?;
        drawing.draw();
        out.push_str(&drawing.cells.render(options.colour));
        out.push_str(&self.terminal_footer(options, &drawing.shortened));
        Ok(if options.ascii { to_ascii(&out) } else { out })
    }

    fn terminal_header(&self, width: usize) -> String {
        let visits = if self.max_visits == 1 { "visit" } else { "visits" };
        let title = format!("{} · layout {}: {}", self.full_name(), self.layout, self.layout_meaning);
        let limit = format!("at most {} {visits} of one agent", self.max_visits);
        if title.width() + limit.width() + 3 <= width {
            format!("{title} · {limit}\n\n")
        } else {
            format!("{}\n{limit}\n\n", shorten(&title, width))
        }
    }

    /// Models, environment, sandbox, reward, and the full text of shortened labels.
    fn terminal_footer(&self, options: &TerminalOptions, shortened: &[String]) -> String {
        let (environment, reward) = (&self.environment, &self.reward.item);
        let mut rows: Vec<(String, String, String, Option<usize>)> = Vec::new();
        for (index, model) in self.models.iter().enumerate() {
            rows.push(("model".into(), model.name.clone(), model.source.clone(), Some(index)));
        }
        rows.push(("environment".into(), environment.name.clone(), environment.path.clone(), None));
        rows.push(("└ sandbox".into(), String::new(), self.sandbox.clone(), None));
        let score = format!("{}, {}", reward.path, self.describe_reward());
        rows.push(("reward".into(), reward.name.clone(), score, None));
        let names = rows.iter().map(|row| row.1.width()).max().unwrap_or(0);
        let mut out = String::from("\n");
        for (kind, name, detail, model) in rows {
            let detail = shorten(&detail, options.width.max(MIN_WIDTH).saturating_sub(names + 17));
            let (on, off) = match model.filter(|_| options.colour) {
                Some(model) => (format!("\u{1b}[{}m", COLOURS[model % COLOURS.len()]), "\u{1b}[0m"),
                None => (String::new(), ""),
            };
            let gap = " ".repeat(names - name.width());
            out.push_str(&format!("  {kind:<11}  {on}{name}{off}{gap}  {detail}"));
            out.truncate(out.trim_end().len());
            out.push('\n');
        }
        if !shortened.is_empty() {
            out.push_str("\n  in full\n");
            for line in shortened {
                out.push_str(&format!("    {line}\n"));
            }
        }
        out
    }

    /// Name of a node in text.
    fn title(&self, node: usize) -> String {
        match self.nodes.get(node) {
            Some(Node::Agents(agents)) => {
                let names: Vec<&str> = agents.iter().map(|agent| agent.item.name.as_str()).collect();
                if names.len() == 1 { names.concat() } else { format!("[{}]", names.join(", ")) }
            }
            _ => self.id(node),
        }
    }
}
