//! Checks of completions against the request that they answer.

use pl_types::Finish;

use crate::request::{TokenCompletion, TokenRequest};

/// Largest log-probability: that of a certain token, with room for rounding.
const LARGEST_LOGPROB: f32 = 1e-3;

/// Checks one completion.
///
/// # Errors
/// The first thing that can't be right.
pub(crate) fn validate(request: &TokenRequest, completion: &TokenCompletion) -> Result<(), String> {
    let TokenCompletion { tokens, logprobs, support, top, finish } = completion;
    if tokens.is_empty() {
        return Err("it has no tokens".to_owned());
    }
    if tokens.len() > request.max_tokens as usize {
        return Err(format!("it has {} tokens; the limit is {}", tokens.len(), request.max_tokens));
    }
    if tokens.len() != logprobs.len() {
        return Err(format!("it has {} log-probabilities for {} tokens", logprobs.len(), tokens.len()));
    }
    let outside = |id: &&u32| **id >= request.vocab;
    let listed = top.iter().flatten().map(|(id, _)| id).chain(support.iter().flatten().flatten());
    if let Some(id) = tokens.iter().chain(listed).find(outside) {
        return Err(format!("token {id} is outside of the model's vocabulary of {}", request.vocab));
    }
    if let Some((at, value)) =
        logprobs.iter().enumerate().find(|(_, value)| !value.is_finite() || **value > LARGEST_LOGPROB)
    {
        return Err(format!("{value} is not a log-probability (token {at})"));
    }
    if let Some(support) = support {
        if support.len() != tokens.len() {
            return Err(format!("it has kept ids of {} tokens, but {} tokens", support.len(), tokens.len()));
        }
        let missing = |(token, kept): &(&u32, &Vec<u32>)| !kept.contains(token);
        if let Some((token, _)) = tokens.iter().zip(support).find(missing) {
            return Err(format!("token {token} is not among the ids that it was drawn from"));
        }
    }
    if *finish == Finish::ToolCalls {
        return Err("it ended with tool calls, which were not requested".to_owned());
    }
    Ok(())
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
            validate(&request(), &completion).unwrap_err()
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
