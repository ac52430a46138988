//! Probes: known token ids sent to a server before it gets its first request.
//!
//! A server that returns text instead of ids, or log-probabilities of another distribution than that of its
//! samples, would train policies wrongly without any error.

use std::sync::Arc;

use pl_types::Sampling;

use crate::dialect::Dialect;
use crate::error::ServerError;
use crate::http::HttpClient;
use crate::identity::Identity;
use crate::request::{RemoteModel, TokenCompletion, TokenRequest};

/// Number of likeliest tokens that the probe compares: vLLM's default limit.
const TOP: usize = 20;

/// Largest difference of two log-probabilities of one token: rounding in bf16.
const TOLERANCE: f32 = 0.05;

/// Smallest range of log-probabilities in which the effect of a temperature shows.
const SMALLEST_SPREAD: f32 = 0.01;

/// Model of a server to probe.
#[derive(Debug, Clone)]
pub struct Probe {
    pub model: RemoteModel,
    /// Token ids of a short text.
    pub prompt: Arc<[u32]>,
    /// Number of token ids of the model.
    pub vocab: u32,
}

impl Probe {
    /// Samples two tokens at temperature 1 and checks that
    /// - there are as many log-probabilities as tokens,
    /// - the second token has the same log-probability if the first one is a part of the prompt,
    /// - log-probabilities follow the temperature.
    ///
    /// # Errors
    /// [`ServerError::Unfit`] with the server's flag to set.
    pub(crate) async fn run(
        &self,
        dialect: &dyn Dialect,
        http: &HttpClient,
        identity: &Identity,
    ) -> Result<(), ServerError> {
        let first = self.sample(dialect, http, identity, &self.prompt, 1.0, 2).await?;
        if let ([begin, next], Some(expected)) = (first.tokens.as_slice(), first.logprobs.get(1)) {
            let prompt: Vec<u32> = self.prompt.iter().copied().chain([*begin]).collect();
            let again = self.sample(dialect, http, identity, &prompt, 1.0, 1).await?;
            let top = again.top.first().map(Vec::as_slice).unwrap_or_default();
            let found = top.iter().find(|(id, _)| id == next);
            if let Some((_, found)) = found.filter(|(_, found)| (found - expected).abs() > TOLERANCE) {
                let problem = format!(
                    "the log-probability of token {next} is {expected} when it is sampled and {found} when its prompt \
                     is computed anew"
                );
                return Err(http.unfit(problem, "check the number formats and caches of the server"));
            }
        }
        let warm = self.sample(dialect, http, identity, &self.prompt, 2.0, 1).await?;
        match gaps(&first, &warm) {
            // At temperature 2, differences of log-probabilities are half as large.
            Some((cold, warm)) if (warm - cold / 2.0).abs() > (warm - cold).abs() => Err(http.unfit(
                "its log-probabilities are those before the temperature, not those that tokens are drawn with",
                dialect.logprobs_hint(),
            )),
            _ => Ok(()),
        }
    }

    async fn sample(
        &self,
        dialect: &dyn Dialect,
        http: &HttpClient,
        identity: &Identity,
        prompt: &[u32],
        temperature: f64,
        max_tokens: u32,
    ) -> Result<TokenCompletion, ServerError> {
        let request = TokenRequest {
            model: self.model.clone(),
            prompt: prompt.into(),
            seeds: vec![[7; 32]],
            max_tokens,
            sampling: Sampling::with_temperature(temperature),
            stop: Arc::new([]),
            stop_ids: Arc::new([]),
            top_logprobs: TOP.min(self.vocab as usize),
            vocab: self.vocab,
            needs_support: false,
        };
        let sampled = dialect.complete(http, identity, &request, &request.seeds).await;
        let mut sampled = sampled.map_err(|error| match error {
            ServerError::NotFound { message, .. } => http.unfit(
                format!("it has no endpoint for token ids: {message}"),
                "start vLLM with `--enable-scale-out`; check the `kind` of the server",
            ),
            ServerError::Answer { problem, .. } => http.unfit(
                format!("its answer to a probe of {} known token ids is wrong: {problem}", prompt.len()),
                "check the `kind` of the server, and that its model is that of the policy",
            ),
            other => other,
        })?;
        sampled.pop().ok_or_else(|| http.unfit("its answer to a probe is empty", "check its `kind`"))
    }
}

/// Returns the difference of the log-probabilities of two tokens at the first position, in each of two completions: of the
/// likeliest and the least likely token that both list. vLLM lists the sampled token too, however unlikely it is. `None`
/// if the difference is too small to compare.
fn gaps(cold: &TokenCompletion, warm: &TokenCompletion) -> Option<(f32, f32)> {
    let (cold, warm) = (cold.top.first()?, warm.top.first()?);
    let both = |(id, logprob): &(u32, f32)| {
        let other = warm.iter().find(|(other, _)| other == id)?;
        Some((*logprob, other.1))
    };
    let mut shared = cold.iter().filter_map(both);
    let first = shared.next()?;
    let last = shared.next_back()?;
    let gap = first.0 - last.0;
    (gap > SMALLEST_SPREAD).then_some((gap, first.1 - last.1))
}
