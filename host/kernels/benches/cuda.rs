//! Benchmark of the output head and of generation's attention: the kernels and plain libtorch on the same device,
//! `cargo bench -p pl-kernels --bench cuda`.
//!
//! It needs a CUDA device, and libtorch's CUDA libraries and NVRTC as set-up installs them; otherwise it
//! prints the missing one and measures nothing. The shapes are 4,096 rows through the heads of Qwen3-1.7B and
//! SmolLM2-135M. An operation is a multiplication or addition that every head needs: 2 per logit and input in
//! the forward pass, and 4 more in the backward pass. The attention is that of a layer of Qwen3-1.7B in bf16, for 64 sequences;
//! bytes are those of their keys and values.

use std::sync::OnceLock;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use pl_kernels::cpu::BLOCK;
use pl_kernels::cuda::head::{FusedHead, HeadRows, ReferenceHead, TokenHead};
use pl_kernels::cuda::paged::{GatheredSequences, PagedAttention, PagedSequences};
use pl_kernels::cuda::{Error, KernelSettings, Kernels, first_gpu, opened};
use tch::{Cuda, Device, Kind, Tensor};

const ROWS: i64 = 4096;
/// Width, vocabulary.
const SHAPES: [(i64, i64); 2] = [(2048, 151_936), (576, 49_152)];

static KERNELS: OnceLock<std::sync::Arc<Kernels>> = OnceLock::new();

fn main() {
    match first_gpu(&settings()).map(|device| device.and_then(opened)) {
        Ok(Some(kernels)) => {
            KERNELS.get_or_init(|| kernels);
            divan::main();
        }
        Ok(None) => println!("skipped: no CUDA device"),
        Err(error) => println!("skipped: {error}"),
    }
}

fn settings() -> KernelSettings {
    KernelSettings::new(&pl_testing::cache())
}

/// Measures the forward pass, and the backward pass too if `backward` is true, until the device is done.
fn measure(bencher: Bencher<'_, '_>, head: &dyn TokenHead, kind: Kind, shape: (i64, i64), backward: bool) {
    let (width, vocabulary) = shape;
    let device = Device::Cuda(0);
    let hidden = Tensor::randn([ROWS, width], (Kind::Float, device)).to_kind(kind);
    let unembed =
        (Tensor::randn([vocabulary, width], (Kind::Float, device)) / (width as f64).sqrt()).to_kind(kind);
    let tokens = Tensor::randint(vocabulary, [ROWS], (Kind::Int64, device));
    let slopes = Tensor::randn([ROWS], (Kind::Float, device));
    let rows = HeadRows { hidden: &hidden, tokens: &tokens, temperatures: None };
    let products = if backward { 3 } else { 1 };
    let operations = ItemsCount::new((2 * ROWS * width * vocabulary * products) as u64);
    let pass = || -> Result<(), Error> {
        let scores = head.forward(&rows, &unembed)?;
        if backward {
            let _ = head.backward(&rows, &unembed, &scores, &slopes, None)?;
        }
        Cuda::synchronize(0);
        Ok(())
    };
    if let Err(error) = pass() {
        println!("failed: {error}");
        return;
    }
    bencher.counter(operations).bench_local(|| pass().is_ok());
}

fn fused(bencher: Bencher<'_, '_>, kind: Kind, shape: (i64, i64), backward: bool) {
    if let Some(kernels) = KERNELS.get() {
        measure(bencher, &FusedHead::new(kernels.clone()), kind, shape, backward);
    }
}

#[divan::bench(args = SHAPES, sample_count = 10, sample_size = 1)]
fn forward_fused_bf16(bencher: Bencher<'_, '_>, shape: (i64, i64)) {
    fused(bencher, Kind::BFloat16, shape, false);
}

#[divan::bench(args = SHAPES, sample_count = 10, sample_size = 1)]
fn forward_fused_f32(bencher: Bencher<'_, '_>, shape: (i64, i64)) {
    fused(bencher, Kind::Float, shape, false);
}

#[divan::bench(args = SHAPES, sample_count = 10, sample_size = 1)]
fn forward_reference_bf16(bencher: Bencher<'_, '_>, shape: (i64, i64)) {
    measure(bencher, &ReferenceHead, Kind::BFloat16, shape, false);
}

#[divan::bench(args = SHAPES, sample_count = 10, sample_size = 1)]
fn backward_fused_bf16(bencher: Bencher<'_, '_>, shape: (i64, i64)) {
    fused(bencher, Kind::BFloat16, shape, true);
}

#[divan::bench(args = SHAPES, sample_count = 10, sample_size = 1)]
fn backward_reference_bf16(bencher: Bencher<'_, '_>, shape: (i64, i64)) {
    measure(bencher, &ReferenceHead, Kind::BFloat16, shape, true);
}

/// Measures the attention of a step with sequences of some length, until the device is done.
fn measure_attention(bencher: Bencher<'_, '_>, length: usize, paged: bool) {
    let (rows, heads, kv_heads, width) = (64i64, 16i64, 8i64, 128i64);
    let device = Device::Cuda(0);
    let random = |shape: &[i64]| Tensor::randn(shape, (Kind::BFloat16, device));
    let columns = length.div_ceil(BLOCK) as i64;
    let (queries, cache) =
        (random(&[rows, heads, width]), random(&[rows * columns * BLOCK as i64, 2, kv_heads, width]));
    let tables = Tensor::arange(rows * columns, (Kind::Int, device)).view([rows, columns]);
    let lengths = Tensor::full([rows], length as i64, (Kind::Int, device));
    let sequences = PagedSequences { tables: &tables, lengths: &lengths, longest: length };
    let kernels = KERNELS.get().filter(|_| paged).map(|kernels| PagedAttention::new(kernels.clone()));
    let pass = || -> Result<(), Error> {
        let _ = match &kernels {
            Some(kernels) => kernels.attend(&queries, &cache, &sequences)?,
            None => GatheredSequences::new(&sequences, Kind::BFloat16)?.attend(&queries, &cache)?,
        };
        Cuda::synchronize(0);
        Ok(())
    };
    if let Err(error) = pass() {
        println!("failed: {error}");
        return;
    }
    let bytes = rows as u64 * length as u64 * (2 * kv_heads * width * 2) as u64;
    bencher.counter(BytesCount::new(bytes)).bench_local(|| pass().is_ok());
}

#[divan::bench(args = [256, 2048], sample_count = 10, sample_size = 1)]
fn attention_paged(bencher: Bencher<'_, '_>, length: usize) {
    measure_attention(bencher, length, true);
}

#[divan::bench(args = [256, 2048], sample_count = 10, sample_size = 1)]
fn attention_gathered(bencher: Bencher<'_, '_>, length: usize) {
    measure_attention(bencher, length, false);
}
