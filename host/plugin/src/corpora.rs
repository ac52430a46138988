//! Corpora that environments may search.

use std::sync::Arc;

use pl_types::Retrieve;

/// The corpora of an environment with their names in the workflow. Cheap to clone.
#[derive(Clone)]
pub struct Corpora(Arc<[(String, Arc<dyn Retrieve>)]>);

impl Default for Corpora {
    fn default() -> Self {
        Self(Arc::new([]))
    }
}

impl FromIterator<(String, Arc<dyn Retrieve>)> for Corpora {
    fn from_iter<I: IntoIterator<Item = (String, Arc<dyn Retrieve>)>>(corpora: I) -> Self {
        Self(corpora.into_iter().collect())
    }
}

/// Error of a query for a corpus that the environment does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MissingCorpus {
    #[error(
        "the environment has no corpus; declare one, `corpus NAME = \"FILE\"`, and set `corpus = NAME` in the \
         environment's block"
    )]
    None,
    #[error("the environment has no corpus named {name}; it has {known}")]
    Unknown { name: String, known: String },
}

impl Corpora {
    /// Returns the corpus with this name, or the first.
    ///
    /// # Errors
    /// [`MissingCorpus`].
    pub(crate) fn find(&self, name: Option<&str>) -> Result<&dyn Retrieve, MissingCorpus> {
        let found = match name {
            Some(name) => self.0.iter().find(|(own, _)| own == name),
            None => self.0.first(),
        };
        match (found, name) {
            (Some((_, corpus)), _) => Ok(corpus.as_ref()),
            (None, Some(name)) if !self.0.is_empty() => Err(MissingCorpus::Unknown {
                name: name.to_owned(),
                known: self.0.iter().map(|(own, _)| own.as_str()).collect::<Vec<_>>().join(", "),
            }),
            (None, _) => Err(MissingCorpus::None),
        }
    }
}
