//! What runs a model: the seam between the scheduler and the arithmetic.

use std::ops::Range;

use pl_model::{Adapter, Config};

use crate::Base;
use crate::draw::{Draw, Drawn};

/// Arithmetic of one kind: the processor's kernels, or libtorch on any device.
pub(crate) trait Executor: Sized {
    /// A base's weights, ready to run.
    type Weights;
    /// An adapter, ready to run.
    type Adapter;
    /// Keys and values of one base, in blocks.
    type Cache;
    /// Logits on their way to a draw.
    type Logits;

    /// `share`: whether the tensors stay as they are, so that they need not be copied.
    fn weights(&self, base: &Base, share: bool) -> Result<Self::Weights, String>;
    /// A copy of an adapter.
    fn adapter(&self, config: &Config, adapter: &Adapter) -> Result<Self::Adapter, String>;
    /// Bytes of one block of a base's cache.
    fn block_bytes(&self, base: &Base) -> usize;
    /// A cache for at most `blocks` blocks.
    fn cache(&self, base: &Base, blocks: usize) -> Result<Self::Cache, String>;
    /// Copies a block's keys and values.
    fn copy(&self, cache: &mut Self::Cache, from: u32, to: u32) -> Result<(), String>;
    /// Runs a batch through the model; the logits of the rows asked for, in order.
    fn step(
        &self,
        weights: &Self::Weights,
        cache: &mut Self::Cache,
        batch: &Batch<'_, Self::Adapter>,
    ) -> Result<Self::Logits, String>;
    /// Draws tokens; none for one whose logits are no distribution.
    fn draw(&self, logits: Self::Logits, draws: &[Draw<'_>]) -> Result<Vec<Option<Drawn>>, String>;
}

/// Tokens of several sequences to be run through one base, at one time.
pub(crate) struct Batch<'a, A> {
    /// One after the other; sequences of one adapter side by side.
    pub(crate) segments: Vec<Segment<'a, A>>,
}

/// The newest tokens of one sequence.
pub(crate) struct Segment<'a, A> {
    pub(crate) tokens: &'a [u32],
    /// Position of the first of them.
    pub(crate) position: usize,
    /// Blocks of the sequence, these tokens' included.
    pub(crate) blocks: &'a [u32],
    pub(crate) adapter: Option<&'a A>,
    /// Of how many tokens, counted from the last, logits are wanted.
    pub(crate) logits: usize,
}

impl<'a, A> Batch<'a, A> {
    /// Tokens in all.
    pub(crate) fn rows(&self) -> usize {
        self.segments.iter().map(|segment| segment.tokens.len()).sum()
    }

    /// The adapters, each with the rows of segments side by side that have it.
    pub(crate) fn runs(&self) -> Vec<(Range<usize>, &'a A)> {
        let mut runs: Vec<(Range<usize>, &'a A)> = Vec::new();
        let mut at = 0;
        for segment in &self.segments {
            let end = at + segment.tokens.len();
            if let Some(own) = segment.adapter {
                match runs.last_mut() {
                    Some((rows, adapter)) if rows.end == at && std::ptr::eq(*adapter, own) => rows.end = end,
                    _ => runs.push((at..end, own)),
                }
            }
            at = end;
        }
        runs
    }

    /// Rows whose logits are wanted, in order.
    pub(crate) fn wanted(&self) -> Vec<usize> {
        let mut at = 0;
        let mut wanted = Vec::new();
        for segment in &self.segments {
            at += segment.tokens.len();
            wanted.extend(at - segment.logits..at);
        }
        wanted
    }
}
