//! Log-probabilities of tokens in the forms of the APIs.

use pl_model::Tokenizer;
use serde_json::{Map, Value, json};

use crate::error::ApiError;

/// Maximum number of alternatives of a token, as in vLLM.
const MOST_ALTERNATIVES: usize = 20;

/// Checks the number of alternatives that a field asks for. `field` is its path in the body.
pub(crate) fn check_count(field: &str, count: Option<usize>) -> Result<(), ApiError> {
    let name = field.rsplit('.').next().unwrap_or(field);
    if count.is_some_and(|count| count > MOST_ALTERNATIVES) {
        return Err(ApiError::field(field, format!("`{name}` is at most {MOST_ALTERNATIVES}")));
    }
    Ok(())
}

/// Tokens of a completion with their recorded log-probabilities.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tokens<'a> {
    pub(crate) ids: &'a [u32],
    pub(crate) logprobs: &'a [f32],
    /// Likeliest tokens of each position. Empty if they were not asked for.
    pub(crate) top: &'a [Vec<(u32, f32)>],
}

impl<'a> Tokens<'a> {
    fn positions(&self) -> impl Iterator<Item = (u32, f32, &'a [(u32, f32)])> {
        let Tokens { ids, logprobs, top } = *self;
        let top = move |index: usize| top.get(index).map(Vec::as_slice).unwrap_or_default();
        ids.iter().zip(logprobs).enumerate().map(move |(index, (id, logprob))| (*id, *logprob, top(index)))
    }
}

/// Returns the text of one token, special tokens included, and its bytes. The bytes are null if the token is
/// only a part of a character.
fn token_text(tokenizer: &Tokenizer, id: u32) -> (String, Value) {
    let text = tokenizer.decode(&[id], false);
    let bytes = if text.contains('\u{fffd}') { Value::Null } else { json!(text.as_bytes()) };
    (text, bytes)
}

fn entry(tokenizer: &Tokenizer, id: u32, logprob: f32) -> Map<String, Value> {
    let (token, bytes) = token_text(tokenizer, id);
    let fields =
        [("token", json!(token)), ("token_id", json!(id)), ("logprob", json!(logprob)), ("bytes", bytes)];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Returns `logprobs` of a chat completion: `{"content": [{token, token_id, logprob, bytes, top_logprobs}]}`.
/// `token_id` is an addition to OpenAI's format.
pub(crate) fn chat(tokenizer: &Tokenizer, tokens: Tokens<'_>) -> Value {
    let content = tokens.positions().map(|(id, logprob, top)| {
        let mut fields = entry(tokenizer, id, logprob);
        let top: Vec<_> = top.iter().map(|(id, logprob)| entry(tokenizer, *id, *logprob)).collect();
        fields.insert("top_logprobs".to_owned(), json!(top));
        fields
    });
    json!({ "content": content.collect::<Vec<_>>() })
}

/// Returns `logprobs` of a text completion: parallel lists of tokens, log-probabilities, likeliest tokens and
/// offsets of the tokens in the text, in characters from `offset` on.
pub(crate) fn text(tokenizer: &Tokenizer, tokens: Tokens<'_>, offset: usize) -> Value {
    let (mut texts, mut logprobs, mut tops, mut offsets) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut position = offset;
    for (id, logprob, top) in tokens.positions() {
        let (token, _) = token_text(tokenizer, id);
        offsets.push(position);
        position += token.chars().count();
        let top: Map<String, Value> =
            top.iter().map(|(id, logprob)| (token_text(tokenizer, *id).0, json!(logprob))).collect();
        texts.push(token);
        logprobs.push(logprob);
        tops.push(top);
    }
    json!({ "tokens": texts, "token_logprobs": logprobs, "top_logprobs": tops, "text_offset": offsets })
}

/// Returns `logprobs` of `/inference/v1/generate`: `{"content": [{token_id, logprob, top_logprobs}]}`.
pub(crate) fn token_ids(tokens: Tokens<'_>) -> Value {
    let pair = |(id, logprob): &(u32, f32)| json!({ "token_id": id, "logprob": logprob });
    let content = tokens.positions().map(|(id, logprob, top)| {
        let top: Vec<_> = top.iter().map(pair).collect();
        json!({ "token_id": id, "logprob": logprob, "top_logprobs": top })
    });
    json!({ "content": content.collect::<Vec<_>>() })
}
