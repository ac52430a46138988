//! What training takes in memory, from a model's measures and the settings alone: sums that can be printed before
//! anything is loaded.
//!
//! All functions give bytes. What the process itself and its libraries take comes on top.

use pl_model::{Config, Dtype, Family, Keep, Projection};

use crate::head::CHUNK;

/// Numbers of a full model.
pub fn weight_numbers(config: &Config) -> u64 {
    let (h, q, kv) = (config.hidden, config.q_width(), config.kv_width());
    let matrices: i64 = Projection::ALL
        .into_iter()
        .map(|projection| {
            let (width, out) = projection.shape(config);
            width * out
        })
        .sum();
    let extra = match config.family {
        Family::Llama => 0,
        Family::Qwen2 => q + 2 * kv,
        Family::Qwen3 => 2 * config.head_dim,
    };
    let heads = if config.tied { 1 } else { 2 };
    (config.vocab * h * heads + config.layers as i64 * (matrices + extra + 2 * h) + h) as u64
}

/// Numbers of an adapter of some rank on some projections of every block.
pub fn adapter_numbers(config: &Config, rank: usize, targets: &[Projection]) -> u64 {
    let widths: i64 = targets
        .iter()
        .map(|projection| {
            let (width, out) = projection.shape(config);
            width + out
        })
        .sum();
    config.layers as u64 * rank as u64 * widths as u64
}

/// A model's weights in a number format. Norms and biases are f32 in every format; they are few enough to be
/// counted as if they were not.
pub fn weights_bytes(config: &Config, dtype: Dtype) -> u64 {
    weight_numbers(config) * dtype.bytes() as u64
}

/// An adapter's factors, f32.
pub fn adapter_bytes(config: &Config, rank: usize, targets: &[Projection]) -> u64 {
    adapter_numbers(config, rank, targets) * 4
}

/// What it takes to train so many numbers that work in a format, besides themselves: gradients, AdamW's two
/// means, and f32 masters where the format is narrower.
pub fn optimizer_bytes(numbers: u64, dtype: Dtype) -> u64 {
    let masters = if dtype == Dtype::F32 { 0 } else { 4 };
    numbers * (4 + 8 + masters)
}

/// A packed pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Tokens fed.
    pub tokens: usize,
    /// Of these, tokens whose successors are trained on.
    pub targets: usize,
    /// Tokens that go on from a shared beginning, each counted with the length of that beginning and its own text:
    /// keys and values of beginnings are laid out again for every text that goes on from them.
    pub seen_again: usize,
    /// Sum over the projections of the rank of the adapter on them; 0 for full training.
    pub ranks: usize,
}

/// What a pass forwards and backwards takes at its peak: what it keeps of every block, and the most that is there
/// beside it at one time (a block's way back, or the head's logits).
pub fn activation_bytes(config: &Config, row: &Row, keep: Keep, dtype: Dtype) -> u64 {
    let wide = |width: i64| width as u64;
    let (h, f) = (wide(config.hidden), wide(config.ffn));
    let (q, kv) = (wide(config.q_width()), wide(config.kv_width()));
    let (tokens, targets) = (row.tokens as u64, row.targets as u64);
    let head_norms = if config.family == Family::Qwen3 { q + kv } else { 0 };
    // The stream twice, queries, keys and values, what was attended to, gate and up; the rest is small.
    let small = row.ranks as u64 + wide(config.heads) + 2;
    let block =
        tokens * (2 * h + 2 * q + 2 * kv + head_norms + 2 * f + small) + row.seen_again as u64 * 2 * kv;
    let kept = match keep {
        Keep::Activations => config.layers as u64 * block,
        Keep::Inputs => config.layers as u64 * tokens * h + block,
    };
    // Going back through the feed-forward layer: three gradients and two temporaries of its width beside three of
    // the stream's.
    let way_back = tokens * (5 * f + 3 * h);
    // Logits, probabilities and a temporary of a chunk; hidden states and gradients of all targets.
    let head = 3 * CHUNK as u64 * wide(config.vocab) + targets * 2 * h + tokens * h;
    (kept + way_back.max(head)) * dtype.bytes() as u64
}

#[cfg(test)]
mod tests {
    use pl_model::{Adapter, Packed};

    use super::*;
    use crate::fixtures::{adapter, config, weights};

    #[test]
    fn numbers_are_those_of_the_tensors() {
        let count = |tensors: Vec<(String, tch::Tensor)>| -> u64 {
            tensors.iter().map(|(_, tensor)| tensor.numel() as u64).sum()
        };
        for tied in [true, false] {
            let config = config(tied);
            assert_eq!(weight_numbers(&config), count(weights(&config, 1).parameters()));
            let adapter: Adapter = adapter(&config, 1);
            assert_eq!(adapter_numbers(&config, 3, &Projection::ALL), count(adapter.parameters()));
            assert_eq!(adapter_bytes(&config, 3, &Projection::ALL), 4 * count(adapter.parameters()));
        }
        let numbers = 1000;
        assert_eq!(optimizer_bytes(numbers, Dtype::F32), 12_000);
        assert_eq!(optimizer_bytes(numbers, Dtype::Bf16), 16_000);
    }

    /// Bytes of a line of `/proc/self/status`.
    #[cfg(target_os = "linux")]
    fn status(field: &str) -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    /// Measured as the growth of the process's peak, so this test has to have a process of its own, as nextest
    /// gives it one.
    #[cfg(target_os = "linux")]
    #[test]
    fn an_estimate_is_near_what_a_pass_takes() {
        use pl_model::{Gradients, Pass};

        let config = Config {
            vocab: 4000,
            hidden: 256,
            layers: 12,
            heads: 4,
            kv_heads: 2,
            head_dim: 64,
            ffn: 768,
            max_positions: 1024,
            ..config(true)
        };
        let weights = weights(&config, 1);
        let gradients = Gradients::zeros(Some(&weights), &[]).unwrap();
        let mut packed = Packed::default();
        for text in 0..4 {
            packed.push(&(0..256).map(|i| (text * 256 + i) % 4000).collect::<Vec<u32>>(), None);
        }
        let row = Row { tokens: 1024, targets: 0, seen_again: 0, ranks: 0 };
        let mut few = Packed::default();
        few.push(&[1, 2, 3], None);
        // Libraries' own pages and buffers come with their first use.
        let warm = Pass::forward(&config, &weights, &[], &few, Keep::Activations).unwrap();
        let gradient = warm.hidden().ones_like();
        warm.backward(&gradient, &gradients).unwrap();
        // The leaner one first: a peak is not taken back.
        let mut estimates = Vec::new();
        for keep in [Keep::Inputs, Keep::Activations] {
            let before = status("VmRSS:");
            let pass = Pass::forward(&config, &weights, &[], &packed, keep).unwrap();
            let gradient = pass.hidden().ones_like();
            pass.backward(&gradient, &gradients).unwrap();
            let grown = status("VmHWM:").saturating_sub(before) as f64;
            // Without the head's part, which this pass has not.
            let headless = Config { vocab: 0, ..config.clone() };
            let estimate = activation_bytes(&headless, &row, keep, Dtype::F32);
            let ratio = grown / estimate as f64;
            assert!((0.6..1.6).contains(&ratio), "{keep:?}: {grown} measured, {estimate} estimated");
            estimates.push(estimate);
        }
        assert!(estimates[0] * 3 < estimates[1], "{estimates:?}");
    }
}
