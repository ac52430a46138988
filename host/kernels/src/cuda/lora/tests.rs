//! Comparison of the kernels, emulated on the CPU, with products in f64.

use std::sync::LazyLock;

use tch::Device;

use super::*;
use crate::cuda::emulated::Emulated;

fn emulated(seed: u64) -> LoraProducts {
    static LIBRARY: LazyLock<Emulated> =
        LazyLock::new(|| Emulated::compile(&["emulated.h", "numbers.cu", "lora.cu", "lora/emulated.cpp"]));
    LoraProducts { launcher: Arc::new(LIBRARY.with_seed(seed)) }
}

struct Case {
    x: Tensor,
    a: Tensor,
    b: Tensor,
    scales: Tensor,
    y: Tensor,
    outputs: Vec<i64>,
}

/// Ranges of ranks with their scales; each third row has no adapter.
const ADAPTERS: [(i64, i64, f64); 3] = [(0, 4, 2.0), (4, 9, 0.5), (13, 3, 1.5)];

impl Case {
    fn new(rows: i64, width: i64, outputs: &[i64], ranks: i64) -> Self {
        tch::manual_seed(rows * 1000 + width);
        let random = |shape: &[i64]| Tensor::randn(shape, (Kind::Float, Device::Cpu)).to_kind(Kind::BFloat16);
        let columns: i64 = outputs.iter().sum();
        let scales = Tensor::zeros([rows, ranks], (Kind::Float, Device::Cpu));
        for row in (0..rows).filter(|row| row % 3 != 2) {
            let (first, rank, scale) = ADAPTERS[(row % 4 % 3) as usize];
            let _ = scales.get(row).narrow(0, first, rank).fill_(scale);
        }
        Self {
            x: random(&[rows, width]),
            a: random(&[outputs.len() as i64 * ranks, width]) / (width as f64).sqrt(),
            b: random(&[columns, ranks]),
            scales,
            y: random(&[rows, columns]),
            outputs: outputs.to_vec(),
        }
    }

    fn run(&self, seed: u64) -> Tensor {
        let y = self.y.copy();
        let factors = LoraFactors { a: &self.a, b: &self.b, outputs: &self.outputs };
        emulated(seed).add(&factors, &self.scales, &self.x, &y).unwrap();
        y
    }

    fn expected(&self) -> Tensor {
        let wide = |tensor: &Tensor| tensor.to_kind(Kind::Double);
        let mut first = 0;
        let parts: Vec<Tensor> = self
            .outputs
            .iter()
            .enumerate()
            .map(|(projection, outputs)| {
                let inner = wide(&self.x)
                    .mm(&wide(&self.a.chunk(self.outputs.len() as i64, 0)[projection]).tr())
                    * wide(&self.scales);
                first += outputs;
                inner.mm(&wide(&self.b.narrow(0, first - outputs, *outputs)).tr())
            })
            .collect();
        wide(&self.y) + Tensor::cat(&parts, 1)
    }

    fn row(&self, row: i64) -> Self {
        let own = |tensor: &Tensor| tensor.narrow(0, row, 1).copy();
        Self {
            x: own(&self.x),
            a: self.a.shallow_clone(),
            b: self.b.shallow_clone(),
            scales: own(&self.scales),
            y: own(&self.y),
            outputs: self.outputs.clone(),
        }
    }
}

#[test]
fn products_equal_those_of_each_adapter() {
    for (rows, width, outputs, ranks) in [
        (1, 32, vec![32], 32),
        (9, 288, vec![96, 32, 32], 32),
        (17, 544, vec![320, 320], 64),
        (3, 64, vec![32], 256),
    ] {
        let case = Case::new(rows, width, &outputs, ranks);
        let (got, expected) = (case.run(1), case.expected());
        assert_eq!(got.kind(), Kind::BFloat16);
        // Results and first products are rounded to bf16.
        let gap = (got.to_kind(Kind::Double) - &expected).abs();
        let allowed = expected.abs() / 128.0 + 0.1;
        assert!(gap.le_tensor(&allowed).all().int64_value(&[]) == 1, "{rows} x {width}");
        let without = case.scales.abs().sum_dim_intlist([1i64].as_slice(), false, None).eq(0.0);
        let same = got.eq_tensor(&case.y).all_dim(1, false);
        assert!(same.logical_or(&without.logical_not()).all().int64_value(&[]) == 1, "rows without adapters");
        assert!((got.to_kind(Kind::Float) - case.y.to_kind(Kind::Float)).abs().max().double_value(&[]) > 1.0);
    }
}

#[test]
fn a_row_depends_neither_on_the_others_nor_on_the_order_of_threads() {
    let case = Case::new(19, 96, &[64, 32, 32], 32);
    let all = case.run(1);
    assert!(case.run(55).equal(&all), "another order");
    for row in 0..19 {
        assert!(case.row(row).run(2).equal(&all.narrow(0, row, 1)), "row {row} alone");
    }
}

#[test]
fn tensors_of_wrong_kinds_or_shapes_are_rejected() {
    let rejected = |case: &Case, expected: &str| {
        let factors = LoraFactors { a: &case.a, b: &case.b, outputs: &case.outputs };
        let message = emulated(1).add(&factors, &case.scales, &case.x, &case.y).unwrap_err().to_string();
        assert!(message.starts_with("lora: ") && message.contains(expected), "{message}");
    };
    let good = || Case::new(3, 64, &[32, 32], 32);
    let x = good().x;
    assert!(LoraProducts::supports(&x, &[32, 32], 32) && !LoraProducts::supports(&x, &[32, 40], 32));
    assert!(!LoraProducts::supports(&x, &[32], 16) && !LoraProducts::supports(&x, &[32; 4], 32));
    assert!(!LoraProducts::supports(&x.to_kind(Kind::Float), &[32], 32));
    assert!(!LoraProducts::supports(&Tensor::zeros([257, 32], (Kind::BFloat16, Device::Cpu)), &[32], 32));
    rejected(&Case { x: x.narrow(1, 0, 40), ..good() }, "multiple of 32 numbers");
    rejected(&Case { outputs: vec![64], ..good() }, "the factors A must be BFloat16 [32, 64]");
    rejected(&Case { outputs: vec![32, 64], ..good() }, "the factors B must be BFloat16 [96, 32]");
    rejected(&Case { scales: good().scales.to_kind(Kind::Double), ..good() }, "the scales must be Float");
    rejected(&Case { y: good().y.tr(), ..good() }, "the output must be BFloat16 [3, 64]");
}
