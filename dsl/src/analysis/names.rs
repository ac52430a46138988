//! Definitions and uses of names, for navigation and renaming in editors.
//!
//! The syntax tree is not evaluated, so a file with mistakes still has its names. A use within a template counts once, however
//! often the template is used.

use std::collections::HashMap;

use crate::catalog::Catalog;
use crate::diagnostic::reports::Reports;
use crate::eval::assemble::{Assembly, assemble};
use crate::eval::functions::FUNCTIONS;
use crate::source::Location;
use crate::source::{Source, Sources, Span};
use crate::syntax::block_kind::BlockKind;
use crate::syntax::tree::{
    Block, Body, Entry, HeadExtra, NamespaceId, ParamRange, Parameter, Value, ValueKind,
};

/// A declared name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// Kind of the declaring block; a template's parameter is a `param`.
    pub kind: BlockKind,
    /// Name in the declaration.
    pub name: String,
    /// Name in the whole workflow, with the prefix of its used file.
    pub full_name: String,
    /// Span of the name.
    pub span: Span,
    /// Head of its block.
    pub head: Span,
    /// Spans of its uses, without the part before the last dot.
    pub uses: Vec<Span>,
}

/// Names of a workflow and of its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// Sorted by declaration.
    pub definitions: Vec<Definition>,
    /// Files that the spans refer to.
    pub sources: Sources,
}

impl Names {
    /// Definition of the name at an offset, in its declaration or in a use.
    pub fn definition_at(&self, offset: usize) -> Option<&Definition> {
        let touches = |span: &Span| (span.start..=span.end).contains(&offset);
        self.definitions.iter().find(|one| touches(&one.span) || one.uses.iter().any(touches))
    }
}

/// Finds the names of a workflow. Unreadable parts are skipped.
pub fn names(source: &Source, catalog: &dyn Catalog) -> Names {
    let mut ignored = Reports::new(&[]);
    let Assembly { file, sources, namespaces } = assemble(source, catalog, &mut ignored);
    let prefixes = namespaces.into_iter().map(|namespace| namespace.prefix).collect();
    let mut finder =
        Finder { prefixes, definitions: Vec::new(), by_name: HashMap::new(), parameters: HashMap::new() };
    for block in &file.blocks {
        finder.declare(block);
    }
    for block in &file.blocks {
        finder.block(block);
    }
    for (_, value) in &file.layouts {
        finder.value(value, Context { namespace: 0, locals: &[], wanted: &[BlockKind::Param] });
    }
    Names { definitions: finder.definitions, sources }
}

struct Finder {
    prefixes: Vec<String>,
    definitions: Vec<Definition>,
    by_name: HashMap<String, Vec<usize>>,
    /// Parameters of each template by its full name, with the indexes of their definitions.
    parameters: HashMap<String, Vec<(String, usize)>>,
}

/// Possible meanings of a path at its place.
#[derive(Clone, Copy)]
struct Context<'a> {
    namespace: NamespaceId,
    /// Parameters of the template, with the indexes of their definitions.
    locals: &'a [(String, usize)],
    /// Kinds in order of preference.
    wanted: &'a [BlockKind],
}

impl Finder {
    fn declare(&mut self, block: &Block) {
        let Some(name) = &block.name else { return };
        let Location::Span(span) = name.location else { return };
        let own = name.text.rsplit('.').next().unwrap_or_default();
        let definition = Definition {
            kind: block.kind,
            name: own.to_owned(),
            full_name: name.text.clone(),
            span,
            head: block.head,
            uses: Vec::new(),
        };
        self.by_name.entry(name.text.clone()).or_default().push(self.definitions.len());
        self.definitions.push(definition);
        if let Some(HeadExtra::Template { parameters, .. }) = block.extra.as_deref() {
            let parameters = self.parameters(parameters, block);
            self.parameters.insert(name.text.clone(), parameters);
        }
    }

    fn block(&mut self, block: &Block) {
        let mut locals = Vec::new();
        match block.extra.as_deref() {
            Some(HeadExtra::Param { range, .. }) => {
                let context =
                    Context { namespace: block.namespace, locals: &[], wanted: &[BlockKind::Param] };
                match range {
                    Some(ParamRange::Between(least, most)) => {
                        self.value(least, context);
                        self.value(most, context);
                    }
                    Some(ParamRange::OneOf(list)) => self.value(list, context),
                    None => {}
                }
            }
            Some(HeadExtra::Template { parameters, .. }) => {
                let context =
                    Context { namespace: block.namespace, locals: &[], wanted: &[BlockKind::Param] };
                for default in parameters.iter().filter_map(|parameter| parameter.default.as_ref()) {
                    self.value(default, context);
                }
                let name = block.name.as_ref().map_or("", |name| name.text.as_str());
                locals = self.parameters.get(name).cloned().unwrap_or_default();
            }
            None => {}
        }
        let wanted: &[BlockKind] = match block.kind {
            BlockKind::Agent | BlockKind::Policy => {
                &[BlockKind::Template, BlockKind::Plugin, BlockKind::Param]
            }
            BlockKind::Environment | BlockKind::Reward | BlockKind::Template => &[BlockKind::Plugin],
            _ => &[BlockKind::Param],
        };
        let context = Context { namespace: block.namespace, locals: &locals, wanted };
        if let (Some(value), false) = (&block.value, block.kind.names_file()) {
            self.value(value, context);
        }
        self.body(block.kind, &block.body, context);
    }

    /// Declares the parameters of a template.
    fn parameters(&mut self, parameters: &[Parameter], block: &Block) -> Vec<(String, usize)> {
        let mut locals = Vec::new();
        for Parameter { name, .. } in parameters {
            let Location::Span(span) = name.location else { continue };
            locals.push((name.text.clone(), self.definitions.len()));
            self.definitions.push(Definition {
                kind: BlockKind::Param,
                name: name.text.clone(),
                full_name: name.text.clone(),
                span,
                head: block.head,
                uses: Vec::new(),
            });
        }
        locals
    }

    fn body(&mut self, kind: BlockKind, body: &Body, context: Context) {
        for entry in &body.entries {
            match entry {
                Entry::Setting(setting) => {
                    let wanted: &[BlockKind] = match (kind, setting.key.text.as_str()) {
                        (BlockKind::Scenario, "environment") => &[BlockKind::Environment],
                        (BlockKind::Scenario, "reward") => &[BlockKind::Reward],
                        (BlockKind::Scenario, "designer") => &[BlockKind::Designer],
                        (BlockKind::Palette, "agents") => &[BlockKind::Plugin],
                        (BlockKind::Evaluate, "scenario") => &[BlockKind::Scenario],
                        (_, "policy" | "policies") => &[BlockKind::Policy],
                        (_, "model") => &[BlockKind::Model],
                        (_, "server") => &[BlockKind::Server],
                        (_, "corpus") => &[BlockKind::Corpus],
                        _ => &[BlockKind::Param],
                    };
                    if kind == BlockKind::Mix {
                        let key = [setting.key.text.clone()];
                        let scenarios = Context { wanted: &[BlockKind::Scenario], ..context };
                        self.path(&key, setting.key.location, scenarios);
                    }
                    self.value(&setting.value, Context { wanted, ..context });
                }
                Entry::Nested { name, body } => match kind.inner_block(&name.text) {
                    Some(BlockKind::Roles) => self.roles(body, context),
                    inner => self.body(inner.unwrap_or(kind), body, context),
                },
                Entry::Edge(line) => {
                    let agents = Context { wanted: &[BlockKind::Agent], ..context };
                    for name in line.nodes.iter().flat_map(|node| &node.names) {
                        let parts: Vec<String> = name.text.split('.').map(str::to_owned).collect();
                        self.path(&parts, name.location, agents);
                    }
                    if let Some(when) = &line.when {
                        self.value(when, Context { wanted: &[BlockKind::Param], ..context });
                    }
                }
            }
        }
    }

    /// Records the agents and policies of `roles { AGENT = POLICY }`.
    fn roles(&mut self, body: &Body, context: Context) {
        for entry in &body.entries {
            let Entry::Setting(setting) = entry else { continue };
            let agent = [setting.key.text.clone()];
            self.path(&agent, setting.key.location, Context { wanted: &[BlockKind::Agent], ..context });
            self.value(&setting.value, Context { wanted: &[BlockKind::Policy], ..context });
        }
    }

    fn value(&mut self, value: &Value, context: Context) {
        let mut paths: Vec<(Vec<String>, Location)> = Vec::new();
        value.paths(&mut |names, location| {
            let names = names.iter().flat_map(|name| name.split('.')).map(str::to_owned).collect();
            paths.push((names, location));
        });
        value.visit_all(&mut |value| self.arguments(value, context.namespace));
        for (names, location) in paths {
            match names.as_slice() {
                [reward, agent @ ..] if reward == "reward" && !agent.is_empty() => {
                    let skipped = reward.len() + 1;
                    let location = match location {
                        Location::Span(span) => Location::Span(Span::new(span.start + skipped, span.end)),
                        location => location,
                    };
                    self.path(agent, location, Context { wanted: &[BlockKind::Agent], ..context });
                }
                names => self.path(names, location, context),
            }
        }
    }

    /// Records the names of named arguments of a template.
    fn arguments(&mut self, value: &Value, namespace: NamespaceId) {
        let ValueKind::Call(call) = &value.kind else { return };
        let prefix = self.prefixes.get(namespace).map_or("", String::as_str);
        let parameters = self.parameters.get(&format!("{prefix}{}", call.name.text));
        for name in call.arguments.iter().filter_map(|argument| argument.name.as_ref()) {
            let known = parameters.and_then(|all| all.iter().find(|(known, _)| *known == name.text));
            if let (Some((_, at)), Location::Span(span)) = (known, name.location) {
                self.definitions[*at].uses.push(span);
            }
        }
    }

    /// Records the uses in a path: `team.maths.tool` is an item of the plugin `maths` of the used file `team`.
    fn path(&mut self, names: &[String], location: Location, context: Context) {
        let Location::Span(span) = location else { return };
        let mut end = span.start;
        for length in 1..=names.len() {
            let start = end + usize::from(length > 1);
            end = start + names[length - 1].len();
            let own = Span::new(start, end);
            let local = context.locals.iter().find(|(local, _)| names.len() == 1 && *local == names[0]);
            if let Some((_, at)) = local {
                self.definitions[*at].uses.push(own);
                return;
            }
            let prefix = self.prefixes.get(context.namespace).map_or("", String::as_str);
            let full = format!("{prefix}{}", names[..length].join("."));
            let is_last = length == names.len();
            if is_last && length == 1 && FUNCTIONS.iter().any(|function| function.name == full) {
                return;
            }
            let known = self.by_name.get(&full).map(Vec::as_slice).unwrap_or_default();
            let of = |kind: BlockKind| known.iter().copied().find(|at| self.definitions[*at].kind == kind);
            // Only a used file or a plugin can precede a dot.
            let found = match is_last {
                true => context
                    .wanted
                    .iter()
                    .copied()
                    .filter(|kind| *kind != BlockKind::Plugin)
                    .chain((!context.wanted.contains(&BlockKind::Param)).then_some(BlockKind::Param))
                    .find_map(of),
                false => of(BlockKind::Use).or_else(|| {
                    of(BlockKind::Plugin).filter(|_| context.wanted.contains(&BlockKind::Plugin))
                }),
            };
            if let Some(at) = found {
                self.definitions[at].uses.push(own);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CatalogError;
    use crate::workflow::Plugin;
    use pl_types::Item;

    struct Files;

    impl Catalog for Files {
        fn items(&self, _: &Plugin) -> Result<Vec<Item>, CatalogError> {
            Err(CatalogError::Unavailable("not asked for"))
        }

        fn text(&self, path: &std::path::Path) -> Result<String, CatalogError> {
            match path.to_str() {
                Some("team.mas") => Ok("policy judge { model = own }\nmodel own = \"x\"\n".to_owned()),
                _ => Err(CatalogError::Unavailable("there is no such file")),
            }
        }
    }

    #[test]
    fn uses_are_found_wherever_a_name_stands() {
        let text = "use \"team.mas\" as team\n\
                    param n: int = 4 in 1..n\n\
                    plugin maths = \"m.wasm\"\n\
                    template small(n: int) = policy { lora { rank = n } }\n\
                    policy p = small(n = n * 2)\n\
                    agent a = maths.tool { policy = p; x = max(n, 1); y = \"${n}\" }\n\
                    agent b = maths.tool { policy = team.judge }\n\
                    turns { start -> [a, b]; a -> end when reward.a > n }\n\
                    train { samples = n }\n";
        let source = Source { name: "x.mas".to_owned(), text: text.to_owned() };
        let names = names(&source, &Files);
        let shown: Vec<String> = names
            .definitions
            .iter()
            .map(|one| {
                let uses = one.uses.iter().map(|span| {
                    let (file, span) = names.sources.find(*span).unwrap();
                    assert_eq!(span.slice(names.sources.text_of(file)), one.name);
                    let line = names.sources.text_of(file)[..span.start].matches('\n').count() + 1;
                    line.to_string()
                });
                format!("{} {}: {}", one.kind.keyword(), one.full_name, uses.collect::<Vec<_>>().join(" "))
            })
            .collect();
        assert_eq!(
            shown,
            [
                "policy team.judge: 7",
                "model team.own: 1",
                "use team: 7",
                "param n: 2 5 6 6 8 9",
                "plugin maths: 6 7",
                "template small: 5",
                "param n: 4 5",
                "policy p: 6",
                "agent a: 8 8 8",
                "agent b: 8",
            ]
        );
        let judge = names.definition_at(text.find("judge").unwrap() + 2).unwrap();
        assert_eq!(judge.full_name, "team.judge");
        assert!(names.definition_at(0).is_none());
    }
}
