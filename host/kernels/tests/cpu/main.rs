//! Comparison of the CPU's kernels with plain arithmetic in f64, for all available sets of instructions, and
//! with themselves: a row's bits must not depend on other rows or on the threads.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod attention;
mod inlining;
mod matmul;
mod training;

use half::{bf16, f16};
use pl_kernels::cpu::{
    Attention, BLOCK, CodeWidth, Cpu, Distribution, Epilogue, GroupFormat, Heads, KvCache, Matrix, Product,
    QuantizedRow, Query, RmsNorm, Rotation, SimdLevel, Term, WeightFormat,
};
use proptest::prelude::*;

const LEVELS: [SimdLevel; 3] = [SimdLevel::Portable, SimdLevel::Avx2, SimdLevel::Avx512];

/// Returns pseudorandom numbers in ±1.
fn random_numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

fn round_to(x: f32, format: WeightFormat) -> f64 {
    f64::from(match format {
        WeightFormat::F32 => x,
        WeightFormat::F16 => f16::from_f32(x).to_f32(),
        WeightFormat::Bf16 => bf16::from_f32(x).to_f32(),
    })
}

fn product(x: &[f32], w: &[f32], inputs: usize, row: usize, output: usize, format: WeightFormat) -> f64 {
    let (x, w) = (&x[row * inputs..][..inputs], &w[output * inputs..][..inputs]);
    x.iter().zip(w).map(|(x, w)| f64::from(*x) * round_to(*w, format)).sum()
}

/// Fills a row with random codes and scales. Returns its weights by the formula, in f32.
fn random_row(row: &mut QuantizedRow, format: GroupFormat, seed: u64) -> Vec<f32> {
    let numbers = random_numbers(row.codes.len() + 1, seed);
    let scaled = |i: usize, range: f32| numbers[i % numbers.len()] * range;
    let (from, to) = match (format.width, format.minimum) {
        (CodeWidth::Four, false) => (-8.0, 7.0),
        (CodeWidth::Four, true) => (0.0, 15.0),
        (CodeWidth::Eight, _) => (-128.0, 127.0),
    };
    for (i, code) in row.codes.iter_mut().enumerate() {
        *code = scaled(i, 128.0).rem_euclid(to - from + 1.0).floor().mul_add(1.0, from) as i8;
    }
    row.scales.iter_mut().enumerate().for_each(|(i, x)| *x = f16::from_f32(scaled(3 * i + 1, 0.05)));
    row.minimums.iter_mut().enumerate().for_each(|(i, x)| *x = f16::from_f32(scaled(5 * i + 2, 0.5)));
    row.scale_factors.iter_mut().enumerate().for_each(|(i, x)| *x = scaled(7 * i + 3, 127.0) as i8);
    row.minimum_factors.iter_mut().enumerate().for_each(|(i, x)| *x = scaled(11 * i + 4, 63.0) as i8);
    let weight = |(i, code): (usize, &i8)| {
        let term = |shared: &[f16], factors: &[i8]| {
            let factor = factors.get(i / format.group).map_or(1.0, |factor| f32::from(*factor));
            shared[i / (format.group * format.groups)].to_f32() * factor
        };
        let scaled = term(&row.scales, &row.scale_factors) * f32::from(*code);
        if format.minimum { scaled + term(&row.minimums, &row.minimum_factors) } else { scaled }
    };
    row.codes.iter().enumerate().map(weight).collect()
}

/// Returns a row with the lengths that [`Matrix::pack_groups`] gives it.
fn empty_row(format: GroupFormat, inputs: usize) -> QuantizedRow {
    let blocks = inputs.div_ceil(format.block());
    let factors = if format.groups > 1 { blocks * format.groups } else { 0 };
    let minimum = usize::from(format.minimum);
    QuantizedRow {
        codes: vec![0; inputs],
        scales: vec![f16::ZERO; blocks],
        minimums: vec![f16::ZERO; blocks * minimum],
        scale_factors: vec![0; factors],
        minimum_factors: vec![0; factors * minimum],
    }
}

fn group_format() -> impl Strategy<Value = GroupFormat> {
    let width = prop_oneof![Just(CodeWidth::Four), Just(CodeWidth::Eight)];
    let groups = prop_oneof![Just((32, 1)), Just((32, 8)), Just((16, 16))];
    (width, groups, any::<bool>()).prop_map(|(width, (group, groups), minimum)| GroupFormat {
        width,
        group,
        groups,
        minimum,
    })
}

fn assert_close(got: f32, expected: f64, scale: f64) {
    assert!((f64::from(got) - expected).abs() <= 2e-6 * scale.max(1.0), "{got} instead of {expected}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn products_follow_the_formula_and_rows_are_independent(
        rows in 1usize..40,
        outputs in 1usize..80,
        inputs in 1usize..600,
        format in prop_oneof![Just(WeightFormat::F32), Just(WeightFormat::F16), Just(WeightFormat::Bf16)],
        level in prop::sample::select(&LEVELS[..]),
        threads in 1usize..4,
        epilogue in 0usize..4,
    ) {
        let cpu = Cpu::with_level(threads, level).unwrap();
        let x = random_numbers(rows * inputs, 1);
        let (w, u) = (random_numbers(outputs * inputs, 2), random_numbers(outputs * inputs, 3));
        let (bias, before) = (random_numbers(outputs, 4), random_numbers(rows * outputs, 5));
        let packed = Matrix::pack(&cpu, &w, outputs, inputs, format);
        let up = Matrix::pack(&cpu, &u, outputs, inputs, format);
        let run = |rows: std::ops::Range<usize>, cpu: &Cpu| {
            let term = |matrix| Term { rows: rows.clone(), x: &x, stride: inputs, offset: 0, matrix };
            let gate = [term(&up)];
            let epilogue = match epilogue {
                0 => Epilogue::Store,
                1 => Epilogue::Bias(&bias),
                2 => Epilogue::Add,
                _ => Epilogue::Gate(&gate),
            };
            let mut out = before.clone();
            cpu.products(&[Product { rows: rows.clone(), terms: &[term(&packed)], epilogue, offset: 0 }], &mut out, outputs);
            out
        };
        let out = run(0..rows, &cpu);
        for row in 0..rows {
            for output in 0..outputs {
                let s = product(&x, &w, inputs, row, output, format);
                let expected = match epilogue {
                    0 => s,
                    1 => s + f64::from(bias[output]),
                    2 => s + f64::from(before[row * outputs + output]),
                    _ => s / (1.0 + (-s).exp()) * product(&x, &u, inputs, row, output, format),
                };
                assert_close(out[row * outputs + output], expected, (inputs as f64).sqrt() * (4.0 + expected.abs()));
            }
            // One row, by one thread.
            let single = run(row..row + 1, &Cpu::with_level(1, level).unwrap());
            let own = row * outputs..(row + 1) * outputs;
            prop_assert_eq!(&single[own.clone()], &out[own]);
        }
        for row in [0, outputs - 1] {
            let mut to = vec![0f32; inputs];
            packed.row(row, &mut to);
            for (to, w) in to.iter().zip(&w[row * inputs..]) {
                prop_assert_eq!(f64::from(*to), round_to(*w, format));
            }
            let mut unpacked = vec![0f32; inputs];
            packed.unpack(row..row + 1, &mut unpacked);
            prop_assert_eq!(to, unpacked);
        }
    }

    #[test]
    fn quantized_weights_compute_as_the_same_weights_in_f32(
        rows in 1usize..20,
        outputs in 1usize..80,
        inputs in 1usize..600,
        format in group_format(),
        level in prop::sample::select(&LEVELS[..]),
        threads in 1usize..4,
        gated in any::<bool>(),
    ) {
        let cpu = Cpu::with_level(threads, level).unwrap();
        let x = random_numbers(rows * inputs, 1);
        let mut expected_weights = Vec::new();
        for i in 0..outputs {
            let mut row = empty_row(format, inputs);
            expected_weights.extend(random_row(&mut row, format, i as u64));
        }
        let quantized = Matrix::pack_groups(&cpu, format, outputs, inputs, |i, row| {
            random_row(row, format, i as u64);
        });
        let plain = Matrix::pack(&cpu, &expected_weights, outputs, inputs, WeightFormat::F32);
        let product = |matrix: &Matrix| {
            let term = || Term { rows: 0..rows, x: &x, stride: inputs, offset: 0, matrix };
            let gate = [term()];
            let epilogue = if gated { Epilogue::Gate(&gate) } else { Epilogue::Store };
            let mut out = vec![0f32; rows * outputs];
            cpu.products(&[Product { rows: 0..rows, terms: &[term()], epilogue, offset: 0 }], &mut out, outputs);
            out
        };
        prop_assert_eq!(product(&quantized), product(&plain));
        let mut unpacked = vec![f32::NAN; outputs * inputs];
        quantized.unpack(0..outputs, &mut unpacked);
        prop_assert_eq!(&unpacked, &expected_weights);
        let part = outputs / 3..outputs.div_ceil(2);
        let mut some = vec![f32::NAN; part.len() * inputs];
        quantized.unpack(part.clone(), &mut some);
        prop_assert_eq!(&some[..], &expected_weights[part.start * inputs..part.end * inputs]);
        let mut row = vec![f32::NAN; inputs];
        quantized.row(outputs - 1, &mut row);
        prop_assert_eq!(&row[..], &expected_weights[(outputs - 1) * inputs..]);
    }

    #[test]
    fn attention_follows_the_formula(
        kv_heads in 1usize..4,
        group in 1usize..6,
        dim in prop::sample::select(&[2usize, 8, 24, 64, 80, 128][..]),
        lengths in prop::collection::vec(1usize..70, 1..5),
        level in prop::sample::select(&LEVELS[..]),
        normed in any::<bool>(),
    ) {
        let cpu = Cpu::with_level(2, level).unwrap();
        let heads = Heads { heads: kv_heads * group, kv_heads, dim };
        let positions = 70;
        let angles = random_numbers(positions * dim, 9);
        let (cos, sin): (Vec<f32>, Vec<f32>) = angles.iter().map(|a| (a.cos(), a.sin())).unzip();
        let weight = random_numbers(dim, 10);
        let norm = normed.then_some(RmsNorm { weight: &weight, eps: 1e-5 });
        let rotation = Rotation { cos: &cos, sin: &sin, q_norm: norm, k_norm: norm };
        let mut cache = KvCache::new(heads, 2);
        // Blocks of the sequences are interleaved.
        let block_tables: Vec<Vec<u32>> = (0..lengths.len())
            .map(|s| (0..8).map(|b| (b * lengths.len() + s) as u32).collect())
            .collect();
        let all: Vec<(usize, usize)> =
            lengths.iter().enumerate().flat_map(|(s, length)| (0..*length).map(move |t| (s, t))).collect();
        let slots: Vec<(u32, usize)> = all.iter().map(|(s, t)| (block_tables[*s][t / BLOCK], *t)).collect();
        let before = random_numbers(all.len() * heads.stride(), 11);
        let mut qkv = before.clone();
        cpu.rotate(rotation, heads, &mut qkv, &slots, 1, &mut cache);
        let queries: Vec<Query<'_>> =
            all.iter().map(|(s, t)| Query { blocks: &block_tables[*s], length: t + 1 }).collect();
        let width = heads.heads * dim;
        let mut out = vec![0f32; all.len() * width];
        let attention =
            Attention { cache: &cache, layer: 1, q: &qkv, stride: heads.stride(), queries: &queries };
        cpu.attend(&attention, &mut out);

        // The formula in f64.
        let rotated = |row: usize, part: usize| -> Vec<f64> {
            let head = &before[row * heads.stride() + part * dim..][..dim];
            let mut head: Vec<f64> = head.iter().map(|x| f64::from(*x)).collect();
            if normed {
                let mean = head.iter().map(|x| x * x).sum::<f64>() / dim as f64;
                let scale = 1.0 / (mean + 1e-5).sqrt();
                head.iter_mut().zip(&weight).for_each(|(x, w)| *x *= scale * f64::from(*w));
            }
            let offset = all[row].1 * dim;
            (0..dim)
                .map(|i| {
                    let other = head[(i + dim / 2) % dim];
                    head[i] * f64::from(cos[offset + i]) + other * f64::from(sin[offset + i])
                })
                .collect()
        };
        let first: Vec<usize> = lengths.iter().scan(0, |end, n| { *end += n; Some(*end - n) }).collect();
        for (row, (sequence, token)) in all.iter().enumerate() {
            for head in 0..heads.heads {
                let q = rotated(row, head);
                let attended = first[*sequence]..=first[*sequence] + token;
                let scores: Vec<f64> = attended
                    .clone()
                    .map(|other| {
                        let k = rotated(other, heads.heads + head / group);
                        q.iter().zip(&k).map(|(q, k)| q * k).sum::<f64>() / (dim as f64).sqrt()
                    })
                    .collect();
                let max_score = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let total: f64 = scores.iter().map(|s| (s - max_score).exp()).sum();
                for d in 0..dim {
                    let expected: f64 = attended
                        .clone()
                        .zip(&scores)
                        .map(|(other, s)| {
                            let index = other * heads.stride() + (heads.heads + kv_heads + head / group) * dim + d;
                            (s - max_score).exp() / total * f64::from(before[index])
                        })
                        .sum();
                    assert_close(out[row * width + head * dim + d], expected, 20.0);
                }
            }
        }
        // A single query has the same bits.
        let last = all.len() - 1;
        let mut single = vec![0f32; width];
        let attention = Attention {
            q: &qkv[last * heads.stride()..],
            queries: &queries[last..],
            ..attention
        };
        cpu.attend(&attention, &mut single);
        prop_assert_eq!(&single[..], &out[last * width..]);
    }

    #[test]
    fn norms_follow_the_formula(width in 1usize..200, rows in 1usize..6, level in prop::sample::select(&LEVELS[..])) {
        let cpu = Cpu::with_level(2, level).unwrap();
        let (x, weight) = (random_numbers(rows * width, 1), random_numbers(width, 2));
        let mut out = vec![0f32; x.len()];
        cpu.rms_norm(RmsNorm { weight: &weight, eps: 1e-5 }, &x, &mut out);
        for (x, out) in x.chunks(width).zip(out.chunks(width)) {
            let mean = x.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>() / width as f64;
            for i in 0..width {
                assert_close(out[i], f64::from(x[i]) * f64::from(weight[i]) / (mean + 1e-5).sqrt(), 4.0);
            }
        }
    }

    #[test]
    fn distributions_follow_the_softmax(
        count in 1usize..1500,
        temperature in 0.2f32..3.0,
        excluded in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
        quantile in 0f64..1.0,
        level in prop::sample::select(&LEVELS[..]),
    ) {
        let mut logits: Vec<f32> = random_numbers(count, 3).iter().map(|x| 8.0 * x).collect();
        if count > 1 {
            for index in excluded {
                logits[1 + index.index(count - 1)] = f32::NEG_INFINITY;
            }
        }
        let exact: Vec<f64> = logits.iter().map(|z| (f64::from(*z) / f64::from(temperature)).exp()).collect();
        let total: f64 = exact.iter().sum();
        let mut weights = vec![0f32; count];
        let distribution = Distribution::new(level, &logits, temperature, &mut weights);
        for i in 0..count {
            let p = exact[i] / total;
            prop_assert!((f64::from(weights[i]) / distribution.total - p).abs() < 1e-6);
            if p > 0.0 {
                prop_assert!((f64::from(distribution.logprob(logits[i])) - p.ln()).abs() < 2e-5);
            }
        }
        let likeliest = distribution.likeliest(&logits).unwrap();
        prop_assert!(logits.iter().all(|logit| logit / temperature <= logits[likeliest] / temperature));
        let sampled = distribution.sample(&weights, quantile).unwrap();
        prop_assert!(weights[sampled] > 0.0);
        let below: f64 = exact[..sampled].iter().sum();
        prop_assert!(below <= quantile * total + 1e-5 * total && quantile * total <= below + exact[sampled] + 1e-5 * total);
    }
}

#[test]
fn every_number_of_rows_has_the_bits_of_single_rows() {
    const ROWS: usize = 49;
    // Panels and strides that are not full.
    const INPUTS: usize = 65;
    const OUTPUTS: usize = 33;
    let (x, values) = (random_numbers(ROWS * INPUTS, 1), random_numbers(OUTPUTS * INPUTS, 2));
    let formats = [WeightFormat::F32, WeightFormat::F16, WeightFormat::Bf16];
    for (format, level) in formats.into_iter().flat_map(|format| LEVELS.map(|level| (format, level))) {
        let cpu = Cpu::with_level(1, level).unwrap();
        let matrix = Matrix::pack(&cpu, &values, OUTPUTS, INPUTS, format);
        let run = |rows: std::ops::Range<usize>| {
            let term = Term { rows: rows.clone(), x: &x, stride: INPUTS, offset: 0, matrix: &matrix };
            let mut out = vec![0f32; ROWS * OUTPUTS];
            let product =
                Product { rows: rows.clone(), terms: &[term], epilogue: Epilogue::Store, offset: 0 };
            cpu.products(&[product], &mut out, OUTPUTS);
            out[rows.start * OUTPUTS..rows.end * OUTPUTS].to_vec()
        };
        let single: Vec<f32> = (0..ROWS).flat_map(|row| run(row..row + 1)).collect();
        for rows in 1..=ROWS {
            assert_eq!(run(0..rows), single[..rows * OUTPUTS], "{rows} rows, {format:?}, {level}");
        }
    }
}

#[test]
fn rows_that_threads_share_have_the_bits_of_one_thread() {
    const ROWS: usize = 50;
    const INPUTS: usize = 33;
    let x = random_numbers(ROWS * INPUTS, 1);
    for (outputs, level) in [1, 20, 60].into_iter().flat_map(|outputs| LEVELS.map(|level| (outputs, level))) {
        let run = |threads| {
            let cpu = Cpu::with_level(threads, level).unwrap();
            let pack = |seed| {
                let values = random_numbers(outputs * INPUTS, seed);
                Matrix::pack(&cpu, &values, outputs, INPUTS, WeightFormat::F32)
            };
            let (base, first, second) = (pack(2), pack(3), pack(4));
            let term = |rows, matrix| Term { rows, x: &x, stride: INPUTS, offset: 0, matrix };
            // Two adapters, one of them with rows on both sides of every border between parts.
            let terms = [term(0..ROWS, &base), term(3..48, &first), term(48..49, &second)];
            let product = Product { rows: 0..ROWS, terms: &terms, epilogue: Epilogue::Store, offset: 0 };
            let mut out = vec![0f32; ROWS * outputs];
            cpu.products(&[product], &mut out, outputs);
            out
        };
        let alone = run(1);
        for threads in [2, 3, 8] {
            assert_eq!(run(threads), alone, "{outputs} outputs, {threads} threads, {level}");
        }
    }
}

#[test]
fn logits_that_are_not_finite_have_no_sample() {
    for bad in [f32::NAN, f32::INFINITY] {
        let logits = [0.0, bad, 1.0];
        let mut weights = vec![0f32; 3];
        let distribution = Distribution::new(SimdLevel::detect(), &logits, 1.0, &mut weights);
        assert_eq!(distribution.sample(&weights, 0.5), None);
    }
    // In a whole vector and in the rest.
    for at in [2, 19] {
        let mut logits: Vec<f32> = (0..20).map(|i| -(i as f32 - 3.0).abs()).collect();
        logits[at] = f32::NAN;
        let mut weights = vec![0f32; 20];
        let distribution = Distribution::new(SimdLevel::detect(), &logits, 0.5, &mut weights);
        assert_eq!((distribution.likeliest(&logits), distribution.sample(&weights, 0.5)), (Some(3), None));
    }
}

#[test]
fn samples_at_the_ends_of_a_distribution_have_a_probability() {
    let logits = [f32::NEG_INFINITY, 0.0, f32::NEG_INFINITY, 0.0, f32::NEG_INFINITY];
    let mut weights = vec![0f32; 5];
    let distribution = Distribution::new(SimdLevel::detect(), &logits, 1.0, &mut weights);
    assert_eq!(distribution.sample(&weights, 0.0), Some(1));
    assert_eq!(distribution.sample(&weights, 0.5), Some(3));
    assert_eq!(distribution.sample(&weights, 1.0 - f64::EPSILON / 2.0), Some(3));
    assert_eq!(distribution.sample(&weights, 1.0), Some(3));
}

#[test]
fn a_copied_block_equals_its_source() {
    let cpu = Cpu::new(1).unwrap();
    let heads = Heads { heads: 1, kv_heads: 1, dim: 2 };
    let mut cache = KvCache::new(heads, 1);
    let table = [1.0f32; 2];
    let rotation = Rotation { cos: &table, sin: &[0.0; 2], q_norm: None, k_norm: None };
    let mut qkv = [1.0, 0.0, 0.5, 0.5, 7.0, 8.0];
    cpu.rotate(rotation, heads, &mut qkv, &[(3, 0)], 0, &mut cache);
    cache.copy(3, 1);
    let mut out = [0f32; 2];
    let queries = [Query { blocks: &[1], length: 1 }];
    cpu.attend(&Attention { cache: &cache, layer: 0, q: &qkv, stride: 6, queries: &queries }, &mut out);
    assert_eq!(out, [7.0, 8.0]);
}

#[test]
#[should_panic(expected = "two rows have the same slot")]
fn two_threads_write_no_slot_together() {
    let cpu = Cpu::new(2).unwrap();
    let heads = Heads { heads: 1, kv_heads: 1, dim: 2 };
    let mut cache = KvCache::new(heads, 1);
    let table = [1.0f32; 4];
    let rotation = Rotation { cos: &table, sin: &table, q_norm: None, k_norm: None };
    cpu.rotate(rotation, heads, &mut [0.0; 18], &[(3, 0), (3, 1), (3, 0)], 0, &mut cache);
}

#[test]
fn a_matrix_that_was_packed_for_other_instructions_is_refused() {
    let narrow = Cpu::with_level(1, SimdLevel::Portable).unwrap();
    let wide = Cpu::new(1).unwrap();
    if wide.level() != SimdLevel::Avx512 {
        // All others have panels of one width.
        return;
    }
    let matrix = Matrix::pack(&narrow, &[0.0; 16], 16, 1, WeightFormat::F32);
    let term = Term { rows: 0..1, x: &[1.0], stride: 1, offset: 0, matrix: &matrix };
    let product = Product { rows: 0..1, terms: &[term], epilogue: Epilogue::Store, offset: 0 };
    let result = std::panic::catch_unwind(|| Cpu::new(1).unwrap().products(&[product], &mut [0.0; 16], 16));
    assert!(result.is_err());
}

#[test]
fn sizes_that_overflow_are_refused() {
    let cpu = Cpu::new(1).unwrap();
    let matrix = Matrix::pack(&cpu, &[0.0; 4], 2, 2, WeightFormat::F32);
    let huge = usize::MAX / 2 + 1;
    for (rows, stride) in [(0..3, huge), (0..1, usize::MAX)] {
        let term = Term { rows: rows.clone(), x: &[1.0; 8], stride, offset: 0, matrix: &matrix };
        let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let product = Product { rows, terms: &[term], epilogue: Epilogue::Store, offset: 0 };
            cpu.products(&[product], &mut [0.0; 8], 2);
        }));
        assert_eq!(refused.is_err(), stride == huge);
    }
}

#[test]
fn weights_are_rounded_to_half_a_step_of_their_group() {
    let cpu = Cpu::new(2).unwrap();
    let (outputs, inputs) = (40, 100);
    let mut values = random_numbers(outputs * inputs, 7);
    values[..32].fill(0.0);
    values[32..64].iter_mut().for_each(|x| *x *= 1e-3);
    let round = |i: usize, row: &mut QuantizedRow| row.round(&values[i * inputs..][..inputs]);
    let packed = Matrix::pack_groups(&cpu, GroupFormat::Q8, outputs, inputs, round);
    let mut unpacked = vec![f32::NAN; values.len()];
    packed.unpack(0..outputs, &mut unpacked);
    for (own, values) in unpacked.chunks(inputs).zip(values.chunks(inputs)) {
        for (own, values) in own.chunks(GroupFormat::Q8.group).zip(values.chunks(GroupFormat::Q8.group)) {
            let step = values.iter().fold(0f32, |largest, x| largest.max(x.abs())) / 127.0;
            // The scale itself is rounded to 11 bits.
            let bound = step * (0.5 + 127.0 / 2048.0);
            assert!(
                own.iter().zip(values).all(|(own, x)| (own - x).abs() <= bound),
                "{own:?} for {values:?}"
            );
        }
    }
}
