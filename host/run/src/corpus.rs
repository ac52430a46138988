//! The corpus that an environment searches: a cached index of a file, or a retrieval server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pl_dsl::workflow::{Corpus, CorpusSource, PassageFile, RetrievalServer};
use pl_retrieval::{CorpusFile, CorpusIndex, Fields, Language, RemoteConfig, RemoteCorpus};
use pl_servers::Backoff;
use pl_toolchain::cache;
use pl_types::Retrieve;

use crate::error::Error;
use crate::error::locate::LocateError;
use crate::host::Host;
use crate::locate;
use crate::permissions::ReadPolicy;
use crate::progress::Activity;
use crate::server_key::server_key;

/// Folder of a workflow, and its permissions to read.
pub(crate) struct CorpusPlace<'w> {
    pub reads: &'w ReadPolicy,
    /// Folder that paths are relative to.
    pub folder: &'w Path,
}

/// Opens a corpus of a workflow. The index of a file is built if the cache has none.
///
/// # Errors
/// If the file is missing or has an invalid passage, the cache can't be written, or a server's settings are wrong.
pub(crate) fn open(
    host: &Host,
    place: &CorpusPlace<'_>,
    corpus: &Corpus,
) -> Result<Arc<dyn Retrieve>, Error> {
    let failed = |source| Error::Corpus { corpus: corpus.name.clone(), source: Box::new(source) };
    match &corpus.source {
        CorpusSource::File(file) => {
            let index = FileIndex::locate(place, &corpus.name, file)?;
            cache::folder(&index.folder, |partial| {
                let mut tracker = host.progress().start(Activity::IndexingCorpus { corpus: &corpus.name });
                let mut progress = |done, total| tracker.update(done, total);
                CorpusIndex::build(&index.file, index.language, partial, &mut progress).map_err(failed)
            })?;
            let opened = CorpusIndex::open(&corpus.name, index.language, &index.folder).map_err(failed)?;
            Ok(Arc::new(opened))
        }
        CorpusSource::Server(RetrievalServer { address, key_variable, timeout, retries }) => {
            let config = RemoteConfig {
                name: corpus.name.clone(),
                address: address.clone(),
                key: key_variable
                    .as_deref()
                    .map(|variable| server_key(&corpus.name, variable))
                    .transpose()?,
                timeout: *timeout,
                retries: *retries,
                backoff: Backoff::default(),
            };
            Ok(Arc::new(RemoteCorpus::new(config).map_err(failed)?))
        }
    }
}

/// Returns the path of a corpus. Returns `None` for a server.
///
/// # Errors
/// If the file is missing.
pub(crate) fn path(place: &CorpusPlace<'_>, corpus: &Corpus) -> Result<Option<PathBuf>, Error> {
    match &corpus.source {
        CorpusSource::File(file) => file_path(place, &corpus.name, file).map(Some),
        CorpusSource::Server(_) => Ok(None),
    }
}

fn file_path(place: &CorpusPlace<'_>, name: &str, file: &PassageFile) -> Result<PathBuf, Error> {
    let missing = |source| Error::LocateCorpus { corpus: name.to_owned(), source };
    locate::corpus(place.reads, place.folder, &file.path).map_err(missing)
}

/// Returns true if the cache has the index of a corpus, and `None` for a server.
///
/// # Errors
/// If the file can't be read.
pub(crate) fn is_indexed(place: &CorpusPlace<'_>, corpus: &Corpus) -> Result<Option<bool>, Error> {
    match &corpus.source {
        CorpusSource::File(file) => Ok(Some(FileIndex::locate(place, &corpus.name, file)?.folder.is_dir())),
        CorpusSource::Server(_) => Ok(None),
    }
}

/// A file of passages, and the place of its index.
struct FileIndex {
    file: CorpusFile,
    language: Language,
    folder: PathBuf,
}

impl FileIndex {
    fn locate(place: &CorpusPlace<'_>, name: &str, file: &PassageFile) -> Result<FileIndex, Error> {
        let failed = |source| Error::Corpus { corpus: name.to_owned(), source: Box::new(source) };
        let path = file_path(place, name, file)?;
        let path = place.reads.source(&path).map_err(|path| Error::LocateCorpus {
            corpus: name.to_owned(),
            source: LocateError::NotAllowed(path),
        })?;
        let fields = Fields { id: file.id.clone(), title: file.title.clone(), text: file.text.clone() };
        let (file, language) = (CorpusFile { path, fields }, file.language.parse().map_err(failed)?);
        let key = file.index_key(language).map_err(failed)?;
        Ok(FileIndex { file, language, folder: cache::root()?.join("corpora").join(key) })
    }
}

#[cfg(test)]
mod tests {
    use pl_dsl::settings::{self, SettingKind};
    use pl_dsl::{BlockKind, settings::Choice};

    use super::*;

    #[test]
    fn every_language_of_the_setting_has_its_stemmer() {
        let setting = settings::find(BlockKind::Corpus, "language").unwrap();
        let SettingKind::Choice(choices) = setting.kind else { panic!("{:?}", setting.kind) };
        assert!(choices.len() > 2);
        for Choice { word, .. } in choices {
            word.parse::<Language>().unwrap();
        }
    }
}
