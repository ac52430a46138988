//! OpenAI's `/v1/chat/completions`, as hosted models have it: conversations in, text out.

use async_trait::async_trait;
use pl_types::{Finish, Sampling};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::dialect::{Dialect, label, no_grammars, number};
use crate::error::ServerError;
use crate::http::HttpClient;
use crate::identity::Identity;
use crate::request::{RemoteAdapter, RemoteWeights, TokenCompletion, TokenRequest};

/// Largest number of stop strings that OpenAI takes. The caller cuts completions off at the others.
const STOP_STRINGS: usize = 4;

/// A conversation to continue, once per seed.
#[derive(Debug, Clone)]
pub struct ChatRequest {
    /// Name of the model on the server.
    pub model: String,
    /// List of messages in OpenAI's form.
    pub messages: Value,
    /// List of tools in OpenAI's form, or null.
    pub tools: Value,
    /// Seeds, one per completion. Servers get the first bytes as a number, and may ignore it.
    pub seeds: Vec<[u8; 32]>,
    /// Limit on the tokens of a completion, as the server counts them.
    pub max_tokens: u32,
    pub sampling: Sampling,
    /// Strings that end a completion. A server gets the first four.
    pub stop: Vec<String>,
}

/// Text and tool calls of one completion.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatCompletion {
    pub text: String,
    pub tool_calls: Vec<ChatToolCall>,
    pub finish: Finish,
    /// Number of tokens, as the server counts them. 0 if it doesn't say.
    pub tokens: u64,
}

/// Tool call of a completion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatToolCall {
    /// Id that the message with its result has to name.
    pub id: Option<String>,
    pub name: String,
    /// Arguments as text, which should be a JSON object.
    pub arguments: String,
}

#[derive(Deserialize)]
struct CompletionResponse {
    choices: Vec<Choice>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Message {
    content: Option<String>,
    tool_calls: Option<Vec<MessageToolCall>>,
}

#[derive(Deserialize)]
struct MessageToolCall {
    id: Option<String>,
    function: CalledFunction,
}

#[derive(Deserialize)]
struct CalledFunction {
    name: String,
    /// Some servers leave it out for a function without parameters.
    arguments: Option<String>,
}

impl From<MessageToolCall> for ChatToolCall {
    fn from(MessageToolCall { id, function }: MessageToolCall) -> Self {
        Self { id, name: function.name, arguments: function.arguments.unwrap_or_default() }
    }
}

#[derive(Deserialize)]
struct Usage {
    completion_tokens: Option<u64>,
}

/// Returns the body of a request for one completion.
fn body(request: &ChatRequest, seed: &[u8; 32]) -> Value {
    let sampling = &request.sampling;
    let mut body = json!({
        "model": request.model,
        "messages": request.messages,
        "max_completion_tokens": request.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        // Within the numbers that every reader of JSON keeps exactly.
        "seed": number(seed) >> 11,
        "stream": false,
    });
    let optional =
        [("presence_penalty", sampling.presence_penalty), ("frequency_penalty", sampling.frequency_penalty)];
    for (name, value) in optional.into_iter().filter(|(_, value)| *value != 0.0) {
        body[name] = json!(value);
    }
    if !request.stop.is_empty() {
        body["stop"] = request.stop.iter().take(STOP_STRINGS).cloned().collect();
    }
    if request.tools.as_array().is_some_and(|tools| !tools.is_empty()) {
        body["tools"] = request.tools.clone();
    }
    body
}

/// Continues the conversation of a request once.
pub(crate) async fn complete(
    http: &HttpClient,
    request: &ChatRequest,
    seed: &[u8; 32],
) -> Result<ChatCompletion, ServerError> {
    let label = label(&[*seed]);
    let Sampling { top_k, min_p, .. } = request.sampling;
    if top_k > 0 || min_p > 0.0 {
        return Err(
            http.unfit("OpenAI's API has no `top_k` and no `min_p`", "remove them from the model's agents")
        );
    }
    if request.sampling.grammar.is_some() {
        return Err(no_grammars(http));
    }
    // Some addresses end where others of this API begin.
    let path = if http.address.ends_with("/v1") { "/chat/completions" } else { "/v1/chat/completions" };
    let answer = http.post(path, &body(request, seed), &label).await;
    let answer: Result<CompletionResponse, _> = answer.and_then(|answer| http.parse(answer, &label));
    let answer = answer.map_err(|error| match error {
        // A hosted model that doesn't exist doesn't come up while requests wait.
        ServerError::NotFound { server, request, message } => {
            ServerError::Refused { server, request, status: 404, message }
        }
        error => error,
    })?;
    let tokens = answer.usage.and_then(|usage| usage.completion_tokens).unwrap_or(0);
    let [choice] = <[Choice; 1]>::try_from(answer.choices)
        .map_err(|choices| http.wrong(&label, format!("it has {} completions, not one", choices.len())))?;
    let finish = match choice.finish_reason.as_deref() {
        Some("stop" | "tool_calls") | None => Finish::Stop,
        Some("length") => Finish::Length,
        // An answer of a server that works, and the same again to the same conversation.
        Some("content_filter") => {
            let (server, request) = (http.address.clone(), label);
            return Err(ServerError::Filtered { server, request });
        }
        Some(other) => {
            let problem = format!(
                "the completion ended with `{other}`, not with \"stop\", \"length\" or \"tool_calls\""
            );
            return Err(http.wrong(&label, problem));
        }
    };
    let Message { content, tool_calls } = choice.message;
    let tool_calls = tool_calls.into_iter().flatten().map(ChatToolCall::from).collect();
    Ok(ChatCompletion { text: content.unwrap_or_default(), tool_calls, finish, tokens })
}

/// Dialect of hosted models. They take no token ids and no weights.
pub(crate) struct OpenAi;

impl OpenAi {
    fn refuse<T>(http: &HttpClient, what: &str) -> Result<T, ServerError> {
        let problem = format!("a hosted model {what}");
        Err(http.unfit(problem, "use a server with `kind = vllm`, or set `train = false`"))
    }
}

#[async_trait]
impl Dialect for OpenAi {
    /// Shows that the server answers and takes the key. Not every server lists its models.
    async fn identify(&self, http: &HttpClient) -> Result<Identity, ServerError> {
        let path = if http.address.ends_with("/v1") { "/models" } else { "/v1/models" };
        match http.get(path).await {
            Ok(models) => Ok(Identity::parse(&Value::Null, &models)),
            Err(ServerError::NotFound { .. } | ServerError::Refused { .. }) => {
                Ok(Identity::parse(&Value::Null, &Value::Null))
            }
            Err(error) => Err(error),
        }
    }

    async fn complete(
        &self,
        http: &HttpClient,
        _identity: &Identity,
        _request: &TokenRequest,
        _seeds: &[[u8; 32]],
    ) -> Result<Vec<TokenCompletion>, ServerError> {
        Self::refuse(http, "takes no token ids")
    }

    async fn load_adapter(
        &self,
        http: &HttpClient,
        _identity: &Identity,
        _adapter: &RemoteAdapter,
    ) -> Result<(), ServerError> {
        Self::refuse(http, "loads no adapters")
    }

    async fn load_weights(
        &self,
        http: &HttpClient,
        _identity: &Identity,
        _weights: &RemoteWeights,
    ) -> Result<(), ServerError> {
        Self::refuse(http, "takes no weights")
    }

    async fn unload_adapter(&self, _http: &HttpClient, _name: &str) -> Result<(), ServerError> {
        Ok(())
    }

    fn logprobs_hint(&self) -> &'static str {
        "use a server with `kind = vllm`"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_may_have_no_arguments() {
        for function in [json!({ "name": "now" }), json!({ "name": "now", "arguments": null })] {
            let call: MessageToolCall =
                serde_json::from_value(json!({ "id": "1", "function": function })).unwrap();
            let expected =
                ChatToolCall { id: Some("1".into()), name: "now".into(), arguments: String::new() };
            assert_eq!(ChatToolCall::from(call), expected);
        }
    }

    #[test]
    fn requests_have_what_openai_takes_and_no_more() {
        let mut request = ChatRequest {
            model: "judge".into(),
            messages: json!([{ "role": "user", "content": "Hi" }]),
            tools: Value::Null,
            seeds: vec![[255; 32]],
            max_tokens: 7,
            sampling: Sampling::with_temperature(0.5),
            stop: Vec::new(),
        };
        let sent = body(&request, &[255; 32]);
        assert_eq!(sent["max_completion_tokens"], 7);
        assert_eq!(sent["seed"], (1_u64 << 53) - 1);
        for absent in ["tools", "stop", "top_k", "min_p", "presence_penalty", "max_tokens"] {
            assert!(sent.get(absent).is_none(), "{absent}");
        }
        request.stop = (0..6).map(|number| number.to_string()).collect();
        request.tools = json!([{ "type": "function" }]);
        request.sampling.presence_penalty = 0.5;
        let sent = body(&request, &[0; 32]);
        assert_eq!(sent["stop"], json!(["0", "1", "2", "3"]));
        assert_eq!((&sent["tools"], &sent["presence_penalty"]), (&request.tools, &json!(0.5)));
    }
}
