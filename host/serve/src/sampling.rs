//! Sampling parameters of requests, by the names of OpenAI's API and vLLM's additions.

use std::collections::BTreeMap;
use std::sync::Arc;

use pl_types::{Grammar, PartHasher, Sampling};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::ApiError;

/// Sampling parameters of a request.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct SamplingFields {
    pub(crate) temperature: Option<f64>,
    pub(crate) top_p: Option<f64>,
    /// -1 and 0 mean all tokens.
    pub(crate) top_k: Option<i64>,
    pub(crate) min_p: Option<f64>,
    pub(crate) repetition_penalty: Option<f64>,
    pub(crate) presence_penalty: Option<f64>,
    pub(crate) frequency_penalty: Option<f64>,
    /// Additions to logits, -100 to 100, by token id.
    pub(crate) logit_bias: Option<BTreeMap<String, f32>>,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) max_completion_tokens: Option<u32>,
    pub(crate) seed: Option<i64>,
    pub(crate) stop: Option<OneOrMany>,
    pub(crate) stop_token_ids: Option<Vec<u32>>,
    pub(crate) n: Option<usize>,
    pub(crate) structured_outputs: Option<StructuredOutputs>,
}

/// Language that completions are constrained to, by vLLM's names.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StructuredOutputs {
    /// A grammar in the dialect of Lark that llguidance reads.
    Grammar(String),
    /// A JSON Schema, as text or as it is.
    Json(Value),
    /// A regular expression of the whole completion.
    Regex(String),
    /// The completions to choose from.
    Choice(Vec<String>),
}

/// A string or a list of strings.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "expected a text or a list of texts")]
pub(crate) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// Sampling parameters that would change the result and that nothing here implements, each with the value that asks for nothing.
fn unsupported_sampling() -> [(&'static str, Value); 9] {
    [
        ("allowed_token_ids", json!([])),
        ("bad_words", json!([])),
        ("best_of", json!(1)),
        ("ignore_eos", json!(false)),
        ("include_stop_str_in_output", json!(false)),
        ("min_tokens", json!(0)),
        ("prompt_logprobs", Value::Null),
        ("thinking_token_budget", Value::Null),
        ("truncate_prompt_tokens", json!(0)),
    ]
}

/// Fields of chat and text completions that would change the result and that nothing here implements, each with the value that
/// asks for nothing.
pub(crate) fn unsupported() -> Vec<(&'static str, Value)> {
    let own = [
        ("add_generation_prompt", json!(true)),
        ("add_special_tokens", json!(false)),
        ("chat_template", Value::Null),
        ("continue_final_message", json!(false)),
        ("echo", json!(false)),
        ("guided_choice", Value::Null),
        ("guided_decoding_backend", Value::Null),
        ("guided_grammar", Value::Null),
        ("guided_json", Value::Null),
        ("guided_regex", Value::Null),
        ("guided_whitespace_pattern", Value::Null),
        ("skip_special_tokens", json!(true)),
        ("spaces_between_special_tokens", json!(true)),
        ("structural_tag", Value::Null),
        ("suffix", json!("")),
        ("use_beam_search", json!(false)),
    ];
    own.into_iter().chain(unsupported_sampling()).collect()
}

/// Members of vLLM's `sampling_params` that would change the result and that nothing here implements, each with the value that
/// asks for nothing. Those about texts are not among them: the response has token ids alone.
pub(crate) fn unsupported_params() -> Vec<(&'static str, Value)> {
    let own = [
        ("extra_args", json!({})),
        ("flat_logprobs", json!(false)),
        ("guided_decoding", Value::Null),
        ("logits_processors", json!([])),
        ("logprob_token_ids", json!([])),
        ("repetition_detection", Value::Null),
    ];
    own.into_iter().chain(unsupported_sampling()).collect()
}

impl StructuredOutputs {
    fn grammar(&self) -> Grammar {
        match self {
            StructuredOutputs::Grammar(text) => Grammar::Lark(text.clone()),
            StructuredOutputs::Json(Value::String(text)) => Grammar::JsonSchema(text.clone()),
            StructuredOutputs::Json(schema) => Grammar::JsonSchema(schema.to_string()),
            StructuredOutputs::Regex(pattern) => Grammar::Lark(format!("start: {}", lark_regex(pattern))),
            StructuredOutputs::Choice(texts) => {
                let (empty, texts): (Vec<&String>, Vec<&String>) =
                    texts.iter().partition(|text| text.is_empty());
                if texts.is_empty() {
                    return Grammar::Lark(format!("start: {}", lark_string("")));
                }
                // As one terminal: the parser compares each alternative of a rule on its own, thousands of them for minutes.
                let texts: Vec<String> = texts.into_iter().map(|text| lark_string(text)).collect();
                let optional = if empty.is_empty() { "" } else { "?" };
                Grammar::Lark(format!("start: CHOICE{optional}\nCHOICE: {}", texts.join(" | ")))
            }
        }
    }
}

/// Returns a text as a string of Lark, which is written as in JSON.
fn lark_string(text: &str) -> String {
    // JSON may have this character as it is, Lark's strings may not.
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// Returns a regular expression as one of Lark, between slashes: its own are escaped.
fn lark_regex(pattern: &str) -> String {
    if pattern.is_empty() {
        return lark_string("");
    }
    let mut out = String::from("/");
    let mut is_escaped = false;
    for character in pattern.chars() {
        if character == '/' && !is_escaped {
            out.push('\\');
        }
        is_escaped = character == '\\' && !is_escaped;
        out.push(character);
    }
    out.push('/');
    out
}

impl SamplingFields {
    /// Returns the limit on tokens that the request asks for, with its field.
    ///
    /// # Errors
    /// If it is 0.
    pub(crate) fn token_limit(&self) -> Result<Option<(&'static str, u32)>, ApiError> {
        let limits = [("max_completion_tokens", self.max_completion_tokens), ("max_tokens", self.max_tokens)];
        match limits.into_iter().find_map(|(name, limit)| Some((name, limit?))) {
            Some((name, 0)) => Err(ApiError::field(name, format!("`{name}` is 0; it must be at least 1"))),
            limit => Ok(limit),
        }
    }

    /// Returns the name of a parameter, besides the seed and `n`, that asks for other completions than a request without it
    /// does. Returns `None` if no parameter does.
    pub(crate) fn effective_parameter(&self) -> Option<&'static str> {
        let default = Sampling::default();
        let differs = |given: Option<f64>, default: f64| given.is_some_and(|given| given != default);
        let parameters = [
            ("temperature", differs(self.temperature, default.temperature)),
            ("top_p", differs(self.top_p, default.top_p)),
            ("top_k", self.top_k.is_some_and(|k| k > 0)),
            ("min_p", differs(self.min_p, default.min_p)),
            ("repetition_penalty", differs(self.repetition_penalty, default.repetition_penalty)),
            ("presence_penalty", differs(self.presence_penalty, default.presence_penalty)),
            ("frequency_penalty", differs(self.frequency_penalty, default.frequency_penalty)),
            ("logit_bias", self.logit_bias.as_ref().is_some_and(|biases| !biases.is_empty())),
            ("max_tokens", self.max_tokens.is_some()),
            ("max_completion_tokens", self.max_completion_tokens.is_some()),
            ("stop", !self.stop_strings().is_empty()),
            ("stop_token_ids", self.stop_token_ids.as_ref().is_some_and(|ids| !ids.is_empty())),
            ("structured_outputs", self.structured_outputs.is_some()),
        ];
        parameters.into_iter().find_map(|(name, matters)| matters.then_some(name))
    }

    /// Returns the number of completions per prompt.
    ///
    /// # Errors
    /// If it is 0.
    pub(crate) fn count(&self) -> Result<usize, ApiError> {
        match self.n.unwrap_or(1) {
            0 => Err(ApiError::field("n", "`n` is 0; it must be at least 1")),
            n => Ok(n),
        }
    }

    /// Returns the distribution that the request asks for; without any parameter, the model's own.
    ///
    /// # Errors
    /// If a bias is not one of a token, there is nothing to choose from, or `top_k` is below -1. The engine checks the other
    /// ranges.
    pub(crate) fn distribution(&self) -> Result<Sampling, ApiError> {
        if let Some(StructuredOutputs::Choice(texts)) = &self.structured_outputs
            && texts.is_empty()
        {
            let message = "`structured_outputs.choice` is empty; give at least one text";
            return Err(ApiError::field("structured_outputs", message));
        }
        if let Some(k) = self.top_k.filter(|k| *k < -1) {
            let message = format!("`top_k` is {k}; it must be at least 1, or -1 or 0 for all tokens");
            return Err(ApiError::field("top_k", message));
        }
        let default = Sampling::default();
        Ok(Sampling {
            temperature: self.temperature.unwrap_or(default.temperature),
            top_k: self.top_k.map_or(default.top_k, |k| u32::try_from(k.max(0)).unwrap_or(u32::MAX)),
            top_p: self.top_p.unwrap_or(default.top_p),
            min_p: self.min_p.unwrap_or(default.min_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(default.repetition_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(default.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(default.frequency_penalty),
            logit_bias: self.biases()?,
            grammar: self.structured_outputs.as_ref().map(StructuredOutputs::grammar).map(Arc::new),
        })
    }

    fn biases(&self) -> Result<Arc<[(u32, f32)]>, ApiError> {
        let biases = self.logit_bias.iter().flatten();
        let pair = |(id, bias): (&String, &f32)| {
            let id = id.parse().map_err(|_| {
                ApiError::field(
                    "logit_bias",
                    format!("`logit_bias` has the key {id:?}, which is not a token id"),
                )
            })?;
            if !(-100.0..=100.0).contains(bias) {
                let message = format!("the bias {bias} of token {id} is outside of -100 to 100");
                return Err(ApiError::field("logit_bias", message));
            }
            Ok((id, *bias))
        };
        biases.map(pair).collect::<Result<Vec<_>, _>>().map(Into::into)
    }

    /// Returns the strings that end a completion.
    pub(crate) fn stop_strings(&self) -> Arc<[String]> {
        match self.stop.clone() {
            None => Arc::new([]),
            Some(OneOrMany::One(text)) => Arc::new([text]),
            Some(OneOrMany::Many(texts)) => texts.into(),
        }
    }

    /// Returns `count` seeds for the prompt number `prompt`: derived from the request's seed, or random.
    pub(crate) fn seeds(&self, prompt: usize, count: usize) -> Vec<[u8; 32]> {
        let seed = |index: usize| match self.seed {
            Some(seed) => PartHasher::derive_key("pl-serve completion v1")
                .u64(seed.cast_unsigned())
                .u64(prompt as u64)
                .u64(index as u64)
                .seed(),
            None => rand::random(),
        };
        (0..count).map(seed).collect()
    }

    /// Returns the seed of an episode: the request's, or a random one.
    pub(crate) fn episode_seed(&self) -> u64 {
        self.seed.map_or_else(rand::random, i64::cast_unsigned)
    }
}
