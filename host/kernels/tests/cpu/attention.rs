//! Attention over contexts of several parts, compared with plain arithmetic in f64, and rows among others, with the same rows
//! alone.

use pl_kernels::cpu::{Attention, BLOCK, Cpu, Heads, KvCache, Query, Rotation};

use crate::{LEVELS, assert_close, random_numbers};

const HEADS: Heads = Heads { heads: 6, kv_heads: 2, dim: 24 };

/// Returns queries, keys and values of tokens. Some tokens have larger keys, so that the largest scores of parts differ.
fn tokens(heads: Heads, count: usize, seed: u64) -> Vec<f32> {
    let mut numbers = random_numbers(count * heads.stride(), seed);
    for (token, numbers) in numbers.chunks_exact_mut(heads.stride()).enumerate() {
        if token % 700 < 90 {
            numbers[heads.heads * heads.dim..][..heads.kv_heads * heads.dim]
                .iter_mut()
                .for_each(|x| *x *= 3.0);
        }
    }
    numbers
}

/// Returns queries of some rows, whose scores are a few units apart.
fn random_queries(heads: Heads, rows: usize) -> Vec<f32> {
    random_numbers(rows * heads.heads * heads.dim, 5).into_iter().map(|x| 4.0 * x).collect()
}

/// Writes the keys and values of tokens as they are, without rotation, from a position on.
fn write(cpu: &Cpu, heads: Heads, cache: &mut KvCache, blocks: &[u32], first: usize, numbers: &[f32]) {
    let end = first + numbers.len() / heads.stride();
    let slots: Vec<(u32, usize)> = (first..end).map(|token| (blocks[token / BLOCK], token)).collect();
    let (cos, sin) = (vec![1.0; end * heads.dim], vec![0.0; end * heads.dim]);
    let rotation = Rotation { cos: &cos, sin: &sin, q_norm: None, k_norm: None };
    cpu.rotate(rotation, heads, &mut numbers.to_vec(), &slots, 0, cache);
}

fn attend(cpu: &Cpu, heads: Heads, cache: &KvCache, q: &[f32], queries: &[Query<'_>]) -> Vec<f32> {
    let width = heads.heads * heads.dim;
    let mut out = vec![0.0; queries.len() * width];
    cpu.attend(&Attention { cache, layer: 0, q, stride: width, queries }, &mut out);
    out
}

/// Returns the attention of one head of a query to the first `length` tokens.
fn formula(heads: Heads, numbers: &[f32], q: &[f32], head: usize, length: usize) -> Vec<f64> {
    let kv_head = head / (heads.heads / heads.kv_heads);
    let part = |token: usize, index: usize| {
        &numbers[token * heads.stride() + (heads.heads + index) * heads.dim..][..heads.dim]
    };
    let product = |token: usize| -> f64 {
        q.iter().zip(part(token, kv_head)).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum()
    };
    let scores: Vec<f64> = (0..length).map(|token| product(token) / (heads.dim as f64).sqrt()).collect();
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
    let mut sums = vec![0f64; heads.dim];
    for (token, score) in scores.iter().enumerate() {
        let p = (score - largest).exp() / total;
        sums.iter_mut()
            .zip(part(token, heads.kv_heads + kv_head))
            .for_each(|(sum, v)| *sum += p * f64::from(*v));
    }
    sums
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn contexts_of_several_parts_follow_the_formula() {
    let lengths = [1, 17, 511, 512, 513, 1024, 1500, 2049];
    for (heads, kv_heads, dim) in [(6, 2, 24), (5, 1, 80), (14, 2, 64)] {
        let heads = Heads { heads, kv_heads, dim };
        let numbers = tokens(heads, 2049, 1);
        let q = random_queries(heads, lengths.len());
        let blocks: Vec<u32> = (0..129).rev().map(|block| 2 * block).collect();
        let queries = lengths.map(|length| Query { blocks: &blocks, length });
        let expected: Vec<f64> = (0..lengths.len() * heads.heads)
            .flat_map(|i| {
                formula(heads, &numbers, &q[i * dim..][..dim], i % heads.heads, lengths[i / heads.heads])
            })
            .collect();
        for level in LEVELS {
            let cpu = Cpu::with_level(2, level).unwrap();
            let mut cache = KvCache::new(heads, 1);
            write(&cpu, heads, &mut cache, &blocks, 0, &numbers);
            let out = attend(&cpu, heads, &cache, &q, &queries);
            out.iter().zip(&expected).for_each(|(got, expected)| assert_close(*got, *expected, 20.0));
        }
    }
}

#[test]
fn rows_have_the_bits_of_a_row_alone() {
    let own: Vec<u32> = (0..70).rev().collect();
    // The first part and a fourth of the second are those of the other sequence.
    let sibling: Vec<u32> = own[..40].iter().copied().chain(100..130).collect();
    let stranger: Vec<u32> = (200..270).collect();
    let prompt = (490..530).map(|length| (&own, length));
    // Equal, descending and very different lengths; sequences that take turns.
    let others = [
        (&stranger, 600),
        (&sibling, 700),
        (&own, 700),
        (&own, 700),
        (&own, 643),
        (&own, 642),
        (&sibling, 642),
        (&sibling, 1100),
        (&own, 30),
        (&own, 20),
        (&stranger, 513),
        (&sibling, 1024),
        (&sibling, 1025),
    ];
    let queries: Vec<Query<'_>> =
        prompt.chain(others).map(|(blocks, length)| Query { blocks, length }).collect();
    let sizes = [(6, 2, 24), (14, 2, 64), (1, 1, 80)];
    for (heads, kv_heads, dim) in sizes {
        let heads = Heads { heads, kv_heads, dim };
        let q = random_queries(heads, queries.len());
        let width = heads.heads * heads.dim;
        for level in LEVELS {
            let single = Cpu::with_level(1, level).unwrap();
            let mut cache = KvCache::new(heads, 1);
            for (seed, blocks) in [&own, &sibling, &stranger].into_iter().enumerate() {
                // What the sibling shares is written again.
                write(&single, heads, &mut cache, blocks, 0, &tokens(heads, 70 * BLOCK, seed as u64));
            }
            let alone: Vec<f32> = queries
                .iter()
                .zip(q.chunks_exact(width))
                .flat_map(|(query, q)| attend(&single, heads, &cache, q, &[*query]))
                .collect();
            for threads in [1, 3] {
                let cpu = Cpu::with_level(threads, level).unwrap();
                let out = attend(&cpu, heads, &cache, &q, &queries);
                for (row, (out, alone)) in out.chunks(width).zip(alone.chunks(width)).enumerate() {
                    assert_eq!(bits(out), bits(alone), "row {row} of {heads:?}, {level}, {threads} threads");
                }
            }
        }
    }
}

#[test]
fn tokens_past_a_context_change_nothing() {
    let blocks: Vec<u32> = (0..35).collect();
    let queries: Vec<Query<'_>> = (496..531).map(|length| Query { blocks: &blocks, length }).collect();
    let numbers = tokens(HEADS, 560, 1);
    let q = random_queries(HEADS, queries.len());
    let width = HEADS.heads * HEADS.dim;
    for level in LEVELS {
        let cpu = Cpu::with_level(1, level).unwrap();
        let mut cache = KvCache::new(HEADS, 1);
        write(&cpu, HEADS, &mut cache, &blocks, 0, &numbers);
        let before = attend(&cpu, HEADS, &cache, &q, &queries);
        // In the first part, in the second, and past all rows.
        for first in [505, 519, 530] {
            write(&cpu, HEADS, &mut cache, &blocks, first, &vec![f32::NAN; (560 - first) * HEADS.stride()]);
            let out = attend(&cpu, HEADS, &cache, &q, &queries);
            for (row, (out, before)) in out.chunks(width).zip(before.chunks(width)).enumerate() {
                if queries[row].length <= first {
                    assert_eq!(bits(out), bits(before), "row {row}, {level}");
                } else {
                    assert!(out.iter().all(|x| x.is_nan()), "row {row}, {level}");
                }
            }
            write(&cpu, HEADS, &mut cache, &blocks, 0, &numbers);
        }
    }
}

#[test]
fn rows_whose_results_of_parts_take_much_memory_are_computed_in_turn() {
    let heads = Heads { heads: 32, kv_heads: 1, dim: 2 };
    let cpu = Cpu::new(2).unwrap();
    let mut cache = KvCache::new(heads, 1);
    // The same tokens again and again.
    let blocks: Vec<u32> = (0..60_800).map(|block| block % 40).collect();
    write(&cpu, heads, &mut cache, &blocks, 0, &tokens(heads, 40 * BLOCK, 1));
    // The results of 2,048 parts take 8 MiB: the first two rows are computed before the others, of which a task of the first part
    // has one with several parts and one with one.
    let lengths = [1900 * 512, 30, 200 * 512 - 5, 500, 60 * 512 - 100];
    let queries = lengths.map(|length| Query { blocks: &blocks, length });
    let q = random_queries(heads, queries.len());
    let width = heads.heads * heads.dim;
    let out = attend(&cpu, heads, &cache, &q, &queries);
    for (row, (out, q)) in out.chunks(width).zip(q.chunks(width)).enumerate() {
        let alone = attend(&cpu, heads, &cache, q, &[queries[row]]);
        assert_eq!(bits(out), bits(&alone), "row {row}");
    }
    // Tokens have the same share of the weights as if each came once.
    let once = attend(&cpu, heads, &cache, &q[..width], &[Query { blocks: &blocks, length: 40 * BLOCK }]);
    out.iter().zip(once).for_each(|(got, expected)| assert_close(*got, f64::from(expected), 200.0));
}
