//! The record of a search: a line of JSON for each design.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use pl_dsl::DesignMistake;
use pl_record::{first_digits, write_atomically};
use pl_rollout::{EpisodeFailure, RolloutBatch};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::evaluation::mean;

/// Name of the record in the folder of a search.
const FILE: &str = "designs.jsonl";

/// Name of the file with what a search depends on.
const SEARCH: &str = "search.json";

/// Proposed design and its outcome: a line of `designs.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DesignRecord {
    /// Round of a search, of which 0 has the hand-made designs, or step of a run.
    pub round: u32,
    /// Position in its round or step.
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
    /// Id of the task that it was written for. `None` in a search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
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
    /// Outcome of a design with mistakes.
    pub(crate) fn wrong(mistakes: &[DesignMistake]) -> Outcome {
        Outcome::Invalid { mistakes: mistakes.iter().map(ToString::to_string).collect() }
    }

    /// Outcome of a design's episodes. Those that failed in every attempt solved nothing.
    pub(crate) fn of_episodes(batch: &RolloutBatch) -> Outcome {
        let episodes = &batch.episodes;
        let solved = episodes.iter().map(|episode| f64::from(episode.success));
        Outcome::Played {
            success: mean(solved.chain(std::iter::repeat_n(0.0, batch.lost))),
            truncated: mean(episodes.iter().map(|episode| f64::from(episode.truncated))),
            tokens: mean(episodes.iter().map(|episode| episode.tokens as f64)),
            episodes: (episodes.len() + batch.lost) as u32,
            failure: batch.failures.first().map(EpisodeFailure::describe),
        }
    }

    /// Rank among designs: the success of one that was played, towards one half if it played few episodes (Laplace's rule
    /// of succession). Before any episode, a design with fewer mistakes ranks higher, and below all that were played.
    fn rank(&self) -> f64 {
        match self {
            Outcome::Invalid { mistakes } => -0.5 - 0.05 * mistakes.len().min(10) as f64,
            Outcome::Costly { .. } => -0.25,
            Outcome::Played { success, episodes, .. } => {
                let episodes = f64::from(*episodes);
                (success * episodes + 1.0) / (episodes + 2.0)
            }
        }
    }

    /// Returns the outcome of all episodes of two records of a design.
    fn merged(&self, other: &Outcome) -> Outcome {
        match (self, other) {
            (
                Outcome::Played { success, truncated, tokens, episodes, failure },
                Outcome::Played { success: s, truncated: c, tokens: t, episodes: e, failure: f },
            ) => {
                let both = f64::from(episodes.saturating_add(*e)).max(1.0);
                let mean = |one: f64, two: f64| (one * f64::from(*episodes) + two * f64::from(*e)) / both;
                Outcome::Played {
                    success: mean(*success, *s),
                    truncated: mean(*truncated, *c),
                    tokens: mean(*tokens, *t),
                    episodes: episodes.saturating_add(*e),
                    failure: failure.clone().or_else(|| f.clone()),
                }
            }
            _ => self.clone(),
        }
    }
}

/// Orders designs: the better first, of equal ones the cheaper, then the earlier.
fn better(one: &DesignRecord, other: &DesignRecord) -> Ordering {
    let tokens = |record: &DesignRecord| match &record.outcome {
        Outcome::Played { tokens, .. } => *tokens,
        Outcome::Invalid { .. } | Outcome::Costly { .. } => 0.0,
    };
    let by_rank = other.outcome.rank().total_cmp(&one.outcome.rank());
    by_rank
        .then(tokens(one).total_cmp(&tokens(other)))
        .then(one.hash.cmp(&other.hash))
        .then((one.round, one.index).cmp(&(other.round, other.index)))
}

/// Fingerprint of a search and the files that it wrote: the content of `search.json`.
#[derive(Serialize, Deserialize)]
struct SearchFile {
    #[serde(flatten)]
    fingerprint: Map<String, Value>,
    /// Hashes of all texts that it wrote as `best.mas`: a file with another one is a person's.
    #[serde(default)]
    written: Vec<String>,
}

/// Designs of a search so far, on disk and in memory.
pub struct Archive {
    path: PathBuf,
    file: File,
    search: PathBuf,
    state: SearchFile,
    records: Vec<DesignRecord>,
}

impl Archive {
    /// Opens the folder of a search, or creates it. A line that was cut off is removed.
    ///
    /// # Errors
    /// [`Error::OtherSearch`] if it has designs of another search or another process uses it, and errors of the disk.
    pub(super) fn open(folder: &Path, fingerprint: Map<String, Value>) -> Result<Archive, Error> {
        std::fs::create_dir_all(folder).map_err(failed(folder))?;
        let other = |difference: &str| Error::OtherSearch {
            path: folder.to_path_buf(),
            difference: difference.to_owned(),
        };
        let path = folder.join(FILE);
        let open = OpenOptions::new().read(true).append(true).create(true).open(&path);
        let mut file = open.map_err(failed(&path))?;
        // Before anything is read or written.
        if rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(other("another process is adding to it"));
        }
        let search = folder.join(SEARCH);
        let state = match std::fs::read_to_string(&search) {
            Ok(text) => {
                let found: SearchFile = serde_json::from_str(&text)
                    .map_err(|error| other(&format!("its {SEARCH} can't be read: {error}")))?;
                let differs = |key: &&String| found.fingerprint.get(*key) != fingerprint.get(*key);
                if let Some(key) = fingerprint.keys().find(differs) {
                    let verb = if key == "settings" { "differ" } else { "differs" };
                    return Err(other(&format!("its {key} {verb}")));
                }
                found
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let state = SearchFile { fingerprint, written: Vec::new() };
                write_atomically(&search, json!(state).to_string().as_bytes())?;
                state
            }
            Err(error) => return Err(failed(&search)(error)),
        };
        let text = std::fs::read_to_string(&path).map_err(failed(&path))?;
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        match serde_json::from_str::<DesignRecord>(&text[whole..]) {
            // Its newline alone is missing.
            Ok(_) => file.write_all(b"\n").map_err(failed(&path))?,
            Err(_) => file.set_len(whole as u64).map_err(failed(&path))?,
        }
        Ok(Archive { records: read(&path)?, path, file, search, state })
    }

    /// Returns true if a search wrote this text as `best.mas`.
    pub(super) fn has_written(&self, text: &str) -> bool {
        self.state.written.contains(&hash_of(text))
    }

    /// Remembers a text that is about to be written as `best.mas`.
    pub(super) fn will_write(&mut self, text: &str) -> Result<(), Error> {
        self.state.written.push(hash_of(text));
        Ok(write_atomically(&self.search, json!(self.state).to_string().as_bytes())?)
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
        let all = self.records.iter().flat_map(|one| [one.designer_tokens, one.execution_tokens]);
        all.fold(0, u64::saturating_add)
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

/// Returns the first 12 hexadecimal digits of a text's BLAKE3 hash.
pub(crate) fn hash_of(text: &str) -> String {
    first_digits(&blake3::hash(text.as_bytes()).to_hex()).to_owned()
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_path_buf();
    move |source| Error::Designs { path, source }
}

/// Reads the record of a search.
fn read(path: &Path) -> Result<Vec<DesignRecord>, Error> {
    let text = std::fs::read_to_string(path).map_err(failed(path))?;
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

/// Reads the designs of a search or a run, the best first: those that were played by success and tokens, then the others. A
/// design that a run played for several tasks is one.
///
/// # Errors
/// If the folder has no designs, or they can't be read.
pub fn read_designs(folder: &Path) -> Result<Vec<DesignRecord>, Error> {
    let mut records: Vec<DesignRecord> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    let file = folder.join(FILE);
    if !file.is_file() {
        return Err(Error::NoDesigns { path: folder.to_path_buf() });
    }
    for record in read(&file)? {
        match known.get(&record.hash).and_then(|at| records.get_mut(*at)) {
            // In a search, one that comes again has the outcome of the first.
            Some(first) if record.execution_tokens > 0 => {
                first.outcome = first.outcome.merged(&record.outcome);
                first.execution_tokens = first.execution_tokens.saturating_add(record.execution_tokens);
                first.designer_tokens = first.designer_tokens.saturating_add(record.designer_tokens);
            }
            Some(_) => {}
            None => {
                known.insert(record.hash.clone(), records.len());
                records.push(record);
            }
        }
    }
    records.sort_by(better);
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_designs_is_named() {
        let error = read_designs(Path::new("none")).unwrap_err();
        assert!(matches!(&error, Error::NoDesigns { path } if path == Path::new("none")), "{error}");
    }

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
