//! What a run was made of, so that another machine can tell whether it has the same.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Error;

/// The run folder's `lock.json`. All hashes are blake3, in hex.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// Version of pl-host.
    pub version: String,
    /// Of the contract that plugins are held to.
    pub contract: String,
    pub seed: u64,
    pub device: String,
    /// Threads of one tensor operation: part of what makes a run equal to another.
    pub threads: i32,
    /// Name to component hash.
    pub plugins: BTreeMap<String, String>,
    /// What is open to plugins: `PLUGIN read /FOLDER` to the hash of what was read, `PLUGIN http HOST`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub grants: BTreeMap<String, String>,
    /// Name to hash of the model's files.
    pub models: BTreeMap<String, String>,
    /// Name to the number format that the model's matrices are in.
    pub dtypes: BTreeMap<String, String>,
    /// File to hash.
    pub data: BTreeMap<String, String>,
}

impl Lock {
    /// What differs from `other`, one line each, for a person who resumes a run.
    pub fn differences(&self, other: &Lock) -> Vec<String> {
        let mut lines = Vec::new();
        let mut compare = |what: &str, ours: &str, theirs: &str| {
            if ours != theirs {
                lines.push(format!("{what}: the run began with {ours}, now it is {theirs}"));
            }
        };
        compare("pl-host", &self.version, &other.version);
        compare("plugin contract", &self.contract, &other.contract);
        compare("seed", &self.seed.to_string(), &other.seed.to_string());
        compare("device", &self.device, &other.device);
        compare("threads", &self.threads.to_string(), &other.threads.to_string());
        for (kind, ours, theirs) in [
            ("plugin", &self.plugins, &other.plugins),
            ("grant", &self.grants, &other.grants),
            ("model", &self.models, &other.models),
            ("number format of model", &self.dtypes, &other.dtypes),
            ("data", &self.data, &other.data),
        ] {
            for (name, hash) in ours {
                let now = theirs.get(name).map_or("missing", String::as_str);
                compare(&format!("{kind} {name}"), hash, now);
            }
        }
        lines
    }
}

/// blake3 of a file's bytes, in hex.
pub fn hash_file(path: &Path) -> Result<String, Error> {
    let mut hasher = blake3::Hasher::new();
    let file = File::open(path).map_err(Error::io("read", path))?;
    hasher.update_reader(file).map_err(Error::io("read", path))?;
    Ok(hasher.finalize().to_hex().to_string())
}
