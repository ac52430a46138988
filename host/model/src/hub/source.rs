//! `hf:owner/name`, with a file or a revision: what a workflow writes for a model of a hub.

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
    /// One GGUF file of the repository, which may lie in a folder of it; none for the model's folder.
    pub file: Option<String>,
    /// A branch, a tag or a commit; none for the main branch.
    pub revision: Option<String>,
}

impl HubModel {
    /// The revision, `main` where none is named.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or("main")
    }
}

impl FromStr for HubModel {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let fail = |what: &str| Error::Hub {
            model: text.to_owned(),
            reason: format!("{what}; write hf:OWNER/NAME, hf:OWNER/NAME@REVISION or hf:OWNER/NAME/FILE.gguf"),
        };
        let rest = text.strip_prefix("hf:").ok_or_else(|| fail("it does not begin with hf:"))?;
        let (place, revision) = match rest.split_once('@') {
            Some((place, revision)) => (place, Some(revision)),
            None => (rest, None),
        };
        let mut parts = place.splitn(3, '/');
        let (owner, name) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if !is_part(owner) || !is_part(name) {
            return Err(fail("it does not name an owner and a model"));
        }
        let file = parts.next();
        if let Some(file) = file
            && !(is_path(file) && file.ends_with(".gguf"))
        {
            return Err(fail("what follows the model's name is no GGUF file"));
        }
        if revision.is_some_and(|revision| !is_path(revision)) {
            return Err(fail("what follows the @ is no revision"));
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

/// Whether a text is one step of a path: neither empty nor a way out of a folder, and harmless in an address.
pub(super) fn is_part(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+');
    !text.starts_with('.') && !text.is_empty() && text.chars().all(plain)
}

/// Whether a text is a path below a folder.
pub(super) fn is_path(text: &str) -> bool {
    text.split('/').all(is_part)
}
