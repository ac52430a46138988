//! Estimates of the memory that training needs, from a model's dimensions and the settings, before anything
//! is loaded.
//!
//! Functions named `…_bytes` return bytes. The process itself and its libraries need memory in addition.

use pl_model::{Checkpointing, Config, Family, Projection};
use pl_types::Dtype;

use crate::head::CHUNK;

/// Number of weights of a full model.
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

/// Number of weights of an adapter of some rank on some projections of every layer.
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

/// Size of a model's weights in a number format. Norms and biases are f32 in every format; they are so few
/// that they are counted as the others.
pub fn weights_bytes(config: &Config, dtype: Dtype) -> u64 {
    weight_numbers(config) * dtype.bytes() as u64
}

/// Size of an adapter's factors, which are f32.
pub fn adapter_bytes(config: &Config, rank: usize, targets: &[Projection]) -> u64 {
    adapter_numbers(config, rank, targets) * 4
}

/// Size of the training state of `numbers` weights in a number format, without the weights: gradients,
/// AdamW's two moments, and f32 masters if the format is narrower.
pub fn optimizer_bytes(numbers: u64, dtype: Dtype) -> u64 {
    let masters = if dtype == Dtype::F32 { 0 } else { 4 };
    numbers * (4 + 8 + masters)
}

/// Number of weights of a critic's value head on a model.
pub fn value_head_numbers(config: &Config) -> u64 {
    config.hidden as u64 + 1
}

/// Number of weights of a critic that is a whole model, without its value head. It has no output head.
pub fn critic_model_numbers(config: &Config) -> u64 {
    weight_numbers(&Config { tied: true, ..config.clone() })
}

/// Size of a critic's value head, its gradient and the two moments of its optimiser, which are f32.
pub fn value_head_bytes(config: &Config) -> u64 {
    value_head_numbers(config) * 4 * 4
}

/// Dimensions of a packed pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassShape {
    /// Number of tokens fed.
    pub tokens: usize,
    /// Number of tokens whose successors are trained on.
    pub targets: usize,
    /// Sum over the projections of the rank of the adapter on them; 0 for full training.
    pub ranks: usize,
}

/// Peak size of the activations of a forward and backward pass: the tensors kept of every layer, and the
/// largest temporary (a layer's backward pass, or the head's logits).
pub fn activation_bytes(
    config: &Config,
    shape: &PassShape,
    checkpointing: Checkpointing,
    dtype: Dtype,
) -> u64 {
    let wide = |width: i64| width as u64;
    let (h, f) = (wide(config.hidden), wide(config.ffn));
    let (q, kv) = (wide(config.q_width()), wide(config.kv_width()));
    let (tokens, targets) = (shape.tokens as u64, shape.targets as u64);
    let head_norms = if config.family == Family::Qwen3 { q + kv } else { 0 };
    // The residual stream twice, queries, keys and values, the attention's output, gate and up; the rest is
    // small.
    let small = shape.ranks as u64 + wide(config.heads) + 2;
    let block = tokens * (2 * h + 2 * q + 2 * kv + head_norms + 2 * f + small);
    let kept = match checkpointing {
        Checkpointing::Off => config.layers as u64 * block,
        Checkpointing::On => config.layers as u64 * tokens * h + block,
    };
    // Backward pass of the feed-forward layer: three gradients and two temporaries of its width, and three of
    // the residual stream's.
    let layer_backward = tokens * (5 * f + 3 * h);
    // Logits, probabilities and a temporary of one chunk; hidden states and gradients of all targets.
    let head = 3 * CHUNK as u64 * wide(config.vocab) + targets * 2 * h + tokens * h;
    (kept + layer_backward.max(head)) * dtype.bytes() as u64
}

#[cfg(test)]
mod tests {
    use pl_model::{Adapter, Packed, TensorSet};

    use super::*;
    use crate::fixtures::{adapter, config, weights};

    #[test]
    fn counts_equal_those_of_the_tensors() {
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

    /// Value in bytes of a line of `/proc/self/status`.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn status(field: &str) -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    /// Measures the growth of the process's peak, so it needs a process of its own, as nextest runs it.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn an_estimate_is_near_what_a_pass_takes() {
        use pl_model::{Gradients, Pass};

        unsafe extern "C" {
            fn mallopt(parameter: i32, value: i32) -> i32;
        }
        const M_MMAP_THRESHOLD: i32 = -3;
        // With a fixed threshold, a tensor's memory is returned to the system when it is dropped. By default,
        // glibc raises the threshold and keeps dropped tensors in its heap. Their size then depends on the
        // temporary buffers of libtorch's matrix products, which differ between AVX2 and AVX-512.
        // SAFETY: glibc's function, called before this test allocates tensors.
        assert_eq!(unsafe { mallopt(M_MMAP_THRESHOLD, 64 * 1024) }, 1);

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
        let shape = PassShape { tokens: 1024, targets: 0, ranks: 0 };
        let mut few = Packed::default();
        few.push(&[1, 2, 3], None);
        // The first use of a library allocates its own pages and buffers.
        let warm = Pass::forward(&config, &weights, &[], &few, Checkpointing::Off).unwrap();
        let gradient = warm.hidden().ones_like();
        warm.backward(&gradient, &gradients).unwrap();
        // The smaller one first, because the peak never decreases.
        let mut estimates = Vec::new();
        for checkpointing in [Checkpointing::On, Checkpointing::Off] {
            let before = status("VmRSS:");
            let pass = Pass::forward(&config, &weights, &[], &packed, checkpointing).unwrap();
            let gradient = pass.hidden().ones_like();
            pass.backward(&gradient, &gradients).unwrap();
            let grown = status("VmHWM:").saturating_sub(before) as f64;
            // Without the head, which this pass does not run.
            let headless = Config { vocab: 0, ..config.clone() };
            let estimate = activation_bytes(&headless, &shape, checkpointing, Dtype::F32);
            let ratio = grown / estimate as f64;
            assert!((0.6..1.6).contains(&ratio), "{checkpointing:?}: {grown} measured, {estimate} estimated");
            estimates.push(estimate);
        }
        assert!(estimates[0] * 3 < estimates[1], "{estimates:?}");
    }
}
