//! What names mean: params, what templates were given, and the namespaces of used files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::catalog::Catalog;
use crate::diagnostic::{Code, Place, Reports};
use crate::source::Sources;
use crate::syntax::{SpaceId, Value};
use crate::values::Scalar;

/// Bytes of text, and elements of lists, that the expressions of one workflow may make in all. Far above what a workflow
/// needs, and far below what texts that double each other could ask for.
const BUDGET: usize = 64 << 20;

/// Where a name is written decides what it means.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// What names of this file are called outside of it: `team.` behind `use "team.mas" as team`.
    pub prefix: String,
    /// A template's parameters. None: what was given is amiss, which is reported already.
    pub locals: BTreeMap<String, Option<Scalar>>,
    /// Where the template is used.
    pub used_at: Option<Place>,
}

/// A param's value, once it is known.
#[derive(Debug, Clone)]
pub(crate) enum Param {
    /// Declared further down.
    Later,
    /// None: its value is amiss, which is reported already.
    Known(Option<Scalar>),
}

/// Everything in reach of an expression.
pub(crate) struct Scope<'c> {
    /// By full name.
    pub params: BTreeMap<String, Param>,
    /// Full names of params that something uses.
    pub used: BTreeSet<String>,
    /// Full names of templates that something is made from.
    pub templates_used: BTreeSet<String>,
    /// Full names of what is used of other files.
    pub imports_used: BTreeSet<String>,
    pub spaces: Vec<Space>,
    pub catalog: &'c dyn Catalog,
    pub sources: &'c Sources,
    current: SpaceId,
    left: usize,
}

/// What a name stands for.
pub(crate) enum Found {
    Nothing,
    Later,
    /// None: amiss, which is reported already.
    Value(Option<Scalar>),
}

impl<'c> Scope<'c> {
    pub fn new(catalog: &'c dyn Catalog, sources: &'c Sources, spaces: Vec<Space>) -> Self {
        Scope {
            params: BTreeMap::new(),
            used: BTreeSet::new(),
            templates_used: BTreeSet::new(),
            imports_used: BTreeSet::new(),
            spaces,
            catalog,
            sources,
            current: 0,
            left: BUDGET,
        }
    }

    /// Does something where names mean what they mean in a space. Messages say where its template is used.
    pub fn within<T>(
        &mut self,
        space: SpaceId,
        reports: &mut Reports,
        act: impl FnOnce(&mut Self, &mut Reports) -> T,
    ) -> T {
        let outer = std::mem::replace(&mut self.current, space);
        let via = self.used_at(space);
        let outer_via = std::mem::replace(&mut reports.via, via);
        let out = act(self, reports);
        self.current = outer;
        reports.via = outer_via;
        out
    }

    /// Where the template of a space is used.
    pub fn used_at(&self, space: SpaceId) -> Option<Place> {
        self.spaces.get(space)?.used_at
    }

    fn space(&self) -> Option<&Space> {
        self.spaces.get(self.current)
    }

    /// What a name is called in the whole workflow.
    pub fn full(&self, names: &[String]) -> String {
        self.full_in(self.current, names)
    }

    /// What a name that is written in a space is called in the whole workflow.
    pub fn full_in(&self, space: SpaceId, names: &[String]) -> String {
        let prefix = self.spaces.get(space).map_or("", |space| space.prefix.as_str());
        format!("{prefix}{}", names.join("."))
    }

    /// A parameter of the template that is being used.
    pub fn local(&self, name: &str) -> Option<&Option<Scalar>> {
        self.space()?.locals.get(name)
    }

    /// What a path stands for: a template's parameter or a param.
    pub fn look_up(&mut self, names: &[String]) -> Found {
        if let [name] = names
            && let Some(local) = self.local(name)
        {
            return Found::Value(local.clone());
        }
        let full = self.full(names);
        match self.params.get(&full) {
            None => Found::Nothing,
            Some(Param::Later) => Found::Later,
            Some(Param::Known(value)) => {
                let value = value.clone();
                self.used.insert(full);
                Found::Value(value)
            }
        }
    }

    /// Whether a path stands for anything.
    pub fn knows(&self, names: &[String]) -> bool {
        matches!(names, [name] if self.local(name).is_some()) || self.params.contains_key(&self.full(names))
    }

    /// The params in reach, as they are written here.
    pub fn names(&self) -> Vec<String> {
        let prefix = self.space().map_or("", |space| space.prefix.as_str());
        let locals = self.space().into_iter().flat_map(|space| space.locals.keys().cloned());
        let params = self.params.keys().filter_map(|name| name.strip_prefix(prefix)).map(str::to_owned);
        locals.chain(params).collect()
    }

    /// What the names in an expression stand for, for messages.
    pub fn in_play(&mut self, value: &Value) -> Vec<(String, String)> {
        let mut paths = Vec::new();
        value.paths(&mut |names, _| paths.push(names));
        let mut out: Vec<(String, String)> = Vec::new();
        for names in paths {
            let name = names.join(".");
            if out.iter().any(|(known, _)| *known == name) {
                continue;
            }
            if let Found::Value(Some(scalar)) = self.look_up(names) {
                out.push((name, scalar.shown()));
            }
        }
        out.sort();
        out
    }

    /// Takes what an expression makes from the budget. None: there is none left, which is reported.
    pub fn spend(&mut self, bytes: usize, place: Place, reports: &mut Reports) -> Option<()> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Some(())
            }
            None => {
                let message = format!("the expressions of this workflow make more than {} MiB", BUDGET >> 20);
                reports.error(Code::OutOfRange, place, message, "").help("make shorter texts and lists");
                None
            }
        }
    }

    /// A path as seen from the workflow file, given one that is written at a place.
    pub fn path_from(&self, place: Place, written: &str) -> PathBuf {
        let path = Path::new(written);
        let folder = match place {
            Place::At(span) => self.sources.find(span).map(|(file, _)| file.folder.as_path()),
            Place::Set(_) => None,
        };
        match folder.filter(|folder| !folder.as_os_str().is_empty() && path.is_relative()) {
            Some(folder) => crate::source::tidy(&folder.join(path)),
            None => path.to_path_buf(),
        }
    }
}
