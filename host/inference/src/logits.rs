//! Processing of logits: biases, penalties and truncation of the distribution.

use pl_types::Sampling;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

/// The operations of [`Sampling`] on logits.
pub(crate) trait LogitProcessing {
    /// True if biases or penalties change the logits.
    fn edits_logits(&self) -> bool;
    /// Returns the name of the first parameter that is out of range, and a message about it. Returns `None` if all are valid.
    fn invalid_parameter(&self, vocab: usize) -> Option<(&'static str, String)>;
    /// Applies biases and penalties. `completion` holds the tokens sampled so far.
    fn edit_logits(&self, logits: &mut [f32], prompt: &[u32], completion: &[u32]);
    /// Ids of the tokens that top-k, top-p and min-p leave, sorted. `weights` are proportional to
    /// probabilities, and `total` is their sum.
    fn truncated_support(&self, weights: &[f32], total: f64) -> Vec<u32>;
}

impl LogitProcessing for Sampling {
    fn edits_logits(&self) -> bool {
        self.repetition_penalty != 1.0
            || self.presence_penalty != 0.0
            || self.frequency_penalty != 0.0
            || !self.logit_bias.is_empty()
    }

    fn invalid_parameter(&self, vocab: usize) -> Option<(&'static str, String)> {
        let range = |name: &'static str, value: f64, valid: bool, expected: &str| {
            (!valid).then(|| (name, format!("`{name}` is {value}; it must be {expected}")))
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
                let message = format!(
                    "`logit_bias` gives token {id} a bias of {bias}; ids must be at most {}, biases finite or minus infinity",
                    vocab - 1
                );
                Some(("logit_bias", message))
            })
    }

    fn edit_logits(&self, logits: &mut [f32], prompt: &[u32], completion: &[u32]) {
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
            let mut sampled = completion.to_vec();
            sampled.sort_unstable();
            for occurrences in sampled.chunk_by(|a, b| a == b) {
                let penalty = self.presence_penalty + self.frequency_penalty * occurrences.len() as f64;
                logits[occurrences[0] as usize] -= penalty as f32;
            }
        }
        for (id, bias) in &*self.logit_bias {
            logits[*id as usize] += bias;
        }
    }

    fn truncated_support(&self, weights: &[f32], total: f64) -> Vec<u32> {
        let mut tokens: Vec<u32> = (0..weights.len() as u32).filter(|i| weights[*i as usize] > 0.0).collect();
        // Likeliest first; ties by lower id.
        let order = |a: &u32, b: &u32| weights[*b as usize].total_cmp(&weights[*a as usize]).then(a.cmp(b));
        let mut total = total;
        let top_k = self.top_k as usize;
        if top_k > 0 && top_k < tokens.len() {
            tokens.select_nth_unstable_by(top_k - 1, order);
            tokens.truncate(top_k);
            total = tokens.iter().map(|i| f64::from(weights[*i as usize])).sum();
        }
        if self.top_p < 1.0 {
            // Sorts a growing prefix, because the full vocabulary rarely needs sorting.
            let mut prefix = 64;
            let count = loop {
                let sorted = prefix.min(tokens.len());
                if sorted < tokens.len() {
                    tokens.select_nth_unstable_by(sorted - 1, order);
                }
                tokens[..sorted].sort_unstable_by(order);
                let mut sum = 0.0;
                let reached = tokens[..sorted].iter().position(|i| {
                    sum += f64::from(weights[*i as usize]);
                    sum >= self.top_p * total
                });
                if let Some(last) = reached {
                    break last + 1;
                }
                if sorted == tokens.len() {
                    break sorted;
                }
                prefix *= 8;
            };
            tokens.truncate(count);
        }
        if self.min_p > 0.0 {
            let largest = tokens.iter().map(|i| weights[*i as usize]).fold(0.0, f32::max);
            tokens.retain(|i| f64::from(weights[*i as usize]) >= self.min_p * f64::from(largest));
        }
        tokens.sort_unstable();
        tokens
    }
}

/// Draws a number in [0, 1) with 53 random bits.
pub(crate) fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}
