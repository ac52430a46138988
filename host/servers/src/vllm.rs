//! vLLM's `/inference/v1/generate`, which `pl-host serve` has too.
//!
//! vLLM has it with `--enable-scale-out`, and returns log-probabilities of the sampling distribution with
//! `--logprobs-mode processed_logprobs`.

use async_trait::async_trait;
use futures::future::try_join_all;
use pl_types::{Finish, Grammar};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::dialect::{Dialect, label, number};
use crate::error::ServerError;
use crate::http::HttpClient;
use crate::identity::Identity;
use crate::request::{RemoteAdapter, RemoteModel, RemoteWeights, TokenCompletion, TokenRequest};
use crate::validate::{WrongCompletion, likeliest, validate};
use crate::vllm_weights;

const GENERATE: &str = "/inference/v1/generate";

const ADAPTERS_HINT: &str = "vLLM loads adapters with `--enable-lora` and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, \
                             `pl-host serve` with `--allow-runtime-adapters`; the server must reach the adapter's folder \
                             under the same path";

/// Dialect of vLLM.
pub(crate) struct Vllm;

/// Response of `/inference/v1/generate`.
#[derive(Deserialize)]
struct CompletionResponse {
    model: Option<String>,
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    index: usize,
    token_ids: Vec<u32>,
    logprobs: Option<Logprobs>,
    finish_reason: Option<String>,
    weight_versions: Option<Vec<WeightSpan>>,
    sampling_mask: Option<Vec<Vec<u32>>>,
}

#[derive(Deserialize)]
struct Logprobs {
    content: Option<Vec<Position>>,
}

/// A position's token. vLLM writes the id into `token`, as `token_id:5`.
#[derive(Deserialize)]
struct Position {
    token_id: Option<u32>,
    token: Option<String>,
    /// JSON has no infinity: such a number is null.
    logprob: Option<f32>,
    #[serde(default)]
    top_logprobs: Vec<Position>,
}

impl Position {
    fn id(&self) -> Option<u32> {
        self.token_id.or_else(|| self.token.as_deref()?.strip_prefix("token_id:")?.parse().ok())
    }
}

/// Version of the weights that a part of a completion was generated with.
#[derive(Deserialize)]
struct WeightSpan {
    /// A text or a number.
    version: Value,
}

impl WeightSpan {
    fn version(&self) -> String {
        self.version.as_str().map_or_else(|| self.version.to_string(), str::to_owned)
    }
}

/// Returns the name of a request's model, and the number of tokens that fit.
fn model<'a>(
    http: &HttpClient,
    identity: &'a Identity,
    model: &'a RemoteModel,
) -> Result<(&'a str, Option<usize>), ServerError> {
    let base = |hash: &str| identity.base(hash).map_err(|(problem, hint)| http.unfit(problem, hint));
    match model {
        RemoteModel::Base(hash) => base(hash).map(|card| (card.id.as_str(), card.max_model_len)),
        RemoteModel::Adapter(adapter) => {
            base(&adapter.base).map(|card| (adapter.name.as_str(), card.max_model_len))
        }
        RemoteModel::Named(name) => named(http, identity, name),
        RemoteModel::Weights(weights) => named(http, identity, &weights.name),
    }
}

fn named<'a>(
    http: &HttpClient,
    identity: &'a Identity,
    name: &'a str,
) -> Result<(&'a str, Option<usize>), ServerError> {
    identity.named(name).map(|card| (name, card.max_model_len)).ok_or_else(|| {
        let ids: Vec<String> = identity.models.iter().map(|card| format!("`{}`", card.id)).collect();
        let problem = format!("it has no model `{name}`");
        http.unfit(problem, format!("name one with `served`; the server has {}", ids.join(", ")))
    })
}

/// Returns the body of a request for the completions of `seeds`.
fn body(request: &TokenRequest, model: &str, max_tokens: u32, seeds: &[[u8; 32]], is_pl_host: bool) -> Value {
    let sampling = &request.sampling;
    let mut params = json!({
        "max_tokens": max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": if sampling.top_k == 0 { -1 } else { i64::from(sampling.top_k) },
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "logprobs": request.top_logprobs,
        "stop_token_ids": &*request.stop_ids,
        "detokenize": false,
    });
    if is_pl_host {
        params["seeds"] = seeds.iter().map(|seed| Value::from(hex::encode(seed))).collect();
        params["stop"] = json!(&*request.stop);
    } else {
        // Without the tokenizer, vLLM knows no stop strings: the caller cuts completions off.
        let seed = seeds.first().map_or(0, number);
        params["seed"] = json!(seed & i64::MAX.unsigned_abs());
    }
    // The name since vLLM 0.12. Older versions lack this path too.
    match sampling.grammar.as_deref() {
        Some(Grammar::Lark(text)) => params["structured_outputs"] = json!({ "grammar": text }),
        Some(Grammar::JsonSchema(text)) => params["structured_outputs"] = json!({ "json": text }),
        None => {}
    }
    let mut body = json!({
        "model": model,
        "request_id": label(seeds),
        "token_ids": &*request.prompt,
        "sampling_params": params,
    });
    // Cached prefixes of other weights are never used. vLLM takes no `@` in a salt, so the name can't be it.
    let salt = match &request.model {
        RemoteModel::Adapter(adapter) => adapter.checksum.as_str(),
        RemoteModel::Weights(weights) => weights.checksum.as_str(),
        RemoteModel::Base(_) | RemoteModel::Named(_) => "",
    };
    if !salt.is_empty() {
        body["cache_salt"] = json!(salt);
    }
    body
}

/// Returns the completion of a choice.
fn completion(
    request: &TokenRequest,
    choice: Choice,
    version: Option<&str>,
) -> Result<TokenCompletion, WrongCompletion> {
    let content = choice.logprobs.and_then(|logprobs| logprobs.content);
    let content = content.ok_or(WrongCompletion::NoLogprobs)?;
    for (position, token) in content.iter().zip(&choice.token_ids) {
        if let Some(id) = position.id().filter(|id| id != token) {
            return Err(WrongCompletion::OtherToken { of: id, token: *token });
        }
    }
    let versions = choice.weight_versions.unwrap_or_default();
    let mut versions = versions.iter().map(WeightSpan::version);
    if let Some(first) = versions.next() {
        if let Some(other) = versions.find(|other| *other != first) {
            return Err(WrongCompletion::SeveralVersions { first, other });
        }
        if let Some(expected) = version.filter(|expected| *expected != first) {
            return Err(WrongCompletion::OtherVersion { version: first, expected: expected.to_owned() });
        }
    }
    let top = |position: &Position| {
        let pair = |top: &Position| Some((top.id()?, top.logprob?));
        likeliest(position.top_logprobs.iter().filter_map(pair), request.top_logprobs)
    };
    let completion = TokenCompletion {
        top: if request.top_logprobs > 0 { content.iter().map(top).collect() } else { Vec::new() },
        logprobs: content.iter().map(|position| position.logprob.unwrap_or(f32::NAN)).collect(),
        tokens: choice.token_ids,
        support: choice.sampling_mask.filter(|_| request.sampling.truncates()).map(sorted),
        finish: match choice.finish_reason.as_deref() {
            Some("stop") => Finish::Stop,
            Some("length") => Finish::Length,
            other => return Err(WrongCompletion::End(other.map(str::to_owned))),
        },
    };
    validate(request, &completion)?;
    Ok(completion)
}

fn sorted(mut support: Vec<Vec<u32>>) -> Vec<Vec<u32>> {
    support.iter_mut().for_each(|ids| ids.sort_unstable());
    support
}

impl Vllm {
    /// Sends one HTTP request.
    async fn call(
        &self,
        http: &HttpClient,
        identity: &Identity,
        request: &TokenRequest,
        seeds: &[[u8; 32]],
    ) -> Result<Vec<TokenCompletion>, ServerError> {
        let (name, length) = model(http, identity, &request.model)?;
        let label = label(seeds);
        let room = length.map_or(usize::MAX, |length| length.saturating_sub(request.prompt.len()));
        if room == 0 {
            return Err(ServerError::Refused {
                server: http.address.clone(),
                request: label,
                status: 400,
                message: format!(
                    "the prompt has {} tokens, but the server takes at most {} with the completion",
                    request.prompt.len(),
                    length.unwrap_or(0)
                ),
            });
        }
        let max_tokens = request.max_tokens.min(u32::try_from(room).unwrap_or(u32::MAX));
        let body = body(request, name, max_tokens, seeds, identity.is_pl_host);
        let answer = http.post(GENERATE, &body, &label).await?;
        let answer: CompletionResponse = http.parse(answer, &label)?;
        if let Some(other) = answer.model.filter(|model| model != name) {
            return Err(http.wrong(&label, format!("the model `{other}` answered for `{name}`")));
        }
        let mut choices = answer.choices;
        choices.sort_by_key(|choice| choice.index);
        if choices.len() != seeds.len() {
            let problem = format!("it has {} completions for {} seeds", choices.len(), seeds.len());
            return Err(http.wrong(&label, problem));
        }
        // Only our own server gives an adapter's version: vLLM's is that of the base model.
        let version = match &request.model {
            RemoteModel::Adapter(adapter) if identity.is_pl_host => Some(adapter.version.to_string()),
            RemoteModel::Weights(weights) => Some(vllm_weights::version(identity, weights)),
            _ => None,
        };
        let completions = choices
            .into_iter()
            .map(|choice| completion(request, choice, version.as_deref()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|problem| http.wrong(&label, problem.to_string()))?;
        let lacks = |one: &TokenCompletion| one.support.is_none();
        if request.needs_support && request.sampling.truncates() && completions.iter().any(lacks) {
            return Err(http.unfit(
                "it doesn't return the ids that tokens were drawn from, which training with a grammar, `top_k`, `top_p` or \
                 `min_p` needs",
                "start vLLM with `--return-sampling-mask` and set `top_k`, without which it returns none; or sample among \
                 all tokens",
            ));
        }
        Ok(completions)
    }
}

#[async_trait]
impl Dialect for Vllm {
    async fn identify(&self, http: &HttpClient) -> Result<Identity, ServerError> {
        let version = http.get("/version").await?;
        let models = http.get("/v1/models").await?;
        Ok(Identity::parse(&version, &models))
    }

    async fn complete(
        &self,
        http: &HttpClient,
        identity: &Identity,
        request: &TokenRequest,
        seeds: &[[u8; 32]],
    ) -> Result<Vec<TokenCompletion>, ServerError> {
        if identity.is_pl_host {
            return self.call(http, identity, request, seeds).await;
        }
        let calls = seeds.chunks(1).map(|seed| self.call(http, identity, request, seed));
        Ok(try_join_all(calls).await?.into_iter().flatten().collect())
    }

    async fn load_adapter(
        &self,
        http: &HttpClient,
        identity: &Identity,
        adapter: &RemoteAdapter,
    ) -> Result<(), ServerError> {
        let mut body = json!({ "lora_name": adapter.name, "lora_path": adapter.folder });
        if identity.is_pl_host {
            let base = identity.base(&adapter.base).map_err(|(problem, hint)| http.unfit(problem, hint))?;
            body["base_model"] = json!(base.id);
            body["weight_version"] = json!(adapter.version);
        }
        let label = format!("to load {}", adapter.name);
        match http.post("/v1/load_lora_adapter", &body, &label).await {
            Ok(answer) => match answer.get("checksum").and_then(Value::as_str) {
                Some(other) if !adapter.checksum.is_empty() && other != adapter.checksum => {
                    Err(vllm_weights::other_checksum(http, &adapter.name, other, &adapter.checksum))
                }
                _ => Ok(()),
            },
            Err(ServerError::Refused { message, .. }) if message.contains("already") => Ok(()),
            Err(ServerError::Refused { message, .. } | ServerError::NotFound { message, .. }) => {
                Err(http
                    .unfit(format!("it doesn't load the adapter {}: {message}", adapter.name), ADAPTERS_HINT))
            }
            Err(error) => Err(error),
        }
    }

    async fn load_weights(
        &self,
        http: &HttpClient,
        identity: &Identity,
        weights: &RemoteWeights,
    ) -> Result<(), ServerError> {
        vllm_weights::load(http, identity, weights).await
    }

    async fn unload_adapter(&self, http: &HttpClient, name: &str) -> Result<(), ServerError> {
        let label = format!("to unload {name}");
        match http.post("/v1/unload_lora_adapter", &json!({ "lora_name": name }), &label).await {
            Ok(_) | Err(ServerError::NotFound { .. } | ServerError::Refused { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn logprobs_hint(&self) -> &'static str {
        "start vLLM with `--logprobs-mode processed_logprobs`"
    }
}

#[cfg(test)]
mod tests {
    use pl_types::Sampling;

    use super::*;

    fn request() -> TokenRequest {
        TokenRequest {
            model: RemoteModel::Named("m".into()),
            prompt: vec![1, 2].into(),
            seeds: vec![[255; 32]],
            max_tokens: 3,
            sampling: Sampling::with_temperature(0.7),
            stop: vec!["###".to_owned()].into(),
            stop_ids: vec![9].into(),
            top_logprobs: 0,
            vocab: 10,
            needs_support: false,
        }
    }

    #[test]
    fn sampling_is_always_explicit() {
        let request = request();
        let sent = body(&request, "m", 3, &request.seeds, false);
        let params = &sent["sampling_params"];
        assert_eq!(sent["token_ids"], json!([1, 2]));
        for (key, value) in [
            ("max_tokens", json!(3)),
            ("temperature", json!(0.7)),
            ("top_p", json!(1.0)),
            ("top_k", json!(-1)),
            ("min_p", json!(0.0)),
            ("seed", json!(i64::MAX)),
            ("logprobs", json!(0)),
            ("stop_token_ids", json!([9])),
            ("detokenize", json!(false)),
        ] {
            assert_eq!(params[key], value, "{key}");
        }
        assert_eq!(params.get("stop"), None);
        assert_eq!(params.get("structured_outputs"), None);
        let own = body(&request, "m", 3, &request.seeds, true);
        assert_eq!(own["sampling_params"]["seeds"], json!(["ff".repeat(32)]));
        assert_eq!(own["sampling_params"]["stop"], json!(["###"]));
    }

    #[test]
    fn grammars_are_structured_outputs() {
        let sent = |grammar: Grammar| {
            let mut request = request();
            request.sampling.grammar = Some(grammar.into());
            body(&request, "m", 3, &request.seeds, false)["sampling_params"]["structured_outputs"].clone()
        };
        let lark = "start: /[0-9]+/".to_owned();
        assert_eq!(sent(Grammar::Lark(lark.clone())), json!({ "grammar": lark }));
        let schema = r#"{ "type": "object" }"#.to_owned();
        assert_eq!(sent(Grammar::JsonSchema(schema.clone())), json!({ "json": schema }));
    }

    #[test]
    fn a_completion_has_one_version_of_the_weights() {
        let choice = |versions: &[u64]| -> Choice {
            let spans: Vec<Value> = versions.iter().map(|version| json!({ "version": version })).collect();
            let content = json!([{ "token": "token_id:4", "logprob": -0.5 }]);
            serde_json::from_value(json!({
                "token_ids": [4],
                "logprobs": { "content": content },
                "finish_reason": "stop",
                "weight_versions": spans,
            }))
            .unwrap()
        };
        assert!(completion(&request(), choice(&[3]), Some("3")).is_ok());
        let error = completion(&request(), choice(&[3]), Some("4")).unwrap_err().to_string();
        assert!(error.contains("version 3 of the weights, not 4"), "{error}");
        let error = completion(&request(), choice(&[3, 4]), None).unwrap_err().to_string();
        assert!(error.contains("from version 3 to 4"), "{error}");
    }
}
