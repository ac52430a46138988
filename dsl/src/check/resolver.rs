//! State of a check, and the steps that several kinds of blocks share.

use std::collections::HashMap;
use std::rc::Rc;

use pl_types::Item;

use super::block::{BlockSettings, ItemOfBlock, check_body};
use crate::catalog::Catalog;
use crate::diagnostic::DiagnosticCode;
use crate::diagnostic::reports::Reports;
use crate::diagnostic::spelling::suggest;
use crate::eval::scalar::Scalar;
use crate::eval::scope::Scope;
use crate::eval::typed::evaluate_as;
use crate::settings::{self as table, SettingKind};
use crate::source::{Location, Span};
use crate::syntax::block_kind::BlockKind;
pub(super) use crate::syntax::declared_name::BUILT_IN;
use crate::syntax::declared_name::check_not_reserved;
use crate::syntax::tree::{Block, Body, File};
use crate::workflow::{Agent, DataName, Model, Plugin, Policy, Tasks};

pub(super) struct LoadedPlugin {
    pub plugin: Option<Plugin>,
    pub name: String,
    /// `None` if it can't be loaded; the error was already reported.
    pub items: Option<Vec<Rc<Item>>>,
    pub used: bool,
    /// Location of the granted policies, if there are some.
    pub policies: Option<Location>,
}

/// Blocks of one kind with distinct names, in order.
pub(super) struct NamedBlocks<'f> {
    pub blocks: Vec<&'f Block>,
    pub index: HashMap<&'f str, usize>,
    /// True if the name of a block could not be parsed: an unknown name may be that one.
    pub nameless: bool,
}

impl<'f> NamedBlocks<'f> {
    pub fn name(&self, at: usize) -> &'f str {
        self.blocks[at].name.as_ref().map_or("", |name| name.text.as_str())
    }

    pub fn names(&self) -> impl Iterator<Item = &'f str> + '_ {
        (0..self.blocks.len()).map(|at| self.name(at))
    }
}

/// An agent, and the locations of the settings that training checks.
pub(super) struct ResolvedAgent {
    pub agent: Option<Agent>,
    pub temperature: Option<Location>,
    /// Keys and locations of penalties with an effect.
    pub penalties: Vec<(&'static str, Location)>,
    /// Key and location of its grammar.
    pub grammar: Option<(&'static str, Location)>,
}

/// A model, and the location of its `dtype`.
pub(super) struct ResolvedModel {
    pub model: Option<Model>,
    pub dtype: Option<Location>,
}

/// A policy, the inner blocks of its training, and the locations of settings that are checked later.
pub(super) struct ResolvedPolicy {
    pub policy: Option<Policy>,
    pub blocks: PolicyBlocks,
    /// Its own `devices { … }`.
    pub devices: Option<BlockSettings>,
    /// Locations of settings that servers limit.
    pub server: Option<Location>,
    pub served: Option<Location>,
    pub from: Option<Location>,
}

/// Inner blocks of a policy's training, with their places.
pub(super) struct PolicyBlocks {
    pub train: Option<(Location, BlockSettings)>,
    pub critic: Option<CriticBlock>,
}

/// Inner block `critic { … }` of a policy.
pub(super) struct CriticBlock {
    pub location: Location,
    pub settings: BlockSettings,
    /// Position of the model that it names. `None` if it names none, or one that does not exist.
    pub model: Option<usize>,
}

pub(super) struct Resolver<'c, 'r, 'o> {
    pub catalog: &'c dyn Catalog,
    pub scope: Scope<'c>,
    pub reports: &'r mut Reports<'o>,
    pub plugins: Vec<LoadedPlugin>,
}

impl Resolver<'_, '_, '_> {
    /// Reports that there is no block of a kind, unless it may be in the text that was left out.
    pub fn missing(&mut self, kind: BlockKind) {
        if self.reports.left_out() {
            return;
        }
        let keyword = kind.keyword();
        self.reports
            .about_file(DiagnosticCode::MissingBlock, format!("the file has no `{keyword}` block"))
            .help(format!("add one: `{}`", kind.form()));
    }

    /// Returns the block of a kind that may occur only once. Reports further ones.
    pub fn single<'f>(&mut self, file: &'f File, kind: BlockKind, required: bool) -> Option<&'f Block> {
        let mut blocks = file.blocks.iter().filter(|block| block.kind == kind);
        let first = blocks.next();
        for other in blocks {
            let message = format!("a second `{}` block", kind.keyword());
            let (code, help) = match kind {
                BlockKind::Environment | BlockKind::Reward => (
                    DiagnosticCode::ScenarioForm,
                    "keep one of them, or write the `scenario` blocks that use them",
                ),
                _ => (DiagnosticCode::Duplicate, "keep one of them"),
            };
            let diagnostic = self.reports.error(code, other.keyword, message, "a second one");
            if let Some(first) = first {
                diagnostic.also(first.keyword.into(), "the first one");
            }
            diagnostic.help(help);
        }
        if first.is_none() && required {
            self.missing(kind);
        }
        first
    }

    pub fn named<'f>(&mut self, file: &'f File, kind: BlockKind) -> NamedBlocks<'f> {
        let mut out = NamedBlocks { blocks: Vec::new(), index: HashMap::new(), nameless: false };
        for block in file.blocks.iter().filter(|block| block.kind == kind) {
            let Some(name) = &block.name else {
                out.nameless = true;
                continue;
            };
            if let Err(reserved) = check_not_reserved(kind, &name.text) {
                self.reports
                    .error(DiagnosticCode::Reserved, name.location, reserved.to_string(), "")
                    .help("choose another name");
            }
            if let Some(first) = out.index.get(name.text.as_str()) {
                let message = format!("a second {} `{}`", kind.keyword(), name.text);
                let first: &Block = out.blocks[*first];
                self.reports
                    .error(DiagnosticCode::Duplicate, name.location, message, "again here")
                    .also(first.location(), "first here")
                    .help("give one of them another name");
                continue;
            }
            out.index.insert(&name.text, out.blocks.len());
            out.blocks.push(block);
        }
        out
    }

    /// Evaluates the value after the `=` of a block's head.
    pub fn in_head(&mut self, block: &Block) -> Option<String> {
        let (own, value) = (table::head_setting(block.kind)?, block.value.as_ref()?);
        let found = self.scope.in_namespace(block.namespace, self.reports, |scope, reports| {
            evaluate_as(own.key, own.kind, value, scope, reports)
        });
        match found? {
            Scalar::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the index of the block that a setting names.
    pub fn reference(
        &mut self,
        own: &BlockSettings,
        key: &str,
        to: &NamedBlocks,
        what: &str,
    ) -> Option<usize> {
        self.find(own.text(key)?, own.location(key)?, to, what)
    }

    /// Returns the indices of the blocks that a setting names; none if it is not written. Returns `None` if an error was
    /// reported.
    pub fn references(
        &mut self,
        own: &BlockSettings,
        key: &str,
        to: &NamedBlocks,
        what: &str,
    ) -> Option<Vec<usize>> {
        let Some(location) = own.location(key) else { return Some(Vec::new()) };
        // An invalid value was already reported.
        let names = own.words(key)?;
        let found: Vec<Option<usize>> =
            names.iter().map(|name| self.find(name, location, to, what)).collect();
        found.into_iter().collect()
    }

    /// Returns the index of a block, or reports that its name is unknown.
    pub fn find(&mut self, name: &str, location: Location, to: &NamedBlocks, what: &str) -> Option<usize> {
        let found = to.index.get(name).copied();
        if found.is_none() && !to.nameless {
            let hint = suggest(name, "the file has", to.names());
            let message = format!("there is no {what} `{name}`");
            self.reports.error(DiagnosticCode::UnknownName, location, message, "").maybe_help(hint);
        }
        found
    }

    /// Reports unknown names in the branches of `if`s that are not taken, for the kinds of settings that name these blocks.
    pub fn names_of_other_branches(&mut self, kinds: &[(SettingKind, &NamedBlocks, &str)]) {
        for (kind, name, location) in std::mem::take(&mut self.scope.other_names) {
            if let Some((_, to, what)) = kinds.iter().find(|(own, ..)| *own == kind) {
                self.find(&name, location, to, what);
            }
        }
    }

    /// Returns the settings of a block that is not written.
    pub fn without_block(&mut self, kind: BlockKind) -> BlockSettings {
        let (title, location) = (format!("`{}`", kind.keyword()), Location::Span(Span::new(0, 0)));
        let nothing = Body::empty();
        check_body(kind, &title, location, &nothing, &ItemOfBlock::None, &mut self.scope, self.reports)
    }

    /// Checks the inner block of a kind, if the block has one.
    pub fn inner(&mut self, block: &Block, kind: BlockKind) -> Option<BlockSettings> {
        let (name, inside) = block.inner(kind)?;
        let title = format!("`{}` of {}", kind.keyword(), block.title());
        Some(check_body(
            kind,
            &title,
            name.location,
            inside,
            &ItemOfBlock::None,
            &mut self.scope,
            self.reports,
        ))
    }

    /// Returns the source of tasks: a file or a data set, or else the generator.
    pub fn tasks(
        &mut self,
        block: &Block,
        own: &BlockSettings,
        split: &str,
        level: Option<u32>,
    ) -> Option<Tasks> {
        let (Some(Location::Span(tasks)), Some(Location::Span(level_at))) =
            (own.location("tasks"), own.location("level"))
        else {
            // A file given by an override replaces the generator and its level.
            return match (own.location("tasks"), own.text("tasks")) {
                (Some(_), Some(text)) => Some(match DataName::parse(text) {
                    Some(name) => Tasks::Named(name),
                    None => Tasks::File(text.to_owned()),
                }),
                (Some(_), None) => None,
                (None, _) => Some(Tasks::Generated { split: split.to_owned(), level: level? }),
            };
        };
        let message = format!("{} has both `tasks` and `level`", block.title());
        self.reports
            .error(DiagnosticCode::BadSetting, level_at, message, "applies to generated tasks")
            .also(tasks.into(), "tasks are read from a file")
            .help("remove one of them");
        None
    }
}
