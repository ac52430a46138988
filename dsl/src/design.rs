//! Designs: teams that a model writes, as fragments of the language.
//!
//! A design is `agent` blocks and one `turns` block over a [`Palette`]. The rest of the workflow, the frame, is not the
//! model's: plugins, models, policies, environment and reward. [`check_design`] refuses everything that could reach beyond
//! the palette before the fragment and its frame are checked together like any workflow.

use crate::catalog::Catalog;
use crate::check;
use crate::diagnostic::reports::Reports;
use crate::diagnostic::{Diagnostic, DiagnosticCode, Severity};
use crate::source::{Location, Source};
use crate::syntax::block_kind::BlockKind;
use crate::syntax::parse::parse;
use crate::syntax::tree::{Block, Entry, File, Setting, Value, ValueKind};
use crate::workflow::{Palette, Workflow};

/// Settings of the language that a design may give its agents. The others are settings of the agents' items.
const KEYS: [&str; 6] = ["policy", "temperature", "top_k", "top_p", "min_p", "max_tokens"];

/// Largest design in bytes. A team of a dozen agents with long prompts has a tenth.
const LARGEST: usize = 64 << 10;

/// A mistake of a design. Lines are those of the fragment, from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DesignMistake {
    /// The design is too large.
    #[error("the design has {0} bytes; write at most {LARGEST}")]
    Size(usize),
    /// A block that designs don't have.
    #[error("line {line}: a design has no {block}; write `agent` blocks and one `turns` block alone")]
    Block {
        /// The line.
        line: usize,
        /// The block, such as ``plugin `maths` ``.
        block: String,
    },
    /// An item outside of the palette.
    #[error("line {line}: the palette has no agent `{item}`; use {known}")]
    Item {
        /// The line.
        line: usize,
        /// The item.
        item: String,
        /// Items of the palette.
        known: String,
    },
    /// A policy outside of the palette.
    #[error("line {line}: the palette has no policy `{policy}`; use {known}")]
    Policy {
        /// The line.
        line: usize,
        /// The policy, as far as it is a name.
        policy: String,
        /// Policies of the palette.
        known: String,
    },
    /// A setting that designs may not change.
    #[error("line {line}: a design may not set `{key}`; remove it")]
    Key {
        /// The line.
        line: usize,
        /// The setting.
        key: String,
    },
    /// A value that is not written out.
    #[error(
        "line {line}: `{key}` must be written out: a number, a text without `${{…}}`, `true`, `false` or a list of these"
    )]
    Literal {
        /// The line.
        line: usize,
        /// The setting.
        key: String,
    },
    /// A condition that reads more than the episode.
    #[error(
        "line {line}: a condition compares `env.…`, `reward.…` and `turn` with values that are written out"
    )]
    Condition {
        /// The line.
        line: usize,
    },
    /// Too many agents.
    #[error("the design has {count} agents; write at most {max}")]
    Agents {
        /// Number of its agents.
        count: usize,
        /// Largest number.
        max: usize,
    },
    /// Too many visits.
    #[error("an agent may be visited {count} times; write `max = {max}` or less in `turns`")]
    Visits {
        /// Visits that the design allows.
        count: u32,
        /// Largest number.
        max: u32,
    },
    /// A mistake that the check of workflows found.
    #[error("line {line}: {message} ({code})")]
    Checked {
        /// The line; 0 if the mistake is about the design as a whole.
        line: usize,
        /// Its code.
        code: DiagnosticCode,
        /// Its message.
        message: String,
    },
}

/// Checks a design: `fragment`, in the place of the agents and turns that `frame` lacks. Returns the whole workflow.
///
/// # Errors
/// The mistakes, in order of lines. Those of the palette come alone: nothing else is checked then, and no file that the
/// fragment names is read.
pub fn check_design(
    frame: &Source,
    palette: &Palette,
    fragment: &str,
    catalog: &dyn Catalog,
) -> Result<Workflow, Vec<DesignMistake>> {
    if fragment.len() > LARGEST {
        return Err(vec![DesignMistake::Size(fragment.len())]);
    }
    let mut reports = Reports::new(&[]);
    let file = parse(fragment, 0..fragment.len(), 0, &mut reports);
    if reports.failed() {
        return Err(errors(&reports.finish(), fragment, 0));
    }
    let mut fence = Fence { palette, fragment, mistakes: Vec::new() };
    fence.file(&file);
    if !fence.mistakes.is_empty() {
        return Err(fence.mistakes);
    }
    let start = frame.text.len() + 1;
    let whole = Source { name: frame.name.clone(), text: format!("{}\n{fragment}", frame.text) };
    let checked = check(&whole, &[], catalog);
    let Some(workflow) = checked.workflow else {
        return Err(errors(&checked.diagnostics, fragment, start));
    };
    let visits = workflow.scenarios.iter().map(|scenario| scenario.turns.max).max().unwrap_or(0);
    if visits > palette.max_visits {
        return Err(vec![DesignMistake::Visits { count: visits, max: palette.max_visits }]);
    }
    Ok(workflow)
}

/// The errors among diagnostics of a text in which the fragment begins at `start`.
fn errors(diagnostics: &[Diagnostic], fragment: &str, start: usize) -> Vec<DesignMistake> {
    let errors = diagnostics.iter().filter(|one| one.severity == Severity::Error);
    errors
        .map(|one| {
            let at = one.labels.first().and_then(|label| label.span.start.checked_sub(start));
            DesignMistake::Checked {
                line: at.map_or(0, |at| line(fragment, at)),
                code: one.code,
                message: one.message.clone(),
            }
        })
        .collect()
}

fn line(fragment: &str, at: usize) -> usize {
    fragment.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

/// The check that a design uses nothing but its palette.
struct Fence<'a> {
    palette: &'a Palette,
    fragment: &'a str,
    mistakes: Vec<DesignMistake>,
}

impl Fence<'_> {
    fn file(&mut self, file: &File) {
        for (key, _) in &file.layouts {
            self.mistakes.push(DesignMistake::Key { line: self.line(key.location), key: key.text.clone() });
        }
        for block in &file.blocks {
            match block.kind {
                BlockKind::Agent => self.agent(block),
                BlockKind::Turns => self.turns(block),
                _ => {
                    let line = self.line(block.location());
                    self.mistakes.push(DesignMistake::Block { line, block: block.title() });
                }
            }
        }
        let count = file.blocks.iter().filter(|block| block.kind == BlockKind::Agent).count();
        if count > self.palette.max_agents {
            self.mistakes.push(DesignMistake::Agents { count, max: self.palette.max_agents });
        }
    }

    fn agent(&mut self, block: &Block) {
        let item = match block.value.as_ref().map(|value| &value.kind) {
            Some(ValueKind::Path(names)) => names.join("."),
            _ => String::new(),
        };
        if !self.palette.agents.contains(&item) {
            let (line, known) = (self.line(block.location()), listed(&self.palette.agents));
            self.mistakes.push(DesignMistake::Item { line, item, known });
        }
        for entry in &block.body.entries {
            match entry {
                Entry::Setting(setting) if setting.key.text == "policy" => self.policy(setting),
                Entry::Setting(setting) => {
                    let key = &setting.key.text;
                    let language = crate::settings::find(BlockKind::Agent, key).is_some();
                    if setting.body.is_some() || (language && !KEYS.contains(&key.as_str())) {
                        let line = self.line(setting.key.location);
                        self.mistakes.push(DesignMistake::Key { line, key: key.clone() });
                    } else if !is_literal(&setting.value) {
                        let line = self.line(setting.value.location);
                        self.mistakes.push(DesignMistake::Literal { line, key: key.clone() });
                    }
                }
                Entry::Nested { name, .. } => {
                    let line = self.line(name.location);
                    self.mistakes.push(DesignMistake::Block { line, block: format!("`{}`", name.text) });
                }
                Entry::Edge(_) => {}
            }
        }
    }

    fn policy(&mut self, setting: &Setting) {
        let policy = match &setting.value.kind {
            ValueKind::Path(names) => names.join("."),
            _ => String::new(),
        };
        if setting.body.is_some() || !self.palette.policies.contains(&policy) {
            let (line, known) = (self.line(setting.value.location), listed(&self.palette.policies));
            self.mistakes.push(DesignMistake::Policy { line, policy, known });
        }
    }

    fn turns(&mut self, block: &Block) {
        for entry in &block.body.entries {
            match entry {
                Entry::Setting(setting) if setting.body.is_none() && is_literal(&setting.value) => {}
                Entry::Setting(setting) => {
                    let line = self.line(setting.value.location);
                    self.mistakes.push(DesignMistake::Literal { line, key: setting.key.text.clone() });
                }
                Entry::Nested { name, .. } => {
                    let line = self.line(name.location);
                    self.mistakes.push(DesignMistake::Block { line, block: format!("`{}`", name.text) });
                }
                Entry::Edge(edge) => {
                    if let Some(when) = edge.when.as_ref().filter(|when| !is_condition(when)) {
                        let line = self.line(when.location);
                        self.mistakes.push(DesignMistake::Condition { line });
                    }
                }
            }
        }
    }

    fn line(&self, location: Location) -> usize {
        match location {
            Location::Span(span) => line(self.fragment, span.start),
            Location::Override(_) => 0,
        }
    }
}

/// Returns names in the form of a sentence's end.
fn listed(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Returns true for values that refer to nothing.
fn is_literal(value: &Value) -> bool {
    let mut literal = true;
    value.visit_all(&mut |one| {
        literal &= matches!(
            one.kind,
            ValueKind::Text(_)
                | ValueKind::Boolean(_)
                | ValueKind::Number(_)
                | ValueKind::List(_)
                | ValueKind::Negative(_)
        );
    });
    literal
}

/// Returns true for conditions over the episode.
fn is_condition(value: &Value) -> bool {
    let mut condition = true;
    value.visit_all(&mut |one| {
        condition &= match &one.kind {
            ValueKind::Path(names) => match names.as_slice() {
                [turn] => turn == "turn",
                [first, ..] => first == "env" || first == "reward",
                [] => false,
            },
            ValueKind::Text(_)
            | ValueKind::Boolean(_)
            | ValueKind::Number(_)
            | ValueKind::Negative(_)
            | ValueKind::Not(_)
            | ValueKind::All(_)
            | ValueKind::Any(_)
            | ValueKind::Compare(..) => true,
            _ => false,
        };
    });
    condition
}
