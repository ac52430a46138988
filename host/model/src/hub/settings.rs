//! Address, cache and token of a hub.

use std::path::PathBuf;

use pl_types::{REDACTED, is_loopback_host, redact_address};
use ureq::http::Uri;

use crate::error::Error;

/// Address and settings of a hub, and the folder of its cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hub {
    /// Address of the hub, without a slash at the end.
    pub endpoint: String,
    /// Folder of the cache, with the `models--…` folders.
    pub cache: PathBuf,
    /// Access token for gated and private models. It is sent by HTTPS, and by HTTP to this machine alone.
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

    /// Returns the endpoint for messages, without the user and password that it may have.
    pub(super) fn shown_endpoint(&self) -> String {
        // It is not parsed: a password that is not encoded may have any characters, also `/` and `?`.
        let Some((user, host)) = self.endpoint.rsplit_once('@') else {
            return redact_address(&self.endpoint);
        };
        let scheme = user.split_once("://").map(|(scheme, _)| format!("{scheme}://")).unwrap_or_default();
        redact_address(&format!("{scheme}{REDACTED}@{host}"))
    }

    /// Returns the token to send. Returns `None` if it would pass through a network as it is.
    pub(super) fn sent_token(&self) -> Option<&str> {
        self.token.as_deref().filter(|_| is_confidential(&self.endpoint))
    }

    /// Returns true if there is a token that is not sent.
    pub(super) fn withholds_token(&self) -> bool {
        self.token.is_some() && self.sent_token().is_none()
    }
}

/// Returns true if what is sent to an address can not be read on its way: it is encrypted, or stays on this machine.
fn is_confidential(endpoint: &str) -> bool {
    let Ok(uri) = endpoint.parse::<Uri>() else { return false };
    uri.scheme_str() == Some("https") || uri.host().is_some_and(is_loopback_host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_of_a_password_is_shown() {
        for (endpoint, shown) in [
            ("http://me:pa?ss@hub", "http://REDACTED@hub"),
            ("http://me:p/ss@hub/hf", "http://REDACTED@hub/hf"),
            ("http://me:p@ss@hub:80", "http://REDACTED@hub:80"),
            ("me:pass@hub", "REDACTED@hub"),
            ("https://hub/hf?token=secret", "https://hub/hf?token=REDACTED"),
            ("https://hub", "https://hub"),
        ] {
            let (endpoint, cache) = (endpoint.to_owned(), PathBuf::new());
            let hub = Hub { endpoint, cache, token: None, offline: false };
            assert_eq!(hub.shown_endpoint(), shown);
        }
    }

    #[test]
    fn a_token_is_sent_encrypted_or_within_the_machine() {
        let sends = |endpoint: &str| {
            let (endpoint, cache) = (endpoint.to_owned(), PathBuf::new());
            let hub = Hub { endpoint, cache, token: Some("secret".to_owned()), offline: false };
            assert_ne!(hub.sent_token().is_some(), hub.withholds_token());
            hub.sent_token().is_some()
        };
        for endpoint in [
            "https://m.example",
            "HTTPS://m.example/hf",
            "http://localhost:80",
            "http://hub.localhost",
            "http://127.1.2.3",
            "http://[::1]:80",
            "http://[::ffff:127.0.0.1]:80",
        ] {
            assert!(sends(endpoint), "{endpoint}");
        }
        for endpoint in [
            "http://m.example",
            "http://localhost@m.example",
            "http://localhost.m.example",
            "http://10.0.0.1",
            "m.example",
            "",
        ] {
            assert!(!sends(endpoint), "{endpoint}");
        }
    }
}
