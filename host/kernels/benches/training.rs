//! Benchmark of attention in training, forward and backward, beside libtorch's flash attention for CPUs, on one thread:
//! `cargo bench -p pl-kernels --bench training`.
//!
//! Eight sequences of 256 tokens with the heads of SmolLM2-135M (9 heads of width 64 on 3 heads of keys), and one of 2,048.

use divan::Bencher;
use divan::counter::ItemsCount;
use pl_kernels::cpu::{
    FlashAttention, FlashGradients, FlashResults, FlashSequence, Heads, SimdLevel, Workers,
};
use tch::{Device, Kind, Tensor};

const HEADS: Heads = Heads { heads: 9, kv_heads: 3, dim: 64 };
/// Number and length of the sequences.
const CASES: [(usize, usize); 2] = [(8, 256), (1, 2048)];

fn main() {
    tch::set_num_threads(1);
    divan::main();
}

fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i % 97) as f32 / 97.0 - 0.5).collect()
}

fn one_thread(count: usize, body: &(dyn Fn(usize) + Sync)) {
    (0..count).for_each(body);
}

fn ours(bencher: Bencher<'_, '_>, (count, length): (usize, usize), level: SimdLevel) {
    let tokens = count * length;
    let sequences: Vec<FlashSequence> = (0..count)
        .map(|i| i * length..(i + 1) * length)
        .map(|rows| FlashSequence { queries: rows.clone(), keys: rows })
        .collect();
    let q = numbers(tokens * HEADS.heads * HEADS.dim);
    let k = numbers(tokens * HEADS.kv_heads * HEADS.dim);
    let (mut out, mut logsumexp) = (vec![0f32; q.len()], vec![0f32; tokens * HEADS.heads]);
    let [mut dq, mut dk, mut dv] = [&q, &k, &k].map(|x| vec![0f32; x.len()]);
    let attention = FlashAttention { heads: HEADS, causal: true, sequences: &sequences, q: &q, k: &k, v: &k };
    let workers = Workers::with_level(level, &one_thread);
    bencher.counter(ItemsCount::new(tokens)).bench_local(|| {
        attention.forward(workers, &mut out, &mut logsumexp);
        let results = FlashResults { out: &out, gradient: &q, logsumexp: &logsumexp };
        attention.backward(workers, &results, FlashGradients { q: &mut dq, k: &mut dk, v: &mut dv });
    });
}

#[divan::bench(args = CASES, sample_count = 10, sample_size = 1)]
fn avx512(bencher: Bencher<'_, '_>, case: (usize, usize)) {
    if SimdLevel::detect() == SimdLevel::Avx512 {
        ours(bencher, case, SimdLevel::Avx512);
    }
}

#[divan::bench(args = CASES, sample_count = 10, sample_size = 1)]
fn avx2(bencher: Bencher<'_, '_>, case: (usize, usize)) {
    if SimdLevel::detect() >= SimdLevel::Avx2 {
        ours(bencher, case, SimdLevel::Avx2);
    }
}

/// Keys and values are repeated for each head of queries, as libtorch wants them.
#[divan::bench(args = CASES, sample_count = 10, sample_size = 1)]
fn libtorch(bencher: Bencher<'_, '_>, (count, length): (usize, usize)) {
    let shape = [count as i64, HEADS.heads as i64, length as i64, HEADS.dim as i64];
    let x = Tensor::rand(shape, (Kind::Float, Device::Cpu)) - 0.5;
    let mask = None::<&Tensor>;
    bencher.counter(ItemsCount::new(count * length)).bench_local(|| {
        let (out, logsumexp) =
            Tensor::internal_scaled_dot_product_flash_attention_for_cpu(&x, &x, &x, 0.0, true, mask, None);
        Tensor::internal_scaled_dot_product_flash_attention_for_cpu_backward(
            &x, &x, &x, &x, &out, &logsumexp, 0.0, true, mask, None,
        )
    });
}
