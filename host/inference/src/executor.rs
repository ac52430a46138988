//! The interface between the scheduler and the arithmetic of a model.

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pl_model::libtorch;
use pl_model::{Adapter, Config};
use tch::{TchError, Tensor};

use crate::config::BaseModel;
use crate::sampler::{SampleRequest, SampledToken};

/// Errors of an executor. [`pl_types::GenerateError`] adds the policy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExecutorError {
    #[error("cannot start its threads: {0}")]
    Threads(#[source] std::io::Error),
    #[error("a weight of shape {shape:?} is not a matrix")]
    NotMatrix { shape: Vec<i64> },
    #[error("packed weights are for CPUs; on a GPU, load the model in bf16 or f32")]
    Packed,
    #[error("cannot allocate a KV cache of {blocks} blocks: {source}; lower `kv_cache`")]
    CacheAllocation { blocks: usize, source: TchError },
    #[error("{}", torch_message(.0))]
    Torch(#[from] TchError),
    /// A panic; tch turns some of libtorch's exceptions into panics.
    #[error("{0}")]
    Panic(String),
}

/// Runs work of an executor; a panic becomes an error.
pub(crate) fn caught<T>(work: impl FnOnce() -> Result<T, ExecutorError>) -> Result<T, ExecutorError> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(ExecutorError::Panic(panic_message(&*panic))))
}

/// Returns the message of an error of libtorch, with a remedy if memory ran out.
fn torch_message(error: &TchError) -> String {
    let line = libtorch::first_line(error);
    match libtorch::is_out_of_memory(error) {
        true => format!(
            "memory ran out: {line}; lower `inference.slots` or `inference.kv_cache`, or, if policies are trained beside it, \
             `train.token_budget`"
        ),
        false => line,
    }
}

/// Returns the first line of a panic's message; libtorch appends its stack of C++ calls.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("an unknown failure");
    text.lines().next().unwrap_or_default().to_owned()
}

/// An implementation of the arithmetic: this program's CPU kernels, or libtorch on any device.
pub(crate) trait Executor: Sized {
    /// Weights of a base model, ready to run.
    type Weights;
    /// An adapter, ready to run.
    type Adapter;
    /// Keys and values of one base model, in blocks.
    type Cache;
    /// Logits of one step, until tokens are sampled from them.
    type Logits;
    /// Tokens of one step, until they are read.
    type Tokens;

    /// Loads a base model for sequences of at most `positions` tokens. With `share`, its tensors will not
    /// change and need not be copied.
    fn load_weights(
        &self,
        base: &BaseModel,
        positions: usize,
        share: bool,
    ) -> Result<Self::Weights, ExecutorError>;
    /// Copies an adapter.
    fn load_adapter(&self, config: &Config, adapter: &Adapter) -> Result<Self::Adapter, ExecutorError>;
    /// Number of prompt tokens of a step: enough for matrix products to run at full speed, few enough that completions in
    /// progress don't wait long.
    fn prefill_budget(&self) -> usize {
        256
    }
    /// Size of one cache block of a base model in bytes.
    fn block_bytes(&self, base: &BaseModel) -> usize;
    /// Creates a cache of at most `blocks` blocks.
    fn new_cache(&self, base: &BaseModel, blocks: usize) -> Result<Self::Cache, ExecutorError>;
    /// Gives the memory of a cache back, and memory that the executor keeps between steps. The cache's contents are lost.
    fn release_cache(&self, cache: &mut Self::Cache);
    /// Takes the memory of a cache again. Does nothing if it has it.
    fn restore_cache(&self, cache: &mut Self::Cache) -> Result<(), ExecutorError>;
    /// Copies the keys and values of one block to another.
    fn copy_block(&self, cache: &mut Self::Cache, from: u32, to: u32) -> Result<(), ExecutorError>;
    /// Runs a batch through the model. Returns the logits of the requested rows, in order.
    fn step(
        &self,
        weights: &Self::Weights,
        cache: &mut Self::Cache,
        batch: &TokenBatch<'_, Self::Adapter>,
    ) -> Result<Self::Logits, ExecutorError>;
    /// Returns the tokens at the indices `rows`, in 32 bits on the device, if a step can read them there before they are
    /// read here.
    fn next_tokens(&self, _tokens: &Self::Tokens, _rows: &[usize]) -> Result<Option<Tensor>, ExecutorError> {
        Ok(None)
    }
    /// Samples tokens.
    fn sample(
        &self,
        logits: Self::Logits,
        requests: &[SampleRequest<'_>],
    ) -> Result<Self::Tokens, ExecutorError>;
    /// Waits for tokens. An element is `None` if its logits are not a distribution.
    fn read(&self, tokens: Self::Tokens) -> Result<Vec<Option<SampledToken>>, ExecutorError>;
}

/// Tokens of several sequences that go through one base model in one step.
pub(crate) struct TokenBatch<'a, A> {
    /// The segments, end to end; those with the same adapter are adjacent.
    pub(crate) segments: Vec<BatchSegment<'a, A>>,
    /// Result of [`Executor::next_tokens`] in place of the segments' tokens, of which each has one.
    pub(crate) next_tokens: Option<Tensor>,
}

/// The newest tokens of one sequence.
pub(crate) struct BatchSegment<'a, A> {
    pub(crate) tokens: &'a [u32],
    /// Position of the first token in its sequence.
    pub(crate) position: usize,
    /// Cache blocks of the sequence, including those for these tokens.
    pub(crate) blocks: &'a [u32],
    pub(crate) adapter: Option<&'a A>,
    /// Number of trailing tokens whose logits are needed.
    pub(crate) logit_count: usize,
}

impl<'a, A> TokenBatch<'a, A> {
    /// Number of tokens.
    pub(crate) fn rows(&self) -> usize {
        self.segments.iter().map(|segment| segment.tokens.len()).sum()
    }

    /// The adapters, each with its contiguous range of rows.
    pub(crate) fn adapter_runs(&self) -> Vec<(Range<usize>, &'a A)> {
        let mut runs: Vec<(Range<usize>, &'a A)> = Vec::new();
        let mut start = 0;
        for segment in &self.segments {
            let end = start + segment.tokens.len();
            if let Some(own) = segment.adapter {
                match runs.last_mut() {
                    Some((rows, adapter)) if rows.end == start && std::ptr::eq(*adapter, own) => {
                        rows.end = end
                    }
                    _ => runs.push((start..end, own)),
                }
            }
            start = end;
        }
        runs
    }

    /// Rows whose logits are needed, in order.
    pub(crate) fn logit_rows(&self) -> Vec<usize> {
        let mut end = 0;
        let mut rows = Vec::new();
        for segment in &self.segments {
            end += segment.tokens.len();
            rows.extend(end - segment.logit_count..end);
        }
        rows
    }
}
