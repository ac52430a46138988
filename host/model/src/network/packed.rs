//! Training's rows of tokens: several sequences end to end, with what they begin with in common there once.
//!
//! The samples of a group share their prompt, and the prompts of an agent share its instructions. A row is
//! therefore a forest: a span is a piece of text, its parent the piece that comes before it, and a sequence is
//! the path from a root to its last token. A span's tokens see those of its ancestors and their own, so that
//! every sequence has the hidden states (and, summed over the sequences, the gradients) that it has alone.

use std::cmp::Ordering;
use std::ops::Range;

use crate::error::Error;

/// Beginnings shorter than this are not worth a span of their own, which costs an attention call per block,
/// forwards and backwards: about as long as a token takes on two CPU cores, and longer on a GPU.
pub const LEAST_SHARED: usize = 16;

/// A row of tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Packed {
    /// Token ids of all spans.
    pub tokens: Vec<u32>,
    /// The spans: they cover all tokens, in order, without gaps.
    pub spans: Vec<Span>,
}

/// A piece of one or several sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Its first token.
    pub start: usize,
    /// Its tokens.
    pub len: usize,
    /// Index into the adapters given with the row; none: the base alone. It is that of its parent.
    pub adapter: Option<usize>,
    /// Index of the span that it goes on from, which stands before it; none: it begins a text.
    pub parent: Option<usize>,
}

/// A sequence to be laid into a row.
#[derive(Debug, Clone, Copy)]
pub struct Sequence<'a> {
    /// Its token ids.
    pub tokens: &'a [u32],
    /// Index into the adapters given with the row; none: the base alone.
    pub adapter: Option<usize>,
}

impl Packed {
    /// Appends a sequence that shares nothing.
    pub fn push(&mut self, tokens: &[u32], adapter: Option<usize>) {
        self.spans.push(Span { start: self.tokens.len(), len: tokens.len(), adapter, parent: None });
        self.tokens.extend_from_slice(tokens);
    }

    /// The row of some sequences in which those of one adapter share their beginnings, and for each sequence, in
    /// the order given, the rows in which its tokens ended up. Sequences of one adapter stand side by side.
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
            packed.spans.push(Span { start, len, adapter, parent: segment.parent });
            packed.tokens.extend_from_slice(&tokens[segment.tokens]);
            for own in &mut rows[segment.sequences] {
                own.extend(start..start + len);
            }
        }
        let mut given = vec![Vec::new(); sequences.len()];
        for (index, rows) in order.into_iter().zip(rows) {
            given[index] = rows;
        }
        (packed, given)
    }

    /// Whether the spans are what they should be, for `adapters` adapters.
    pub(crate) fn check(&self, adapters: usize) -> Result<(), Error> {
        let fail = |i: usize, problem: &str| Err(Error::Packed(format!("span {i} {problem}")));
        if self.tokens.is_empty() {
            return Err(Error::Packed("it has no tokens".into()));
        }
        let mut at = 0;
        for (i, span) in self.spans.iter().enumerate() {
            if span.start != at {
                return fail(i, "does not start where the one before it ends");
            }
            if span.len == 0 {
                return fail(i, "has no tokens");
            }
            if span.adapter.is_some_and(|adapter| adapter >= adapters) {
                return fail(i, "names an adapter that is not there");
            }
            if let Some(parent) = span.parent {
                if parent >= i {
                    return fail(i, "names a parent that does not stand before it");
                }
                if self.spans[parent].adapter != span.adapter {
                    return fail(i, "has another adapter than its parent");
                }
            }
            at += span.len;
        }
        if at != self.tokens.len() {
            return Err(Error::Packed(format!("the spans cover {at} of {} tokens", self.tokens.len())));
        }
        Ok(())
    }

    /// Per span, the position of its first token in its sequences.
    pub(crate) fn first_positions(&self) -> Vec<usize> {
        let mut first = Vec::with_capacity(self.spans.len());
        for span in &self.spans {
            first.push(span.parent.map_or(0, |parent| first[parent] + self.spans[parent].len));
        }
        first
    }
}

impl Sequence<'_> {
    /// By adapter, then by tokens: what can be shared stands side by side.
    pub fn order(&self, other: &Self) -> Ordering {
        self.adapter.cmp(&other.adapter).then_with(|| self.tokens.cmp(other.tokens))
    }
}

/// How many tokens each of some sequences, sorted by [`Sequence::order`], has in common with the one before it.
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
    /// The sequences.
    pub sequences: Range<usize>,
    /// Their tokens that it holds.
    pub tokens: Range<usize>,
    /// Index of the segment that it goes on from.
    pub parent: Option<usize>,
}

/// Which pieces sorted sequences of some lengths are laid out in, parents first, given how much each has in
/// common with the one before it ([`common`]).
pub fn segments(lengths: &[usize], common: &[usize]) -> Vec<Segment> {
    let mut all = Vec::new();
    grow(lengths, common, 0..lengths.len(), 0, None, &mut all);
    all
}

/// Lays out the tokens from `depth` on of sequences that have all before it in common.
fn grow(
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
        while last < sequences.end && common[last] >= depth + LEAST_SHARED {
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
            // Some pair differs from `end` on, so that this range is cut at least once.
            grow(lengths, common, first..last, end, node, all);
        }
        first = last;
    }
}
