//! Address, cache and token of a hub.

use std::path::PathBuf;

use crate::error::Error;

/// Address and settings of a hub, and the folder of its cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hub {
    /// Address of the hub, without a slash at the end.
    pub endpoint: String,
    /// Folder of the cache, with the `models--…` folders.
    pub cache: PathBuf,
    /// Access token for gated and private models.
    pub token: Option<String>,
    /// Uses only the cache.
    pub offline: bool,
}

impl Hub {
    /// Reads `HF_ENDPOINT`, `HF_HUB_CACHE`, `HF_HOME`, `HF_TOKEN` (or the token of `hf auth login`) and
    /// `HF_HUB_OFFLINE`, like Python's `huggingface_hub`.
    ///
    /// # Errors
    /// [`Error::Hub`] if no variable names a folder for the cache and there is no home folder.
    pub fn from_env() -> Result<Self, Error> {
        Self::from_variables(|name| std::env::var(name).ok(), std::env::home_dir())
    }

    /// Same as [`Hub::from_env`], with given variables.
    ///
    /// # Errors
    /// In the same cases.
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
                reason: "no folder for the cache is known; set HF_HOME".into(),
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
}
