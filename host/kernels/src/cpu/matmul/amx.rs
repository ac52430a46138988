//! Matrix products of f32 on the tile registers of Intel's CPUs (Advanced Matrix Extensions), which multiply numbers of bf16.
//!
//! The 24 bits of an f32's precision are three times the 8 of a bf16, so each number is the exact sum of three parts, of which each
//! is at most 2⁻⁸ of the one before. A product of two numbers is the sum of nine products of parts; the three smallest are below
//! the precision of f32 and left out (Henry, Tang and Heinecke 2019, arXiv:1904.06376):
//!
//! ```text
//! a b = a₁ b₁ + a₁ b₂ + a₂ b₁ + a₂ b₂ + a₁ b₃ + a₃ b₁
//! ```
//!
//! Tiles add 16 times as many products in a cycle as vectors of AVX-512 do, in f32, so these six take three eighths of the time. Parts
//! that are smaller than 2⁻¹²⁶, the smallest normal number, count as zero, and what is not finite becomes NaN.
//!
//! A matrix is packed in panels of `PANEL` lines, whose parts lie in memory as tiles are loaded. The matrix with fewer lines is
//! packed once; a task packs some panels of the other one, which stay in the second-level cache while they meet all panels of the
//! first. An element of a result is the sum over blocks of at most `DEPTH` terms, each in order, so its bits depend on its line, its
//! column and the number of terms alone.

mod parts;
mod tiles;

use std::cell::RefCell;
use std::ops::Range;
use std::sync::LazyLock;

use super::MatrixView;
use crate::cpu::Workers;
use crate::cpu::thread_pool::{DisjointSlice, Scratch};
use parts::Side;
use tiles::{PREFETCHED, STEP_SIZE, Tiles};

/// Number of lines of a panel: two tiles.
const PANEL: usize = 32;
/// Number of terms that a step of the tiles adds to each sum.
const STEP: usize = 32;
/// Largest number of terms of a block.
const DEPTH: usize = 1024;
/// Largest size in bytes of the panels that a task packs: a part of a second-level cache of 2 MiB.
const TASK_BYTES: usize = 768 << 10;
/// Smallest number of tasks, if there are as many panels, so that threads end at about the same time.
const TASKS: usize = 16;

/// Returns true if the CPU has tile registers and the system lets this process use them.
pub fn is_available() -> bool {
    static AVAILABLE: LazyLock<bool> = LazyLock::new(tiles::request);
    *AVAILABLE
}

thread_local! {
    /// Panels of the matrix that all tasks of a product read, on the thread that starts it.
    static COMMON: RefCell<Scratch> = RefCell::default();
    /// Panels of the task that this thread runs.
    static OWN: RefCell<Scratch> = RefCell::default();
}

/// Computes a product as [`super::multiply`] does, of any size.
///
/// # Panics
/// If sizes do not match or [`is_available`] is false.
pub fn multiply(
    workers: Workers<'_>,
    a: MatrixView<'_>,
    b: MatrixView<'_>,
    out: &mut [f32],
    stride: usize,
    add: bool,
) {
    assert!(is_available(), "a CPU without tile registers");
    if !super::check(&a, &b, out, stride, add) {
        return;
    }
    let is_a_common = a.rows <= b.rows;
    let product = Product {
        common: if is_a_common { (a, Side::Left) } else { (b, Side::Right) },
        own: if is_a_common { (b, Side::Right) } else { (a, Side::Left) },
        out: DisjointSlice::new(out),
        stride,
    };
    // Blocks of about the same number of terms.
    let blocks = a.columns.div_ceil(DEPTH);
    let depth = a.columns.div_ceil(blocks).next_multiple_of(STEP);
    COMMON.with_borrow_mut(|common| {
        for start in (0..a.columns).step_by(depth) {
            let terms = start..a.columns.min(start + depth);
            product.add_block(workers, common, terms, add || start > 0);
        }
    });
}

/// A product, whichever of its matrices is packed first.
struct Product<'a> {
    common: (MatrixView<'a>, Side),
    own: (MatrixView<'a>, Side),
    out: DisjointSlice<'a, f32>,
    stride: usize,
}

impl Product<'_> {
    /// Writes or adds the sums of a block of terms.
    fn add_block(&self, workers: Workers<'_>, scratch: &mut Scratch, terms: Range<usize>, add: bool) {
        let steps = terms.len().div_ceil(STEP);
        let size = steps * STEP_SIZE;
        let ((common, side), (own, own_side)) = (self.common, self.own);
        let (panels, own_panels) = (common.rows.div_ceil(PANEL), own.rows.div_ceil(PANEL));
        // SAFETY: this thread's own, borrowed once.
        let packed = DisjointSlice::new(unsafe { scratch.get(panels * size) });
        (workers.parallel_for)(panels, &|panel| {
            // SAFETY: panels do not overlap.
            let to = unsafe { packed.part(panel * size, size) };
            parts::pack(&common, panel * PANEL, terms.clone(), side, to);
        });
        let most = (TASK_BYTES / (4 * size)).max(1);
        let length = most.min(own_panels.div_ceil(TASKS));
        (workers.parallel_for)(own_panels.div_ceil(length), &|task| {
            let own_panels = task * length..own_panels.min((task + 1) * length);
            OWN.with_borrow_mut(|scratch| {
                // SAFETY: this thread's own, borrowed once.
                let mine = unsafe { scratch.get(own_panels.len() * size) };
                for (panel, to) in own_panels.clone().zip(mine.chunks_exact_mut(size)) {
                    parts::pack(&own, panel * PANEL, terms.clone(), own_side, to);
                }
                let tiles = Tiles::configure();
                for panel in 0..panels {
                    // SAFETY: all panels were packed before this loop began, and nothing writes them now.
                    let left = unsafe { packed.part(panel * size, size) };
                    // The next common panel, which comes from the third-level cache or memory, arrives meanwhile.
                    let mut ahead = left.as_ptr().wrapping_add(size);
                    for (own_panel, right) in own_panels.clone().zip(mine.chunks_exact(size)) {
                        self.add_sums(&tiles, [panel, own_panel], [left, right], steps, ahead, add);
                        ahead = ahead.wrapping_add(steps * PREFETCHED);
                    }
                }
            });
        });
    }

    /// Writes or adds the sums of one panel of each matrix, the common one first.
    fn add_sums(
        &self,
        tiles: &Tiles,
        panels: [usize; 2],
        packed: [&[f32]; 2],
        steps: usize,
        ahead: *const f32,
        add: bool,
    ) {
        let is_common_left = self.common.1 == Side::Left;
        let [row, column] =
            if is_common_left { panels } else { [panels[1], panels[0]] }.map(|panel| panel * PANEL);
        let [left, right] = if is_common_left { packed } else { [packed[1], packed[0]] };
        let (a, b) =
            if is_common_left { (&self.common.0, &self.own.0) } else { (&self.own.0, &self.common.0) };
        let (height, width) = (PANEL.min(a.rows - row), PANEL.min(b.rows - column));
        let start = row * self.stride + column;
        if (height, width, add) == (PANEL, PANEL, false) {
            // SAFETY: only this task writes these rows and columns, which are within the output.
            unsafe { tiles.sums(left, right, steps, ahead, self.out.start().add(start), self.stride) };
            return;
        }
        let mut sums = Sums([0.0; PANEL * PANEL]);
        // SAFETY: the sums have PANEL rows of PANEL numbers.
        unsafe { tiles.sums(left, right, steps, ahead, sums.0.as_mut_ptr(), PANEL) };
        for (i, sums) in sums.0.chunks_exact(PANEL).take(height).enumerate() {
            // SAFETY: only this task writes these rows and columns.
            let out = unsafe { self.out.part(start + i * self.stride, width) };
            if add {
                out.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum);
            } else {
                out.copy_from_slice(&sums[..width]);
            }
        }
    }
}

/// Sums of a panel of each matrix, aligned to lines of the cache.
#[repr(align(64))]
struct Sums([f32; PANEL * PANEL]);
