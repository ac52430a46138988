//! Parameters of the distribution that tokens are drawn from.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::grammar::Grammar;

/// Parameters for drawing the next token from a model's logits. In this order: biases and penalties change
/// logits, the grammar leaves out tokens, the temperature divides the other logits, then top-k, top-p and min-p
/// each leave out tokens, and the rest is normalised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sampling {
    /// Divisor of the logits; 0 takes the likeliest token (greedy).
    pub temperature: f64,
    /// Number of likeliest tokens to draw from (Fan et al. 2018); 0 means all.
    pub top_k: u32,
    /// Draws from the fewest likeliest tokens whose probabilities reach this sum (Holtzman et al. 2019); 1
    /// means all.
    pub top_p: f64,
    /// Draws from tokens at least this fraction as likely as the likeliest (Nguyen et al. 2024); 0 means all.
    pub min_p: f64,
    /// Divides positive logits of tokens that the prompt or the completion contains and multiplies negative
    /// ones (Keskar et al. 2019); 1 has no effect.
    pub repetition_penalty: f64,
    /// Subtracted from the logits of tokens that the completion contains; 0 has no effect.
    pub presence_penalty: f64,
    /// Subtracted from a token's logit once per occurrence in the completion; 0 has no effect.
    pub frequency_penalty: f64,
    /// Pairs of a token id and a number that is added to its logit; minus infinity excludes the token. Set by
    /// requests alone, never by a workflow.
    #[serde(skip)]
    pub logit_bias: Arc<[(u32, f32)]>,
    /// The grammar that completions are constrained to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grammar: Option<Arc<Grammar>>,
}

impl Default for Sampling {
    /// The model's own distribution.
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Arc::default(),
            grammar: None,
        }
    }
}

impl Sampling {
    /// The model's own distribution at a temperature.
    pub fn with_temperature(temperature: f64) -> Self {
        Self { temperature, ..Self::default() }
    }

    /// True if tokens may be left out. Completions then list the tokens that each one was drawn from.
    pub fn truncates(&self) -> bool {
        self.temperature > 0.0
            && (self.top_k > 0 || self.top_p < 1.0 || self.min_p > 0.0 || self.grammar.is_some())
    }
}

/// Sampling parameters that an evaluation changes; the others stay as the agent has them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SamplingOverrides {
    pub temperature: Option<f64>,
    pub top_k: Option<u32>,
    pub top_p: Option<f64>,
    pub min_p: Option<f64>,
    pub repetition_penalty: Option<f64>,
    pub presence_penalty: Option<f64>,
    pub frequency_penalty: Option<f64>,
}

impl SamplingOverrides {
    /// `base` with these parameters in place of its own.
    pub fn apply(&self, base: &Sampling) -> Sampling {
        Sampling {
            temperature: self.temperature.unwrap_or(base.temperature),
            top_k: self.top_k.unwrap_or(base.top_k),
            top_p: self.top_p.unwrap_or(base.top_p),
            min_p: self.min_p.unwrap_or(base.min_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(base.repetition_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(base.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(base.frequency_penalty),
            logit_bias: Arc::clone(&base.logit_bias),
            grammar: base.grammar.clone(),
        }
    }
}
