//! Models from a Hugging Face hub, into the cache that Python's `huggingface_hub` uses too.
//!
//! [`HubModel`] is what a workflow writes, [`Hub`] where to ask. A fetch asks the hub once what the revision
//! holds, takes the files that a model needs and nothing else, and leaves a folder (or one GGUF file) that
//! [`Model::load`](crate::Model::load) reads. What is in the cache already is not asked for again; without an
//! answer from the hub, the cache serves what it has whole.

mod cache;
mod client;
mod source;

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::Error;
use cache::Repo;
use client::{Client, Failure};
pub use source::HubModel;

/// Files besides the weights that a model folder may have; the first two it must have.
const PARTS: [&str; 6] = [
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
];
const WHOLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Where models are fetched from and kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hub {
    /// The hub's address, without a slash at the end.
    pub endpoint: String,
    /// The folder with the `models--…` folders.
    pub cache: PathBuf,
    /// What gated and private models ask for.
    pub token: Option<String>,
    /// Whether the cache alone may be used.
    pub offline: bool,
}

/// How far the fetching of one file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchProgress<'a> {
    /// Its name in the repository.
    pub file: &'a str,
    /// Bytes that are here, those of an earlier attempt included.
    pub done: u64,
    /// Bytes in all.
    pub total: u64,
}

/// A model in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// A model folder, or a GGUF file.
    pub path: PathBuf,
    /// The revision's commit, hexadecimal.
    pub commit: String,
    /// Why the hub gave no answer, where the cache stepped in.
    pub unasked: Option<String>,
}

impl Hub {
    /// As `HF_ENDPOINT`, `HF_HUB_CACHE`, `HF_HOME`, `HF_TOKEN` (or the token that `hf auth login` left) and
    /// `HF_HUB_OFFLINE` say, like Python's `huggingface_hub`.
    ///
    /// # Errors
    /// [`Error::Hub`] when there is no folder for the cache: no variable names one and there is no home.
    pub fn from_env() -> Result<Self, Error> {
        Self::from_variables(|name| std::env::var(name).ok(), std::env::home_dir())
    }

    /// [`Hub::from_env`] over any variables.
    ///
    /// # Errors
    /// As there.
    pub fn from_variables(
        get: impl Fn(&str) -> Option<String>,
        home: Option<PathBuf>,
    ) -> Result<Self, Error> {
        let first = |names: &[&str]| {
            let mut values = names.iter().filter_map(|name| get(name));
            values.find(|value| !value.trim().is_empty()).map(|value| value.trim().to_owned())
        };
        let folder = |names: &[&str]| first(names).map(PathBuf::from);
        let own = folder(&["HF_HOME"])
            .or_else(|| folder(&["XDG_CACHE_HOME"]).map(|caches| caches.join("huggingface")))
            .or_else(|| home.map(|home| home.join(".cache").join("huggingface")));
        let cache = folder(&["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"])
            .or_else(|| own.as_ref().map(|own| own.join("hub")))
            .ok_or_else(|| Error::Hub {
                model: "hf:".into(),
                reason: "there is no folder for a cache; set HF_HOME".into(),
            })?;
        let stored = || {
            let path = folder(&["HF_TOKEN_PATH"]).or_else(|| own.map(|own| own.join("token")))?;
            let token = std::fs::read_to_string(path).ok()?.trim().to_owned();
            (!token.is_empty()).then_some(token)
        };
        let offline = first(&["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"]).unwrap_or_default();
        Ok(Self {
            endpoint: first(&["HF_ENDPOINT"])
                .unwrap_or_else(|| "https://huggingface.co".into())
                .trim_end_matches('/')
                .to_owned(),
            cache,
            token: first(&["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"]).or_else(stored),
            offline: ["1", "ON", "YES", "TRUE"].contains(&offline.to_uppercase().as_str()),
        })
    }

    /// Brings a model into the cache, unless it is there.
    ///
    /// # Errors
    /// [`Error::Hub`], which names the model and says what to do: when the hub does not know it, or not under
    /// that revision or file, when a licence or a token is missing, when neither hub nor cache has it whole,
    /// when a file arrives damaged, or when the disk is full.
    pub fn fetch(
        &self,
        model: &HubModel,
        progress: &mut dyn FnMut(FetchProgress<'_>),
    ) -> Result<Fetched, Error> {
        let repo = Repo::new(&self.cache, model);
        let fail =
            |failure: Failure| Error::Hub { model: model.to_string(), reason: failure.explain(self, model) };
        let known = repo.commit();
        // A commit never changes, so that one that is here whole needs no question.
        if let Some(commit) = known.as_deref().filter(|commit| *commit == model.revision())
            && let Some(path) = repo.complete(commit)
        {
            return Ok(Fetched { path, commit: commit.to_owned(), unasked: None });
        }
        let cached = |unasked: Option<String>| {
            let commit = known.clone()?;
            Some(Fetched { path: repo.complete(&commit)?, commit, unasked })
        };
        if self.offline {
            return cached(None).ok_or_else(|| fail(Failure::Offline));
        }
        let client = Client::new(self);
        match client.listing(model) {
            Ok(listing) => {
                let path = self.take(&client, &repo, &listing, progress).map_err(fail)?;
                Ok(Fetched { path, commit: listing.commit, unasked: None })
            }
            Err(failure) if failure.passing() => {
                cached(Some(failure.explain(self, model))).ok_or_else(|| fail(failure.without_cache()))
            }
            Err(failure) => Err(fail(failure)),
        }
    }

    /// Fetches the files of a listing that are not here yet.
    fn take(
        &self,
        client: &Client,
        repo: &Repo,
        listing: &Listing,
        progress: &mut dyn FnMut(FetchProgress<'_>),
    ) -> Result<PathBuf, Failure> {
        let mut file = |name: &str| client.file(repo, &listing.commit, name, progress);
        let path = if let Some(gguf) = &repo.model.file {
            if !listing.has(gguf) {
                return Err(Failure::NoFile { wanted: gguf.clone(), others: listing.ggufs() });
            }
            file(gguf)?
        } else {
            listing.check()?;
            for part in PARTS.iter().filter(|part| listing.has(part)) {
                file(part)?;
            }
            let weights = match listing.has(INDEX) {
                true => shards(&file(INDEX)?)?,
                false => vec![WHOLE.to_owned()],
            };
            for name in &weights {
                if !listing.has(name) {
                    return Err(Failure::NoFile { wanted: name.clone(), others: Vec::new() });
                }
                file(name)?;
            }
            repo.snapshot(&listing.commit)
        };
        // Last, so that what it points at is whole.
        repo.point(&listing.commit).map_err(Failure::Disk)?;
        Ok(path)
    }
}

/// What a revision holds.
#[derive(Debug)]
struct Listing {
    commit: String,
    files: Vec<String>,
}

impl Listing {
    fn has(&self, name: &str) -> bool {
        self.files.iter().any(|file| file == name)
    }

    fn ggufs(&self) -> Vec<String> {
        self.files.iter().filter(|file| file.ends_with(".gguf")).cloned().collect()
    }

    /// Whether it is a model that can be loaded as a folder.
    fn check(&self) -> Result<(), Failure> {
        let weights = self.has(WHOLE) || self.has(INDEX);
        match PARTS[..2].iter().find(|part| !self.has(part)) {
            None if weights => Ok(()),
            missing => Err(Failure::NoModel {
                missing: missing.map_or(WHOLE, |part| part).to_owned(),
                ggufs: self.ggufs(),
            }),
        }
    }
}

/// The files that an index names, sorted, each once.
fn shards(index: &Path) -> Result<Vec<String>, Failure> {
    let bad = |what: &str| Failure::Damaged { file: INDEX.into(), what: what.into() };
    let text = std::fs::read(index).map_err(Failure::Disk)?;
    let json: Value = serde_json::from_slice(&text).map_err(|e| bad(&format!("is not JSON ({e})")))?;
    let map = json["weight_map"].as_object().ok_or_else(|| bad("has no `weight_map`"))?;
    let mut files = map
        .values()
        .map(|file| {
            let plain = |file: &&str| file.ends_with(".safetensors") && source::is_path(file);
            file.as_str().filter(plain).map(str::to_owned).ok_or_else(|| bad("names files of another kind"))
        })
        .collect::<Result<Vec<_>, _>>()?;
    files.sort_unstable();
    files.dedup();
    Ok(files)
}
