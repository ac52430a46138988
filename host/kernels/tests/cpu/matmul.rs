//! Comparison of the products of training with plain arithmetic in f64: of those by `gemm`, and of those on tile registers where a CPU
//! has them.

use pl_kernels::cpu::Workers;
use pl_kernels::cpu::matmul::{MatrixView, blocks};
use proptest::prelude::*;

use crate::random_numbers;
use crate::training::{THREADS, one_thread, threads};

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

/// Computes a product, or adds it, with a stride of rows.
type Multiply = fn(Workers<'_>, MatrixView<'_>, MatrixView<'_>, &mut [f32], usize, bool);

/// Returns what can be tested on this CPU.
fn implementations() -> Vec<Multiply> {
    let mut all: Vec<Multiply> = vec![blocks::multiply];
    #[cfg(target_arch = "x86_64")]
    match pl_kernels::cpu::matmul::amx::is_available() {
        true => all.push(pl_kernels::cpu::matmul::amx::multiply),
        false => {
            eprintln!("skipped: this CPU has no tile registers, or the system keeps them from this process")
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn products_have_the_precision_of_f32(
        [rows, columns] in [1usize..100, 1usize..100],
        terms in prop_oneof![0usize..100, 1000usize..2100],
        [a_by_column, b_by_column, add] in [any::<bool>(), any::<bool>(), any::<bool>()],
        [a_gap, b_gap, gap] in [0usize..5, 0usize..5, 0usize..5],
    ) {
        let a = Memory::random([rows, terms], a_by_column, a_gap, 1);
        let b = Memory::random([columns, terms], b_by_column, b_gap, 2);
        let stride = columns + gap;
        let before = random_numbers(rows * stride, 3);
        for multiply in implementations() {
            let mut out = before.clone();
            multiply(Workers::new(THREADS, &threads), a.view(), b.view(), &mut out, stride, add);
            for row in 0..rows {
                for column in 0..stride {
                    let [got, before] = [&out, &before].map(|numbers| f64::from(numbers[row * stride + column]));
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
            // Neither other rows and columns nor the threads change an element's bits.
            for [row_count, column_count] in [[1, columns], [rows, 1], [rows.min(17), columns.min(17)]] {
                let (first, offset) = (rows - row_count, columns - column_count);
                let mut again = before[first * stride..].to_vec();
                // Without terms, columns have no memory.
                let part = |matrix: &'_ Memory, from: usize| matrix.numbers.get(from * matrix.strides[0]..).unwrap_or_default().to_vec();
                let (a_part, b_part) = (part(&a, first), part(&b, offset));
                let a = MatrixView { rows: row_count, numbers: &a_part, ..a.view() };
                let b = MatrixView { rows: column_count, numbers: &b_part, ..b.view() };
                multiply(Workers::new(1, &one_thread), a, b, &mut again[offset..], stride, add);
                for row in 0..row_count {
                    let elements = row * stride + offset..row * stride + columns;
                    prop_assert_eq!(&again[elements.clone()], &out[first * stride..][elements]);
                }
            }
        }
    }
}

/// Several blocks and parts of sums.
#[test]
fn large_products_do_not_depend_on_the_threads() {
    let (a, b) = (Memory::random([700, 1200], true, 0, 1), Memory::random([1100, 1200], false, 0, 2));
    for multiply in implementations() {
        let [many, one] = [Workers::new(THREADS, &threads), Workers::new(1, &one_thread)].map(|workers| {
            let mut out = vec![0.0; a.rows * b.rows];
            multiply(workers, a.view(), b.view(), &mut out, b.rows, false);
            out
        });
        assert_eq!(many, one);
        for (row, column) in [(0, 0), (699, 1099), (300, 1024), (350, 5)] {
            let [sum, size] = expected(&a, &b, row, column);
            let got = f64::from(many[row * b.rows + column]);
            assert!((got - sum).abs() <= f64::from(f32::EPSILON) * size, "{got} instead of {sum}");
        }
    }
}

#[test]
fn numbers_of_any_size_are_multiplied() {
    for multiply in implementations() {
        let one = |x: f32, y: f32| {
            let view = |numbers| MatrixView { numbers, rows: 1, columns: 1, row_stride: 1, column_stride: 1 };
            let mut out = [f32::NAN];
            multiply(Workers::new(1, &one_thread), view(&[x]), view(&[y]), &mut out, 1, false);
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
}

#[test]
#[should_panic(expected = "numbers of terms")]
fn sizes_that_do_not_match_are_refused() {
    let view =
        |numbers, columns| MatrixView { numbers, rows: 1, columns, row_stride: columns, column_stride: 1 };
    pl_kernels::cpu::matmul::multiply(
        Workers::new(1, &one_thread),
        view(&[1.0; 3], 3),
        view(&[1.0; 2], 2),
        &mut [0.0],
        1,
        false,
    );
}
