//! Comparison of the kernels of training with plain arithmetic in f64, for all available sets of instructions and several threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use pl_kernels::cpu::{
    FlashAttention, FlashGradients, FlashResults, FlashSequence, Heads, SimdLevel, Workers, fused,
};
use proptest::prelude::*;

use crate::{LEVELS, random_numbers};

/// Returns pseudorandom numbers in +-`range`.
fn numbers(count: usize, seed: u64, range: f32) -> Vec<f32> {
    random_numbers(count, seed).into_iter().map(|x| x * range).collect()
}

/// Number of threads of [`threads`].
pub(crate) const THREADS: usize = 3;

/// Threads that take numbers as they come.
pub(crate) fn threads(count: usize, body: &(dyn Fn(usize) + Sync)) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= count {
                        return;
                    }
                    body(i);
                }
            });
        }
    });
}

pub(crate) fn one_thread(count: usize, body: &(dyn Fn(usize) + Sync)) {
    (0..count).rev().for_each(body);
}

/// Compares with a tolerance for values of about 1. That of larger ones is in proportion to the largest.
fn assert_close(got: &[f32], expected: &[f64], tolerance: f64, what: &str) {
    let largest = expected.iter().fold(1f64, |largest, x| largest.max(x.abs()));
    assert_within(got, expected, tolerance * largest, what);
}

fn assert_within(got: &[f32], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let off = (f64::from(*got) - expected).abs();
        assert!(off <= tolerance, "{what}, value {i}: {got} instead of {expected}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn gates_follow_the_formula(count in 0usize..40_000, level in prop::sample::select(&LEVELS[..])) {
        let [x, up, dy] = [1, 2, 3].map(|seed| numbers(count, seed, 6.0));
        let run = |workers| {
            let [mut out, mut d_gate, mut d_up] = [(); 3].map(|()| vec![f32::NAN; count]);
            fused::gate(workers, &x, &up, &mut out);
            fused::gate_backward(workers, &dy, &x, &up, &mut d_gate, &mut d_up);
            [out, d_gate, d_up]
        };
        let got = run(Workers::with_level(level, THREADS, &threads));
        prop_assert_eq!(&got, &run(Workers::with_level(level, 1, &one_thread)));
        let rows = x.iter().zip(&up).zip(&dy).map(|((x, up), dy)| {
            let [x, up, dy] = [x, up, dy].map(|x| f64::from(*x));
            let s = 1.0 / (1.0 + (-x).exp());
            [x * s * up, dy * up * s * (1.0 + x * (1.0 - s)), dy * x * s]
        });
        let rows: Vec<[f64; 3]> = rows.collect();
        for (i, got) in got.iter().enumerate() {
            assert_close(got, &rows.iter().map(|row| row[i]).collect::<Vec<_>>(), 1e-6, "a gate");
        }
    }

    #[test]
    fn norms_follow_the_formula(
        rows in 0usize..60,
        width in 1usize..700,
        level in prop::sample::select(&LEVELS[..]),
    ) {
        let [x, dy] = [1, 2].map(|seed| numbers(rows * width, seed, 3.0));
        let gain = numbers(width, 3, 2.0);
        let square = |row: usize| x[row * width..][..width].iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
        let rstd: Vec<f32> = (0..rows).map(|row| (1.0 / (square(row) / width as f64 + 1e-5).sqrt()) as f32).collect();
        let run = |workers| {
            let [mut out, mut dx] = [(); 2].map(|()| vec![f32::NAN; rows * width]);
            fused::normalize(workers, &x, &rstd, &gain, &mut out);
            fused::normalize_backward(workers, &dy, &x, &rstd, &gain, &mut dx);
            [out, dx]
        };
        let got = run(Workers::with_level(level, THREADS, &threads));
        prop_assert_eq!(&got, &run(Workers::with_level(level, 1, &one_thread)));
        let (mut out, mut dx) = (Vec::new(), Vec::new());
        for row in 0..rows {
            let r = f64::from(rstd[row]);
            let at = |values: &[f32], i: usize| f64::from(values[row * width + i]);
            let gained = |i: usize| at(&dy, i) * f64::from(gain[i]);
            let mean = (0..width).map(|i| gained(i) * at(&x, i) * r).sum::<f64>() / width as f64;
            out.extend((0..width).map(|i| at(&x, i) * r * f64::from(gain[i])));
            dx.extend((0..width).map(|i| (gained(i) - at(&x, i) * r * mean) * r));
        }
        assert_close(&got[0], &out, 1e-6, "a norm");
        assert_close(&got[1], &dx, 4e-6, "the gradient of a norm");
    }

    #[test]
    fn rotations_follow_the_formula_and_are_undone(
        rows in 0usize..50,
        heads in 1usize..5,
        half in 1usize..70,
        level in prop::sample::select(&LEVELS[..]),
    ) {
        let width = 2 * half;
        let x = numbers(rows * heads * width, 1, 3.0);
        let angles = numbers(rows * half, 2, 3.0);
        let row = |row: usize, f: &dyn Fn(f32) -> f32, first: f32| -> Vec<f32> {
            let own = &angles[row * half..][..half];
            own.iter().map(|a| first * f(*a)).chain(own.iter().map(|a| f(*a))).collect()
        };
        let cos: Vec<f32> = (0..rows).flat_map(|i| row(i, &f32::cos, 1.0)).collect();
        let sin: Vec<f32> = (0..rows).flat_map(|i| row(i, &f32::sin, -1.0)).collect();
        let workers = Workers::with_level(level, THREADS, &threads);
        let [mut out, mut back] = [(); 2].map(|()| vec![f32::NAN; x.len()]);
        fused::rotate(workers, &x, [&cos, &sin], width, false, &mut out);
        fused::rotate(workers, &out, [&cos, &sin], width, true, &mut back);
        let expected = (0..x.len()).map(|i| {
            let (row, at) = (i / (heads * width), i % width);
            let other = if at < half { i + half } else { i - half };
            let [x, y, c, s] = [x[i], x[other], cos[row * width + at], sin[row * width + at]].map(f64::from);
            x * c + y * s
        });
        assert_close(&out, &expected.collect::<Vec<_>>(), 1e-6, "a rotation");
        assert_close(&back, &x.iter().map(|x| f64::from(*x)).collect::<Vec<_>>(), 1e-6, "a rotation back");
    }

    #[test]
    fn attention_follows_the_formula(
        kv_heads in 1usize..4,
        group in 1usize..4,
        dim in prop::sample::select(&[32usize, 64, 96][..]),
        lengths in prop::collection::vec((0usize..150, 0usize..150), 1..4),
        causal in any::<bool>(),
        level in prop::sample::select(&LEVELS[..]),
    ) {
        // A causal part is a span to itself.
        let lengths: Vec<_> = lengths.into_iter().map(|(n, m)| if causal { (n, n) } else { (n, m) }).collect();
        check_attention(Heads { heads: kv_heads * group, kv_heads, dim }, &lengths, causal, level);
    }
}

/// Sequences that are divided, and equally long ones that are not.
#[test]
fn attention_of_long_sequences_follows_the_formula() {
    let [grouped, several] = [(3, 1), (4, 2)].map(|(heads, kv_heads)| Heads { heads, kv_heads, dim: 32 });
    let many = [(260, 260); 9];
    for level in LEVELS {
        check_attention(grouped, &[(520, 520)], true, level);
        check_attention(grouped, &[(30, 30), (520, 520)], true, level);
        check_attention(grouped, &[(300, 400)], true, level);
        check_attention(grouped, &[(400, 300)], true, level);
        check_attention(several, &[(300, 520), (40, 500)], false, level);
        check_attention(several, &[(450, 260)], false, level);
        for causal in [true, false] {
            check_attention(Heads { heads: 2, ..several }, &many, causal, level);
        }
    }
}

#[test]
fn the_backward_pass_of_one_sequence_has_tasks_for_several_threads() {
    let heads = Heads { heads: 3, kv_heads: 1, dim: 32 };
    let length = 1024;
    let sequences = [FlashSequence { queries: 0..length, keys: 0..length }];
    let (q, k) = (numbers(length * 3 * 32, 1, 1.0), numbers(length * 32, 2, 1.0));
    let attention = FlashAttention { heads, causal: true, sequences: &sequences, q: &q, k: &k, v: &k };
    let loops = Mutex::new(Vec::new());
    let count = |count: usize, body: &(dyn Fn(usize) + Sync)| {
        loops.lock().unwrap().push(count);
        one_thread(count, body);
    };
    let [mut dq, mut dk, mut dv] = [&q, &k, &k].map(|x| vec![0f32; x.len()]);
    let results = FlashResults { out: &q, gradient: &q, logsumexp: &vec![5f32; 3 * length] };
    let gradients = FlashGradients { q: &mut dq, k: &mut dk, v: &mut dv };
    attention.backward(Workers::new(1, &count), &results, gradients);
    let loops = loops.into_inner().unwrap();
    assert!(!loops.is_empty() && loops.iter().all(|count| *count >= 4), "{loops:?}");
}

/// Compares the results and gradients of sequences of queries and keys with the formula, and those of three threads with those of
/// one that takes the tasks in another order.
fn check_attention(sizes: Heads, lengths: &[(usize, usize)], causal: bool, level: SimdLevel) {
    let Heads { heads, kv_heads, dim } = sizes;
    let group = heads / kv_heads;
    let (mut queries, mut keys, mut sequences) = (0, 0, Vec::new());
    for &(n, m) in lengths {
        sequences.push(FlashSequence { queries: queries..queries + n, keys: keys..keys + m });
        (queries, keys) = (queries + n, keys + m);
    }
    let [q, gradient] = [1, 2].map(|seed| numbers(queries * heads * dim, seed, 1.5));
    let [k, v] = [3, 4].map(|seed| numbers(keys * kv_heads * dim, seed, 1.5));
    let attention = FlashAttention { heads: sizes, causal, sequences: &sequences, q: &q, k: &k, v: &v };
    let run = |workers| {
        let (mut out, mut sums) = (vec![0f32; q.len()], vec![0f32; queries * heads]);
        attention.forward(workers, &mut out, &mut sums);
        // As if there were other keys.
        let logsumexp: Vec<f32> = sums.iter().map(|x| x + 0.5).collect();
        let [mut dq, mut dk, mut dv] = [&q, &k, &v].map(|x| vec![0f32; x.len()]);
        let results = FlashResults { out: &out, gradient: &gradient, logsumexp: &logsumexp };
        attention.backward(workers, &results, FlashGradients { q: &mut dq, k: &mut dk, v: &mut dv });
        [out, sums, dq, dk, dv]
    };
    let got = run(Workers::with_level(level, THREADS, &threads));
    assert_eq!(&got, &run(Workers::with_level(level, 1, &one_thread)));

    let mut expected = [q.len(), queries * heads, q.len(), k.len(), v.len()].map(|len| vec![0f64; len]);
    // Squares of the terms of gradients of keys, before differences cancel: a query with one key adds 0 and its rounding.
    let mut squares = vec![0f64; k.len()];
    let row = |x: &[f32], row: usize, heads: usize, head: usize| -> Vec<f64> {
        x[(row * heads + head) * dim..][..dim].iter().map(|x| f64::from(*x)).collect()
    };
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    for (sequence, head) in sequences.iter().flat_map(|one| (0..heads).map(move |head| (one, head))) {
        let kv = head / group;
        for (i, query) in sequence.queries.clone().enumerate() {
            let seen = if causal { i + 1 } else { sequence.keys.len() };
            let own: Vec<usize> = sequence.keys.clone().take(seen).collect();
            let (query_row, d_out) = (row(&q, query, heads, head), row(&gradient, query, heads, head));
            let scale = 1.0 / (dim as f64).sqrt();
            let scores: Vec<f64> =
                own.iter().map(|key| scale * dot(&query_row, &row(&k, *key, kv_heads, kv))).collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|s| (s - most).exp()).sum();
            let logsumexp = if own.is_empty() { f64::NEG_INFINITY } else { most + sum.ln() };
            expected[1][head * queries + query] = logsumexp;
            let at = (query * heads + head) * dim;
            for (key, score) in own.iter().zip(&scores) {
                let value = row(&v, *key, kv_heads, kv);
                (0..dim).for_each(|d| expected[0][at + d] += (score - logsumexp).exp() * value[d]);
            }
            let mean: f64 = (0..dim).map(|d| expected[0][at + d] * d_out[d]).sum();
            for (key, score) in own.iter().zip(&scores) {
                let (key_row, value) = (row(&k, *key, kv_heads, kv), row(&v, *key, kv_heads, kv));
                let p = (score - logsumexp - 0.5).exp();
                let product = dot(&d_out, &value);
                let slope = p * (product - mean) * scale;
                let size = p * (product.abs() + mean.abs()) * scale;
                let key_at = (key * kv_heads + kv) * dim;
                for d in 0..dim {
                    expected[2][at + d] += slope * key_row[d];
                    expected[3][key_at + d] += slope * query_row[d];
                    squares[key_at + d] += (size * query_row[d]).powi(2);
                    expected[4][key_at + d] += p * d_out[d];
                }
            }
        }
    }
    // Rows without keys have no sum.
    let finite = |x: &f64| if x.is_finite() { *x } else { -1e30 };
    let sums: Vec<f32> = got[1].iter().map(|x| finite(&f64::from(*x)) as f32).collect();
    let expected_sums: Vec<f64> = expected[1].iter().map(finite).collect();
    assert_close(&sums, &expected_sums, 1e-5, "sums");
    for (i, what) in [(0, "outputs"), (2, "gradients of queries"), (4, "of values")] {
        assert_close(&got[i], &expected[i], 4e-6, what);
    }
    let largest = squares.iter().fold(1f64, |largest, x| largest.max(x.sqrt()));
    assert_within(&got[3], &expected[3], 4e-6 * largest, "gradients of keys");
}
