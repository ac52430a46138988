//! Sequences on their way into the cache, and what the logits after their tokens are for.

use std::ops::Range;
use std::sync::Arc;

use crate::Request;
use crate::blocks::Table;
use crate::completing::Completing;
use crate::draw::{Drawn, Pick};
use crate::executor::Executor;
use crate::policies::Seat;

/// What waits for a slot or for room.
pub(crate) enum Waiting<E: Executor> {
    /// Some of a job's seeds.
    Seeds { job: u64, seeds: Range<usize> },
    /// A sequence that gave its blocks back.
    Paused(Sequence<E>),
}

/// A sequence of tokens on its way into the cache.
pub(crate) struct Sequence<E: Executor> {
    pub(crate) job: u64,
    pub(crate) seat: Seat<E>,
    pub(crate) table: Table,
    pub(crate) tokens: Vec<u32>,
    /// How many of them are in the cache.
    pub(crate) computed: usize,
    pub(crate) goal: Goal,
}

/// What the logits after a sequence's tokens are for.
pub(crate) enum Goal {
    /// The first tokens of completions of these seeds.
    Prompt(Range<usize>),
    /// The next token.
    Completion(Box<Completing>),
    /// Log-probabilities of these tokens, the first of which comes after `from` tokens of the sequence.
    Score { from: usize, targets: Arc<[u32]>, logprobs: Vec<f32> },
}

impl Goal {
    /// Slots that it takes.
    pub(crate) fn slots(&self) -> usize {
        match self {
            Self::Prompt(seeds) => seeds.len(),
            Self::Completion(_) | Self::Score { .. } => 1,
        }
    }
}

/// What a step has brought a sequence.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Rows of logits asked for.
    pub(crate) wanted: usize,
    /// Completions that begin.
    pub(crate) fresh: Vec<Completing>,
    /// None: the logits were no distribution.
    pub(crate) drawn: Vec<Option<Drawn>>,
}

impl<E: Executor> Sequence<E> {
    /// Of how many tokens, counted from the last of the next `take`, logits are wanted.
    pub(crate) fn wanted(&self, take: usize) -> usize {
        let end = self.computed + take;
        match &self.goal {
            Goal::Score { from, .. } => end.saturating_sub(self.computed.max(from - 1)),
            _ => usize::from(end == self.tokens.len()),
        }
    }

    /// Tokens from the front whose keys and values may come from others: those whose logits nobody wants.
    pub(crate) fn known(&self) -> usize {
        match self.goal {
            Goal::Score { from, .. } => from,
            _ => self.tokens.len(),
        }
    }

    /// Says what is to be drawn from each of the `wanted` rows of logits: `draw(row, pick)`.
    pub(crate) fn pick(
        &mut self,
        request: &Request,
        wanted: usize,
        fresh: &mut Vec<Completing>,
        mut draw: impl FnMut(usize, Pick),
    ) {
        match &mut self.goal {
            Goal::Score { targets, logprobs, .. } => {
                let next = targets[logprobs.len()..].iter().take(wanted);
                next.enumerate().for_each(|(row, token)| draw(row, Pick::Given(*token)));
            }
            _ if wanted == 0 => {}
            Goal::Completion(completing) => draw(0, completing.pick(&request.sampling)),
            Goal::Prompt(seeds) => {
                for seed in seeds.clone() {
                    let mut completing = Completing::new(seed, request, self.seat.config.max_positions);
                    draw(0, completing.pick(&request.sampling));
                    fresh.push(completing);
                }
            }
        }
    }

    /// As it waits without blocks.
    pub(crate) fn back_in_line(mut self) -> Waiting<E> {
        self.computed = 0;
        match self.goal {
            Goal::Prompt(seeds) => Waiting::Seeds { job: self.job, seeds },
            _ => Waiting::Paused(self),
        }
    }
}

/// Tokens that two sequences begin with alike.
pub(crate) fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
