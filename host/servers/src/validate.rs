//! Checks of completions against the request that they answer.

use pl_types::Finish;

use crate::request::{TokenCompletion, TokenRequest};

/// Largest log-probability: that of a certain token, with room for rounding.
const LARGEST_LOGPROB: f32 = 1e-3;

/// First thing in a completion that can't be right.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum WrongCompletion {
    #[error("it has no tokens")]
    NoTokens,
    #[error("it has {count} tokens; the limit is {limit}")]
    TooManyTokens { count: usize, limit: u32 },
    #[error("it has no log-probabilities")]
    NoLogprobs,
    #[error("it has {logprobs} log-probabilities for {tokens} tokens")]
    LogprobCount { logprobs: usize, tokens: usize },
    #[error("the log-probability of token {of} is given for token {token}")]
    OtherToken { of: u32, token: u32 },
    #[error("{value} is not a log-probability (token {at})")]
    NoLogprob { value: f32, at: usize },
    #[error("token {token} is outside of the model's vocabulary of {vocab}")]
    OutsideVocabulary { token: u32, vocab: u32 },
    #[error("it has kept ids of {support} tokens, but {tokens} tokens")]
    SupportCount { support: usize, tokens: usize },
    #[error("token {token} is not among the ids that it was drawn from")]
    NotInSupport { token: u32 },
    #[error("its weights changed from version {first} to {other}")]
    SeveralVersions { first: String, other: String },
    #[error("it was generated with version {version} of the weights, not {expected}")]
    OtherVersion { version: String, expected: String },
    #[error("its end is {0:?}, neither \"stop\" nor \"length\"")]
    End(Option<String>),
    #[error("it ended with tool calls, which were not requested")]
    ToolCalls,
}

/// Checks one completion.
///
/// # Errors
/// The first thing that can't be right.
pub(crate) fn validate(request: &TokenRequest, completion: &TokenCompletion) -> Result<(), WrongCompletion> {
    let TokenCompletion { tokens, logprobs, support, top, finish } = completion;
    if tokens.is_empty() {
        return Err(WrongCompletion::NoTokens);
    }
    if tokens.len() > request.max_tokens as usize {
        return Err(WrongCompletion::TooManyTokens { count: tokens.len(), limit: request.max_tokens });
    }
    if tokens.len() != logprobs.len() {
        return Err(WrongCompletion::LogprobCount { logprobs: logprobs.len(), tokens: tokens.len() });
    }
    let outside = |id: &&u32| **id >= request.vocab;
    let listed = top.iter().flatten().map(|(id, _)| id).chain(support.iter().flatten().flatten());
    if let Some(&token) = tokens.iter().chain(listed).find(outside) {
        return Err(WrongCompletion::OutsideVocabulary { token, vocab: request.vocab });
    }
    if let Some((at, &value)) =
        logprobs.iter().enumerate().find(|(_, value)| !value.is_finite() || **value > LARGEST_LOGPROB)
    {
        return Err(WrongCompletion::NoLogprob { value, at });
    }
    if let Some(support) = support {
        if support.len() != tokens.len() {
            return Err(WrongCompletion::SupportCount { support: support.len(), tokens: tokens.len() });
        }
        let missing = |(token, kept): &(&u32, &Vec<u32>)| !kept.contains(token);
        if let Some((&token, _)) = tokens.iter().zip(support).find(missing) {
            return Err(WrongCompletion::NotInSupport { token });
        }
    }
    if *finish == Finish::ToolCalls {
        return Err(WrongCompletion::ToolCalls);
    }
    Ok(())
}

/// Returns the `count` likeliest of some tokens with their log-probabilities, likeliest first.
pub(crate) fn likeliest(tokens: impl Iterator<Item = (u32, f32)>, count: usize) -> Vec<(u32, f32)> {
    let mut list: Vec<(u32, f32)> = tokens.collect();
    list.sort_by(|a, b| b.1.total_cmp(&a.1));
    list.truncate(count);
    list
}

#[cfg(test)]
mod tests {
    use pl_types::Sampling;

    use super::*;
    use crate::request::RemoteModel;

    fn request() -> TokenRequest {
        TokenRequest {
            model: RemoteModel::Named("m".into()),
            prompt: vec![1].into(),
            seeds: vec![[0; 32]],
            max_tokens: 3,
            sampling: Sampling::default(),
            stop: Vec::new().into(),
            stop_ids: Vec::new().into(),
            top_logprobs: 0,
            vocab: 10,
            needs_support: false,
        }
    }

    #[test]
    fn wrong_answers_are_told() {
        let good = TokenCompletion {
            tokens: vec![1, 2],
            logprobs: vec![-0.5, 0.0],
            support: None,
            top: Vec::new(),
            finish: Finish::Stop,
        };
        assert_eq!(validate(&request(), &good), Ok(()));
        let with = |change: &dyn Fn(&mut TokenCompletion)| {
            let mut completion = good.clone();
            change(&mut completion);
            validate(&request(), &completion).unwrap_err().to_string()
        };
        let cases = [
            with(&|c| c.tokens.clear()),
            with(&|c| c.tokens = vec![1; 4]),
            with(&|c| c.logprobs.truncate(1)),
            with(&|c| c.tokens[1] = 10),
            with(&|c| c.logprobs[0] = f32::NAN),
            with(&|c| c.logprobs[0] = f32::NEG_INFINITY),
            with(&|c| c.logprobs[0] = 0.5),
            with(&|c| c.support = Some(vec![vec![1]])),
            with(&|c| c.support = Some(vec![vec![1], vec![3]])),
        ];
        let parts = [
            "no tokens",
            "the limit is 3",
            "1 log-probabilities for 2 tokens",
            "token 10 is outside",
            "NaN",
            "-inf",
            "0.5",
            "kept ids of 1 tokens",
            "token 2 is not among",
        ];
        for (message, part) in cases.iter().zip(parts) {
            assert!(message.contains(part), "{message}");
        }
    }
}
