//! Choice of weights for completions in progress when their policy gets new ones.

use pl_types::{GenerateError, VersionChange};

/// Weights of a request's completions when the policy gets new ones meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DuringUpdate {
    /// The completions finish with the weights that they began with.
    #[default]
    Finish,
    /// New weights take over between two tokens. All completions of a request begin with the same version.
    TakeOver(OldCache),
    /// Versions take over where they did before: one element per completion. A version that is not there yet is waited for.
    Repeat(OldCache, Vec<PlannedVersions>),
}

/// Use of the keys and values that the weights before have computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OldCache {
    /// The new weights compute all of them anew.
    Recompute,
    /// They stay.
    Keep,
}

/// Versions of a completion's tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlannedVersions {
    /// Version at the first token.
    pub version: u64,
    pub changes: Vec<VersionChange>,
}

impl DuringUpdate {
    /// Returns the version that all completions of a request have to begin with. `None` for the newest.
    ///
    /// # Errors
    /// [`GenerateError::Request`] if the completions begin with different versions, or if their number is not `completions`.
    pub(crate) fn first_version(
        &self,
        policy: usize,
        completions: usize,
    ) -> Result<Option<u64>, GenerateError> {
        let Self::Repeat(_, planned) = self else { return Ok(None) };
        let first = planned.first().map(|own| own.version);
        if planned.len() == completions && planned.iter().all(|own| Some(own.version) == first) {
            return Ok(first);
        }
        let reason = "the versions to repeat are not those of a request: one completion each, all beginning with the same";
        Err(GenerateError::Request { policy, parameter: None, reason: reason.into() })
    }
}
