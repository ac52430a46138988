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
    /// Likeliest tokens of each position. Empty if none were asked for.
    pub(crate) top: &'a [Vec<(u32, f32)>],
}

impl<'a> Tokens<'a> {
    fn positions(&self) -> impl Iterator<Item = (u32, f32, &'a [(u32, f32)])> {
        let Tokens { ids, logprobs, top } = *self;
        let top = move |index: usize| top.get(index).map(Vec::as_slice).unwrap_or_default();
        ids.iter().zip(logprobs).enumerate().map(move |(index, (id, logprob))| (*id, *logprob, top(index)))
    }
}

/// Returns the text of a token's bytes, and that of a part of a character as OpenAI writes it: `\xf0\x9f`, after `mark`.
fn token_text(bytes: &[u8], mark: &str) -> String {
    match str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => format!("{mark}{}", bytes.escape_ascii()),
    }
}

/// Returns the likeliest tokens of a position and, if it is not among them, `sampled`. Tokens that can't follow at all are left
/// out: a grammar may allow fewer than were asked for.
fn with_sampled(top: &[(u32, f32)], sampled: (u32, f32)) -> impl Iterator<Item = (u32, f32)> {
    let is_listed = top.iter().any(|(id, _)| *id == sampled.0);
    let possible = top.iter().copied().filter(|(_, logprob)| logprob.is_finite());
    possible.chain((!is_listed).then_some(sampled))
}

/// Returns the alternatives of a position as lists have them: none if none were asked for.
fn alternatives(top: &[(u32, f32)], sampled: (u32, f32)) -> impl Iterator<Item = (u32, f32)> {
    let is_asked = !top.is_empty();
    with_sampled(top, sampled).filter(move |_| is_asked)
}

fn entry(tokenizer: &Tokenizer, id: u32, logprob: f32) -> Map<String, Value> {
    let bytes = tokenizer.token_bytes(id);
    let fields = [
        ("token", json!(token_text(&bytes, ""))),
        ("token_id", json!(id)),
        ("logprob", json!(logprob)),
        ("bytes", json!(bytes)),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Returns `logprobs` of a chat completion: `{"content": [{token, token_id, logprob, bytes, top_logprobs}]}`.
/// `token_id` is an addition to OpenAI's format.
pub(crate) fn chat(tokenizer: &Tokenizer, tokens: Tokens<'_>) -> Value {
    let content = tokens.positions().map(|(id, logprob, top)| {
        let mut fields = entry(tokenizer, id, logprob);
        let top = alternatives(top, (id, logprob)).map(|(id, logprob)| entry(tokenizer, id, logprob));
        let top: Vec<_> = top.collect();
        fields.insert("top_logprobs".to_owned(), json!(top));
        fields
    });
    json!({ "content": content.collect::<Vec<_>>() })
}

/// Position in the text of a completion, after the tokens so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct TextPosition {
    /// Number of whole characters.
    characters: usize,
    /// Bytes of a character whose last ones are missing.
    partial: Vec<u8>,
    /// True after the first token.
    has_begun: bool,
}

impl TextPosition {
    /// Adds a token. Returns the number of whole characters before it.
    fn advance(&mut self, tokenizer: &Tokenizer, id: u32) -> usize {
        // Special tokens are not part of the text.
        if tokenizer.is_special(id) {
            return self.characters;
        }
        let added = match tokenizer.decode(&[id], true) {
            // As the text begins, which may lack the token's space.
            first if !self.has_begun && !first.contains(char::REPLACEMENT_CHARACTER) => first.into_bytes(),
            _ => tokenizer.token_bytes(id),
        };
        self.has_begun = true;
        let mut bytes = std::mem::take(&mut self.partial);
        let goes_on = added.first().is_some_and(|byte| matches!(byte, 0x80..=0xBF));
        if !bytes.is_empty() && !goes_on {
            self.characters += 1;
            bytes.clear();
        }
        let start = self.characters;
        bytes.extend(added);
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            self.characters += chunk.valid().chars().count();
            let lacks_bytes = str::from_utf8(chunk.invalid()).is_err_and(|error| error.error_len().is_none());
            if lacks_bytes && chunks.peek().is_none() {
                self.partial = chunk.invalid().to_vec();
            } else if !chunk.invalid().is_empty() {
                self.characters += 1;
            }
        }
        start
    }
}

/// Returns `logprobs` of a text completion: parallel lists of tokens, log-probabilities, likeliest tokens and
/// offsets of the tokens in the text, in characters. `position` is that of the first token, and moves on to the end. The
/// offset of a part of a character is that of the character.
pub(crate) fn text(tokenizer: &Tokenizer, tokens: Tokens<'_>, position: &mut TextPosition) -> Value {
    let (mut texts, mut logprobs, mut tops, mut offsets) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let token_text = |id: u32| token_text(&tokenizer.token_bytes(id), "bytes:");
    for (id, logprob, top) in tokens.positions() {
        offsets.push(position.advance(tokenizer, id));
        let mut likeliest = Map::new();
        // Without any, the sampled token, as in OpenAI's API.
        for (id, logprob) in with_sampled(top, (id, logprob)) {
            // Of tokens with equal texts, the likeliest.
            likeliest.entry(token_text(id)).or_insert_with(|| json!(logprob));
        }
        texts.push(token_text(id));
        logprobs.push(logprob);
        tops.push(likeliest);
    }
    json!({ "tokens": texts, "token_logprobs": logprobs, "top_logprobs": tops, "text_offset": offsets })
}

/// Returns `logprobs` of `/inference/v1/generate`: `{"content": [{token_id, logprob, top_logprobs}]}`.
pub(crate) fn token_ids(tokens: Tokens<'_>) -> Value {
    let pair = |(id, logprob): (u32, f32)| json!({ "token_id": id, "logprob": logprob });
    let content = tokens.positions().map(|(id, logprob, top)| {
        let top: Vec<_> = alternatives(top, (id, logprob)).map(pair).collect();
        json!({ "token_id": id, "logprob": logprob, "top_logprobs": top })
    });
    json!({ "content": content.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tokenizer with a token for each byte.
    fn tokenizer() -> Tokenizer {
        let path =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/tiny/tokenizer.json");
        Tokenizer::from_json("tiny", &std::fs::read(path).unwrap(), &[]).unwrap()
    }

    #[test]
    fn parts_of_a_character_have_their_bytes_and_its_offset() {
        let tokenizer = tokenizer();
        let completion = " é🙂<|im_end|>b";
        let ids = tokenizer.encode(completion).unwrap();
        let logprobs = vec![-0.5; ids.len()];
        let parts: Vec<u32> = tokenizer.encode("🙂").unwrap();
        assert_eq!(parts.len(), 4, "a part is a byte");
        // The likeliest first, the last one impossible.
        let top = vec![
            vec![(parts[1], -0.25), (parts[2], -1.0), (parts[1], -2.0), (3, f32::NEG_INFINITY)];
            ids.len()
        ];
        let tokens = Tokens { ids: &ids, logprobs: &logprobs, top: &top };

        let listed = chat(&tokenizer, tokens);
        let listed = listed["content"].as_array().unwrap();
        let bytes: Vec<u8> = listed
            .iter()
            .flat_map(|token| serde_json::from_value::<Vec<u8>>(token["bytes"].clone()).unwrap())
            .collect();
        assert_eq!(String::from_utf8(bytes).unwrap(), completion);
        let alternatives = listed[0]["top_logprobs"].as_array().unwrap();
        assert_eq!(alternatives.len(), 4, "with the sampled one");
        assert_eq!((&alternatives[3]["token"], &alternatives[3]["logprob"]), (&json!(" "), &json!(-0.5)));
        let sampled = &listed[ids.len() - 5]["top_logprobs"];
        assert_eq!(sampled.as_array().unwrap().len(), 3, "the sampled one is listed once");
        let none = Tokens { top: &[], ..tokens };
        assert_eq!(chat(&tokenizer, none)["content"][0]["top_logprobs"], json!([]));
        assert_eq!(token_ids(none)["content"][0]["top_logprobs"], json!([]));
        let alone = text(&tokenizer, none, &mut TextPosition::default());
        assert_eq!(alone["top_logprobs"][0], json!({ " ": -0.5 }));
        assert_eq!(listed[0]["top_logprobs"][0]["token"], "\\x9f");

        let written = tokenizer.decode(&ids, true);
        // Whether a completion comes whole or token by token.
        for size in [ids.len(), 1] {
            let mut position = TextPosition::default();
            let parts = ids.chunks(size).zip(logprobs.chunks(size)).zip(top.chunks(size));
            let parts: Vec<Value> = parts
                .map(|((ids, logprobs), top)| text(&tokenizer, Tokens { ids, logprobs, top }, &mut position))
                .collect();
            let all = |field: &str| -> Vec<Value> {
                parts.iter().flat_map(|part| part[field].as_array().unwrap().clone()).collect()
            };
            let offsets: Vec<usize> =
                all("text_offset").iter().map(|at| at.as_u64().unwrap() as usize).collect();
            let smile = written.chars().position(|character| character == '🙂').unwrap();
            assert_eq!(offsets[offsets.len() - 6..], [smile, smile, smile, smile, smile + 1, smile + 1]);
            assert_eq!(written.chars().nth(*offsets.last().unwrap()), Some('b'));
            assert_eq!(all("tokens")[ids.len() - 5], "bytes:\\x9f");
            assert_eq!(
                all("top_logprobs")[0],
                json!({ "bytes:\\x9f": -0.25, "bytes:\\x99": -1.0, " ": -0.5 })
            );
        }
        assert_eq!(token_ids(tokens)["content"][0]["top_logprobs"].as_array().unwrap().len(), 4);
    }

    #[test]
    fn bytes_of_no_character_count_as_one_each() {
        let tokenizer = tokenizer();
        let [first, second, ..] = tokenizer.encode("🙂").unwrap()[..] else { panic!("a part is a byte") };
        let letter = tokenizer.encode("b").unwrap()[0];
        let mut position = TextPosition::default();
        // A beginning that is not gone on with, and a byte that can't begin one.
        let ids = [first, letter, second, letter];
        let offsets = ids.map(|id| position.advance(&tokenizer, id));
        assert_eq!(offsets, [0, 1, 2, 3]);
        assert_eq!(tokenizer.decode(&ids, true).chars().count(), position.characters);
    }
}
