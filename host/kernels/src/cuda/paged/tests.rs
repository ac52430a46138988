//! Comparison of the kernels, emulated on the CPU, with plain libtorch.

use std::sync::LazyLock;

use tch::Device;

use super::*;
use crate::cuda::emulated::Emulated;

struct Case {
    queries: Tensor,
    cache: Tensor,
    tables: Tensor,
    lengths: Vec<i64>,
}

/// Numbers of heads of queries and of keys, and their width.
type Heads = [i64; 3];

impl Case {
    /// Creates sequences with random numbers, whose blocks are apart and in no order.
    fn new(lengths: &[i64], [heads, kv_heads, width]: Heads, kind: Kind) -> Self {
        tch::manual_seed(lengths.iter().sum::<i64>() * 31 + width);
        let block = BLOCK as i64;
        let needed: Vec<i64> = lengths.iter().map(|length| (length + block - 1) / block).collect();
        let total: i64 = needed.iter().sum::<i64>() + 3;
        let order: Vec<i64> = Tensor::randperm(total, (Kind::Int64, Device::Cpu)).try_into().unwrap();
        let columns = needed.iter().max().unwrap() + 1;
        // Numbers past a sequence's end name no block.
        let mut tables = vec![i32::MAX; lengths.len() * columns as usize];
        let mut next = order.into_iter();
        for (row, &count) in needed.iter().enumerate() {
            for entry in &mut tables[row * columns as usize..][..count as usize] {
                *entry = next.next().unwrap() as i32;
            }
        }
        let random = |shape: &[i64]| Tensor::randn(shape, (Kind::Float, Device::Cpu)).to_kind(kind);
        Self {
            queries: random(&[lengths.len() as i64, heads, width]) * 2,
            cache: random(&[total * block, 2, kv_heads, width]),
            tables: Tensor::from_slice(&tables).view([lengths.len() as i64, columns]),
            lengths: lengths.to_vec(),
        }
    }

    fn attend(
        &self,
        with: impl Fn(&Tensor, &Tensor, &PagedSequences<'_>) -> Result<Tensor, Error>,
    ) -> Tensor {
        let lengths: Vec<i32> = self.lengths.iter().map(|length| *length as i32).collect();
        let longest = self.lengths.iter().max().copied().unwrap() as usize;
        let lengths = Tensor::from_slice(&lengths);
        let sequences = PagedSequences { tables: &self.tables, lengths: &lengths, longest };
        with(&self.queries, &self.cache, &sequences).unwrap()
    }

    /// The same sequences without all but one.
    fn only(&self, row: i64) -> Self {
        Self {
            queries: self.queries.narrow(0, row, 1),
            cache: self.cache.shallow_clone(),
            tables: self.tables.narrow(0, row, 1),
            lengths: vec![self.lengths[row as usize]],
        }
    }
}

fn emulated(seed: u64) -> PagedAttention {
    static LIBRARY: LazyLock<Emulated> =
        LazyLock::new(|| Emulated::compile(&["emulated.h", "numbers.cu", "paged.cu", "paged/emulated.cpp"]));
    PagedAttention { launcher: Arc::new(LIBRARY.with_seed(seed)) }
}

fn gap(got: &Tensor, expected: &Tensor) -> f64 {
    assert_eq!((got.size(), got.kind()), (expected.size(), expected.kind()));
    (got.to_kind(Kind::Double) - expected.to_kind(Kind::Double)).abs().max().double_value(&[])
}

/// The attention in plain libtorch.
fn gathered(queries: &Tensor, cache: &Tensor, sequences: &PagedSequences<'_>) -> Result<Tensor, Error> {
    GatheredSequences::new(sequences, queries.kind())?.attend(queries, cache)
}

/// Lengths end within a block of the cache and a span, and at their ends.
const LENGTHS: [i64; 7] = [1, 16, 33, 300, 512, 513, 1100];

#[test]
fn kernels_equal_plain_attention() {
    let kernels = emulated(1);
    // Groups of one, of fewer queries than a block has, and of more; widths of tensor cores and others.
    let shapes: [Heads; 7] =
        [[2, 2, 64], [4, 2, 96], [6, 2, 64], [10, 1, 128], [5, 1, 8], [3, 3, 24], [9, 1, 256]];
    for kind in [Kind::Float, Kind::BFloat16] {
        for heads in shapes {
            let case = Case::new(&LENGTHS, heads, kind);
            let got = case.attend(|q, cache, sequences| kernels.attend(q, cache, sequences));
            let wide = Case {
                queries: case.queries.to_kind(Kind::Double),
                cache: case.cache.to_kind(Kind::Double),
                tables: case.tables.shallow_clone(),
                ..case
            };
            let expected = wide.attend(gathered);
            let (gap, largest) =
                (gap(&got.to_kind(Kind::Double), &expected), expected.abs().max().double_value(&[]));
            let allowed = largest * if kind == Kind::Float { 1e-5 } else { 1.0 / 256.0 };
            assert!(gap <= allowed, "{heads:?} in {kind:?}: {gap} of {largest}");
        }
    }
    // The widest heads.
    for (kind, width) in [(Kind::BFloat16, 256), (Kind::Float, 256)] {
        let case = Case::new(&[40], [2, 1, width], kind);
        let got = case.attend(|q, cache, sequences| kernels.attend(q, cache, sequences));
        assert!(gap(&got, &case.attend(gathered)) < 0.05, "{kind:?}");
    }
}

#[test]
fn a_sequence_depends_neither_on_the_others_nor_on_the_order_of_threads() {
    for (kind, width) in [(Kind::Float, 32), (Kind::BFloat16, 32), (Kind::BFloat16, 64)] {
        let case = Case::new(&LENGTHS, [4, 2, width], kind);
        let run = |case: &Case, seed: u64| {
            let kernels = emulated(seed);
            case.attend(|q, cache, sequences| kernels.attend(q, cache, sequences))
        };
        let all = run(&case, 1);
        assert!(run(&case, 77).equal(&all), "another order");
        for row in 0..LENGTHS.len() as i64 {
            assert!(run(&case.only(row), 3).equal(&all.narrow(0, row, 1)), "row {row} alone");
        }
    }
}

/// Numbers past the end of a sequence, in its last block, don't matter.
#[test]
fn numbers_past_the_end_are_not_used() {
    for width in [32, 64] {
        let case = Case::new(&[3, 520], [4, 2, width], Kind::BFloat16);
        let kernels = emulated(1);
        let run = || case.attend(|q, cache, sequences| kernels.attend(q, cache, sequences));
        let expected = run();
        for (row, length) in case.lengths.iter().enumerate() {
            let block = case.tables.int64_value(&[row as i64, length / BLOCK as i64]);
            let (start, used) = (block * BLOCK as i64, length % BLOCK as i64);
            let _ = case.cache.narrow(0, start + used, BLOCK as i64 - used).fill_(f64::NAN);
        }
        assert!(run().equal(&expected), "{width}");
    }
}

#[test]
fn large_scores_give_numbers() {
    let kernels = emulated(1);
    let mut case = Case::new(&[1, 600], [2, 1, 16], Kind::Float);
    case.queries = &case.queries * 1e6;
    let got = case.attend(|q, cache, sequences| kernels.attend(q, cache, sequences));
    assert!(gap(&got, &case.attend(gathered)) < 1e-4);
}

#[test]
fn tensors_of_wrong_kinds_or_shapes_are_rejected() {
    assert!(PagedAttention::supports(Kind::BFloat16, 128) && PagedAttention::supports(Kind::Float, 64));
    let unsupported = [(Kind::Half, 64), (Kind::Float, 100), (Kind::BFloat16, 264), (Kind::BFloat16, 60)];
    assert!(unsupported.into_iter().all(|(kind, width)| !PagedAttention::supports(kind, width)));
    let kernels = emulated(1);
    let case = Case::new(&[20, 3], [4, 2, 16], Kind::Float);
    let lengths = Tensor::from_slice(&[20i32, 3]);
    let good = PagedSequences { tables: &case.tables, lengths: &lengths, longest: 20 };
    let _ = kernels.attend(&case.queries, &case.cache, &good).unwrap();
    let rejected = |queries: &Tensor, cache: &Tensor, sequences: &PagedSequences<'_>, expected: &str| {
        let message = kernels.attend(queries, cache, sequences).unwrap_err().to_string();
        assert!(message.starts_with("paged: ") && message.contains(expected), "{message}");
    };
    rejected(&case.queries.to_kind(Kind::Half), &case.cache, &good, "in bf16 or f32");
    rejected(&case.queries.narrow(1, 0, 3), &case.cache, &good, "a multiple of 2 heads");
    rejected(&case.queries, &case.cache.to_kind(Kind::BFloat16), &good, "the cache must be Float");
    rejected(&case.queries, &case.cache.narrow(0, 0, 20), &good, "whole blocks");
    rejected(&case.queries.get(0), &case.cache, &good, "three dimensions");
    let long = PagedSequences { longest: 49, ..good };
    rejected(&case.queries, &case.cache, &long, "as long as the longest sequence");
    let wide = lengths.to_kind(Kind::Int64);
    rejected(
        &case.queries,
        &case.cache,
        &PagedSequences { lengths: &wide, ..good },
        "the lengths must be Int",
    );
}
