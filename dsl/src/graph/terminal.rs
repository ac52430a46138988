//! The drawing for a shell: boxes from top to bottom, and rails beside them for every way that is not the next step.
//!
//! Nodes stand one below the other in the order of their layers. What leads to the next box is an arrow between the
//! two. Everything else leaves its box to the right and joins the rail of the box that it leads to; a crossing is
//! `┼`, a rail is joined with `┤`. Where the screen has no room for one more rail, the name of the box stands instead.

mod cells;
mod drawing;

use unicode_width::UnicodeWidthStr;

use self::cells::{COLOURS, plain, shorten};
use self::drawing::Drawing;
use super::model::{Graph, Node};

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

impl Graph {
    /// The drawing as text of at most the screen's width.
    pub fn terminal(&self, screen: &Screen) -> String {
        let width = screen.width.max(NARROW);
        let mut out = self.head(width);
        let mut drawing = Drawing::new(self, width);
        drawing.draw();
        out.push_str(&drawing.cells.show(screen));
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
}
