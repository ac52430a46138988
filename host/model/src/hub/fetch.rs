//! Download of models and data sets into the cache.

use std::path::PathBuf;

use super::cache::CachedRepo;
use super::client::Client;
use super::error::FetchError;
use super::listing::{INDEX, MODEL_FILES, RevisionFiles, SINGLE_FILE, read_index};
use super::settings::Hub;
use super::source::{HubData, HubModel, is_path};
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

/// Files of a data set in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedData {
    /// Sorted by name.
    pub files: Vec<PathBuf>,
    /// Reason why the hub did not answer, if the cache was used instead.
    pub cache_reason: Option<String>,
}

impl Hub {
    /// Downloads those files of a data set that begin with its prefix and whose paths `is_wanted` accepts, unless the cache
    /// has them.
    ///
    /// # Errors
    /// [`Error::Hub`] in the cases of [`Hub::fetch`], and if there is no such file.
    pub fn fetch_data(
        &self,
        data: &HubData,
        is_wanted: &dyn Fn(&str) -> bool,
        progress: &mut dyn FnMut(FetchProgress<'_>),
    ) -> Result<FetchedData, Error> {
        let repository = data.repository();
        let repo = CachedRepo::new(&self.cache, &repository);
        let fail = |error: FetchError| Error::Hub {
            model: data.repo.clone(),
            reason: error.explain(self, &repository),
        };
        let cached = |cache_reason: Option<String>| {
            let files = repo.files(&repo.commit()?, &data.prefix, is_wanted)?;
            Some(FetchedData { files, cache_reason })
        };
        if self.offline {
            return cached(None).ok_or_else(|| fail(FetchError::Offline));
        }
        let client = Client::new(self);
        let listing = match client.listing(&repository) {
            Ok(listing) => listing,
            Err(error) if error.is_transient() => {
                let reason = error.explain(self, &repository);
                return cached(Some(reason)).ok_or_else(|| fail(error.without_cache()));
            }
            Err(error) => return Err(fail(error)),
        };
        let wanted = |name: &&String| name.starts_with(&data.prefix) && is_wanted(name) && is_path(name);
        let mut names: Vec<&String> = listing.files.iter().filter(wanted).collect();
        names.sort();
        if names.is_empty() {
            return Err(fail(FetchError::NoData { prefix: data.prefix.clone() }));
        }
        let mut files = Vec::new();
        for name in names {
            let file = client.file(&repo, &listing.commit, name, &mut |done, total| {
                progress(FetchProgress { file: name, done, total });
            });
            files.push(file.map_err(fail)?);
        }
        repo.write_ref(&listing.commit).map_err(FetchError::Cache).map_err(fail)?;
        Ok(FetchedData { files, cache_reason: None })
    }

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
        let repository = model.repository();
        let repo = CachedRepo::new(&self.cache, &repository);
        let file = model.file.as_deref();
        let fail = |error: FetchError| Error::Hub {
            model: model.to_string(),
            reason: error.explain(self, &repository),
        };
        let cached_commit = repo.commit();
        // A commit never changes, so a complete one in the cache needs no request.
        if let Some(commit) = cached_commit.as_deref().filter(|commit| *commit == model.revision())
            && let Some(path) = repo.complete(commit, file)
        {
            return Ok(Fetched { path, commit: commit.to_owned(), cache_reason: None });
        }
        let cached = |cache_reason: Option<String>| {
            let commit = cached_commit.clone()?;
            Some(Fetched { path: repo.complete(&commit, file)?, commit, cache_reason })
        };
        if self.offline {
            return cached(None).ok_or_else(|| fail(FetchError::Offline));
        }
        let client = Client::new(self);
        match client.listing(&repository) {
            Ok(listing) => {
                let path = self.download(&client, &repo, &listing, file, progress).map_err(fail)?;
                Ok(Fetched { path, commit: listing.commit, cache_reason: None })
            }
            Err(error) if error.is_transient() => {
                cached(Some(error.explain(self, &repository))).ok_or_else(|| fail(error.without_cache()))
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
        gguf: Option<&str>,
        progress: &mut dyn FnMut(FetchProgress<'_>),
    ) -> Result<PathBuf, FetchError> {
        let mut file = |name: &str| {
            client.file(repo, &listing.commit, name, &mut |done, total| {
                progress(FetchProgress { file: name, done, total })
            })
        };
        let path = if let Some(gguf) = gguf {
            if !listing.has(gguf) {
                return Err(FetchError::MissingFile { file: gguf.to_owned(), ggufs: listing.ggufs() });
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
