//! Servers that generate.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `server fleet = ["http://10.0.0.1:8000"] { kind = vllm; key_variable = "FLEET_KEY" }`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Server {
    pub name: String,
    /// Addresses of servers with the same models.
    pub addresses: Vec<String>,
    pub kind: ServerKind,
    /// Environment variable with the key that requests carry.
    pub key_variable: Option<String>,
    /// Longest time of one request.
    pub timeout: Duration,
    /// Requests in progress per server.
    pub connections: u32,
    /// Further attempts at a request after wrong answers, errors and timeouts.
    pub retries: u32,
    /// Time after which a request without an answer is sent to a second server too. `None`: never.
    pub hedge_after: Option<Duration>,
    /// Level at which servers sleep while policies are trained: 0 (never), 1 or 2.
    pub sleep: u32,
}

/// API of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ServerKind {
    Vllm,
    SgLang,
    LlamaCpp,
    OpenAi,
}

impl ServerKind {
    /// Returns true if servers of the kind get new adapters while they run.
    pub fn loads_adapters(self) -> bool {
        matches!(self, Self::Vllm | Self::SgLang)
    }

    /// Returns true if servers of the kind are sent the grammars of completions.
    pub fn takes_grammars(self) -> bool {
        self == Self::Vllm
    }

    /// Returns true if servers of the kind take and return token ids, with log-probabilities.
    pub fn has_token_ids(self) -> bool {
        self != Self::OpenAi
    }
}
