//! Check that designs use nothing but their palette.

use std::collections::BTreeSet;

use super::mistakes::DesignMistake;
use crate::source::Location;
use crate::syntax::block_kind::BlockKind;
use crate::syntax::tree::{Block, EdgeLine, Entry, File, Setting, Value, ValueKind};
use crate::workflow::Palette;

/// Settings of the language that a design may give its agents. The others are settings of the agents' items.
pub(super) const KEYS: [&str; 6] = ["policy", "temperature", "top_k", "top_p", "min_p", "max_tokens"];

/// Returns the mistakes of a fragment that reach beyond its palette.
pub(super) fn beyond_palette<'a>(
    file: &'a File,
    palette: &'a Palette,
    fragment: &'a str,
) -> Vec<DesignMistake> {
    let agents = file.blocks.iter().filter(|block| block.kind == BlockKind::Agent);
    let names = agents.filter_map(|block| block.name.as_ref().map(|name| name.text.as_str()));
    let mut checker = PaletteChecker { palette, fragment, agents: names.collect(), mistakes: Vec::new() };
    checker.file(file);
    checker.mistakes
}

/// Returns the line of a byte, from 1.
pub(super) fn line(fragment: &str, at: usize) -> usize {
    fragment.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

struct PaletteChecker<'a> {
    palette: &'a Palette,
    fragment: &'a str,
    /// Names of its agents.
    agents: BTreeSet<&'a str>,
    mistakes: Vec<DesignMistake>,
}

impl PaletteChecker<'_> {
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
                    self.nodes(edge);
                    if let Some(when) = edge.when.as_ref().filter(|when| !is_condition(when)) {
                        let line = self.line(when.location);
                        self.mistakes.push(DesignMistake::Condition { line });
                    }
                }
            }
        }
    }

    /// Checks that an edge names agents of the design. Files that the skeleton includes may have agents, which don't
    /// belong to the design.
    fn nodes(&mut self, edge: &EdgeLine) {
        for name in edge.nodes.iter().flat_map(|node| &node.names) {
            if !matches!(name.text.as_str(), "start" | "end") && !self.agents.contains(name.text.as_str()) {
                let line = self.line(name.location);
                self.mistakes.push(DesignMistake::Agent { line, agent: name.text.clone() });
            }
        }
    }

    fn line(&self, location: Location) -> usize {
        match location {
            Location::Span(span) => line(self.fragment, span.start),
            // A fragment is parsed without overrides.
            Location::Override(_) => 1,
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
                // A team that reads the reward would answer until it is right.
                [first, ..] => first == "env",
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
