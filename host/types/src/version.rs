//! Versions of a policy's weights within one completion.

use serde::{Deserialize, Serialize};

/// New weights within a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VersionChange {
    /// Number of tokens of the completion that were sampled before it.
    pub token: u32,
    /// Version that later tokens were sampled with.
    pub version: u64,
}

/// Returns the versions that the tokens of a completion were sampled with, in order, each with its number of tokens.
/// `first` is the version of the first token, `tokens` the length of the completion.
pub fn version_spans(first: u64, changes: &[VersionChange], tokens: usize) -> Vec<(u64, usize)> {
    let mut spans = Vec::with_capacity(changes.len() + 1);
    let (mut version, mut start) = (first, 0);
    for change in changes {
        let end = (change.token as usize).clamp(start, tokens);
        spans.push((version, end - start));
        (version, start) = (change.version, end);
    }
    spans.push((version, tokens - start));
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_has_one_version() {
        let change = |token, version| VersionChange { token, version };
        assert_eq!(version_spans(3, &[], 5), [(3, 5)]);
        assert_eq!(version_spans(3, &[change(1, 4), change(4, 6)], 5), [(3, 1), (4, 3), (6, 1)]);
        // Of a damaged file.
        assert_eq!(version_spans(3, &[change(9, 4), change(2, 6)], 5), [(3, 5), (4, 0), (6, 0)]);
    }
}
