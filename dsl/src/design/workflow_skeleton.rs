//! Skeletons: what is left of a workflow without its teams, for designs to be put in.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::diagnostic::reports::Reports;
use crate::settings::{self, SettingKind};
use crate::source::overrides::Override;
use crate::source::{Location, Source, Span};
use crate::syntax::block_kind::BlockKind;
use crate::syntax::parse::parse;
use crate::syntax::scan::{Statement, scan, split_word};
use crate::syntax::tree::{Body, Entry, Value, ValueKind};
use crate::workflow::{Agent, Workflow};

/// A workflow file with one environment and one reward, and without agents and turns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowSkeleton {
    pub(super) source: Source,
    pub(super) overrides: Vec<Override>,
}

/// Reason why a scenario has no skeleton.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SkeletonError {
    /// The scenario is in another file.
    #[error("scenario `{scenario}` is in a file that {file} includes; move it and what it names into {file}")]
    Included {
        /// The scenario.
        scenario: String,
        /// The workflow file.
        file: String,
    },
    /// An agent is in an included file, and would be in every design.
    #[error(
        "agent `{agent}` is in a file that {file} includes; move it into {file}, or name its file with `use`"
    )]
    IncludedAgent {
        /// The agent.
        agent: String,
        /// The workflow file.
        file: String,
    },
}

impl From<Source> for WorkflowSkeleton {
    /// The skeleton of a file that has no team.
    fn from(source: Source) -> WorkflowSkeleton {
        WorkflowSkeleton { source, overrides: Vec::new() }
    }
}

impl WorkflowSkeleton {
    /// Returns the skeleton of a scenario: the file without agents, designers, scenarios, and what belongs to other scenarios.
    /// Overrides of what is left out are left out too.
    ///
    /// # Errors
    /// [`SkeletonError`] if the scenario, or an agent without a namespace, is not in the file itself.
    pub fn new(
        source: &Source,
        workflow: &Workflow,
        scenario: usize,
        overrides: &[Override],
    ) -> Result<WorkflowSkeleton, SkeletonError> {
        let found = workflow.scenarios.get(scenario);
        let name = found.and_then(|one| one.name.as_deref()).unwrap_or_default();
        let environment = found.map_or("", |one| one.environment.name.as_str());
        let reward = found.map_or("", |one| one.reward.name.as_str());
        let text = source.text.as_str();
        let mut cut: Vec<Range<usize>> = Vec::new();
        let (mut gone, mut kept) = (BTreeSet::new(), BTreeSet::new());
        let mut has_scenario = false;
        for statement in statements(text) {
            let Head { word, name: own } = Head::new(&statement, text);
            let keep = match word {
                "agent" | "designer" | "turns" | "mix" | "layout" => false,
                "scenario" => {
                    has_scenario |= own == name;
                    false
                }
                "environment" => own == environment,
                "reward" => own == reward,
                "evaluate" => match evaluation(&statement, text, name) {
                    Some(of_scenario) => {
                        cut.extend(of_scenario);
                        true
                    }
                    None => false,
                },
                _ => true,
            };
            if keep {
                kept.insert((word, own));
            } else {
                gone.insert((word, own));
                cut.push(with_comments(text, extent(&statement)));
            }
        }
        if !has_scenario {
            return Err(SkeletonError::Included { scenario: name.to_owned(), file: source.name.clone() });
        }
        // Those of used files have dots in their names, and are there only if something names them.
        let included =
            |agent: &&Agent| !agent.name.contains('.') && !gone.contains(&("agent", agent.name.as_str()));
        if let Some(agent) = workflow.agents.iter().find(included) {
            let (agent, file) = (agent.name.clone(), source.name.clone());
            return Err(SkeletonError::IncludedAgent { agent, file });
        }
        let is_of = |one: &Override, blocks: &BTreeSet<(&str, &str)>| {
            blocks.iter().any(|(word, name)| is_of_block(&one.path, word, name))
        };
        let left = |one: &&Override| is_of(one, &kept) || !is_of(one, &gone);
        let overrides = overrides.iter().filter(left).cloned().collect();
        Ok(WorkflowSkeleton {
            source: Source { name: source.name.clone(), text: without(text, cut) },
            overrides,
        })
    }

    /// Returns the overrides that apply to its designs.
    pub fn overrides(&self) -> &[Override] {
        &self.overrides
    }

    /// Returns the whole file of a design, formatted, without the blocks whose spans `unused` returns for it.
    pub fn file(&self, fragment: &str, unused: &dyn Fn(&str) -> Vec<Span>) -> String {
        let mut text = self.whole(fragment);
        // A block may be used by another unused one alone: a model by a policy.
        for _ in 0..4 {
            let spans = unused(&text);
            let is_unused = |statement: &Statement| {
                let inside = extent(statement);
                spans.iter().any(|span| inside.start <= span.start && span.end <= inside.end)
            };
            let cut: Vec<Range<usize>> = statements(&text)
                .iter()
                .filter(|statement| is_unused(statement))
                .map(|statement| with_comments(&text, extent(statement)))
                .collect();
            if cut.is_empty() {
                break;
            }
            text = without(&text, cut);
        }
        crate::format(&text).unwrap_or(text)
    }

    /// Returns the skeleton without its `train` block, and without the overrides of its settings.
    pub(super) fn without_training(&self) -> WorkflowSkeleton {
        let Source { name, text } = &self.source;
        let trains = |statement: &&Statement| Head::new(statement, text).word == "train";
        let all = statements(text);
        let cut = all.iter().filter(trains).map(|statement| with_comments(text, extent(statement)));
        let text = without(text, cut.collect());
        let left = |one: &&Override| !is_of_block(&one.path, "train", "");
        let overrides = self.overrides.iter().filter(left).cloned().collect();
        WorkflowSkeleton { source: Source { name: name.clone(), text }, overrides }
    }

    /// Returns the text in which the fragment begins after the skeleton's and a newline.
    pub(super) fn whole(&self, fragment: &str) -> String {
        format!("{}\n{fragment}", self.source.text)
    }

    /// Returns the position of the fragment in that text.
    pub(super) fn design_start(&self) -> usize {
        self.source.text.len() + 1
    }
}

/// Returns the text of a workflow with other paths of files: those for which `rewrite` returns one.
pub fn with_paths(text: &str, rewrite: &dyn Fn(&str) -> Option<String>) -> String {
    let file = parse(text, 0..text.len(), 0, &mut Reports::new(&[]));
    let mut paths = Paths { rewrite, edits: Vec::new() };
    for block in &file.blocks {
        let in_head = settings::head_setting(block.kind).is_some() || block.kind.names_file();
        if let Some(value) = &block.value {
            paths.value(value, in_head);
        }
        paths.body(block.kind, &block.body);
    }
    let mut edits = paths.edits;
    edits.sort_by_key(|(span, _)| std::cmp::Reverse(span.start));
    let mut out = text.to_owned();
    for (span, path) in edits {
        out.replace_range(span.start..span.end, &serde_json::Value::from(path).to_string());
    }
    out
}

/// Returns the team of a scenario as a design: its agents and turns as they are written. Returns `None` if it has none in
/// this file.
pub fn own_design(source: &Source, workflow: &Workflow, scenario: usize) -> Option<String> {
    let found = workflow.scenarios.get(scenario).filter(|one| !one.lacks_team())?;
    let members = found.agents();
    let is_member =
        |name: &str| members.iter().any(|at| workflow.agents.get(*at).is_some_and(|one| one.name == name));
    let text = source.text.as_str();
    let (mut agents, mut turns) = (String::new(), None);
    for statement in statements(text) {
        match Head::new(&statement, text) {
            Head { word: "agent", name } if is_member(name) => {
                agents.push_str(text.get(extent(&statement))?);
                agents.push_str("\n\n");
            }
            Head { word: "scenario", name } if Some(name) == found.name.as_deref() => {
                let inner = statement.body.iter().flat_map(|body| &body.statements);
                let mut inner = inner.filter(|one| one.body.is_some());
                turns = inner.find(|one| Head::new(one, text).word == "turns").map(extent);
            }
            _ => {}
        }
    }
    let all = format!("{agents}{}\n", text.get(turns?)?);
    Some(crate::format(&all).unwrap_or(all))
}

/// First word of a statement, and the name after it.
struct Head<'t> {
    word: &'t str,
    name: &'t str,
}

impl<'t> Head<'t> {
    fn new(statement: &Statement, text: &'t str) -> Head<'t> {
        let (word, rest) = split_word(statement.head.slice(text));
        Head { word, name: split_word(rest.trim_start()).0 }
    }
}

/// Returns true if the path of an override leads to a block: `tool.temperature` or `agent tool.temperature` to `agent tool`,
/// `mix.made` to `mix`, which has no name.
fn is_of_block(path: &str, word: &str, name: &str) -> bool {
    let target = path.split('.').next().unwrap_or_default().trim();
    match target.split_once(char::is_whitespace) {
        Some((kind, own)) => kind == word && own.trim() == name,
        None => target == if name.is_empty() { word } else { name },
    }
}

fn statements(text: &str) -> Vec<Statement> {
    scan(text, 0..text.len(), &mut Reports::new(&[]))
}

fn extent(statement: &Statement) -> Range<usize> {
    let end = statement.body.as_ref().map_or(statement.head.end, |body| body.span.end);
    statement.head.start..end
}

/// Returns the parts of an evaluation that name its scenario. Returns `None` if it is of another scenario, or of agents.
fn evaluation(statement: &Statement, text: &str, scenario: &str) -> Option<Vec<Range<usize>>> {
    let mut cut = Vec::new();
    for inner in statement.body.iter().flat_map(|body| &body.statements) {
        let (word, rest) = split_word(inner.head.slice(text));
        match word {
            "roles" => return None,
            "scenario" if rest.trim_start().trim_start_matches('=').trim() != scenario => return None,
            "scenario" => cut.push(with_separator(text, extent(inner))),
            _ => {}
        }
    }
    Some(cut)
}

/// Extends the range of a statement by the `;` behind it, or else by the rest of its line.
fn with_separator(text: &str, range: Range<usize>) -> Range<usize> {
    let rest = text.get(range.end..).unwrap_or_default();
    let blank = rest.len() - rest.trim_start_matches([' ', '\t']).len();
    let after = &rest[blank..];
    let more = if after.starts_with(';') { blank + 1 } else { 0 };
    range.start..range.end + more
}

/// Extends the range of a block by the comments directly above it and at the end of its last line.
fn with_comments(text: &str, range: Range<usize>) -> Range<usize> {
    let Range { start, end } = with_separator(text, range);
    let above = text.get(..start).unwrap_or_default();
    let line_start = above.rfind('\n').map_or(0, |at| at + 1);
    let own_line = above[line_start..].trim().is_empty();
    let mut from = if own_line { line_start } else { start };
    while own_line && from > 0 {
        let before = text[..from - 1].rfind('\n').map_or(0, |at| at + 1);
        if !text[before..from].trim_start().starts_with('#') {
            break;
        }
        from = before;
    }
    let rest = text.get(end..).unwrap_or_default();
    let line = rest.split('\n').next().unwrap_or_default();
    let ends_line = line.trim().is_empty() || line.trim_start().starts_with('#');
    let to = if ends_line && own_line { (end + line.len() + 1).min(text.len()) } else { end };
    from..to
}

fn without(text: &str, mut cut: Vec<Range<usize>>) -> String {
    cut.sort_by_key(|range| range.start);
    let (mut out, mut at) = (String::with_capacity(text.len()), 0);
    for range in cut {
        out.push_str(text.get(at..range.start).unwrap_or_default());
        at = at.max(range.end);
    }
    out.push_str(text.get(at..).unwrap_or_default());
    out
}

/// Collects the paths that change, with the spans of their literals.
struct Paths<'r> {
    rewrite: &'r dyn Fn(&str) -> Option<String>,
    edits: Vec<(Span, String)>,
}

impl Paths<'_> {
    fn body(&mut self, kind: BlockKind, body: &Body) {
        for entry in &body.entries {
            match entry {
                Entry::Setting(setting) => {
                    let found = settings::find(kind, &setting.key.text).map(|own| own.kind);
                    let is_path = matches!(
                        found,
                        Some(
                            SettingKind::Path
                                | SettingKind::Tasks
                                | SettingKind::Source
                                | SettingKind::Corpus
                        )
                    );
                    // The folders of a grant.
                    let of_grant = kind == BlockKind::Grant && setting.key.text == "read";
                    self.value(&setting.value, is_path || of_grant);
                }
                Entry::Nested { name, body } => {
                    if let Some(inner) = kind.inner_block(&name.text) {
                        self.body(inner, body);
                    }
                }
                Entry::Edge(_) => {}
            }
        }
    }

    fn value(&mut self, value: &Value, is_path: bool) {
        let mut literals: Vec<(String, Location)> = Vec::new();
        value.visit_all(&mut |one| match &one.kind {
            ValueKind::Text(text) if is_path => literals.push((text.clone(), one.location)),
            ValueKind::Call(call) if call.name.text == "file" => {
                if let Some(Value { kind: ValueKind::Text(text), location }) =
                    call.arguments.first().map(|argument| &argument.value)
                {
                    literals.push((text.clone(), *location));
                }
            }
            _ => {}
        });
        for (text, location) in literals {
            if let (Location::Span(span), Some(path)) = (location, (self.rewrite)(&text)) {
                self.edits.push((span, path));
            }
        }
    }
}
