//! Comparison of products on tile registers with plain arithmetic in f64. Without such registers, nothing is tested, and the tests say
//! so.

use pl_kernels::cpu::Workers;
use pl_kernels::cpu::amx::{MatrixView, is_available, multiply};
use proptest::prelude::*;

use crate::random_numbers;
use crate::training::{one_thread, threads};

/// A matrix `[rows, columns]` with contiguous rows or columns, `gap` numbers apart.
struct Memory {
    numbers: Vec<f32>,
    rows: usize,
    columns: usize,
    strides: [usize; 2],
}

impl Memory {
    fn random([rows, columns]: [usize; 2], by_column: bool, gap: usize, seed: u64) -> Self {
        let (lines, length) = if by_column { (columns, rows) } else { (rows, columns) };
        let apart = (length + gap).max(1);
        let strides = if by_column { [1, apart] } else { [apart, 1] };
        Self { numbers: random_numbers(lines * apart, seed), rows, columns, strides }
    }

    fn view(&self) -> MatrixView<'_> {
        let [row_stride, column_stride] = self.strides;
        MatrixView {
            numbers: &self.numbers,
            rows: self.rows,
            columns: self.columns,
            row_stride,
            column_stride,
        }
    }

    fn at(&self, row: usize, column: usize) -> f32 {
        self.numbers[row * self.strides[0] + column * self.strides[1]]
    }
}

/// Returns `a bᵀ` in f64 and the sums of the products' sizes.
fn expected(a: &Memory, b: &Memory, row: usize, column: usize) -> [f64; 2] {
    let products = (0..a.columns).map(|k| f64::from(a.at(row, k)) * f64::from(b.at(column, k)));
    products.fold([0.0; 2], |[sum, size], product| [sum + product, size + product.abs()])
}

fn is_tested() -> bool {
    if !is_available() {
        eprintln!("skipped: this CPU has no tile registers, or the system keeps them from this process");
    }
    is_available()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn products_have_the_precision_of_f32(
        [rows, columns] in [1usize..100, 1usize..100],
        terms in prop_oneof![0usize..100, 1000usize..2100],
        [a_by_column, b_by_column, add] in [any::<bool>(), any::<bool>(), any::<bool>()],
        [a_gap, b_gap, gap] in [0usize..5, 0usize..5, 0usize..5],
    ) {
        if !is_tested() {
            return Ok(());
        }
        let a = Memory::random([rows, terms], a_by_column, a_gap, 1);
        let b = Memory::random([columns, terms], b_by_column, b_gap, 2);
        let stride = columns + gap;
        let before = random_numbers(rows * stride, 3);
        let mut out = before.clone();
        multiply(Workers::new(&threads), a.view(), b.view(), &mut out, stride, add);
        for row in 0..rows {
            for column in 0..stride {
                let (got, before) = (f64::from(out[row * stride + column]), f64::from(before[row * stride + column]));
                if column >= columns {
                    prop_assert_eq!(got, before, "a gap between rows was written");
                    continue;
                }
                let [sum, size] = expected(&a, &b, row, column);
                let sum = if add { before + sum } else { sum };
                // Errors of roundings add up as steps of a random walk do.
                let bound = f64::from(f32::EPSILON) * (size * (terms as f64).sqrt() + 1.0);
                prop_assert!((got - sum).abs() <= bound, "{got} instead of {sum} in {row}, {column}");
            }
        }
        // Neither other rows nor the threads change an element's bits.
        let mut alone = before[(rows - 1) * stride..][..columns].to_vec();
        // Without terms, columns have no memory.
        let numbers = a.numbers.get((rows - 1) * a.strides[0]..).unwrap_or_default();
        let last = MatrixView { rows: 1, numbers, ..a.view() };
        multiply(Workers::new(&one_thread), last, b.view(), &mut alone, columns, add);
        prop_assert_eq!(&alone, &out[(rows - 1) * stride..][..columns]);
    }
}

#[test]
fn numbers_of_any_size_are_multiplied() {
    if !is_tested() {
        return;
    }
    let one = |x: f32, y: f32| {
        let view = |numbers| MatrixView { numbers, rows: 1, columns: 1, row_stride: 1, column_stride: 1 };
        let mut out = [f32::NAN];
        multiply(Workers::new(&one_thread), view(&[x]), view(&[y]), &mut out, 1, false);
        out[0]
    };
    for (x, y) in [
        (1e38, 1e-30),
        (3.0e38, 1.0),
        (-1.5e-20, 1e15),
        (16_777_215.0, 1.0),
        (1.0 + f32::EPSILON, 1.0),
        (0.0, -5.0),
    ] {
        let exact = f64::from(x) * f64::from(y);
        let got = f64::from(one(x, y));
        assert!((got - exact).abs() <= exact.abs() * 1.2e-7, "{x} * {y}: {got}");
    }
    for x in [f32::NAN, -f32::NAN, f32::from_bits(u32::MAX), f32::INFINITY, f32::NEG_INFINITY] {
        assert!(!one(x, 1.0).is_finite() && !one(1.0, x).is_finite(), "{x}");
    }
}

#[test]
#[should_panic(expected = "numbers of terms")]
fn sizes_that_do_not_match_are_refused() {
    assert!(is_tested(), "numbers of terms: not tested");
    let view =
        |numbers, columns| MatrixView { numbers, rows: 1, columns, row_stride: columns, column_stride: 1 };
    multiply(Workers::new(&one_thread), view(&[1.0; 3], 3), view(&[1.0; 2], 2), &mut [0.0], 1, false);
}
