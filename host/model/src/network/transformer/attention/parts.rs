//! The parts of the attention over a packed batch, and the rows of tensors that each of them reads.

use std::ops::Range;

use tch::{Device, Kind, TchError, Tensor};

use crate::network::packed::Packed;

/// The parts whose merged results are the attention of a packed batch.
pub(in crate::network::transformer) struct AttentionParts {
    /// Each span to itself.
    pub(super) own: Part,
    /// By depth: the descendants of all spans at that depth to these spans.
    pub(super) prefixes: Vec<Part>,
}

/// Attention of several sequences of queries, each to a sequence of keys.
pub(super) struct Part {
    /// True if the i-th query of a sequence attends to its first i keys alone.
    pub(super) causal: bool,
    pub(super) queries: Rows,
    pub(super) keys: Rows,
    /// Numbers of queries and keys of each sequence, in the order of the rows.
    pub(super) lengths: Vec<[i64; 2]>,
    /// Offsets of the sequences among the queries and among the keys, `[sequences + 1]`, i32.
    pub(super) offsets: [Tensor; 2],
}

impl AttentionParts {
    pub(in crate::network::transformer) fn new(packed: &Packed, device: Device) -> Result<Self, TchError> {
        let ranges: Vec<Range<i64>> =
            packed.spans.iter().map(|span| span.start as i64..(span.start + span.len) as i64).collect();
        let mut depths: Vec<usize> = Vec::with_capacity(ranges.len());
        let mut descendants: Vec<Vec<Range<i64>>> = vec![Vec::new(); ranges.len()];
        for (span, range) in packed.spans.iter().zip(&ranges) {
            depths.push(span.parent.map_or(0, |parent| depths[parent] + 1));
            let mut ancestor = span.parent;
            while let Some(index) = ancestor {
                append(&mut descendants[index], range.clone());
                ancestor = packed.spans[index].parent;
            }
        }
        let own = ranges.iter().map(|range| (vec![range.clone()], range.clone())).collect();
        let prefixes = (0..depths.iter().copied().max().unwrap_or(0)).map(|depth| {
            let at_depth = (0..ranges.len()).filter(|&i| depths[i] == depth && !descendants[i].is_empty());
            let sequences = at_depth.map(|i| (descendants[i].clone(), ranges[i].clone())).collect();
            Part::new(false, sequences, device)
        });
        Ok(Self { own: Part::new(true, own, device)?, prefixes: prefixes.collect::<Result<_, _>>()? })
    }
}

impl Part {
    /// Creates a part from the ranges of the queries and of the keys of each sequence.
    fn new(
        causal: bool,
        sequences: Vec<(Vec<Range<i64>>, Range<i64>)>,
        device: Device,
    ) -> Result<Self, TchError> {
        let (mut queries, mut keys, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
        let mut offsets = [vec![0i32], vec![0i32]];
        for (own_queries, own_keys) in sequences {
            let length = [
                own_queries.iter().map(|range| range.end - range.start).sum(),
                own_keys.end - own_keys.start,
            ];
            own_queries.into_iter().for_each(|range| append(&mut queries, range));
            append(&mut keys, own_keys);
            for (offsets, length) in offsets.iter_mut().zip(length) {
                offsets.push(offsets.last().copied().unwrap_or(0) + length as i32);
            }
            lengths.push(length);
        }
        let tensor = |offsets: &[i32]| Tensor::f_from_slice(offsets)?.f_to_device(device);
        let offsets = [tensor(&offsets[0])?, tensor(&offsets[1])?];
        Ok(Self {
            causal,
            queries: Rows::new(&queries, device)?,
            keys: Rows::new(&keys, device)?,
            lengths,
            offsets,
        })
    }

    /// Returns the numbers of queries and of keys of the longest sequences.
    pub(super) fn longest(&self) -> [i64; 2] {
        [0, 1].map(|side: usize| self.lengths.iter().map(|length| length[side]).max().unwrap_or(0))
    }
}

/// Appends a range to sorted ones, or extends the last if it follows it.
fn append(ranges: &mut Vec<Range<i64>>, range: Range<i64>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

/// Rows of a tensor, no row twice.
pub(super) enum Rows {
    /// Consecutive rows, which need no copy.
    Range { start: i64, len: i64 },
    /// Indices, i64.
    Index(Tensor),
}

impl Rows {
    fn new(ranges: &[Range<i64>], device: Device) -> Result<Self, TchError> {
        if let [range] = ranges {
            return Ok(Self::Range { start: range.start, len: range.end - range.start });
        }
        let indices: Vec<i64> = ranges.iter().cloned().flatten().collect();
        Ok(Self::Index(Tensor::f_from_slice(&indices)?.f_to_device(device)?.f_to_kind(Kind::Int64)?))
    }

    /// Returns the rows of a tensor, which are along dimension `dim`.
    pub(super) fn select(&self, x: &Tensor, dim: i64) -> Result<Tensor, TchError> {
        match self {
            Self::Range { start, len } => x.f_narrow(dim, *start, *len),
            Self::Index(indices) => x.f_index_select(dim, indices),
        }
    }

    /// Sets the rows of a tensor.
    pub(super) fn assign(&self, x: &Tensor, dim: i64, values: &Tensor) -> Result<(), TchError> {
        match self {
            Self::Range { start, len } => x.f_narrow(dim, *start, *len)?.f_copy_(values),
            Self::Index(indices) => x.shallow_clone().f_index_copy_(dim, indices, values).map(drop),
        }
    }

    /// Adds to the first dimension's rows of a tensor.
    pub(super) fn add(&self, x: &Tensor, values: &Tensor) -> Result<(), TchError> {
        match self {
            Self::Range { start, len } => x.f_narrow(0, *start, *len)?.f_add_(values).map(drop),
            Self::Index(indices) => x.shallow_clone().f_index_add_(0, indices, values).map(drop),
        }
    }
}
