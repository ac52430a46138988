//! Packed sequences for training: several sequences in one batch of tokens, with common prefixes stored once.
//!
//! The samples of a group share their prompt, and the prompts of an agent share its instructions. Packed
//! sequences are therefore a forest: a span is a piece of text, its parent is the piece before it, and a
//! sequence is the path from a root to its last token. A span's tokens attend to its ancestors' tokens and to
//! its own, so that every sequence has the same hidden states (and, summed over the sequences, the same
//! gradients) as alone.

use std::cmp::Ordering;
use std::ops::Range;

use crate::error::Error;

/// Smallest length of a common prefix that becomes a span. A span costs an attention call per block, forward
/// and backward: about the time of a token on two CPU cores, and more on a GPU.
pub const MIN_SHARED_TOKENS: usize = 16;

/// Packed sequences.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Packed {
    /// Token ids of all spans.
    pub tokens: Vec<u32>,
    /// Spans, which cover all tokens in order and without gaps.
    pub spans: Vec<TokenSpan>,
}

/// A piece of one or several sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenSpan {
    /// Index of the first token.
    pub start: usize,
    /// Number of tokens.
    pub len: usize,
    /// Index into the adapters of the pass, the same as the parent's; `None` for the base weights alone.
    pub adapter: Option<usize>,
    /// Index of the span that this one continues, which is before it; `None` at the start of a text.
    pub parent: Option<usize>,
}

/// A sequence to pack.
#[derive(Debug, Clone, Copy)]
pub struct Sequence<'a> {
    /// Token ids.
    pub tokens: &'a [u32],
    /// Index into the adapters of the pass; `None` for the base weights alone.
    pub adapter: Option<usize>,
}

impl Packed {
    /// Appends a sequence without sharing a prefix.
    pub fn push(&mut self, tokens: &[u32], adapter: Option<usize>) {
        self.spans.push(TokenSpan { start: self.tokens.len(), len: tokens.len(), adapter, parent: None });
        self.tokens.extend_from_slice(tokens);
    }

    /// Packs sequences so that those of one adapter share common prefixes. Also returns, for each sequence in
    /// the given order, the indices of its tokens. Sequences of one adapter are contiguous.
    pub fn forest(sequences: &[Sequence<'_>]) -> (Self, Vec<Vec<usize>>) {
        let mut order: Vec<usize> = (0..sequences.len()).collect();
        order.sort_by(|&a, &b| sequences[a].order(&sequences[b]).then(a.cmp(&b)));
        let sorted: Vec<Sequence<'_>> = order.iter().map(|&i| sequences[i]).collect();
        let lengths: Vec<usize> = sorted.iter().map(|sequence| sequence.tokens.len()).collect();
        let mut packed = Self::default();
        let mut rows: Vec<Vec<usize>> = lengths.iter().map(|&length| Vec::with_capacity(length)).collect();
        for segment in segments(&lengths, &common(&sorted)) {
            let Sequence { tokens, adapter } = sorted[segment.sequences.start];
            let (start, len) = (packed.tokens.len(), segment.tokens.len());
            packed.spans.push(TokenSpan { start, len, adapter, parent: segment.parent });
            packed.tokens.extend_from_slice(&tokens[segment.tokens]);
            for own in &mut rows[segment.sequences] {
                own.extend(start..start + len);
            }
        }
        let mut in_given_order = vec![Vec::new(); sequences.len()];
        for (index, rows) in order.into_iter().zip(rows) {
            in_given_order[index] = rows;
        }
        (packed, in_given_order)
    }

    /// Checks the spans, for `adapters` adapters.
    pub(crate) fn check(&self, adapters: usize) -> Result<(), Error> {
        let fail = |i: usize, problem: &str| Err(Error::Packed(format!("span {i} {problem}")));
        if self.tokens.is_empty() {
            return Err(Error::Packed("it has no tokens".into()));
        }
        let mut end = 0;
        for (i, span) in self.spans.iter().enumerate() {
            if span.start != end {
                return fail(i, "does not start at the end of the previous span");
            }
            if span.len == 0 {
                return fail(i, "has no tokens");
            }
            if span.adapter.is_some_and(|adapter| adapter >= adapters) {
                return fail(i, "names an adapter that does not exist");
            }
            if let Some(parent) = span.parent {
                if parent >= i {
                    return fail(i, "names a parent that is not before it");
                }
                if self.spans[parent].adapter != span.adapter {
                    return fail(i, "has another adapter than its parent");
                }
            }
            end += span.len;
        }
        if end != self.tokens.len() {
            return Err(Error::Packed(format!("the spans cover {end} of {} tokens", self.tokens.len())));
        }
        Ok(())
    }

    /// Returns, for each span, the position of its first token in its sequences.
    pub(crate) fn first_positions(&self) -> Vec<usize> {
        let mut first = Vec::with_capacity(self.spans.len());
        for span in &self.spans {
            first.push(span.parent.map_or(0, |parent| first[parent] + self.spans[parent].len));
        }
        first
    }
}

impl Sequence<'_> {
    /// Compares by adapter, then by tokens, so that sequences with a common prefix are adjacent.
    pub fn order(&self, other: &Self) -> Ordering {
        self.adapter.cmp(&other.adapter).then_with(|| self.tokens.cmp(other.tokens))
    }
}

/// Returns, for sequences that are sorted by [`Sequence::order`], the length of each one's common prefix with
/// the previous one.
pub fn common(sorted: &[Sequence<'_>]) -> Vec<usize> {
    let shared = |a: &Sequence<'_>, b: &Sequence<'_>| {
        let equal = a.tokens.iter().zip(b.tokens).take_while(|(a, b)| a == b).count();
        if a.adapter == b.adapter { equal } else { 0 }
    };
    (0..sorted.len()).map(|i| if i == 0 { 0 } else { shared(&sorted[i - 1], &sorted[i]) }).collect()
}

/// A piece of text that a range of sorted sequences have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Range of the sequences.
    pub sequences: Range<usize>,
    /// Range of their tokens.
    pub tokens: Range<usize>,
    /// Index of the segment that this one continues.
    pub parent: Option<usize>,
}

/// Splits sorted sequences into segments, parents first. `lengths` are their lengths, `common` the lengths of
/// their common prefixes ([`common`]).
pub fn segments(lengths: &[usize], common: &[usize]) -> Vec<Segment> {
    let mut all = Vec::new();
    add_segments(lengths, common, 0..lengths.len(), 0, None, &mut all);
    all
}

/// Adds the segments of the tokens from `depth` on, for sequences with a common prefix of length `depth`.
fn add_segments(
    lengths: &[usize],
    common: &[usize],
    sequences: Range<usize>,
    depth: usize,
    parent: Option<usize>,
    all: &mut Vec<Segment>,
) {
    let mut first = sequences.start;
    while first < sequences.end {
        let mut last = first + 1;
        while last < sequences.end && common[last] >= depth + MIN_SHARED_TOKENS {
            last += 1;
        }
        let end = common[first + 1..last].iter().copied().min().unwrap_or(lengths[first]);
        let node = if end > depth {
            all.push(Segment { sequences: first..last, tokens: depth..end, parent });
            Some(all.len() - 1)
        } else {
            parent
        };
        if last - first > 1 {
            // Two neighbours differ at `end`, so this range is split at least once.
            add_segments(lengths, common, first..last, end, node, all);
        }
        first = last;
    }
}
