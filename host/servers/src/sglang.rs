//! SGLang's `/generate`.
//!
//! Written from its documentation and recorded answers; no server of this kind has been run with this program.
//! SGLang trims stop tokens from completions unless it is told not to, takes defaults of samplers from the model's
//! `generation_config.json`, and seeds single requests only with `--enable-deterministic-inference`.

use async_trait::async_trait;
use futures::future::try_join_all;
use pl_types::Finish;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::dialect::{Dialect, label, no_grammars, number};
use crate::error::ServerError;
use crate::http::HttpClient;
use crate::identity::Identity;
use crate::request::{RemoteAdapter, RemoteModel, RemoteWeights, TokenCompletion, TokenRequest};
use crate::validate::{WrongCompletion, likeliest, validate};

const ADAPTERS_HINT: &str = "SGLang loads adapters with `--enable-lora --max-lora-rank N --lora-target-modules all`; the \
                             server must reach the adapter's folder under the same path";

/// Dialect of SGLang.
pub(crate) struct SgLang;

/// Response of `/generate`.
#[derive(Deserialize)]
struct CompletionResponse {
    output_ids: Vec<u32>,
    meta_info: MetaInfo,
}

#[derive(Deserialize)]
struct MetaInfo {
    finish_reason: Option<FinishReason>,
    output_token_logprobs: Option<Vec<Position>>,
    #[serde(default)]
    output_top_logprobs: Vec<Option<Vec<Position>>>,
    /// A text or a number.
    weight_version: Option<Value>,
}

#[derive(Deserialize)]
struct FinishReason {
    #[serde(rename = "type")]
    kind: String,
}

/// Log-probability, token id, and the token's text, which is null unless it was asked for.
#[derive(Deserialize)]
struct Position(Option<f32>, u32, #[expect(dead_code, reason = "text is made here")] Option<String>);

/// Response of the commands that load weights.
#[derive(Deserialize)]
struct CommandResponse {
    success: bool,
    #[serde(default, alias = "error_message")]
    message: Option<String>,
}

/// Returns the name of the adapter of a request, if it has one.
fn adapter<'a>(identity: &Identity, model: &'a RemoteModel) -> Option<&'a str> {
    match model {
        RemoteModel::Adapter(adapter) => Some(&adapter.name),
        RemoteModel::Named(name) if identity.is_adapter(name) => Some(name),
        RemoteModel::Base(_) | RemoteModel::Named(_) | RemoteModel::Weights(_) => None,
    }
}

/// Returns the body of a request for one completion.
fn body(request: &TokenRequest, adapter: Option<&str>, seed: &[u8; 32]) -> Value {
    let sampling = &request.sampling;
    let mut body = json!({
        "rid": label(&[*seed]),
        "input_ids": &*request.prompt,
        "sampling_params": {
            "max_new_tokens": request.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": if sampling.top_k == 0 { -1 } else { i64::from(sampling.top_k) },
            "min_p": sampling.min_p,
            "repetition_penalty": sampling.repetition_penalty,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "stop_token_ids": &*request.stop_ids,
            "no_stop_trim": true,
            "skip_special_tokens": false,
            "spaces_between_special_tokens": false,
            "sampling_seed": number(seed) & u64::from(u32::MAX >> 1),
        },
        "return_logprob": true,
        "top_logprobs_num": request.top_logprobs,
        "stream": false,
    });
    if let Some(name) = adapter {
        body["lora_path"] = json!(name);
    }
    body
}

fn completion(
    request: &TokenRequest,
    answer: CompletionResponse,
) -> Result<TokenCompletion, WrongCompletion> {
    let CompletionResponse { output_ids: tokens, meta_info } = answer;
    let positions = meta_info.output_token_logprobs.ok_or(WrongCompletion::NoLogprobs)?;
    if let Some((Position(_, of, _), token)) =
        positions.iter().zip(&tokens).find(|(one, token)| one.1 != **token)
    {
        return Err(WrongCompletion::OtherToken { of: *of, token: *token });
    }
    if let (RemoteModel::Weights(weights), Some(version)) = (&request.model, &meta_info.weight_version) {
        let version = version.as_str().map_or_else(|| version.to_string(), str::to_owned);
        if version != weights.version.to_string() {
            return Err(WrongCompletion::OtherVersion { version, expected: weights.version.to_string() });
        }
    }
    let top = |position: &Option<Vec<Position>>| {
        let pairs = position.iter().flatten().filter_map(|one| Some((one.1, one.0?)));
        likeliest(pairs, request.top_logprobs)
    };
    let completion = TokenCompletion {
        top: meta_info.output_top_logprobs.iter().take(tokens.len()).map(top).collect(),
        logprobs: positions.iter().map(|position| position.0.unwrap_or(f32::NAN)).collect(),
        tokens,
        support: None,
        finish: match meta_info.finish_reason.map(|reason| reason.kind).as_deref() {
            Some("stop") => Finish::Stop,
            Some("length") => Finish::Length,
            other => return Err(WrongCompletion::End(other.map(str::to_owned))),
        },
    };
    validate(request, &completion)?;
    Ok(completion)
}

impl SgLang {
    async fn call(
        &self,
        http: &HttpClient,
        identity: &Identity,
        request: &TokenRequest,
        seed: &[u8; 32],
    ) -> Result<TokenCompletion, ServerError> {
        let label = label(&[*seed]);
        let body = body(request, adapter(identity, &request.model), seed);
        let answer = http.post("/generate", &body, &label).await?;
        let answer: CompletionResponse = http.parse(answer, &label)?;
        completion(request, answer).map_err(|problem| http.wrong(&label, problem.to_string()))
    }

    /// Sends a command. Returns the message of a server that refuses it.
    async fn command(
        &self,
        http: &HttpClient,
        path: &str,
        body: &Value,
        label: &str,
    ) -> Result<Option<String>, ServerError> {
        match http.post(path, body, label).await {
            Ok(answer) => {
                let answer: CommandResponse = http.parse(answer, label)?;
                Ok((!answer.success).then(|| answer.message.unwrap_or_default()))
            }
            Err(ServerError::Refused { message, .. } | ServerError::NotFound { message, .. }) => {
                Ok(Some(message))
            }
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl Dialect for SgLang {
    async fn identify(&self, http: &HttpClient) -> Result<Identity, ServerError> {
        let models = http.get("/v1/models").await?;
        Ok(Identity::parse(&Value::Null, &models))
    }

    async fn complete(
        &self,
        http: &HttpClient,
        identity: &Identity,
        request: &TokenRequest,
        seeds: &[[u8; 32]],
    ) -> Result<Vec<TokenCompletion>, ServerError> {
        if request.sampling.grammar.is_some() {
            return Err(no_grammars(http));
        }
        if request.needs_support && request.sampling.truncates() {
            return Err(http.unfit(
                "SGLang doesn't return the ids that tokens were drawn from, which training with `top_k`, `top_p` or \
                 `min_p` needs",
                "sample among all tokens",
            ));
        }
        try_join_all(seeds.iter().map(|seed| self.call(http, identity, request, seed))).await
    }

    async fn load_adapter(
        &self,
        http: &HttpClient,
        _identity: &Identity,
        adapter: &RemoteAdapter,
    ) -> Result<(), ServerError> {
        let label = format!("to load {}", adapter.name);
        let body = json!({ "lora_name": adapter.name, "lora_path": adapter.folder });
        match self.command(http, "/load_lora_adapter", &body, &label).await? {
            Some(message) if !message.contains("already") => {
                let problem = format!("it doesn't load the adapter {}: {message}", adapter.name);
                Err(http.unfit(problem, ADAPTERS_HINT))
            }
            _ => Ok(()),
        }
    }

    async fn load_weights(
        &self,
        http: &HttpClient,
        _identity: &Identity,
        weights: &RemoteWeights,
    ) -> Result<(), ServerError> {
        let label = format!("for version {} of {}", weights.version, weights.name);
        let body = json!({
            "model_path": weights.folder,
            "weight_version": weights.version.to_string(),
            "flush_cache": true,
            "abort_all_requests": false,
        });
        match self.command(http, "/update_weights_from_disk", &body, &label).await? {
            None => Ok(()),
            Some(message) => Err(http.unfit(
                format!("it doesn't load the weights of {}: {message}", weights.name),
                "the server must reach the folder under the same path, and have a model of the same form",
            )),
        }
    }

    async fn unload_adapter(&self, http: &HttpClient, name: &str) -> Result<(), ServerError> {
        let label = format!("to unload {name}");
        self.command(http, "/unload_lora_adapter", &json!({ "lora_name": name }), &label).await.map(drop)
    }

    fn logprobs_hint(&self) -> &'static str {
        "start SGLang without SGLANG_RETURN_ORIGINAL_LOGPROB"
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pl_types::Sampling;

    use super::*;

    fn request(temperature: f64) -> TokenRequest {
        TokenRequest {
            model: RemoteModel::Base("".into()),
            prompt: vec![785, 6722, 315].into(),
            seeds: vec![[9; 32]],
            max_tokens: 3,
            sampling: Sampling::with_temperature(temperature),
            stop: vec!["###".to_owned()].into(),
            stop_ids: vec![151_645].into(),
            top_logprobs: 2,
            vocab: 151_936,
            needs_support: false,
        }
    }

    /// Answer in the form of the documentation of `/generate`.
    fn recorded() -> Value {
        json!({
            "text": " Paris.",
            "output_ids": [12_095, 13, 151_645],
            "meta_info": {
                "id": "0909090909090909",
                "finish_reason": { "type": "stop", "matched": 151_645 },
                "prompt_tokens": 3,
                "weight_version": "default",
                "input_token_logprobs": [[null, 785, null]],
                "output_token_logprobs": [[-0.6, 12_095, null], [-0.4, 13, null], [-1.25, 151_645, null]],
                "output_top_logprobs": [
                    [[-0.6, 12_095, null], [-1.6, 264, null]],
                    [[-0.4, 13, null], [-2.1, 11, null]],
                    null
                ],
                "completion_tokens": 3,
                "cached_tokens": 0,
                "e2e_latency": 0.08
            }
        })
    }

    #[test]
    fn a_recorded_answer_has_tokens_with_their_log_probabilities() {
        let answer = serde_json::from_value(recorded()).unwrap();
        let read = completion(&request(0.7), answer).unwrap();
        assert_eq!(read.tokens, [12_095, 13, 151_645]);
        assert_eq!(read.logprobs, [-0.6, -0.4, -1.25]);
        assert_eq!(read.top[0], [(12_095, -0.6), (264, -1.6)]);
        assert_eq!((read.top[2].len(), read.finish), (0, Finish::Stop));

        let changed = |change: &dyn Fn(&mut Value)| {
            let mut answer = recorded();
            change(&mut answer["meta_info"]);
            completion(&request(0.7), serde_json::from_value(answer).unwrap()).unwrap_err().to_string()
        };
        let problem = changed(&|meta| drop(meta["output_token_logprobs"].as_array_mut().unwrap().pop()));
        assert!(problem.contains("2 log-probabilities for 3 tokens"), "{problem}");
        let problem = changed(&|meta| meta["finish_reason"] = json!({ "type": "abort" }));
        assert!(problem.contains("abort"), "{problem}");
        let problem = changed(&|meta| meta["output_token_logprobs"] = Value::Null);
        assert!(problem.contains("no log-probabilities"), "{problem}");
    }

    #[test]
    fn completions_of_other_weights_are_refused() {
        let mut request = request(1.0);
        request.model = RemoteModel::Weights(Arc::new(RemoteWeights {
            name: "actor".into(),
            folder: "/weights/actor@v2".into(),
            checksum: String::new(),
            delta: None,
            version: 2,
        }));
        let read = |version: &str| {
            let mut answer = recorded();
            answer["meta_info"]["weight_version"] = json!(version);
            completion(&request, serde_json::from_value(answer).unwrap())
        };
        assert!(read("2").is_ok());
        assert!(matches!(read("1"), Err(WrongCompletion::OtherVersion { .. })));
    }

    #[test]
    fn every_default_that_changes_completions_is_sent() {
        let sent = body(&request(0.7), Some("coder@v3"), &[9; 32]);
        assert_eq!((&sent["lora_path"], &sent["return_logprob"]), (&json!("coder@v3"), &json!(true)));
        let params = &sent["sampling_params"];
        for (key, value) in [
            ("max_new_tokens", json!(3)),
            ("temperature", json!(0.7)),
            ("top_p", json!(1.0)),
            ("top_k", json!(-1)),
            ("min_p", json!(0.0)),
            ("no_stop_trim", json!(true)),
            ("skip_special_tokens", json!(false)),
            ("stop_token_ids", json!([151_645])),
        ] {
            assert_eq!(params[key], value, "{key}");
        }
    }
}
