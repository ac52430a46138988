//! Commands to an engine while it runs: pauses, and new weights of whole models.

use std::path::PathBuf;

/// Treatment of requests in progress at a pause, as vLLM names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseMode {
    /// They end with an error.
    Abort,
    /// The pause begins when they have ended.
    Wait,
    /// They keep their place, and go on after the pause.
    Keep,
}

/// Files with the new weights of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WeightSource {
    /// Hugging Face folder.
    Folder(PathBuf),
    /// Difference from the present weights.
    Delta(PathBuf),
}

/// Version of a model's weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightInfo {
    pub version: u64,
    /// Hash of the weights, in hexadecimal.
    pub checksum: String,
}
