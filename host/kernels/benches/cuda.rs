//! Benchmark of the output head: the kernels and plain libtorch on the same device,
//! `cargo bench -p pl-kernels --bench cuda`.
//!
//! It needs a CUDA device, and libtorch's CUDA libraries and NVRTC as set-up installs them; otherwise it
//! prints the missing one and measures nothing. The shapes are 4,096 rows through the heads of Qwen3-1.7B and
//! SmolLM2-135M. An operation is a multiplication or addition that every head needs: 2 per logit and input in
//! the forward pass, and 4 more in the backward pass.

use std::sync::OnceLock;

use divan::Bencher;
use divan::counter::ItemsCount;
use pl_kernels::cuda::head::{FusedHead, HeadRows, ReferenceHead, TokenHead};
use pl_kernels::cuda::{Error, KernelSettings, Kernels, find_libtorch_cuda, load, open};
use tch::{Cuda, Device, Kind, Tensor};

const ROWS: i64 = 4096;
/// Width, vocabulary.
const SHAPES: [(i64, i64); 2] = [(2048, 151_936), (576, 49_152)];

static KERNELS: OnceLock<std::sync::Arc<Kernels>> = OnceLock::new();

fn main() {
    // SAFETY: libtorch's own library, whose initialisation registers its operators.
    if let Some(Err(error)) = find_libtorch_cuda().map(|library| unsafe { load(&library) }) {
        println!("skipped: {error}");
        return;
    }
    if !Cuda::is_available() {
        println!("skipped: no CUDA device");
        return;
    }
    match open_kernels() {
        Ok(kernels) => {
            KERNELS.get_or_init(|| kernels);
            divan::main();
        }
        Err(error) => println!("skipped: {error}"),
    }
}

fn open_kernels() -> Result<std::sync::Arc<Kernels>, Error> {
    let variable = |name: &str| std::env::var_os(name).map(std::path::PathBuf::from);
    let cache =
        variable("PL_HOST_CACHE").or_else(|| variable("HOME").map(|home| home.join(".cache/pl-host")));
    open(0, &cache.map(|cache| KernelSettings::new(&cache)).unwrap_or_default())
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
