//! Assembles the workflow file and the files it names into one tree: included files replace their `include`, used files
//! get a namespace.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::scope::Namespace;
use crate::catalog::Catalog;
use crate::diagnostic::DiagnosticCode;
use crate::diagnostic::reports::Reports;
use crate::source::{Source, Sources, normalize_path};
use crate::syntax::block_kind::BlockKind;
use crate::syntax::parse::parse;
use crate::syntax::tree::{Block, File, NamespaceId, Value, ValueKind};

/// Maximum number of files. Without a limit, files that use each other twice would double at each level.
const MAX_FILES: usize = 256;

/// Maximum depth of files that name each other.
const MAX_DEPTH: usize = 16;

/// The tree of a workflow, its source files, and its namespaces.
pub(crate) struct Assembly {
    pub file: File,
    pub sources: Sources,
    pub namespaces: Vec<Namespace>,
}

/// Reads the workflow file and the files that it names.
pub(crate) fn assemble(root: &Source, catalog: &dyn Catalog, reports: &mut Reports) -> Assembly {
    let mut reader = Assembler {
        catalog,
        reports,
        name_folder: Path::new(&root.name).parent().map(Path::to_path_buf).unwrap_or_default(),
        sources: Sources::default(),
        namespaces: vec![Namespace::default()],
    };
    let path = Path::new(&root.name).file_name().map(PathBuf::from).unwrap_or_default();
    let mut context =
        FileContext { namespace: 0, imported: false, chain: vec![path], included: BTreeSet::new() };
    let file = reader.read(root.clone(), PathBuf::new(), &mut context);
    Assembly { file, sources: reader.sources, namespaces: reader.namespaces }
}

struct Assembler<'c, 'r, 'o> {
    catalog: &'c dyn Catalog,
    reports: &'r mut Reports<'o>,
    /// Folder that messages show before the path of a file.
    name_folder: PathBuf,
    sources: Sources,
    namespaces: Vec<Namespace>,
}

/// State of the file that is being read.
struct FileContext {
    namespace: NamespaceId,
    /// True if the file is named by `use`: only the parts that are used count.
    imported: bool,
    /// Files from the workflow file to this one.
    chain: Vec<PathBuf>,
    /// Files already included in this namespace; each is included once.
    included: BTreeSet<PathBuf>,
}

impl Assembler<'_, '_, '_> {
    fn read(&mut self, source: Source, folder: PathBuf, context: &mut FileContext) -> File {
        let range = self.sources.add(source, folder.clone());
        let file = parse(self.sources.text(), range, context.namespace, self.reports);
        let mut out = File { blocks: Vec::with_capacity(file.blocks.len()), layouts: file.layouts };
        for mut block in file.blocks {
            match block.kind {
                // A statement with a syntax error names some file too.
                BlockKind::Include if !block.sound => {
                    self.reports.add_namespace(&self.prefix_of(context.namespace), false);
                }
                BlockKind::Include => {
                    let Some(included) = self.include(&block, &folder, context) else { continue };
                    out.blocks.extend(included.blocks);
                    out.layouts.extend(included.layouts);
                }
                BlockKind::Use => {
                    if block.name.is_none() {
                        self.reports.add_namespace(&self.prefix_of(context.namespace), false);
                    }
                    out.blocks.extend(self.used(&block, &folder, context));
                    out.blocks.push(block);
                }
                _ => {
                    block.imported = context.imported;
                    self.prefix(&mut block, context.namespace);
                    out.blocks.push(block);
                }
            }
        }
        out
    }

    /// Changes the name of a block to its full name.
    fn prefix(&self, block: &mut Block, namespace: NamespaceId) {
        let prefix = self.prefix_of(namespace);
        if let (Some(name), false) = (&mut block.name, prefix.is_empty()) {
            name.text.insert_str(0, &prefix);
        }
    }

    fn prefix_of(&self, namespace: NamespaceId) -> String {
        self.namespaces.get(namespace).map(|namespace| namespace.prefix.clone()).unwrap_or_default()
    }

    fn include(&mut self, block: &Block, folder: &Path, context: &mut FileContext) -> Option<File> {
        let path = self.path(block, folder, context)?;
        if !context.included.insert(path.clone()) {
            return None;
        }
        let Some(source) = self.open(block, &path) else {
            self.reports.add_namespace(&self.prefix_of(context.namespace), false);
            return None;
        };
        let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
        context.chain.push(path);
        let file = self.read(source, folder, context);
        context.chain.pop();
        Some(file)
    }

    /// Reads a used file and returns the blocks that it shares.
    fn used(&mut self, block: &Block, folder: &Path, context: &FileContext) -> Vec<Block> {
        let (Some(path), Some(name)) = (self.path(block, folder, context), &block.name) else {
            return Vec::new();
        };
        let prefix = format!("{}{}.", self.prefix_of(context.namespace), name.text);
        let source = self.open(block, &path);
        self.reports.add_namespace(&prefix, source.is_some());
        let Some(source) = source else { return Vec::new() };
        self.namespaces.push(Namespace { prefix, ..Namespace::default() });
        let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
        let mut chain = context.chain.clone();
        chain.push(path);
        let mut inner = FileContext {
            namespace: self.namespaces.len() - 1,
            imported: true,
            chain,
            included: BTreeSet::new(),
        };
        let file = self.read(source, folder, &mut inner);
        let shared = |block: &Block| {
            matches!(
                block.kind,
                BlockKind::Param
                    | BlockKind::Plugin
                    | BlockKind::Model
                    | BlockKind::Server
                    | BlockKind::Corpus
                    | BlockKind::Policy
                    | BlockKind::Agent
                    | BlockKind::Template
            )
        };
        file.blocks.into_iter().filter(shared).collect()
    }

    /// Resolves the path after `include` or `use`, relative to the workflow file. Returns `None` if the path is missing or
    /// was reported as wrong.
    fn path(&mut self, block: &Block, folder: &Path, context: &FileContext) -> Option<PathBuf> {
        let Value { kind, location } = block.value.as_ref()?;
        let ValueKind::Text(written) = kind else {
            self.reports
                .error(
                    DiagnosticCode::WrongType,
                    *location,
                    "the path of a file must be plain text",
                    "no `${ … }` is allowed here",
                )
                .help("write the path in quotes");
            return None;
        };
        let path = normalize_path(&folder.join(written));
        if let Some(at) = context.chain.iter().position(|above| *above == path) {
            let chain: Vec<String> =
                context.chain.iter().skip(at).chain([&path]).map(|one| one.display().to_string()).collect();
            let message = format!("circular includes: {}", chain.join(" -> "));
            self.reports
                .error(DiagnosticCode::FileFailed, *location, message, "")
                .help("move the shared blocks to a third file");
            return None;
        }
        if context.chain.len() > MAX_DEPTH || self.sources.files().len() >= MAX_FILES {
            let message = format!(
                "a workflow may consist of at most {MAX_FILES} files, nested at most {MAX_DEPTH} deep"
            );
            self.reports.error(DiagnosticCode::FileFailed, *location, message, "");
            return None;
        }
        Some(path)
    }

    fn open(&mut self, block: &Block, path: &Path) -> Option<Source> {
        let location = block.value.as_ref()?.location;
        match self.catalog.text(path) {
            Ok(text) => Some(Source { name: self.name_folder.join(path).display().to_string(), text }),
            Err(why) => {
                let message = format!("`{}` can't be read: {why}", path.display());
                self.reports
                    .error(DiagnosticCode::FileFailed, location, message, "")
                    .help("paths are relative to the file that names them");
                None
            }
        }
    }
}
