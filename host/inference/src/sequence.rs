//! Sequences in progress, and the use of the logits after their tokens.

use std::ops::Range;
use std::sync::Arc;

use pl_grammar::{GrammarError, TokenMask};

use crate::block_pool::BlockTable;
use crate::completion::CompletionState;
use crate::during_update::OldCache;
use crate::executor::Executor;
use crate::policies::PolicySnapshot;
use crate::requests::{OpenRequest, RequestId};
use crate::sampler::{SampledToken, TokenChoice};
use crate::sequence_weights::SequenceWeights;

/// Work that waits for a slot or for cache blocks.
pub(crate) enum QueuedWork<E: Executor> {
    /// Seeds of a request whose completions have not started.
    Seeds { request: RequestId, seeds: Range<usize> },
    /// A preempted sequence, or one that has not started.
    Sequence(SequenceState<E>),
}

/// A sequence of tokens and its progress through the model.
pub(crate) struct SequenceState<E: Executor> {
    pub(crate) request: RequestId,
    pub(crate) weights: SequenceWeights<E>,
    pub(crate) table: BlockTable,
    pub(crate) tokens: Vec<u32>,
    /// Number of leading tokens that are in the cache.
    pub(crate) computed: usize,
    pub(crate) goal: SequenceGoal,
}

/// The use of the logits after a sequence's tokens.
pub(crate) enum SequenceGoal {
    /// The first tokens of the completions of these seeds.
    Prefill(Range<usize>),
    /// The next token of a completion.
    Decode(Box<CompletionState>),
    /// Log-probabilities of `targets`, the first of which follows `start` tokens of the sequence.
    Score { start: usize, targets: Arc<[u32]>, logprobs: Vec<f32> },
}

impl SequenceGoal {
    /// Number of slots that the sequence occupies.
    pub(crate) fn slots(&self) -> usize {
        match self {
            Self::Prefill(seeds) => seeds.len(),
            Self::Decode(_) | Self::Score { .. } => 1,
        }
    }
}

/// Results of one step for one sequence.
#[derive(Default)]
pub(crate) struct StepOutput {
    /// Number of rows of logits requested.
    pub(crate) logit_count: usize,
    /// Completions that start.
    pub(crate) started: Vec<CompletionState>,
    /// Sampled tokens. An element is `None` if its logits were not a distribution.
    pub(crate) sampled: Vec<Option<SampledToken>>,
}

impl<E: Executor> SequenceState<E> {
    /// Returns the weights that compute its next token.
    pub(crate) fn policy(&self) -> &PolicySnapshot<E> {
        self.weights.at(self.computed)
    }

    /// Index of its base model.
    pub(crate) fn base(&self) -> usize {
        self.weights.first().base
    }

    /// Takes other weights for the tokens that come next. Returns true if its blocks stay in use.
    pub(crate) fn take_over(&mut self, snapshot: PolicySnapshot<E>, cache: OldCache) -> bool {
        if let SequenceGoal::Decode(completion) = &mut self.goal {
            completion.change_version(completion.token_count(), snapshot.version);
            if cache == OldCache::Keep {
                // The last token was sampled, but is not in the cache yet.
                self.weights.change(self.tokens.len() - 1, snapshot);
                return true;
            }
        }
        self.weights = SequenceWeights::new(snapshot);
        false
    }

    /// Number of trailing positions of the next `scheduled` tokens whose logits are needed.
    pub(crate) fn logit_count(&self, scheduled: usize) -> usize {
        let end = self.computed + scheduled;
        match &self.goal {
            SequenceGoal::Score { start, .. } => end.saturating_sub(self.computed.max(start - 1)),
            _ => usize::from(end == self.tokens.len()),
        }
    }

    /// Number of leading tokens whose keys and values may come from the prefix cache: those whose logits are
    /// not needed, and that its first weights compute.
    pub(crate) fn cacheable_tokens(&self) -> usize {
        let end = match self.goal {
            SequenceGoal::Score { start, .. } => start,
            _ => self.tokens.len(),
        };
        self.weights.end(0).map_or(end, |first| first.min(end))
    }

    /// Number of leading tokens that are in the cache, computed by its first weights.
    pub(crate) fn computed_first(&self) -> usize {
        self.weights.end(0).map_or(self.computed, |first| first.min(self.computed))
    }

    /// Calls `choose(row, choice, mask)` for each token to sample from the `logit_count` rows of logits. Adds
    /// completions that start to `started`.
    ///
    /// # Errors
    /// [`GrammarError`] if the grammar of a completion is too complex.
    pub(crate) fn choose_tokens(
        &mut self,
        open: &OpenRequest<E>,
        logit_count: usize,
        started: &mut Vec<CompletionState>,
        mut choose: impl FnMut(usize, TokenChoice, Option<TokenMask>),
    ) -> Result<(), GrammarError> {
        match &mut self.goal {
            SequenceGoal::Score { targets, logprobs, .. } => {
                let next = targets[logprobs.len()..].iter().take(logit_count);
                next.enumerate().for_each(|(row, token)| choose(row, TokenChoice::Given(*token), None));
            }
            _ if logit_count == 0 => {}
            SequenceGoal::Decode(completion) => {
                choose(0, completion.choose(&open.request.sampling), completion.mask()?);
            }
            SequenceGoal::Prefill(seeds) => {
                for seed in seeds.clone() {
                    let mut completion = CompletionState::new(
                        seed,
                        &open.request,
                        open.grammar.as_ref(),
                        self.weights.first(),
                    );
                    choose(0, completion.choose(&open.request.sampling), completion.mask()?);
                    started.push(completion);
                }
            }
        }
        Ok(())
    }

    /// The work to queue for a sequence that has no blocks.
    pub(crate) fn into_queued(mut self) -> QueuedWork<E> {
        self.computed = 0;
        match self.goal {
            SequenceGoal::Prefill(seeds) => QueuedWork::Seeds { request: self.request, seeds },
            _ => QueuedWork::Sequence(self),
        }
    }
}

/// Length of the longest common prefix.
pub(crate) fn common_prefix(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
