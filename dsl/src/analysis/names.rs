//! Definitions and uses of names, for navigation and renaming in editors.
//!
//! The syntax tree is not evaluated, so a file with mistakes still has its names. A use within a template counts once, however
//! often the template is used.

use std::collections::{BTreeMap, HashMap};

use crate::catalog::Catalog;
use crate::diagnostic::reports::Reports;
use crate::eval::assemble::{Assembly, assemble};
use crate::eval::params::named_by_argument;
use crate::settings::{self, Choice, LAYOUTS};
use crate::source::Location;
use crate::source::{Source, Sources, Span};
use crate::syntax::block_kind::BlockKind;
use crate::syntax::declared_name::{NameError, check_name, check_not_reserved};
use crate::syntax::tree::{
    Block, Body, Call, Entry, HeadExtra, NamespaceId, ParamRange, Parameter, Value, ValueKind,
};

pub use crate::eval::params::NAMED_BY_ANY_ARGUMENT;

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
    /// True for a parameter of a template.
    pub is_parameter: bool,
}

impl Definition {
    /// Checks if the language accepts another name for what is declared.
    ///
    /// # Errors
    /// The text is not a name, or a name that is reserved in blocks of this kind.
    pub fn check_name(&self, name: &str) -> Result<(), NameError> {
        check_name(name)?;
        // Nothing is reserved in a template: a parameter hides a name of the language.
        if self.is_parameter { Ok(()) } else { check_not_reserved(self.kind, name) }
    }
}

/// A parameter of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateParameter {
    /// Its name.
    pub name: String,
    /// Kinds of the blocks that a name in its argument may stand for.
    pub named_blocks: &'static [BlockKind],
    /// Index of its definition.
    definition: usize,
}

/// Names of a workflow and of its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// Sorted by declaration.
    pub definitions: Vec<Definition>,
    /// Parameters of each template by its full name.
    pub templates: BTreeMap<String, Vec<TemplateParameter>>,
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
        Finder { prefixes, definitions: Vec::new(), by_name: HashMap::new(), templates: BTreeMap::new() };
    for block in &file.blocks {
        finder.declare(block);
    }
    for block in &file.blocks {
        finder.block(block);
    }
    for (_, value) in &file.layouts {
        finder.value(value, Context { words: LAYOUTS, ..Context::of_params(0) });
    }
    Names { definitions: finder.definitions, templates: finder.templates, sources }
}

struct Finder {
    prefixes: Vec<String>,
    definitions: Vec<Definition>,
    by_name: HashMap<String, Vec<usize>>,
    templates: BTreeMap<String, Vec<TemplateParameter>>,
}

/// Possible meanings of a path at its place.
#[derive(Clone, Copy)]
struct Context<'a> {
    namespace: NamespaceId,
    /// Parameters of the template.
    locals: &'a [TemplateParameter],
    /// Kinds in order of preference.
    wanted: &'a [BlockKind],
    /// Words that take precedence over names.
    words: &'a [Choice],
}

impl<'a> Context<'a> {
    /// Context of an expression outside of templates whose names are params.
    fn of_params(namespace: NamespaceId) -> Context<'a> {
        Context { namespace, locals: &[], wanted: &[BlockKind::Param], words: &[] }
    }

    /// The same place with names of other kinds.
    fn wanting(self, wanted: &'a [BlockKind]) -> Context<'a> {
        Context { wanted, words: &[], ..self }
    }
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
            is_parameter: false,
        };
        self.by_name.entry(name.text.clone()).or_default().push(self.definitions.len());
        self.definitions.push(definition);
        if let Some(HeadExtra::Template { parameters, .. }) = block.extra.as_deref() {
            let parameters = self.parameters(parameters, block);
            // The first of several templates with one name counts, as in the check.
            self.templates.entry(name.text.clone()).or_insert(parameters);
        }
    }

    fn block(&mut self, block: &Block) {
        let mut locals = Vec::new();
        let mut kind_of_body = block.kind;
        let params = Context::of_params(block.namespace);
        match block.extra.as_deref() {
            Some(HeadExtra::Param { range, .. }) => match range {
                Some(ParamRange::Between(least, most)) => {
                    self.value(least, params);
                    self.value(most, params);
                }
                Some(ParamRange::OneOf(list)) => self.value(list, params),
                None => {}
            },
            Some(HeadExtra::Template { target, parameters }) => {
                for Parameter { ty, default, .. } in parameters {
                    if let Some(default) = default {
                        self.value(default, params.wanting(named_by_argument(ty)));
                    }
                }
                let name = block.name.as_ref().map_or("", |name| name.text.as_str());
                locals = self.templates.get(name).cloned().unwrap_or_default();
                kind_of_body = BlockKind::from_keyword(&target.text).unwrap_or(block.kind);
            }
            None => {}
        }
        let wanted: &[BlockKind] = match block.kind {
            BlockKind::Agent | BlockKind::Policy => &[BlockKind::Template, BlockKind::Plugin],
            BlockKind::Environment | BlockKind::Reward | BlockKind::Designer | BlockKind::Template => {
                &[BlockKind::Plugin]
            }
            _ => &[BlockKind::Param],
        };
        let context = Context { locals: &locals, ..params.wanting(wanted) };
        if let (Some(value), false) = (&block.value, block.kind.names_file()) {
            self.value(value, context);
        }
        self.body(Some(kind_of_body), &block.body, context);
    }

    /// Declares the parameters of a template.
    fn parameters(&mut self, parameters: &[Parameter], block: &Block) -> Vec<TemplateParameter> {
        let mut locals = Vec::new();
        for Parameter { name, ty, .. } in parameters {
            let Location::Span(span) = name.location else { continue };
            locals.push(TemplateParameter {
                name: name.text.clone(),
                named_blocks: named_by_argument(ty),
                definition: self.definitions.len(),
            });
            self.definitions.push(Definition {
                kind: BlockKind::Param,
                name: name.text.clone(),
                full_name: name.text.clone(),
                span,
                head: block.head,
                uses: Vec::new(),
                is_parameter: true,
            });
        }
        locals
    }

    /// Records the names in a body. `kind` is `None` within the settings of an item.
    fn body(&mut self, kind: Option<BlockKind>, body: &Body, context: Context) {
        for entry in &body.entries {
            match entry {
                Entry::Setting(setting) => {
                    if kind == Some(BlockKind::Mix) {
                        let key = [setting.key.text.as_str()];
                        self.path(&key, setting.key.location, context.wanting(&[BlockKind::Scenario]));
                    }
                    let context = match kind.and_then(|kind| settings::find(kind, &setting.key.text)) {
                        Some(known) => {
                            let words = known.kind.choices();
                            Context { words, ..context.wanting(known.kind.named_blocks()) }
                        }
                        None => context.wanting(&[BlockKind::Param]),
                    };
                    self.value(&setting.value, context);
                }
                Entry::Nested { name, body } => match kind.and_then(|kind| kind.inner_block(&name.text)) {
                    Some(BlockKind::Roles) => self.roles(body, context),
                    inner => self.body(inner, body, context),
                },
                Entry::Edge(line) => {
                    for name in line.nodes.iter().flat_map(|node| &node.names) {
                        let parts: Vec<&str> = name.text.split('.').collect();
                        self.path(&parts, name.location, context.wanting(&[BlockKind::Agent]));
                    }
                    if let Some(when) = &line.when {
                        self.value(when, context.wanting(&[BlockKind::Param]));
                    }
                }
            }
        }
    }

    /// Records the agents and policies of `roles { AGENT = POLICY }`.
    fn roles(&mut self, body: &Body, context: Context) {
        for entry in &body.entries {
            let Entry::Setting(setting) = entry else { continue };
            let agent = [setting.key.text.as_str()];
            self.path(&agent, setting.key.location, context.wanting(&[BlockKind::Agent]));
            self.value(&setting.value, context.wanting(&[BlockKind::Policy]));
        }
    }

    fn value(&mut self, value: &Value, context: Context) {
        // An explicit stack: the tree is as wide as the text allows.
        let mut waiting = vec![(value, context)];
        while let Some((value, context)) = waiting.pop() {
            match &value.kind {
                ValueKind::Path(names) => self.name_in_value(names, value.location, context),
                ValueKind::Call(call) => self.call(call, context, &mut waiting),
                ValueKind::Choice(choice) => {
                    for (when, then) in &choice.branches {
                        waiting.extend([(when, context.wanting(&[BlockKind::Param])), (then, context)]);
                    }
                    waiting.push((&choice.otherwise, context));
                }
                _ => value.children(&mut |child| waiting.push((child, context))),
            }
        }
    }

    fn name_in_value(&mut self, names: &[String], location: Location, context: Context) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        match names.as_slice() {
            ["reward", agent @ ..] if !agent.is_empty() => {
                let skipped = "reward.".len();
                let location = match location {
                    Location::Span(span) => Location::Span(Span::new(span.start + skipped, span.end)),
                    location => location,
                };
                self.path(agent, location, context.wanting(&[BlockKind::Agent]));
            }
            [word] if context.words.iter().any(|choice| choice.word == *word) => {}
            names => self.path(names, location, context),
        }
    }

    /// Records the names of a call that stand before the arguments' values, and adds these to `waiting`, each with the names
    /// that its parameter may have.
    fn call<'v, 'c>(
        &mut self,
        call: &'v Call,
        context: Context<'c>,
        waiting: &mut Vec<(&'v Value, Context<'c>)>,
    ) {
        if !context.wanted.contains(&BlockKind::Template) {
            let context = context.wanting(&[BlockKind::Param]);
            return waiting.extend(call.arguments.iter().map(|argument| (&argument.value, context)));
        }
        let names: Vec<&str> = call.name.text.split('.').collect();
        self.path(&names, call.name.location, context);
        let prefix = self.prefixes.get(context.namespace).map_or("", String::as_str);
        let template = self.templates.get(&format!("{prefix}{}", call.name.text));
        for (position, argument) in call.arguments.iter().enumerate() {
            let parameter = template.and_then(|parameters| match &argument.name {
                Some(name) => parameters.iter().find(|parameter| parameter.name == name.text),
                None => parameters.get(position),
            });
            let wanted = parameter.map_or(NAMED_BY_ANY_ARGUMENT, |parameter| parameter.named_blocks);
            waiting.push((&argument.value, context.wanting(wanted)));
            let location = argument.name.as_ref().map(|name| name.location);
            if let (Some(parameter), Some(Location::Span(span))) = (parameter, location) {
                self.definitions[parameter.definition].uses.push(span);
            }
        }
    }

    /// Records the uses in a path: `team.maths.tool` is an item of the plugin `maths` of the used file `team`.
    fn path(&mut self, names: &[&str], location: Location, context: Context) {
        let Location::Span(span) = location else { return };
        let local = context.locals.iter().find(|local| names == [local.name.as_str()]);
        if let Some(local) = local {
            self.definitions[local.definition].uses.push(span);
            return;
        }
        let prefix = self.prefixes.get(context.namespace).map_or("", String::as_str);
        let mut end = span.start;
        for length in 1..=names.len() {
            let start = end + usize::from(length > 1);
            end = start + names[length - 1].len();
            let full = format!("{prefix}{}", names[..length].join("."));
            let known = self.by_name.get(&full).map(Vec::as_slice).unwrap_or_default();
            let of = |kind: BlockKind| known.iter().copied().find(|at| self.definitions[*at].kind == kind);
            // Only a used file or a plugin can precede a dot.
            let found = match length == names.len() {
                true => {
                    let last = context.wanted.iter().filter(|kind| **kind != BlockKind::Plugin);
                    last.copied().find_map(of)
                }
                false => of(BlockKind::Use).or_else(|| {
                    of(BlockKind::Plugin).filter(|_| context.wanted.contains(&BlockKind::Plugin))
                }),
            };
            if let Some(at) = found {
                self.definitions[at].uses.push(Span::new(start, end));
            }
        }
    }
}

#[cfg(test)]
mod tests;
