//! Files of a revision, and the files that a model needs.

use std::path::Path;

use pl_types::SourcePath;
use serde_json::Value;

use super::error::FetchError;
use super::source::is_path;
use crate::formats::LARGEST_SETTINGS;

/// Files of a model folder besides the weights. The first two are required.
pub(super) const MODEL_FILES: [&str; 6] = [
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
];
/// Weights in a single file.
pub(super) const SINGLE_FILE: &str = "model.safetensors";
/// Index of weights in several files.
pub(super) const INDEX: &str = "model.safetensors.index.json";

/// Files of a revision.
#[derive(Debug)]
pub(super) struct RevisionFiles {
    pub(super) commit: String,
    pub(super) files: Vec<String>,
}

impl RevisionFiles {
    pub(super) fn has(&self, name: &str) -> bool {
        self.files.iter().any(|file| file == name)
    }

    pub(super) fn ggufs(&self) -> Vec<String> {
        self.files.iter().filter(|file| file.ends_with(".gguf")).cloned().collect()
    }

    /// Checks that the files are a model that can be loaded as a folder.
    pub(super) fn check(&self) -> Result<(), FetchError> {
        let weights = self.has(SINGLE_FILE) || self.has(INDEX);
        match MODEL_FILES[..2].iter().find(|part| !self.has(part)) {
            None if weights => Ok(()),
            missing => Err(FetchError::NotAModel {
                missing: missing.map_or(SINGLE_FILE, |part| part).to_owned(),
                ggufs: self.ggufs(),
            }),
        }
    }
}

/// Returns the files that an index names, sorted and without duplicates.
pub(super) fn read_index(index: &Path) -> Result<Vec<String>, FetchError> {
    let damaged = |problem: &str| FetchError::Damaged { file: INDEX.into(), problem: problem.into() };
    let text = SourcePath::from(index).read_at_most(LARGEST_SETTINGS).map_err(FetchError::Cache)?;
    let json: Value = serde_json::from_slice(&text).map_err(|e| damaged(&format!("is not JSON ({e})")))?;
    let map = json["weight_map"].as_object().ok_or_else(|| damaged("has no `weight_map`"))?;
    let mut files = map
        .values()
        .map(|file| {
            let valid = |file: &&str| file.ends_with(".safetensors") && is_path(file);
            file.as_str()
                .filter(valid)
                .map(str::to_owned)
                .ok_or_else(|| damaged("names files of another kind"))
        })
        .collect::<Result<Vec<_>, _>>()?;
    files.sort_unstable();
    files.dedup();
    Ok(files)
}
