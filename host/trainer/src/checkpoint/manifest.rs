//! `checkpoint.json`: counters, the run's state, and a digest of every file.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path};

use pl_types::{SourcePath, open_file};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::files::{check_content, damaged, io_error, list_folder, sync};
use crate::error::Error;
use crate::preparation::ObjectiveState;

/// Suffix of the names of unfinished checkpoints.
pub(super) const PARTIAL: &str = ".partial";
pub(super) const MANIFEST: &str = "checkpoint.json";
pub(super) const MANIFEST_HASH: &str = "checkpoint.json.blake3";
const FORMAT: u32 = 2;

/// Largest manifest, in bytes. The state of a run takes some megabytes in it.
pub(super) const LARGEST_MANIFEST: u64 = 1 << 30;

/// Result of an evaluation, by which checkpoints are compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvaluationScore {
    /// Identity of the evaluation and its settings. Scores of different evaluations are not compared.
    pub evaluation: String,
    /// Higher is better.
    pub value: f64,
}

/// Contents of `checkpoint.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    format: u32,
    pub(super) step: u64,
    score: Option<f64>,
    /// [`EvaluationScore::evaluation`] of the score.
    #[serde(default)]
    scored_by: Option<String>,
    pub(super) policies: Vec<SavedPolicy>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) earlier: Vec<SavedVersion>,
    pub(super) state: Value,
    /// Keys are paths within the checkpoint, with `/`.
    pub(super) files: BTreeMap<String, FileDigest>,
}

/// Counters of a policy, and the state of its objective.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SavedPolicy {
    pub(super) name: String,
    pub(super) version: u64,
    pub(super) optimizer_steps: u64,
    pub(super) objective: ObjectiveState,
    /// Optimiser steps of its critic, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) critic_steps: Option<u64>,
}

/// Version of a policy before that of the checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SavedVersion {
    /// Number of updates of its learner.
    pub(super) update: u64,
    pub(super) policy: String,
    /// Number of updates that changed the policy.
    pub(super) version: u64,
}

/// Size and hash of a file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileDigest {
    bytes: u64,
    blake3: String,
}

impl FileDigest {
    pub(super) fn for_file(path: &Path) -> Result<Self, Error> {
        let file = open_file(path).map_err(io_error(path, "open the file"))?;
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(file).map_err(io_error(path, "read the file"))?;
        Ok(Self { bytes: hasher.count(), blake3: hasher.finalize().to_hex().to_string() })
    }
}

impl Manifest {
    /// A manifest of all files in `folder`. Syncs the files to the disk.
    pub(super) fn for_folder(
        folder: &Path,
        step: u64,
        score: Option<EvaluationScore>,
        policies: Vec<SavedPolicy>,
        earlier: Vec<SavedVersion>,
        state: Value,
    ) -> Result<Self, Error> {
        let mut files = BTreeMap::new();
        sync_and_digest(folder, folder, &mut files)?;
        let (score, scored_by) = score.map(|score| (score.value, score.evaluation)).unzip();
        Ok(Self { format: FORMAT, step, score, scored_by, policies, earlier, state, files })
    }

    /// Writes the manifest and its hash, and syncs both.
    pub(super) fn write(&self, folder: &Path) -> Result<(), Error> {
        let path = folder.join(MANIFEST);
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| io_error(&path, "write the checkpoint's state")(error.into()))?;
        let hash = blake3::hash(&text).to_hex().to_string();
        for (path, bytes) in [(path, text), (folder.join(MANIFEST_HASH), hash.into_bytes())] {
            fs::write(&path, bytes).map_err(io_error(&path, "write the file"))?;
            sync(&path)?;
        }
        sync(folder)
    }

    /// Reads the manifest of a checkpoint and checks it against its hash.
    pub(super) fn read(checkpoint: &Path) -> Result<Self, Error> {
        let path = checkpoint.join(MANIFEST);
        let is_partial = checkpoint.to_string_lossy().ends_with(PARTIAL);
        let Some(text) = read_if_exists(&path)?.filter(|_| !is_partial) else {
            let problem = "it is not a complete checkpoint; choose another".to_owned();
            return Err(Error::Checkpoint { path: checkpoint.to_path_buf(), problem });
        };
        let hash = read_if_exists(&checkpoint.join(MANIFEST_HASH))?;
        if hash.as_deref() != Some(blake3::hash(&text).to_hex().as_bytes()) {
            return Err(damaged(&path, "was truncated or changed"));
        }
        let manifest: Self = serde_json::from_slice(&text).map_err(|error| {
            let problem = format!(
                "it was written by another version of the program ({error}); resume with that version"
            );
            Error::Checkpoint { path: path.clone(), problem }
        })?;
        if manifest.format != FORMAT {
            let format = manifest.format;
            let problem = format!(
                "its format is {format}, but this program reads format {FORMAT}; resume with the version that wrote it"
            );
            return Err(Error::Checkpoint { path, problem });
        }
        Ok(manifest)
    }

    /// Checks that all files are there as they were written, and that nothing in the checkpoint leads out of it: it may be
    /// somebody else's.
    pub(super) fn check_files(&self, checkpoint: &Path) -> Result<(), Error> {
        check_content(checkpoint)?;
        for (name, digest) in &self.files {
            if !Path::new(name).components().all(|part| matches!(part, Component::Normal(_))) {
                let problem = format!("names a file outside of the checkpoint, `{name}`");
                return Err(damaged(&checkpoint.join(MANIFEST), &problem));
            }
            let path = checkpoint.join(name);
            if !path.is_file() {
                return Err(damaged(&path, "is missing"));
            }
            let bytes = path.metadata().map_err(io_error(&path, "read the file"))?.len();
            // A file of another size, which may be sparse, is not read.
            if bytes != digest.bytes || FileDigest::for_file(&path)? != *digest {
                return Err(damaged(&path, "was truncated or changed"));
            }
        }
        Ok(())
    }

    /// Returns the size in bytes of all files together.
    pub(super) fn total_bytes(&self) -> u64 {
        self.files.values().map(|digest| digest.bytes).fold(0, u64::saturating_add)
    }

    pub(super) fn score(&self) -> Option<EvaluationScore> {
        let evaluation = self.scored_by.clone().unwrap_or_default();
        self.score.map(|value| EvaluationScore { evaluation, value })
    }
}

/// Reads a file. Returns `None` if it does not exist.
fn read_if_exists(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match SourcePath::from(path).read_at_most(LARGEST_MANIFEST) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(io_error(path, "read the file")(error)),
    }
}

/// Syncs every file below `folder` and the folders themselves, and adds each file's digest to `files`.
fn sync_and_digest(
    root: &Path,
    folder: &Path,
    files: &mut BTreeMap<String, FileDigest>,
) -> Result<(), Error> {
    for path in list_folder(folder)? {
        if path.is_dir() {
            sync_and_digest(root, &path, files)?;
            continue;
        }
        sync(&path)?;
        let parts = path.strip_prefix(root).unwrap_or(&path).components();
        let name: Vec<_> = parts.map(|part| part.as_os_str().to_string_lossy()).collect();
        files.insert(name.join("/"), FileDigest::for_file(&path)?);
    }
    sync(folder)
}
