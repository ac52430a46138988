//! From the workflow file to one tree: what it includes is put in its place, what it uses gets its namespace.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::catalog::Catalog;
use crate::diagnostic::{Code, Reports};
use crate::parse::parse;
use crate::scope::Space;
use crate::source::{Source, Sources, tidy};
use crate::syntax::{Block, BlockKind, File, SpaceId, Value, ValueKind};

/// Files that one workflow may be made of. Files that use each other twice would double at each step.
const MOST_FILES: usize = 256;

/// Files within files.
const DEEPEST: usize = 16;

/// A workflow's one tree, where its parts come from, and what names mean in them.
pub(crate) struct Assembly {
    pub file: File,
    pub sources: Sources,
    pub spaces: Vec<Space>,
}

/// Reads the workflow file and all that belongs to it.
pub(crate) fn assemble(root: &Source, catalog: &dyn Catalog, reports: &mut Reports) -> Assembly {
    let mut reader = Assembler {
        catalog,
        reports,
        name_folder: Path::new(&root.name).parent().map(Path::to_path_buf).unwrap_or_default(),
        sources: Sources::default(),
        spaces: vec![Space::default()],
    };
    let path = Path::new(&root.name).file_name().map(PathBuf::from).unwrap_or_default();
    let mut within = Within { space: 0, imported: false, chain: vec![path], included: BTreeSet::new() };
    let file = reader.read(root.clone(), PathBuf::new(), &mut within);
    Assembly { file, sources: reader.sources, spaces: reader.spaces }
}

struct Assembler<'c, 'r, 'o> {
    catalog: &'c dyn Catalog,
    reports: &'r mut Reports<'o>,
    /// What paths of files begin with in messages.
    name_folder: PathBuf,
    sources: Sources,
    spaces: Vec<Space>,
}

/// What a file is read within.
struct Within {
    space: SpaceId,
    /// Only what is used of it counts.
    imported: bool,
    /// The files that lead here, the innermost last.
    chain: Vec<PathBuf>,
    /// What has been included in this space: once is enough.
    included: BTreeSet<PathBuf>,
}

impl Assembler<'_, '_, '_> {
    fn read(&mut self, source: Source, folder: PathBuf, within: &mut Within) -> File {
        let range = self.sources.add(source, folder.clone());
        let file = parse(self.sources.text(), range, within.space, self.reports);
        let mut out = File { blocks: Vec::with_capacity(file.blocks.len()), layouts: file.layouts };
        for mut block in file.blocks {
            match block.kind {
                BlockKind::Include => {
                    let Some(included) = self.include(&block, &folder, within) else { continue };
                    out.blocks.extend(included.blocks);
                    out.layouts.extend(included.layouts);
                }
                BlockKind::Use => {
                    out.blocks.extend(self.used(&block, &folder, within));
                    out.blocks.push(block);
                }
                _ => {
                    block.imported = within.imported;
                    self.prefix(&mut block, within.space);
                    out.blocks.push(block);
                }
            }
        }
        out
    }

    /// Calls a block by its full name.
    fn prefix(&self, block: &mut Block, space: SpaceId) {
        let prefix = self.spaces.get(space).map_or("", |space| space.prefix.as_str());
        if let (Some(name), false) = (&mut block.name, prefix.is_empty()) {
            name.text.insert_str(0, prefix);
        }
    }

    fn include(&mut self, block: &Block, folder: &Path, within: &mut Within) -> Option<File> {
        let path = self.path(block, folder, within)?;
        if !within.included.insert(path.clone()) {
            return None;
        }
        let source = self.open(block, &path)?;
        let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
        within.chain.push(path);
        let file = self.read(source, folder, within);
        within.chain.pop();
        Some(file)
    }

    /// What a used file declares for others.
    fn used(&mut self, block: &Block, folder: &Path, within: &Within) -> Vec<Block> {
        let (Some(path), Some(name)) = (self.path(block, folder, within), &block.name) else {
            return Vec::new();
        };
        let Some(source) = self.open(block, &path) else { return Vec::new() };
        let outer = self.spaces.get(within.space).map_or("", |space| space.prefix.as_str());
        let prefix = format!("{outer}{}.", name.text);
        self.spaces.push(Space { prefix, ..Space::default() });
        let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
        let mut chain = within.chain.clone();
        chain.push(path);
        let mut inside =
            Within { space: self.spaces.len() - 1, imported: true, chain, included: BTreeSet::new() };
        let file = self.read(source, folder, &mut inside);
        let shared = |block: &Block| {
            matches!(
                block.kind,
                BlockKind::Param
                    | BlockKind::Plugin
                    | BlockKind::Model
                    | BlockKind::Policy
                    | BlockKind::Agent
                    | BlockKind::Template
            )
        };
        file.blocks.into_iter().filter(shared).collect()
    }

    /// The path behind `include` or `use`, as seen from the workflow file. None: there is none, or it leads in a circle.
    fn path(&mut self, block: &Block, folder: &Path, within: &Within) -> Option<PathBuf> {
        let Value { kind, place } = block.value.as_ref()?;
        let ValueKind::Text(written) = kind else {
            self.reports
                .error(Code::WrongType, *place, "a file's path is plain text", "nothing can be inserted here")
                .help("write the path as it is");
            return None;
        };
        let path = tidy(&folder.join(written));
        if let Some(at) = within.chain.iter().position(|above| *above == path) {
            let chain: Vec<String> =
                within.chain.iter().skip(at).chain([&path]).map(|one| one.display().to_string()).collect();
            let message = format!("these files lead to each other: {}", chain.join(" -> "));
            self.reports
                .error(Code::FileFailed, *place, message, "")
                .help("put what both need into a third file");
            return None;
        }
        if within.chain.len() > DEEPEST || self.sources.files().len() >= MOST_FILES {
            let message =
                format!("a workflow is made of at most {MOST_FILES} files, {DEEPEST} within each other");
            self.reports.error(Code::FileFailed, *place, message, "");
            return None;
        }
        Some(path)
    }

    fn open(&mut self, block: &Block, path: &Path) -> Option<Source> {
        let place = block.value.as_ref()?.place;
        match self.catalog.text(path) {
            Ok(text) => Some(Source { name: self.name_folder.join(path).display().to_string(), text }),
            Err(why) => {
                let message = format!("`{}` can't be read: {why}", path.display());
                self.reports
                    .error(Code::FileFailed, place, message, "")
                    .help("paths are relative to the file that names them");
                None
            }
        }
    }
}
