//! Benchmark of products with packed matrices, in bytes of weights and rows per second.
//!
//! The matrices are those of one step of SmolLM2-135M: `cargo bench -p pl-kernels`.

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use pl_kernels::cpu::{CodeWidth, Cpu, Epilogue, GroupFormat, Matrix, Product, Term, WeightFormat};

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

/// Measures matrices of numbers.
fn step(bencher: Bencher<'_, '_>, rows: usize, format: WeightFormat) {
    step_of(bencher, rows, |cpu, (outputs, inputs)| {
        let values: Vec<f32> = (0..outputs * inputs).map(|i| (i % 97) as f32 / 97.0 - 0.5).collect();
        Matrix::pack(cpu, &values, outputs, inputs, format)
    });
}

/// Measures matrices of codes. The numbers don't matter.
fn quantized_step(bencher: Bencher<'_, '_>, rows: usize, format: GroupFormat) {
    step_of(bencher, rows, |cpu, shape| quantized(cpu, shape, format));
}

fn quantized(cpu: &Cpu, (outputs, inputs): (usize, usize), format: GroupFormat) -> Matrix {
    Matrix::pack_groups(cpu, format, outputs, inputs, |_, row| {
        row.codes.iter_mut().enumerate().for_each(|(i, code)| *code = (i % 7) as i8);
    })
}

fn step_of(bencher: Bencher<'_, '_>, rows: usize, pack: impl Fn(&Cpu, (usize, usize)) -> Matrix) {
    let Some(cpu) = cpu() else { return };
    let pack = |shape| pack(&cpu, shape);
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

/// GGUF's Q4_1.
const Q4_1: GroupFormat = GroupFormat { width: CodeWidth::Four, group: 32, groups: 1, minimum: true };
/// GGUF's Q4_K.
const Q4_K: GroupFormat = GroupFormat { width: CodeWidth::Four, group: 32, groups: 8, minimum: true };

#[divan::bench(args = [1, 4, 8, 16, 32, 64, 256], sample_count = 10, sample_size = 1)]
fn q8(bencher: Bencher<'_, '_>, rows: usize) {
    quantized_step(bencher, rows, GroupFormat::Q8);
}

#[divan::bench(args = [1, 4, 8, 16, 32, 64, 256], sample_count = 10, sample_size = 1)]
fn q4_1(bencher: Bencher<'_, '_>, rows: usize) {
    quantized_step(bencher, rows, Q4_1);
}

#[divan::bench(args = [1, 16], sample_count = 10, sample_size = 1)]
fn q4_k(bencher: Bencher<'_, '_>, rows: usize) {
    quantized_step(bencher, rows, Q4_K);
}

/// Unpacks a matrix on one thread, as training does, in numbers per second.
#[divan::bench(args = [GroupFormat::Q8, Q4_1, Q4_K], sample_count = 10, sample_size = 10)]
fn unpack(bencher: Bencher<'_, '_>, format: GroupFormat) {
    let Some(cpu) = cpu() else { return };
    let (outputs, inputs) = LAYER[2];
    let matrix = quantized(&cpu, (outputs, inputs), format);
    let mut to = vec![0f32; outputs * inputs];
    bencher.counter(ItemsCount::new(to.len())).bench_local(|| {
        matrix.unpack(0..outputs, &mut to);
        to[0]
    });
}
