//! Packing: numbers of f32 as three parts of bf16, in the order in which tiles are loaded.

use std::arch::x86_64::{
    __m512, __m512i, __mmask16, _mm512_add_epi32, _mm512_and_si512, _mm512_castpd_ps, _mm512_castps_pd,
    _mm512_castps_si512, _mm512_castsi512_ps, _mm512_loadu_ps, _mm512_mask_blend_epi16,
    _mm512_maskz_loadu_ps, _mm512_set1_epi32, _mm512_setzero_ps, _mm512_shuffle_f32x4, _mm512_srli_epi32,
    _mm512_storeu_si512, _mm512_sub_ps, _mm512_unpackhi_pd, _mm512_unpackhi_ps, _mm512_unpacklo_pd,
    _mm512_unpacklo_ps,
};
use std::ops::Range;

use super::tiles::{PART, STEP_SIZE, TILE};
use super::{MatrixView, PANEL, STEP};

/// Number of lanes of a vector, rows of a tile and pairs of its rows.
const LANES: usize = 16;

/// Place of a matrix in a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// A row of a tile has the terms of one line.
    Left,
    /// A row of a tile has a pair of terms of each line.
    Right,
}

/// Packs the `terms` of up to [`PANEL`] lines of a matrix, from `first` on. What is missing of the lines or of a step is zero.
///
/// The 32 terms of a step are pairs of those at a distance of 16, on both sides of a product.
///
/// # Panics
/// If `to` has another size.
pub(super) fn pack(matrix: &MatrixView<'_>, first: usize, terms: Range<usize>, side: Side, to: &mut [f32]) {
    assert_eq!(to.len(), terms.len().div_ceil(STEP) * STEP_SIZE, "space for a panel");
    assert!(terms.end <= matrix.columns && first < matrix.rows, "a panel of a matrix");
    // SAFETY: tiles are available, and with them AVX-512; the elements are within the matrix, and there is space for the panel.
    unsafe { pack_steps(matrix, first, terms, side, to.as_mut_ptr()) }
}

#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn pack_steps(matrix: &MatrixView<'_>, first: usize, terms: Range<usize>, side: Side, to: *mut f32) {
    let transpose = (matrix.column_stride == 1) == (side == Side::Right);
    for (step, term) in terms.clone().step_by(STEP).enumerate() {
        for half in 0..PANEL / LANES {
            let line = first + half * LANES;
            let lines = matrix.rows.saturating_sub(line).min(LANES);
            // SAFETY: as for the caller.
            unsafe {
                let low = read(matrix, [line, term], [lines, terms.end - term], transpose);
                let rest = terms.end.saturating_sub(term + LANES);
                let high = read(matrix, [line, term + LANES], [lines, rest], transpose);
                let to = to.add(step * STEP_SIZE + half * TILE);
                for row in 0..LANES {
                    split(low[row], high[row], to.add(row * LANES));
                }
            }
        }
    }
}

/// Reads a square of 16 x 16 numbers from a line and a term on, as it lies in memory or transposed. Beyond the numbers of lines and
/// terms that are left, it is zero.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
unsafe fn read(
    matrix: &MatrixView<'_>,
    [line, term]: [usize; 2],
    [lines, terms]: [usize; 2],
    transposed: bool,
) -> [__m512; LANES] {
    let (stride, vectors, width) = match matrix.column_stride {
        1 => (matrix.row_stride, lines, terms),
        stride => (stride, terms, lines),
    };
    let start = matrix.numbers.as_ptr().wrapping_add(line * matrix.row_stride + term * matrix.column_stride);
    let mut square = [_mm512_setzero_ps(); LANES];
    if vectors >= LANES && width >= LANES {
        for (i, vector) in square.iter_mut().enumerate() {
            // SAFETY: within the matrix.
            *vector = unsafe { _mm512_loadu_ps(start.add(i * stride)) };
        }
    } else {
        let mask = if width >= LANES { __mmask16::MAX } else { (1 << width) - 1 };
        for (i, vector) in square.iter_mut().enumerate().take(vectors) {
            // SAFETY: those of the mask are within the matrix.
            *vector = unsafe { _mm512_maskz_loadu_ps(mask, start.wrapping_add(i * stride)) };
        }
    }
    if transposed { transpose(square) } else { square }
}

/// Stores pairs of numbers, one of each vector, as three parts.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
unsafe fn split(mut low: __m512, mut high: __m512, to: *mut f32) {
    for part in 0..3 {
        // What is left for the last part is a number of bf16, or a NaN that rounding might turn into a finite number.
        let (low_bits, high_bits) = match part {
            2 => (_mm512_castps_si512(low), _mm512_castps_si512(high)),
            _ => (rounded(low), rounded(high)),
        };
        let pairs = _mm512_mask_blend_epi16(0xAAAA_AAAA, _mm512_srli_epi32::<16>(low_bits), high_bits);
        // SAFETY: the caller's step has three parts.
        unsafe { _mm512_storeu_si512(to.add(part * PART).cast(), pairs) };
        low = _mm512_sub_ps(low, upper_half(low_bits));
        high = _mm512_sub_ps(high, upper_half(high_bits));
    }
}

/// Returns numbers whose upper halves are the nearest numbers of bf16.
#[target_feature(enable = "avx512f")]
#[inline]
fn rounded(numbers: __m512) -> __m512i {
    _mm512_add_epi32(_mm512_castps_si512(numbers), _mm512_set1_epi32(0x8000))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn upper_half(bits: __m512i) -> __m512 {
    _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(0xFFFF_0000_u32 as i32)))
}

/// Transposes 16 vectors: first squares of 4 x 4 within quarters of vectors, then the quarters.
#[target_feature(enable = "avx512f")]
#[inline]
fn transpose(rows: [__m512; LANES]) -> [__m512; LANES] {
    let mut pairs = rows;
    for i in (0..LANES).step_by(2) {
        pairs[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    }
    let mut fours = pairs;
    for i in (0..LANES).step_by(4) {
        let [a, b, c, d] = [0, 1, 2, 3].map(|k| _mm512_castps_pd(pairs[i + k]));
        fours[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
        fours[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
        fours[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
        fours[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
    }
    let mut halves = fours;
    for i in 0..4 {
        for upper in [0, 8] {
            let (a, b) = (fours[upper + i], fours[upper + i + 4]);
            halves[upper + i] = _mm512_shuffle_f32x4::<0x88>(a, b);
            halves[upper + i + 4] = _mm512_shuffle_f32x4::<0xDD>(a, b);
        }
    }
    let mut columns = halves;
    for i in 0..8 {
        let (a, b) = (halves[i], halves[i + 8]);
        let (even, odd) = (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xDD>(a, b));
        // `halves[i]` has the quarters 0 and 2 of its rows, `halves[i + 4]` the others.
        columns[i] = even;
        columns[i + 8] = odd;
    }
    columns
}
