//! The record of a search: a line of JSON for each design.

use std::cmp::Ordering;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::error::Error;

/// Name of the record in the folder of a search.
const FILE: &str = "designs.jsonl";

/// Name of the file with what a search depends on.
const SEARCH: &str = "search.json";

/// Proposed design and its outcome: a line of `designs.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DesignRecord {
    /// Round; 0 has the hand-made designs.
    pub round: u32,
    /// Position in its round.
    pub index: u32,
    /// First 12 hexadecimal digits of the BLAKE3 hash of its formatted text.
    #[serde(deserialize_with = "hash")]
    pub hash: String,
    /// `designer`, `own`, or the word of a pattern.
    pub origin: String,
    /// Hashes of the designs that its prompt showed.
    pub parents: Vec<String>,
    pub outcome: Outcome,
    /// Tokens that it took to write.
    pub designer_tokens: u64,
    /// Tokens that its episodes sampled. 0 for a design that was proposed before.
    pub execution_tokens: u64,
    /// Its text.
    pub design: String,
}

/// Outcome of a design.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Outcome {
    /// It did not pass its check.
    Invalid {
        /// Its mistakes.
        mistakes: Vec<String>,
    },
    /// An episode of it could sample too many tokens.
    Costly {
        /// Bound of its tokens.
        bound: u64,
        /// Largest bound of the palette.
        most: u64,
    },
    /// It was played.
    Played {
        /// Share of the episodes that its team solved.
        success: f64,
        /// Share of the episodes that were cut off.
        truncated: f64,
        /// Mean number of tokens of an episode.
        tokens: f64,
        /// Number of episodes.
        episodes: u32,
        /// Reason why the first failed episode failed.
        failure: Option<String>,
    },
}

impl Outcome {
    /// Score, from -1 for a design without sense to 1 for one that solves all tasks. Before any episode, a design with fewer
    /// mistakes scores higher.
    pub fn score(&self) -> f64 {
        match self {
            Outcome::Invalid { mistakes } => -0.5 - 0.05 * mistakes.len().min(10) as f64,
            Outcome::Costly { .. } => -0.25,
            Outcome::Played { success, .. } => *success,
        }
    }
}

/// Orders designs: the better first, of equal ones the cheaper, then the earlier.
fn better(one: &DesignRecord, other: &DesignRecord) -> Ordering {
    let tokens = |record: &DesignRecord| match &record.outcome {
        Outcome::Played { tokens, .. } => *tokens,
        Outcome::Invalid { .. } | Outcome::Costly { .. } => 0.0,
    };
    let by_score = other.outcome.score().total_cmp(&one.outcome.score());
    by_score
        .then(tokens(one).total_cmp(&tokens(other)))
        .then(one.hash.cmp(&other.hash))
        .then((one.round, one.index).cmp(&(other.round, other.index)))
}

/// Designs of a search so far, on disk and in memory.
pub struct Archive {
    path: PathBuf,
    file: File,
    records: Vec<DesignRecord>,
}

impl Archive {
    /// Opens the folder of a search, or creates it. A line that was cut off is removed.
    ///
    /// # Errors
    /// [`Error::OtherSearch`] if it has designs of another search or another process uses it, and errors of the disk.
    pub(super) fn open(folder: &Path, fingerprint: &Value) -> Result<Archive, Error> {
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |source: std::io::Error| Error::Designs { path, source }
        };
        std::fs::create_dir_all(folder).map_err(failed(folder))?;
        let search = folder.join(SEARCH);
        let other = |difference: &str| Error::OtherSearch {
            path: folder.to_path_buf(),
            difference: difference.to_owned(),
        };
        match std::fs::read_to_string(&search) {
            Ok(text) => {
                let found: Value = serde_json::from_str(&text).unwrap_or_default();
                for key in ["workflow", "settings", "scenario", "seed"] {
                    if found.get(key) != fingerprint.get(key) {
                        return Err(other(&format!("its {key} differs")));
                    }
                }
            }
            Err(_) => std::fs::write(&search, format!("{fingerprint}\n")).map_err(failed(&search))?,
        }
        let path = folder.join(FILE);
        let open = OpenOptions::new().read(true).append(true).create(true).open(&path);
        let file = open.map_err(failed(&path))?;
        if rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(other("another process is adding to it"));
        }
        let text = std::fs::read_to_string(&path).map_err(failed(&path))?;
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        file.set_len(whole as u64).map_err(failed(&path))?;
        Ok(Archive { records: read(&path)?, path, file })
    }

    /// Adds a design.
    pub(super) fn append(&mut self, record: &DesignRecord) -> Result<(), Error> {
        let failed = |source| Error::Designs { path: self.path.clone(), source };
        let line = serde_json::to_string(record).map_err(|error| failed(error.into()))?;
        // One write: a line is there as a whole or cut off at the end.
        self.file
            .write_all(format!("{line}\n").as_bytes())
            .and_then(|()| self.file.sync_data())
            .map_err(failed)?;
        self.records.push(record.clone());
        Ok(())
    }

    /// Tokens that designs and episodes have taken so far.
    pub fn tokens(&self) -> u64 {
        self.records.iter().map(|one| one.designer_tokens + one.execution_tokens).sum()
    }

    pub(super) fn has(&self, round: u32, index: u32) -> bool {
        self.records.iter().any(|one| (one.round, one.index) == (round, index))
    }

    /// Outcome of an earlier design.
    pub(super) fn outcome(&self, hash: &str) -> Option<&Outcome> {
        self.records.iter().find(|one| one.hash == hash).map(|one| &one.outcome)
    }

    /// Distinct designs of the rounds before `round`, the best first.
    pub(super) fn before(&self, round: u32) -> Vec<&DesignRecord> {
        let mut records: Vec<&DesignRecord> = self.records.iter().filter(|one| one.round < round).collect();
        records.sort_by(|one, other| better(one, other));
        records.dedup_by(|later, first| later.hash == first.hash);
        records
    }
}

/// Reads the record of a search.
fn read(path: &Path) -> Result<Vec<DesignRecord>, Error> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| Error::Designs { path: path.to_path_buf(), source })?;
    // The last line of a search that goes on may be cut off.
    let whole = text.rfind('\n').map_or("", |at| &text[..at]);
    let line = |(at, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|source| Error::DesignRecord {
            path: path.to_path_buf(),
            line: at + 1,
            source,
        })
    };
    whole.lines().enumerate().map(line).collect()
}

/// Reads a hash, which is also the name of a file.
fn hash<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let hash = String::deserialize(deserializer)?;
    match hash.len() == 12 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => Ok(hash),
        false => Err(D::Error::custom("the hash of a design has 12 hexadecimal digits")),
    }
}

/// Reads the designs of a folder, the best first: those that were played by success and tokens, then the others.
///
/// # Errors
/// If the folder has no designs, or they can't be read.
pub fn read_designs(folder: &Path) -> Result<Vec<DesignRecord>, Error> {
    let mut records = read(&folder.join(FILE))?;
    records.sort_by(better);
    records.dedup_by(|later, first| later.hash == first.hash);
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_that_is_a_path_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let record = |hash: &str| {
            serde_json::json!({
                "round": 0, "index": 0, "hash": hash, "origin": "own", "parents": [],
                "outcome": {"kind": "invalid", "mistakes": []},
                "designer_tokens": 0, "execution_tokens": 0, "design": ""
            })
        };
        let refused = |hash: &str| {
            std::fs::write(folder.path().join(FILE), format!("{}\n", record(hash))).unwrap();
            let error = read_designs(folder.path()).unwrap_err();
            std::error::Error::source(&error)
                .is_some_and(|source| source.to_string().contains("12 hexadecimal digits"))
        };
        for hash in ["../../x", "/tmp/absolute", "0123456789a", ""] {
            assert!(refused(hash), "{hash}");
        }
    }
}
