//! How tokens are drawn.

use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

/// How the next token is drawn from a model's logits. In this order: biases and penalties change logits, the
/// temperature divides them, then top-k, top-p and min-p each leave out tokens, and what is left is normalised.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 takes the likeliest token.
    pub temperature: f64,
    /// Only so many likeliest tokens (Fan et al. 2018); 0: all.
    pub top_k: usize,
    /// The fewest likeliest tokens whose probabilities reach this sum (Holtzman et al. 2019); 1: all.
    pub top_p: f64,
    /// Only tokens at least this fraction as likely as the likeliest (Nguyen et al. 2024); 0: all.
    pub min_p: f64,
    /// Divides positive logits of tokens that the prompt or the completion holds, multiplies negative ones (Keskar
    /// et al. 2019); 1: none.
    pub repetition_penalty: f64,
    /// Taken off the logits of tokens that the completion holds; 0: none.
    pub presence_penalty: f64,
    /// Taken off the logits once for every time that the completion holds the token; 0: none.
    pub frequency_penalty: f64,
    /// Added to the logits of some tokens; minus infinity bars one.
    pub logit_bias: Arc<[(u32, f32)]>,
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
            logit_bias: Arc::new([]),
        }
    }
}

impl Sampling {
    /// The model's own distribution at a temperature.
    pub fn at(temperature: f64) -> Self {
        Self { temperature, ..Self::default() }
    }

    /// Whether tokens may be left out: completions then carry the ones that were kept.
    pub fn truncates(&self) -> bool {
        self.temperature > 0.0 && (self.top_k > 0 || self.top_p < 1.0 || self.min_p > 0.0)
    }

    /// Whether logits are changed before anything else.
    pub(crate) fn edits(&self) -> bool {
        self.penalises() || !self.logit_bias.is_empty()
    }

    fn penalises(&self) -> bool {
        self.repetition_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }

    /// What is wrong with the settings, if anything.
    pub(crate) fn fault(&self, vocab: usize) -> Option<String> {
        let range = |name: &str, value: f64, good: bool, wanted: &str| {
            (!good).then(|| format!("`{name}` is {value}; it must be {wanted}"))
        };
        let Self { temperature: t, top_p, min_p, repetition_penalty: r, .. } = *self;
        let (presence, frequency) = (self.presence_penalty, self.frequency_penalty);
        range("temperature", t, t.is_finite() && t >= 0.0, "0 or more")
            .or_else(|| range("top_p", top_p, top_p > 0.0 && top_p <= 1.0, "above 0 and at most 1"))
            .or_else(|| range("min_p", min_p, (0.0..=1.0).contains(&min_p), "from 0 to 1"))
            .or_else(|| range("repetition_penalty", r, r.is_finite() && r > 0.0, "above 0"))
            .or_else(|| range("presence_penalty", presence, presence.is_finite(), "a number"))
            .or_else(|| range("frequency_penalty", frequency, frequency.is_finite(), "a number"))
            .or_else(|| {
                let (id, bias) = self.logit_bias.iter().find(|(id, bias)| {
                    *id as usize >= vocab || bias.is_nan() || *bias == f32::INFINITY
                })?;
                Some(format!(
                    "`logit_bias` gives token {id} a bias of {bias}; ids go up to {}, biases are finite or minus infinity",
                    vocab - 1
                ))
            })
    }

    /// Changes logits by biases and penalties. `completion` are the tokens drawn so far.
    pub(crate) fn edit(&self, logits: &mut [f32], prompt: &[u32], completion: &[u32]) {
        if self.repetition_penalty != 1.0 {
            let penalty = self.repetition_penalty as f32;
            let mut seen: Vec<u32> = prompt.iter().chain(completion).copied().collect();
            seen.sort_unstable();
            seen.dedup();
            for id in seen {
                let z = &mut logits[id as usize];
                *z = if *z > 0.0 { *z / penalty } else { *z * penalty };
            }
        }
        if self.presence_penalty != 0.0 || self.frequency_penalty != 0.0 {
            let mut drawn = completion.to_vec();
            drawn.sort_unstable();
            for same in drawn.chunk_by(|a, b| a == b) {
                let penalty = self.presence_penalty + self.frequency_penalty * same.len() as f64;
                logits[same[0] as usize] -= penalty as f32;
            }
        }
        for (id, bias) in &*self.logit_bias {
            logits[*id as usize] += bias;
        }
    }

    /// The tokens that stay, by id, given weights in proportion to their probabilities.
    pub(crate) fn keep(&self, weights: &[f32], total: f64) -> Vec<u32> {
        let mut tokens: Vec<u32> = (0..weights.len() as u32).filter(|i| weights[*i as usize] > 0.0).collect();
        // Likeliest first; of equals, the lower id.
        let order = |a: &u32, b: &u32| weights[*b as usize].total_cmp(&weights[*a as usize]).then(a.cmp(b));
        let mut total = total;
        if self.top_k > 0 && self.top_k < tokens.len() {
            tokens.select_nth_unstable_by(self.top_k - 1, order);
            tokens.truncate(self.top_k);
            total = tokens.iter().map(|i| f64::from(weights[*i as usize])).sum();
        }
        if self.top_p < 1.0 {
            let mut front = 64;
            let enough = loop {
                let front_now = front.min(tokens.len());
                if front_now < tokens.len() {
                    tokens.select_nth_unstable_by(front_now - 1, order);
                }
                tokens[..front_now].sort_unstable_by(order);
                let mut sum = 0.0;
                let reached = tokens[..front_now].iter().position(|i| {
                    sum += f64::from(weights[*i as usize]);
                    sum >= self.top_p * total
                });
                if let Some(last) = reached {
                    break last + 1;
                }
                if front_now == tokens.len() {
                    break front_now;
                }
                front *= 8;
            };
            tokens.truncate(enough);
        }
        if self.min_p > 0.0 {
            let most = tokens.iter().map(|i| weights[*i as usize]).fold(0.0, f32::max);
            tokens.retain(|i| f64::from(weights[*i as usize]) >= self.min_p * f64::from(most));
        }
        tokens.sort_unstable();
        tokens
    }
}

/// A number in [0, 1) of 53 bits.
pub(crate) fn uniform(stream: &mut ChaCha8Rng) -> f64 {
    (stream.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}
