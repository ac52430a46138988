//! Decision about the files that a workflow names.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pl_types::{CheckOpened, SourcePath, open_file};

use super::granted_access::GrantedAccess;
use super::path::{links_out_of, resolve};
use super::{Access, SharedPermissions};

/// Decides which files of a workflow may be read: those of its folder, those on the command line, and those that the user
/// allowed.
#[derive(Debug, Clone)]
pub(crate) struct ReadPolicy {
    permissions: SharedPermissions,
    given: GrantedAccess,
}

impl ReadPolicy {
    /// Returns the decision for a workflow with the permissions of all workflows and what is given to it.
    pub fn new(permissions: SharedPermissions, given: GrantedAccess) -> ReadPolicy {
        ReadPolicy { permissions, given }
    }

    pub fn given(&self) -> &GrantedAccess {
        &self.given
    }

    /// Allows access for this workflow alone.
    pub fn allow(&mut self, more: impl IntoIterator<Item = Access>) {
        self.given.allow(more);
    }

    /// Returns true if the user allowed an access, for this workflow or for all.
    pub fn allows(&self, access: &Access) -> bool {
        self.given.allows(access) || self.permissions.allows(access)
    }

    /// Checks that a file or folder may be read.
    ///
    /// # Errors
    /// The path outside of the workflow's folder that would be read.
    pub fn check(&self, path: &Path) -> Result<(), PathBuf> {
        for path in self.leaving(path) {
            let access = Access::Read(path.clone());
            if !self.given.has(&access, "") && !self.allows(&access) {
                return Err(path);
            }
        }
        Ok(())
    }

    /// Opens a file that may be read. The open file is checked once more: its path, or a folder on the way to it, may have
    /// become a link since the first check.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(&self, path: &Path) -> Result<File, OpenError> {
        self.check(path).map_err(OpenError::NotAllowed)?;
        let file = open_file(path)?;
        self.check_opened(&file)?;
        Ok(file)
    }

    /// Returns a file or folder to read, whose files are checked once more when they are open.
    ///
    /// # Errors
    /// The path outside of the workflow's folder that would be read.
    pub fn source(&self, path: &Path) -> Result<SourcePath, PathBuf> {
        let resolved = resolve(path);
        self.check(&resolved)?;
        if resolved.starts_with(self.given.root()) {
            return Ok(SourcePath::checked(path, Arc::new(self.clone())));
        }
        // The user allowed this path, including symlinks under it.
        Ok(resolved.into())
    }

    fn check_opened(&self, file: &File) -> Result<(), OpenError> {
        self.check_source(pl_wasm::opened_path(file)?).map_err(OpenError::NotAllowed)
    }

    /// Checks a path without links that was read.
    ///
    /// # Errors
    /// The path, if it is outside of the workflow's folder and not allowed.
    pub fn check_source(&self, path: PathBuf) -> Result<(), PathBuf> {
        let access = Access::Read(path.clone());
        if path.starts_with(self.given.root()) || self.given.has(&access, "") || self.allows(&access) {
            Ok(())
        } else {
            Err(path)
        }
    }

    /// Returns the paths outside of the workflow's folder that reading `path` leads to: its own, or the targets of a
    /// folder's links.
    pub fn leaving(&self, path: &Path) -> Vec<PathBuf> {
        let (resolved, root) = (resolve(path), self.given.root());
        if !resolved.starts_with(root) {
            return vec![resolved];
        }
        if resolved.is_dir() { links_out_of(root, &resolved) } else { Vec::new() }
    }
}

impl CheckOpened for ReadPolicy {
    fn check(&self, file: &File) -> io::Result<()> {
        self.check_opened(file).map_err(|error| match error {
            OpenError::Io(error) => error,
            refused => io::Error::new(io::ErrorKind::PermissionDenied, refused.to_string()),
        })
    }
}

/// Reason for which a file of a workflow can't be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// A path outside of the workflow's folder would be read.
    #[error("{} is outside of the workflow's folder", .0.display())]
    NotAllowed(PathBuf),
    #[error(transparent)]
    Io(#[from] io::Error),
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_outside_of_the_folder_are_refused_unless_they_are_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (project, other) = (root.join("project"), root.join("other"));
        std::fs::create_dir_all(project.join("model")).unwrap();
        std::fs::create_dir(&other).unwrap();
        std::fs::write(other.join("x"), "").unwrap();
        symlink(other.join("x"), project.join("link")).unwrap();
        symlink(other.join("x"), project.join("model/config.json")).unwrap();
        let permissions = SharedPermissions::default();
        let reads = ReadPolicy::new(permissions.clone(), GrantedAccess::new([], &project));
        assert_eq!(reads.check(&project.join("a/b")), Ok(()));
        let refused = ["../other/x", "link", "model", "/etc/passwd", "a/../../other/y"];
        for path in refused {
            assert!(reads.check(&project.join(path)).is_err(), "{path}");
        }
        assert_eq!(reads.check(&project.join("link")), Err(other.join("x")));
        permissions.allow([Access::read(&other)]);
        for path in ["../other/x", "link", "model"] {
            assert_eq!(reads.check(&project.join(path)), Ok(()), "{path}");
        }
        assert!(reads.check(Path::new("/etc/passwd")).is_err());
    }

    #[test]
    fn what_is_open_is_checked_and_not_what_its_path_led_to_before() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (project, other) = (root.join("project"), root.join("other"));
        std::fs::create_dir_all(project.join("texts")).unwrap();
        std::fs::create_dir(&other).unwrap();
        std::fs::write(project.join("texts/prompt"), "own").unwrap();
        std::fs::write(other.join("prompt"), "secret").unwrap();
        let reads = ReadPolicy::new(SharedPermissions::default(), GrantedAccess::new([], &project));
        let path = project.join("texts/prompt");
        let text = |mut file: File| {
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            text
        };
        assert_eq!(text(reads.open(&path).unwrap()), "own");
        // Between the check and the opening, the folder becomes a link.
        assert_eq!(reads.check(&path), Ok(()));
        std::fs::remove_dir_all(project.join("texts")).unwrap();
        symlink(&other, project.join("texts")).unwrap();
        let opened = File::open(&path).unwrap();
        let refused = reads.check_opened(&opened).unwrap_err();
        assert!(
            matches!(&refused, OpenError::NotAllowed(path) if *path == other.join("prompt")),
            "{refused}"
        );
        assert_eq!(text(opened), "secret", "without the second check, it is read");
        assert!(matches!(reads.open(&path), Err(OpenError::NotAllowed(_))));
    }

    /// Reading of a source, with the file of a project that it is about.
    type ReadSource = (&'static str, fn(SourcePath) -> Result<(), String>);

    const READS: [ReadSource; 6] = [
        ("model", |source| pl_model::Model::text(source).map(drop).map_err(|error| error.to_string())),
        ("model", |source| pl_model::Config::read(source).map(drop).map_err(|error| error.to_string())),
        ("model", |source| {
            let loaded = pl_model::Model::load(source, tch::Device::Cpu, pl_types::Dtype::F32);
            loaded.map(drop).map_err(|error| error.to_string())
        }),
        ("adapter", |source| {
            let config = pl_model::Config::read(tiny()).map_err(|error| error.to_string())?;
            pl_model::Adapter::load(source, &config).map(drop).map_err(|error| error.to_string())
        }),
        ("tasks.json", |source| pl_data::read_file(source).map(drop).map_err(|error| error.to_string())),
        ("passages.jsonl", |path| {
            let file = pl_retrieval::CorpusFile { path, fields: pl_retrieval::Fields::default() };
            let language = "english".parse().map_err(|_| "no such language".to_owned())?;
            file.index_key(language).map(drop).map_err(|error| error.to_string())
        }),
    ];

    fn tiny() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/tiny")
    }

    fn write_project(folder: &Path) {
        std::fs::create_dir_all(folder.join("model")).unwrap();
        let config = pl_model::Config::read(tiny()).unwrap();
        let targets = [pl_model::Projection::ALL[0]];
        let adapter = pl_model::Adapter::new(&config, 1, 1.0, &targets, [0; 32]).unwrap();
        adapter.save(&folder.join("adapter")).unwrap();
        for file in std::fs::read_dir(tiny()).unwrap().map(|entry| entry.unwrap()) {
            std::fs::copy(file.path(), folder.join("model").join(file.file_name())).unwrap();
        }
        std::fs::write(folder.join("tasks.json"), "[{}]").unwrap();
        std::fs::write(folder.join("passages.jsonl"), "{}\n").unwrap();
    }

    #[test]
    fn models_adapters_task_files_and_corpora_are_checked_once_they_are_open() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (project, other) = (root.join("project"), root.join("other"));
        write_project(&other);
        for (name, read) in READS {
            let _ = std::fs::remove_dir_all(&project);
            write_project(&project);
            let permissions = SharedPermissions::default();
            let reads = ReadPolicy::new(permissions.clone(), GrantedAccess::new([], &project));
            let source = reads.source(&project.join(name)).unwrap();
            assert_eq!(read(source.clone()), Ok(()), "{name}");
            // Between the check and the opening, it becomes a link.
            std::fs::rename(project.join(name), project.join("before")).unwrap();
            symlink(other.join(name), project.join(name)).unwrap();
            let refused = read(source.clone()).unwrap_err();
            assert!(refused.contains("outside of the workflow's folder"), "{name}: {refused}");
            // The control: without the second check, it is read.
            assert_eq!(read(project.join(name).into()), Ok(()), "{name}");
            // Links that the user allows are read.
            assert!(reads.source(&project.join(name)).is_err(), "{name}");
            permissions.allow([Access::read(&other)]);
            assert_eq!(read(source), Ok(()), "{name}");
            assert_eq!(read(reads.source(&project.join(name)).unwrap()), Ok(()), "{name}");
        }
    }

    #[test]
    fn a_file_of_a_model_that_becomes_a_link_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (project, other) = (root.join("project"), root.join("other"));
        write_project(&project);
        write_project(&other);
        let reads = ReadPolicy::new(SharedPermissions::default(), GrantedAccess::new([], &project));
        for name in ["config.json", "tokenizer.json", "model.safetensors"] {
            let source = reads.source(&project.join("model")).unwrap();
            let load = || pl_model::Model::load(&source, tch::Device::Cpu, pl_types::Dtype::F32);
            load().unwrap();
            let path = project.join("model").join(name);
            std::fs::remove_file(&path).unwrap();
            symlink(other.join("model").join(name), &path).unwrap();
            let refused = load().unwrap_err().to_string();
            assert!(refused.contains("outside of the workflow's folder"), "{name}: {refused}");
            std::fs::remove_file(&path).unwrap();
            std::fs::copy(other.join("model").join(name), &path).unwrap();
        }
    }

    #[test]
    fn a_pipe_is_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path().canonicalize().unwrap();
        let reads = ReadPolicy::new(SharedPermissions::default(), GrantedAccess::new([], &project));
        // Each is what a plain file is in a project: a model in one file, tasks and a corpus.
        for (name, read) in
            [("model.gguf", READS[0].1), ("tasks.json", READS[4].1), ("passages.jsonl", READS[5].1)]
        {
            let pipe = project.join(name);
            assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
            let refused = reads.open(&pipe).unwrap_err().to_string();
            assert!(refused.contains("it is not a file"), "{name}: {refused}");
            for source in [reads.source(&pipe).unwrap(), SourcePath::from(&pipe)] {
                let refused = read(source).unwrap_err();
                assert!(refused.contains("it is not a file"), "{name}: {refused}");
            }
        }
    }
}
