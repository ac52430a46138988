//! Benchmark of attention in training, forward and backward, beside libtorch's flash attention for CPUs, and of products by `gemm` and
//! on tile registers beside those of MKL, on one thread: `cargo bench -p pl-kernels --bench training`.
//!
//! Attention: eight sequences of 256 tokens with the heads of SmolLM2-135M (9 heads of width 64 on 3 heads of keys), and one of 2,048.
//! Products: those of 2,048 tokens in its layers, and of 512 in its head.

use divan::Bencher;
use divan::counter::ItemsCount;
#[cfg(target_arch = "x86_64")]
use pl_kernels::cpu::matmul::amx;
use pl_kernels::cpu::matmul::{MatrixView, blocks};
use pl_kernels::cpu::{
    FlashAttention, FlashGradients, FlashResults, FlashSequence, Heads, SimdLevel, Workers,
};
use tch::{Device, Kind, Tensor};

const HEADS: Heads = Heads { heads: 9, kv_heads: 3, dim: 64 };
/// Number and length of the sequences.
const CASES: [(usize, usize); 2] = [(8, 256), (1, 2048)];

/// Rows, columns and terms of a product, and whether rows of its two matrices are contiguous.
type Shape = (usize, usize, usize, bool, bool);
/// Projections forward, backward to their inputs and to their weights, and the head's.
const SHAPES: [Shape; 11] = [
    (2048, 1536, 576, true, true),
    (2048, 576, 1536, true, true),
    (2048, 576, 576, true, true),
    (2048, 576, 1536, true, false),
    (2048, 1536, 576, true, false),
    (1536, 576, 2048, false, false),
    (2048, 16, 576, true, true),
    (2048, 576, 16, true, true),
    (512, 49_152, 576, true, true),
    (512, 576, 49_152, true, false),
    (49_152, 576, 512, false, false),
];

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
    let workers = Workers::with_level(level, 1, &one_thread);
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

#[cfg(target_arch = "x86_64")]
#[divan::bench(args = SHAPES, sample_count = 10, sample_size = 1)]
fn tiles(bencher: Bencher<'_, '_>, shape: Shape) {
    if amx::is_available() {
        products(bencher, shape, amx::multiply);
    }
}

#[divan::bench(args = SHAPES, sample_count = 10, sample_size = 1)]
fn gemm(bencher: Bencher<'_, '_>, shape: Shape) {
    products(bencher, shape, blocks::multiply);
}

fn products(
    bencher: Bencher<'_, '_>,
    (rows, columns, terms, a_by_row, b_by_row): Shape,
    multiply: fn(Workers<'_>, MatrixView<'_>, MatrixView<'_>, &mut [f32], usize, bool),
) {
    let (a, b) = (numbers(rows * terms), numbers(columns * terms));
    let view = |numbers, rows, by_row| {
        let [row_stride, column_stride] = if by_row { [terms, 1] } else { [1, rows] };
        MatrixView { numbers, rows, columns: terms, row_stride, column_stride }
    };
    let (a, b) = (view(&a, rows, a_by_row), view(&b, columns, b_by_row));
    let mut out = vec![0f32; rows * columns];
    bencher
        .counter(ItemsCount::new(2 * rows * columns * terms))
        .bench_local(|| multiply(Workers::new(1, &one_thread), a, b, &mut out, columns, false));
}

#[divan::bench(args = SHAPES, sample_count = 10, sample_size = 1)]
fn mkl(bencher: Bencher<'_, '_>, (rows, columns, terms, a_by_row, b_by_row): Shape) {
    let matrix = |rows: usize, by_row: bool| {
        let (rows, terms) = (rows as i64, terms as i64);
        let shape = if by_row { [rows, terms] } else { [terms, rows] };
        let matrix = Tensor::rand(shape, (Kind::Float, Device::Cpu));
        if by_row { matrix } else { matrix.tr() }
    };
    let (a, b) = (matrix(rows, a_by_row), matrix(columns, b_by_row).tr());
    let out = Tensor::zeros([rows as i64, columns as i64], (Kind::Float, Device::Cpu));
    bencher.counter(ItemsCount::new(2 * rows * columns * terms)).bench_local(|| a.mm_out(&out, &b));
}
