//! Names in scope: params, arguments of templates, and the namespaces of used files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::scalar::Scalar;
use crate::catalog::Catalog;
use crate::diagnostic::DiagnosticCode;
use crate::diagnostic::reports::Reports;
use crate::places::WrittenPlaces;
use crate::settings::SettingKind;
use crate::source::Location;
use crate::source::Sources;
use crate::syntax::tree::{NamespaceId, Value};

/// Total size of the texts and lists that the expressions of a workflow may create, in bytes. It is far above the needs
/// of a workflow, and far below the size of texts that repeatedly double each other.
const BUDGET: usize = 64 << 20;

/// A namespace: that of a file, or that of one use of a template.
#[derive(Debug, Default)]
pub(crate) struct Namespace {
    /// Prefix of the file's names in the whole workflow: `team.` after `use "team.mas" as team`.
    pub prefix: String,
    /// Arguments of the template. `None` if an error was already reported.
    pub locals: BTreeMap<String, Option<Scalar>>,
    /// Location where the template is used.
    pub used_at: Option<Location>,
}

/// State of a param.
#[derive(Debug, Clone)]
pub(crate) enum Param {
    /// Declared below the current param.
    Pending,
    /// `None` if an error was already reported.
    Evaluated(Option<Scalar>),
}

/// Names that an expression may refer to.
pub(crate) struct Scope<'c> {
    /// Params by full name.
    pub params: BTreeMap<String, Param>,
    /// Full names of the params that are used.
    pub used: BTreeSet<String>,
    /// Full names of the templates that are used.
    pub templates_used: BTreeSet<String>,
    /// Full names of the blocks of other files that are used.
    pub imports_used: BTreeSet<String>,
    pub places: WrittenPlaces,
    /// Names of blocks in the branches of `if`s that are not taken, with the kinds of their settings.
    pub other_names: Vec<(SettingKind, String, Location)>,
    /// Full name of the param that is being evaluated.
    pub evaluating: Option<String>,
    pub namespaces: Vec<Namespace>,
    pub catalog: &'c dyn Catalog,
    pub sources: &'c Sources,
    current: NamespaceId,
    budget: usize,
}

/// Result of a lookup of a name.
pub(crate) enum Lookup {
    Unknown,
    /// A param that is declared below the current one.
    Pending,
    /// `None` if an error was already reported.
    Value(Option<Scalar>),
}

impl<'c> Scope<'c> {
    pub fn new(catalog: &'c dyn Catalog, sources: &'c Sources, namespaces: Vec<Namespace>) -> Self {
        Scope {
            params: BTreeMap::new(),
            used: BTreeSet::new(),
            templates_used: BTreeSet::new(),
            imports_used: BTreeSet::new(),
            places: WrittenPlaces::default(),
            other_names: Vec::new(),
            evaluating: None,
            namespaces,
            catalog,
            sources,
            current: 0,
            budget: BUDGET,
        }
    }

    /// Runs `act` with names looked up in a namespace. Its diagnostics point to the use of the template too.
    pub fn in_namespace<T>(
        &mut self,
        namespace: NamespaceId,
        reports: &mut Reports,
        act: impl FnOnce(&mut Self, &mut Reports) -> T,
    ) -> T {
        let outer = std::mem::replace(&mut self.current, namespace);
        let via = self.used_at(namespace);
        let outer_via = std::mem::replace(&mut reports.via, via);
        let out = act(self, reports);
        self.current = outer;
        reports.via = outer_via;
        out
    }

    /// Location where the template of a namespace is used.
    pub fn used_at(&self, namespace: NamespaceId) -> Option<Location> {
        self.namespaces.get(namespace)?.used_at
    }

    fn namespace(&self) -> Option<&Namespace> {
        self.namespaces.get(self.current)
    }

    /// Returns the full name of a name in the current namespace.
    pub fn full_name(&self, names: &[String]) -> String {
        self.full_name_in(self.current, names)
    }

    /// Returns the full name of a name in a namespace.
    pub fn full_name_in(&self, namespace: NamespaceId, names: &[String]) -> String {
        let prefix = self.namespaces.get(namespace).map_or("", |namespace| namespace.prefix.as_str());
        format!("{prefix}{}", names.join("."))
    }

    /// Argument of the current template.
    pub fn local(&self, name: &str) -> Option<&Option<Scalar>> {
        self.namespace()?.locals.get(name)
    }

    /// Looks up a parameter of the template, or a param.
    pub fn look_up(&mut self, names: &[String]) -> Lookup {
        if let [name] = names
            && let Some(local) = self.local(name)
        {
            return Lookup::Value(local.clone());
        }
        let full = self.full_name(names);
        match self.params.get(&full) {
            None => Lookup::Unknown,
            Some(Param::Pending) => Lookup::Pending,
            Some(Param::Evaluated(value)) => {
                let value = value.clone();
                self.used.insert(full);
                Lookup::Value(value)
            }
        }
    }

    /// True if a path names a parameter of the template, or a param.
    pub fn contains_name(&self, names: &[String]) -> bool {
        matches!(names, [name] if self.local(name).is_some())
            || self.params.contains_key(&self.full_name(names))
    }

    /// Names of the params in scope, as written in the current namespace.
    pub fn names(&self) -> Vec<String> {
        let prefix = self.namespace().map_or("", |namespace| namespace.prefix.as_str());
        let locals = self.namespace().into_iter().flat_map(|namespace| namespace.locals.keys().cloned());
        let params = self.params.keys().filter_map(|name| name.strip_prefix(prefix)).map(str::to_owned);
        locals.chain(params).collect()
    }

    /// Values of the names in an expression, for messages.
    pub fn values_of_names(&mut self, value: &Value) -> Vec<(String, String)> {
        let mut paths = Vec::new();
        value.paths(&mut |names, _| paths.push(names));
        let mut out: Vec<(String, String)> = Vec::new();
        for names in paths {
            let name = names.join(".");
            if out.iter().any(|(known, _)| *known == name) {
                continue;
            }
            if let Lookup::Value(Some(scalar)) = self.look_up(names) {
                out.push((name, scalar.display()));
            }
        }
        out.sort();
        out
    }

    /// Takes the size of a value from the budget. Reports an error and returns `None` if the budget is exhausted.
    pub fn spend(&mut self, bytes: usize, location: Location, reports: &mut Reports) -> Option<()> {
        match self.budget.checked_sub(bytes) {
            Some(left) => {
                self.budget = left;
                Some(())
            }
            None => {
                let message =
                    format!("the expressions of this workflow create more than {} MiB", BUDGET >> 20);
                reports
                    .error(DiagnosticCode::OutOfRange, location, message, "")
                    .help("make shorter texts and lists");
                None
            }
        }
    }

    /// Resolves a path that is written at a location, relative to the folder of the workflow file.
    pub fn path_from(&self, location: Location, written: &str) -> PathBuf {
        let path = Path::new(written);
        let folder = match location {
            Location::Span(span) => self.sources.find(span).map(|(file, _)| file.folder.as_path()),
            Location::Override(_) => None,
        };
        match folder.filter(|folder| !folder.as_os_str().is_empty() && path.is_relative()) {
            // A bare name would be that of a data set, of a model of the hub or of a shipped plugin.
            Some(folder) => match crate::source::normalize_path(&folder.join(path)) {
                path if path.components().count() <= 1 => Path::new(".").join(path),
                path => path,
            },
            None => path.to_path_buf(),
        }
    }
}
