//! llama.cpp's `/completion`.
//!
//! Its defaults leave out tokens (top-k 40, top-p 0.95, min-p 0.05), so each request names its samplers. The
//! probabilities before sampling ignore the temperature; those after sampling are of the distribution that tokens
//! are drawn from. Stop strings are not sent: the server would return the log-probabilities of fewer tokens than it
//! sampled. The caller cuts completions off.

use async_trait::async_trait;
use futures::future::try_join_all;
use pl_types::{Finish, Sampling};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::dialect::{Dialect, label, no_grammars, number};
use crate::error::ServerError;
use crate::http::HttpClient;
use crate::identity::Identity;
use crate::request::{RemoteAdapter, RemoteModel, RemoteWeights, TokenCompletion, TokenRequest};
use crate::validate::{WrongCompletion, likeliest, validate};

/// Dialect of llama.cpp.
pub(crate) struct LlamaCpp;

/// Response of `/completion`.
#[derive(Deserialize)]
struct CompletionResponse {
    tokens: Vec<u32>,
    #[serde(default)]
    completion_probabilities: Vec<Position>,
    stop_type: String,
}

#[derive(Deserialize)]
struct Position {
    id: u32,
    /// After sampling.
    prob: Option<f32>,
    /// Before sampling.
    logprob: Option<f32>,
    #[serde(default, alias = "top_logprobs")]
    top_probs: Vec<Position>,
}

impl Position {
    fn logprob(&self) -> f32 {
        self.prob.map(f32::ln).or(self.logprob).unwrap_or(f32::NAN)
    }
}

/// Returns the samplers of a request, in the order in which pl-host applies them.
fn samplers(sampling: &Sampling) -> Vec<&'static str> {
    let mut names = vec!["temperature"];
    let used =
        [("top_k", sampling.top_k > 0), ("top_p", sampling.top_p < 1.0), ("min_p", sampling.min_p > 0.0)];
    names.extend(used.into_iter().filter(|(_, used)| *used).map(|(name, _)| name));
    names
}

/// Returns the body of a request for one completion.
fn body(request: &TokenRequest, seed: &[u8; 32]) -> Value {
    let sampling = &request.sampling;
    let mut body = json!({
        "prompt": &*request.prompt,
        "n_predict": request.max_tokens,
        "return_tokens": true,
        "n_probs": request.top_logprobs.max(1),
        // Greedy completions have log-probabilities at temperature 1.
        "post_sampling_probs": sampling.temperature > 0.0,
        "samplers": samplers(sampling),
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        // The server takes 32 bits, of which all ones stand for a random seed.
        "seed": number(seed) & u64::from(u32::MAX >> 1),
        "cache_prompt": false,
        "stream": false,
    });
    if let RemoteModel::Named(name) = &request.model {
        body["model"] = json!(&**name);
    }
    body
}

fn completion(
    request: &TokenRequest,
    answer: CompletionResponse,
) -> Result<TokenCompletion, WrongCompletion> {
    let CompletionResponse { tokens, completion_probabilities: positions, stop_type } = answer;
    for (position, token) in positions.iter().zip(&tokens) {
        if position.id != *token {
            return Err(WrongCompletion::OtherToken { of: position.id, token: *token });
        }
    }
    let top = |position: &Position| {
        let pairs = position.top_probs.iter().map(|top| (top.id, top.logprob()));
        likeliest(pairs.filter(|(_, logprob)| logprob.is_finite()), request.top_logprobs)
    };
    let completion = TokenCompletion {
        top: if request.top_logprobs > 0 { positions.iter().map(top).collect() } else { Vec::new() },
        logprobs: positions.iter().map(Position::logprob).collect(),
        tokens,
        support: None,
        finish: if stop_type == "limit" { Finish::Length } else { Finish::Stop },
    };
    validate(request, &completion)?;
    Ok(completion)
}

impl LlamaCpp {
    async fn call(
        &self,
        http: &HttpClient,
        request: &TokenRequest,
        seed: &[u8; 32],
    ) -> Result<TokenCompletion, ServerError> {
        let label = label(&[*seed]);
        let answer = http.post("/completion", &body(request, seed), &label).await?;
        let answer: CompletionResponse = http.parse(answer, &label)?;
        completion(request, answer).map_err(|problem| http.wrong(&label, problem.to_string()))
    }
}

#[async_trait]
impl Dialect for LlamaCpp {
    async fn identify(&self, http: &HttpClient) -> Result<Identity, ServerError> {
        let models = http.get("/v1/models").await?;
        Ok(Identity::parse(&Value::Null, &models))
    }

    async fn complete(
        &self,
        http: &HttpClient,
        _identity: &Identity,
        request: &TokenRequest,
        seeds: &[[u8; 32]],
    ) -> Result<Vec<TokenCompletion>, ServerError> {
        let Sampling { repetition_penalty, presence_penalty, frequency_penalty, .. } = request.sampling;
        if repetition_penalty != 1.0 || presence_penalty != 0.0 || frequency_penalty != 0.0 {
            return Err(http.unfit(
                "llama.cpp's penalties differ from pl-host's",
                "remove `repetition_penalty`, `presence_penalty` and `frequency_penalty` of its agents",
            ));
        }
        if request.sampling.grammar.is_some() {
            return Err(no_grammars(http));
        }
        try_join_all(seeds.iter().map(|seed| self.call(http, request, seed))).await
    }

    async fn load_adapter(
        &self,
        http: &HttpClient,
        _identity: &Identity,
        adapter: &RemoteAdapter,
    ) -> Result<(), ServerError> {
        let problem = format!("llama.cpp can't load the adapter {} at run time", adapter.name);
        Err(http.unfit(problem, "start it with the adapter (`--lora`) and name the model with `served`"))
    }

    async fn load_weights(
        &self,
        http: &HttpClient,
        _identity: &Identity,
        weights: &RemoteWeights,
    ) -> Result<(), ServerError> {
        let problem = format!("llama.cpp can't replace the weights of {}", weights.name);
        Err(http.unfit(problem, "use `pl-host serve`, or remove `server`"))
    }

    async fn unload_adapter(&self, _http: &HttpClient, _name: &str) -> Result<(), ServerError> {
        Ok(())
    }

    fn logprobs_hint(&self) -> &'static str {
        "use a release of llama.cpp with `post_sampling_probs` (2025 or newer)"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samplers_are_named_and_in_our_order() {
        let plain = Sampling::with_temperature(0.7);
        assert_eq!(samplers(&plain), ["temperature"]);
        let all = Sampling { top_k: 5, top_p: 0.9, min_p: 0.1, ..plain };
        assert_eq!(samplers(&all), ["temperature", "top_k", "top_p", "min_p"]);
    }
}
