//! Scaling of the rotary position embedding to sequences longer than those of a model's first training.
//!
//! The arithmetic is in f32, step by step as transformers does it, so that positions far out agree too.

use std::f64::consts::PI;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::Error;

/// Change of the frequencies of the rotary embedding.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RopeScaling {
    /// No change.
    #[default]
    None,
    /// All frequencies divided by one number (position interpolation, Chen et al. 2023).
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// Llama 3.1's: long waves are divided, short ones kept, those between blended.
    Llama3 {
        /// The divisor of the long waves.
        factor: f64,
        /// Waves longer than `original_max_positions / low_freq_factor` are long.
        low_freq_factor: f64,
        /// Waves shorter than `original_max_positions / high_freq_factor` are short.
        high_freq_factor: f64,
        /// Longest sequence of the first training.
        original_max_positions: usize,
    },
    /// `YaRN` (Peng et al. 2023): divided frequencies and kept ones blended along the head.
    Yarn {
        /// The divisor.
        factor: f64,
        /// Longest sequence of the first training.
        original_max_positions: usize,
        /// Frequencies with more turns than this within the original length are kept.
        beta_fast: f64,
        /// Frequencies with fewer turns than this within the original length are divided.
        beta_slow: f64,
        /// Factor of cosines and sines; includes `mscale` and `mscale_all_dim`.
        attention_factor: f64,
        /// Rounds the bounds of the blend to whole numbers.
        truncate: bool,
    },
    /// A divisor for each frequency, as in the `rope_freqs` tensor of a GGUF file.
    Factors {
        /// `head_dim / 2` divisors.
        factors: Vec<f32>,
    },
}

impl RopeScaling {
    /// Reads the rotary settings of a `config.json`, in the newer form (`rope_parameters`) or the older one
    /// (`rope_scaling`). `max_positions` replaces a missing original length.
    ///
    /// # Errors
    /// [`Error::Format`] for unsupported kinds, and for numbers that are missing or out of range.
    pub(crate) fn from_json(config: &Value, max_positions: usize, path: &Path) -> Result<Self, Error> {
        let rope = rotary_settings(config);
        let fail = |reason: String| Err(Error::format(path, reason));
        let partial = [rope, config].iter().find_map(|json| json["partial_rotary_factor"].as_f64());
        if let Some(share) = partial.filter(|share| *share != 1.0) {
            return fail(format!(
                "`partial_rotary_factor` is {share}; only heads with rotation of the whole head are supported"
            ));
        }
        let kind = rope["rope_type"].as_str().or(rope["type"].as_str()).unwrap_or("default");
        let number = |key: &str| rope[key].as_f64();
        let need = |key: &str| {
            number(key).ok_or_else(|| {
                Error::format(path, format!("the rotary embedding of type {kind} lacks the number `{key}`"))
            })
        };
        let original = config["original_max_position_embeddings"]
            .as_u64()
            .or(rope["original_max_position_embeddings"].as_u64())
            .map_or(max_positions, |n| usize::try_from(n).unwrap_or(usize::MAX));
        Ok(match kind {
            "default" => Self::None,
            "linear" => Self::Linear { factor: need("factor")? },
            "llama3" => Self::Llama3 {
                factor: need("factor")?,
                low_freq_factor: need("low_freq_factor")?,
                high_freq_factor: need("high_freq_factor")?,
                original_max_positions: original,
            },
            "yarn" => {
                let factor = number("factor").unwrap_or(max_positions as f64 / original.max(1) as f64);
                // Zero means not given, here and for the betas.
                let given = |key: &str| number(key).filter(|n| *n != 0.0);
                let attention_factor = match (given("mscale"), given("mscale_all_dim")) {
                    _ if number("attention_factor").is_some() => need("attention_factor")?,
                    (Some(own), Some(all)) => mscale(factor, own) / mscale(factor, all),
                    _ => mscale(factor, 1.0),
                };
                Self::Yarn {
                    factor,
                    original_max_positions: original,
                    beta_fast: given("beta_fast").unwrap_or(32.0),
                    beta_slow: given("beta_slow").unwrap_or(1.0),
                    attention_factor,
                    truncate: rope["truncate"].as_bool().unwrap_or(true),
                }
            }
            // The only kind in transformers with a divisor per frequency. With the same list for short and
            // long sequences and without an attention factor, it means only these divisors.
            "longrope"
                if rope["short_factor"] == rope["long_factor"] && number("attention_factor") == Some(1.0) =>
            {
                let list = rope["short_factor"].as_array().map(Vec::as_slice).unwrap_or_default();
                Self::Factors { factors: list.iter().filter_map(Value::as_f64).map(|x| x as f32).collect() }
            }
            _ => {
                return fail(format!(
                    "rotary embedding of type {kind} is not supported; default, linear, llama3 and yarn are, \
                     and longrope if it does not depend on the sequence's length"
                ));
            }
        })
    }

    /// Reads the base of the frequencies from a `config.json`.
    pub(crate) fn theta(config: &Value) -> f64 {
        rotary_settings(config)["rope_theta"].as_f64().or(config["rope_theta"].as_f64()).unwrap_or(10_000.0)
    }

    /// Returns the `rope_scaling` entry for transformers; null without scaling.
    pub(crate) fn to_json(&self, max_positions: usize) -> Value {
        match self {
            Self::None => Value::Null,
            Self::Linear { factor } => json!({ "rope_type": "linear", "factor": factor }),
            Self::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_positions } => json!({
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": low_freq_factor,
                "high_freq_factor": high_freq_factor,
                "original_max_position_embeddings": original_max_positions,
            }),
            Self::Yarn {
                factor,
                original_max_positions,
                beta_fast,
                beta_slow,
                attention_factor,
                truncate,
            } => json!({
                "rope_type": "yarn",
                "factor": factor,
                "original_max_position_embeddings": original_max_positions,
                "beta_fast": beta_fast,
                "beta_slow": beta_slow,
                "attention_factor": attention_factor,
                "truncate": truncate,
            }),
            Self::Factors { factors } => json!({
                "rope_type": "longrope",
                "factor": 1.0,
                "attention_factor": 1.0,
                "short_factor": factors,
                "long_factor": factors,
                "original_max_position_embeddings": max_positions,
            }),
        }
    }

    /// Returns the reason why these settings are invalid for heads of width `head_dim`, if they are.
    pub(crate) fn invalid_reason(&self, head_dim: i64) -> Option<String> {
        let positive = |numbers: &[f64]| numbers.iter().all(|n| n.is_finite() && *n > 0.0);
        let valid = match self {
            Self::None => true,
            Self::Linear { factor } => positive(&[*factor]),
            Self::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_positions } => {
                positive(&[*factor, *low_freq_factor, *high_freq_factor, *original_max_positions as f64])
                    && low_freq_factor < high_freq_factor
            }
            Self::Yarn { factor, original_max_positions, beta_fast, beta_slow, attention_factor, .. } => {
                positive(&[
                    *factor,
                    *original_max_positions as f64,
                    *beta_fast,
                    *beta_slow,
                    *attention_factor,
                ]) && beta_slow <= beta_fast
            }
            Self::Factors { factors } => {
                if factors.len() as i64 != head_dim / 2 {
                    let count = factors.len();
                    return Some(format!(
                        "{count} rotary factors for the {} frequencies of a head",
                        head_dim / 2
                    ));
                }
                factors.iter().all(|x| x.is_finite() && *x > 0.0)
            }
        };
        (!valid).then(|| format!("the rotary embedding's settings are invalid: {self:?}"))
    }

    /// Returns the factor of all cosines and sines.
    pub(super) fn attention_factor(&self) -> f32 {
        if let Self::Yarn { attention_factor, .. } = self { *attention_factor as f32 } else { 1.0 }
    }

    /// Returns the frequencies of a head's pairs, in radians per position.
    pub(super) fn frequencies(&self, head_dim: i64, theta: f64) -> Vec<f32> {
        let half = (head_dim / 2) as usize;
        // Positions per radian.
        let periods: Vec<f32> =
            (0..half).map(|i| (theta as f32).powf((2 * i) as f32 / head_dim as f32)).collect();
        match self {
            Self::None => periods.iter().map(|period| 1.0 / period).collect(),
            Self::Linear { factor } => periods.iter().map(|period| 1.0 / period / *factor as f32).collect(),
            Self::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_positions } => {
                let original = *original_max_positions as f64;
                let blend = |period: &f32| {
                    let kept = 1.0 / period;
                    let wave = (2.0 * PI) as f32 / kept;
                    if wave < (original / high_freq_factor) as f32 {
                        return kept;
                    }
                    if wave > (original / low_freq_factor) as f32 {
                        return kept / *factor as f32;
                    }
                    let smooth = (original as f32 / wave - *low_freq_factor as f32)
                        / (high_freq_factor - low_freq_factor) as f32;
                    (1.0 - smooth) * kept / *factor as f32 + smooth * kept
                };
                periods.iter().map(blend).collect()
            }
            Self::Yarn { factor, original_max_positions, beta_fast, beta_slow, truncate, .. } => {
                let width = head_dim as f64;
                // Index along the head of the frequency with this number of turns within the original length.
                let index = |turns: f64| {
                    width * (*original_max_positions as f64 / (turns * 2.0 * PI)).ln() / (2.0 * theta.ln())
                };
                let (mut low, mut high) = (index(*beta_fast), index(*beta_slow));
                if *truncate {
                    (low, high) = (low.floor(), high.ceil());
                }
                (low, high) = (low.max(0.0), high.min(width - 1.0));
                if low == high {
                    high += 0.001;
                }
                let blend = |(i, period): (usize, &f32)| {
                    let ramp = ((i as f32 - low as f32) / (high - low) as f32).clamp(0.0, 1.0);
                    // Written as transformers has it: 1 - (1 - ramp) is not quite the ramp in f32.
                    let keep = 1.0 - ramp;
                    1.0 / (*factor as f32 * period) * (1.0 - keep) + 1.0 / period * keep
                };
                periods.iter().enumerate().map(blend).collect()
            }
            Self::Factors { factors } => {
                periods.iter().zip(factors).map(|(period, factor)| 1.0 / (factor * period)).collect()
            }
        }
    }
}

/// Returns the rotary settings of a `config.json`.
fn rotary_settings(config: &Value) -> &Value {
    let older = &config["rope_scaling"];
    if older.as_object().is_some_and(|entries| !entries.is_empty()) {
        older
    } else {
        &config["rope_parameters"]
    }
}

/// Returns `YaRN`'s attention factor for a scaling factor.
pub(crate) fn mscale(factor: f64, weight: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * weight * factor.ln() + 1.0 }
}
