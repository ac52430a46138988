//! Names of models in workflows: `hf:owner/name`, with an optional file and revision.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// A model of a hub: `hf:owner/name`, `hf:owner/name/file.gguf`, either with `@revision` at the end.
///
/// ```
/// let model: pl_model::HubModel = "hf:Qwen/Qwen3-1.7B@main".parse()?;
/// assert_eq!((model.repo.as_str(), model.revision()), ("Qwen/Qwen3-1.7B", "main"));
/// # Ok::<(), pl_model::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubModel {
    /// `owner/name`.
    pub repo: String,
    /// Path of a GGUF file in the repository; `None` for the model's folder.
    pub file: Option<String>,
    /// A branch, a tag or a commit; `None` for the main branch.
    pub revision: Option<String>,
}

impl HubModel {
    /// Returns the revision, `main` by default.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or("main")
    }

    pub(super) fn repository(&self) -> HubRepository {
        let (name, revision) = (self.repo.clone(), self.revision().to_owned());
        HubRepository { kind: RepositoryKind::Model, name, revision }
    }
}

/// Files of a data set on a hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubData {
    /// `owner/name`.
    pub repo: String,
    /// Beginning of the paths of the files.
    pub prefix: String,
}

impl HubData {
    pub(super) fn repository(&self) -> HubRepository {
        let (name, revision) = (self.repo.clone(), "main".to_owned());
        HubRepository { kind: RepositoryKind::Data, name, revision }
    }
}

/// Kind of a repository of a hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RepositoryKind {
    Model,
    Data,
}

/// Repository of a hub at a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HubRepository {
    pub(super) kind: RepositoryKind,
    /// `owner/name`.
    pub(super) name: String,
    pub(super) revision: String,
}

impl HubRepository {
    /// Returns the word for it in messages.
    pub(super) fn noun(&self) -> &'static str {
        match self.kind {
            RepositoryKind::Model => "model",
            RepositoryKind::Data => "data set",
        }
    }

    /// Returns the word for its kind in the hub's API and in the cache.
    pub(super) fn collection(&self) -> &'static str {
        match self.kind {
            RepositoryKind::Model => "models",
            RepositoryKind::Data => "datasets",
        }
    }

    /// Returns its path on the hub.
    pub(super) fn path(&self) -> String {
        match self.kind {
            RepositoryKind::Model => self.name.clone(),
            RepositoryKind::Data => format!("datasets/{}", self.name),
        }
    }
}

impl FromStr for HubModel {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let fail = |problem: &str| Error::Hub {
            model: text.to_owned(),
            reason: format!(
                "{problem}; write hf:OWNER/NAME, hf:OWNER/NAME@REVISION or hf:OWNER/NAME/FILE.gguf"
            ),
        };
        let rest = text.strip_prefix("hf:").ok_or_else(|| fail("the name does not start with hf:"))?;
        let (path, revision) = match rest.split_once('@') {
            Some((path, revision)) => (path, Some(revision)),
            None => (rest, None),
        };
        let mut parts = path.splitn(3, '/');
        let (owner, name) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if !is_path_segment(owner) || !is_path_segment(name) {
            return Err(fail("the name lacks an owner or a model"));
        }
        let file = parts.next();
        if let Some(file) = file
            && !(is_path(file) && file.ends_with(".gguf"))
        {
            return Err(fail("the part after the model's name is not a GGUF file"));
        }
        if revision.is_some_and(|revision| !is_path(revision)) {
            return Err(fail("the part after the @ is not a revision"));
        }
        Ok(Self {
            repo: format!("{owner}/{name}"),
            file: file.map(str::to_owned),
            revision: revision.map(str::to_owned),
        })
    }
}

impl fmt::Display for HubModel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "hf:{}", self.repo)?;
        self.file.iter().try_for_each(|file| write!(out, "/{file}"))?;
        self.revision.iter().try_for_each(|revision| write!(out, "@{revision}"))
    }
}

/// Returns true for a segment of a path: not empty, without a leading dot, and safe in URLs.
pub(super) fn is_path_segment(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+');
    !text.starts_with('.') && !text.is_empty() && text.chars().all(allowed)
}

/// Returns true for a relative path without `..`.
pub(super) fn is_path(text: &str) -> bool {
    text.split('/').all(is_path_segment)
}
