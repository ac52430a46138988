//! Benchmark of products with packed matrices, in bytes of weights and rows per second.
//!
//! The matrices are those of one step of SmolLM2-135M: `cargo bench -p pl-kernels`.

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use pl_kernels::cpu::{Cpu, Epilogue, Matrix, Product, Term, WeightFormat};

/// Outputs and inputs of a layer's matrices, and the output matrix of a model with as many layers.
const LAYER: [(usize, usize); 4] = [(960, 576), (576, 576), (3072, 576), (576, 1536)];
const LAYERS: usize = 30;
const HEAD: (usize, usize) = (49_152, 576);

fn main() {
    divan::main();
}

fn cpu() -> Option<Cpu> {
    Cpu::new(std::thread::available_parallelism().map_or(1, usize::from)).ok()
}

fn step(bencher: Bencher<'_, '_>, rows: usize, format: WeightFormat) {
    let Some(cpu) = cpu() else { return };
    let pack = |(outputs, inputs): (usize, usize)| {
        let values: Vec<f32> = (0..outputs * inputs).map(|i| (i % 97) as f32 / 97.0 - 0.5).collect();
        Matrix::pack(&cpu, &values, outputs, inputs, format)
    };
    let mut matrices: Vec<Matrix> = (0..LAYERS).flat_map(|_| LAYER).map(pack).collect();
    matrices.push(pack(HEAD));
    let bytes: usize = matrices.iter().map(Matrix::bytes).sum();
    let x: Vec<f32> = (0..rows * 1536).map(|i| (i % 89) as f32 / 89.0 - 0.5).collect();
    let mut out = vec![0f32; rows * HEAD.0];
    bencher.counter(ItemsCount::new(rows)).counter(BytesCount::new(bytes)).bench_local(|| {
        for matrix in &matrices {
            let term = Term { rows: 0..rows, x: &x, stride: matrix.inputs(), offset: 0, matrix };
            let product = Product { rows: 0..rows, terms: &[term], epilogue: Epilogue::Store, offset: 0 };
            cpu.products(&[product], &mut out, matrix.outputs());
        }
        out[0]
    });
}

#[divan::bench(args = [1, 4, 8, 16, 32, 64, 256], sample_count = 10, sample_size = 1)]
fn f32(bencher: Bencher<'_, '_>, rows: usize) {
    step(bencher, rows, WeightFormat::F32);
}

#[divan::bench(args = [1, 4, 8, 16, 32, 64, 256], sample_count = 10, sample_size = 1)]
fn f16(bencher: Bencher<'_, '_>, rows: usize) {
    step(bencher, rows, WeightFormat::F16);
}

#[divan::bench(args = [1, 16], sample_count = 10, sample_size = 1)]
fn bf16(bencher: Bencher<'_, '_>, rows: usize) {
    step(bencher, rows, WeightFormat::Bf16);
}
