//! Conversion of packed weights to f32, row by row.

use std::ops::Range;

use super::groups::{CodeWidth, Eight, EightMinimum, Four, FourMinimum, PanelLayout, QuantizedStride};
use super::matrix::{Matrix, Storage, WeightFormat};
use super::product::STRIDE;
use super::simd::{Kernel, Simd};
use super::storage::{Bf16, F16, F32, WeightStorage};

impl Matrix {
    /// Converts `rows` to f32 into `to` (`[rows, inputs]`), on this thread. Fastest for whole panels
    /// ([`panel`](Self::panel)).
    ///
    /// # Panics
    /// If the rows do not exist, or if `to` has another size.
    pub fn unpack(&self, rows: Range<usize>, to: &mut [f32]) {
        assert!(rows.start <= rows.end && rows.end <= self.outputs(), "rows {rows:?} of {}", self.outputs());
        assert_eq!(Some(to.len()), rows.len().checked_mul(self.inputs()), "space for the rows {rows:?}");
        if to.is_empty() {
            return;
        }
        let width = self.panel();
        let mut stride = vec![0f32; STRIDE * width];
        for panel in rows.start / width..rows.end.div_ceil(width) {
            let own = rows.start.max(panel * width)..rows.end.min((panel + 1) * width);
            let to =
                &mut to[(own.start - rows.start) * self.inputs()..(own.end - rows.start) * self.inputs()];
            let lanes = own.start - panel * width..own.end - panel * width;
            // SAFETY: the level was detected when the matrix was packed, and the panel is within it.
            unsafe { self.level().run(UnpackKernel { matrix: self, panel, lanes, to, stride: &mut stride }) };
        }
    }
}

/// Number of inputs whose weights are distributed to rows together.
const TILE: usize = 16;

/// Conversion of some rows of one panel to f32.
struct UnpackKernel<'a> {
    matrix: &'a Matrix,
    panel: usize,
    lanes: Range<usize>,
    /// `[lanes, inputs]`.
    to: &'a mut [f32],
    /// Has space for a stride of the panel.
    stride: &'a mut [f32],
}

impl Kernel for UnpackKernel<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let (inputs, width) = (self.matrix.inputs(), 2 * S::LANES);
        let weights = self.matrix.panel_start(self.panel);
        for input in (0..inputs).step_by(STRIDE) {
            let count = STRIDE.min(inputs - input);
            let stride = self.stride.as_mut_ptr();
            // SAFETY: the inputs are within the panel, and a stride has space for them.
            unsafe {
                match self.matrix.storage() {
                    Storage::Numbers(WeightFormat::F32) => widen::<S, F32>(weights, input, count, stride),
                    Storage::Numbers(WeightFormat::F16) => widen::<S, F16>(weights, input, count, stride),
                    Storage::Numbers(WeightFormat::Bf16) => widen::<S, Bf16>(weights, input, count, stride),
                    Storage::Groups(format) => {
                        let layout = PanelLayout { format, width };
                        let panel = QuantizedStride::new(layout, weights, input, count);
                        match (format.width, format.minimum) {
                            (CodeWidth::Four, false) => panel.unpack::<S, Four>(stride),
                            (CodeWidth::Four, true) => panel.unpack::<S, FourMinimum>(stride),
                            (CodeWidth::Eight, false) => panel.unpack::<S, Eight>(stride),
                            (CodeWidth::Eight, true) => panel.unpack::<S, EightMinimum>(stride),
                        }
                    }
                }
            }
            // A few inputs at a time, so that each of their lines is read from the first-level cache.
            for start in (0..count).step_by(TILE) {
                let end = count.min(start + TILE);
                for (index, lane) in self.lanes.clone().enumerate() {
                    let row = &mut self.to[index * inputs + input..][..count];
                    for (to, k) in row[start..end].iter_mut().zip(start..) {
                        *to = self.stride[k * width + lane];
                    }
                }
            }
        }
    }
}

/// Converts `count` inputs of a panel to f32.
#[inline(always)]
unsafe fn widen<S: Simd, W: WeightStorage>(panel: *const u8, input: usize, count: usize, to: *mut f32) {
    // SAFETY: the caller's panel has these inputs, and `to` has space for them.
    unsafe {
        let from = panel.cast::<W::Number>().add(input * 2 * S::LANES);
        for i in (0..count * 2).map(|vector| vector * S::LANES) {
            S::store(to.add(i), W::load::<S>(from.add(i)));
        }
    }
}
