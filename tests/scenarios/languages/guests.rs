//! The plugin's components: built where something changed, loaded as a run loads them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pl_plugin::{Agent, Cause, Environment, Error, Plugin, PluginSpec, Reward, Services, Task};
use pl_sandbox::Refuse;
use pl_wasm::{Engine, EngineConfig};
use serde_json::{Map, Value, json};

use crate::support::repository;

/// A language with an SDK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    Rust,
    Python,
    Js,
    C,
}

impl Language {
    pub const ALL: [Language; 4] = [Language::Rust, Language::Python, Language::Js, Language::C];

    pub fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Python => "python",
            Self::Js => "js",
            Self::C => "c",
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(self.name())
    }
}
