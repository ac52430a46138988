//! `versions.jsonl`: the versions that each completion was sampled with, in runs whose weights change while episodes play.

use std::path::Path;

use pl_types::VersionChange;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::jsonl::parse_lines;
use crate::text_file::{LARGEST_TEXT, read_text};

/// Name of the file in a run folder.
pub const VERSIONS: &str = "versions.jsonl";

/// Versions that were used since the line before. A line of the file, written when the episodes of a step have ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedVersions {
    pub step: u64,
    pub episodes: Vec<EpisodeStart>,
    pub completions: Vec<CompletionVersions>,
}

/// Versions of all policies when an episode started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpisodeStart {
    /// Step that the episode belongs to.
    pub step: u64,
    /// Lane of its scenario.
    #[serde(default, skip_serializing_if = "is_first")]
    pub lane: usize,
    /// Position among the lane's episodes in the step, from 0.
    pub episode: usize,
    pub versions: Vec<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_first(lane: &usize) -> bool {
    *lane == 0
}

/// Versions of a completion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "CompactVersions", into = "CompactVersions")]
pub struct CompletionVersions {
    /// Beginning of the seed of its random stream: 8 bytes, as a number in big-endian order.
    pub seed: u64,
    /// Version at its first token.
    pub version: u64,
    pub changes: Vec<VersionChange>,
}

/// As written: seed in hexadecimal digits, first version, and the first token and the version of each change.
#[derive(Serialize, Deserialize)]
struct CompactVersions(Seed, u64, Vec<(u32, u64)>);

#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Seed(u64);

impl From<Seed> for String {
    fn from(Seed(seed): Seed) -> String {
        format!("{seed:016x}")
    }
}

impl TryFrom<String> for Seed {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<Seed, Self::Error> {
        u64::from_str_radix(&text, 16).map(Seed)
    }
}

impl From<CompletionVersions> for CompactVersions {
    fn from(CompletionVersions { seed, version, changes }: CompletionVersions) -> CompactVersions {
        let changes = changes.into_iter().map(|change| (change.token, change.version)).collect();
        CompactVersions(Seed(seed), version, changes)
    }
}

impl From<CompactVersions> for CompletionVersions {
    fn from(CompactVersions(Seed(seed), version, changes): CompactVersions) -> CompletionVersions {
        let change = |(token, version)| VersionChange { token, version };
        CompletionVersions { seed, version, changes: changes.into_iter().map(change).collect() }
    }
}

impl CompletionVersions {
    /// Returns the number by which the completion of a seed is recorded.
    pub fn key(seed: &[u8; 32]) -> u64 {
        seed.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

/// Reads the versions of a run's completions. Returns `None` if every episode kept those that it began with.
///
/// # Errors
/// [`Error::Io`], also if the file is larger than 64 MiB; [`Error::Line`].
pub fn read_versions(run: &Path) -> Result<Option<Vec<RecordedVersions>>, Error> {
    let path = run.join(VERSIONS);
    if !path.is_file() {
        return Ok(None);
    }
    let text = read_text(&path, LARGEST_TEXT).map_err(Error::io("read", &path))?;
    parse_lines(&path, &text).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_short_and_read_back() {
        let mut seed = [7; 32];
        (seed[0], seed[7]) = (0, 0xff);
        let key = CompletionVersions::key(&seed);
        let changes = vec![VersionChange { token: 5, version: 4 }];
        let line = RecordedVersions {
            step: 2,
            episodes: vec![EpisodeStart { step: 3, lane: 0, episode: 1, versions: vec![3, 0] }],
            completions: vec![CompletionVersions { seed: key, version: 3, changes }],
        };
        let text = serde_json::to_string(&line).unwrap();
        assert!(text.ends_with(r#""completions":[["00070707070707ff",3,[[5,4]]]]}"#), "{text}");
        let run = tempfile::tempdir().unwrap();
        assert_eq!(read_versions(run.path()).unwrap(), None);
        std::fs::write(run.path().join(VERSIONS), format!("{text}\n{{\"step\":")).unwrap();
        assert_eq!(read_versions(run.path()).unwrap(), Some(vec![line]));
        std::fs::write(run.path().join(VERSIONS), text.replace("0007", "x007") + "\n").unwrap();
        assert!(read_versions(run.path()).unwrap_err().to_string().contains("versions.jsonl"));
    }
}
