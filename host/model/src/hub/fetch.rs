//! Download of a model into the cache.

use std::path::PathBuf;

use super::cache::CachedRepo;
use super::client::Client;
use super::error::FetchError;
use super::listing::{INDEX, MODEL_FILES, RevisionFiles, SINGLE_FILE, read_index};
use super::settings::Hub;
use super::source::HubModel;
use crate::error::Error;

/// Progress of the download of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchProgress<'a> {
    /// Name in the repository.
    pub file: &'a str,
    /// Number of bytes downloaded, including those of earlier attempts.
    pub done: u64,
    /// Total number of bytes.
    pub total: u64,
}

/// A model in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// Path of the model folder or the GGUF file.
    pub path: PathBuf,
    /// Commit of the revision, in hexadecimal.
    pub commit: String,
    /// Reason why the hub did not answer, if the cache was used instead.
    pub cache_reason: Option<String>,
}

impl Hub {
    /// Downloads a model into the cache unless the cache has it.
    ///
    /// # Errors
    /// [`Error::Hub`], with the model and the remedy: if the model, the revision or the file does not exist,
    /// if a licence or a token is missing, if neither the hub nor the cache has the complete model, if a file
    /// is damaged, or if the disk is full.
    pub fn fetch(
        &self,
        model: &HubModel,
        progress: &mut dyn FnMut(FetchProgress<'_>),
    ) -> Result<Fetched, Error> {
        let repo = CachedRepo::new(&self.cache, model);
        let fail =
            |error: FetchError| Error::Hub { model: model.to_string(), reason: error.explain(self, model) };
        let cached_commit = repo.commit();
        // A commit never changes, so a complete one in the cache needs no request.
        if let Some(commit) = cached_commit.as_deref().filter(|commit| *commit == model.revision())
            && let Some(path) = repo.complete(commit)
        {
            return Ok(Fetched { path, commit: commit.to_owned(), cache_reason: None });
        }
        let cached = |cache_reason: Option<String>| {
            let commit = cached_commit.clone()?;
            Some(Fetched { path: repo.complete(&commit)?, commit, cache_reason })
        };
        if self.offline {
            return cached(None).ok_or_else(|| fail(FetchError::Offline));
        }
        let client = Client::new(self);
        match client.listing(model) {
            Ok(listing) => {
                let path = self.download(&client, &repo, &listing, progress).map_err(fail)?;
                Ok(Fetched { path, commit: listing.commit, cache_reason: None })
            }
            Err(error) if error.is_transient() => {
                cached(Some(error.explain(self, model))).ok_or_else(|| fail(error.without_cache()))
            }
            Err(error) => Err(fail(error)),
        }
    }

    /// Downloads the files of a listing that the cache lacks.
    fn download(
        &self,
        client: &Client,
        repo: &CachedRepo,
        listing: &RevisionFiles,
        progress: &mut dyn FnMut(FetchProgress<'_>),
    ) -> Result<PathBuf, FetchError> {
        let mut file = |name: &str| {
            client.file(repo, &listing.commit, name, &mut |done, total| {
                progress(FetchProgress { file: name, done, total })
            })
        };
        let path = if let Some(gguf) = &repo.model.file {
            if !listing.has(gguf) {
                return Err(FetchError::MissingFile { file: gguf.clone(), ggufs: listing.ggufs() });
            }
            file(gguf)?
        } else {
            listing.check()?;
            for part in MODEL_FILES.iter().filter(|part| listing.has(part)) {
                file(part)?;
            }
            let weights = match listing.has(INDEX) {
                true => read_index(&file(INDEX)?)?,
                false => vec![SINGLE_FILE.to_owned()],
            };
            for name in &weights {
                if !listing.has(name) {
                    return Err(FetchError::MissingFile { file: name.clone(), ggufs: Vec::new() });
                }
                file(name)?;
            }
            repo.snapshot(&listing.commit)
        };
        // Last, so that the commit is complete.
        repo.write_ref(&listing.commit).map_err(FetchError::Cache)?;
        Ok(path)
    }
}
