//! Other machines that play the episodes of a run.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `cluster { nats = "nats://host:4222"; credentials = "run.creds" }`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cluster {
    /// Addresses of the servers of one NATS cluster.
    pub nats: Vec<String>,
    /// File with the credentials for the servers, relative to the workflow file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<String>,
    /// Environment variable with the token of the servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_variable: Option<String>,
    /// File with the certificates of authorities that vouch for the servers, relative to the workflow file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorities: Option<String>,
    /// Policies whose learners are processes of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learners: Vec<String>,
    /// True if the code that agents write is run by sandbox machines.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sandboxes: bool,
    /// Time after which the tasks of a worker that is gone are played by another.
    pub lease: Duration,
}
