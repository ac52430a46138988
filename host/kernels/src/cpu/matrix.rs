//! Weights in the memory layout of the products.
//!
//! A matrix `[out, in]` is cut into panels of as many outputs as two vectors hold; within a panel, the
//! weights of one input are contiguous. A product then reads every weight once, in the order of memory.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fmt;
use std::ptr::NonNull;

use half::{bf16, f16};

use super::Cpu;
use super::groups::{GroupFormat, MAX_BLOCK, PanelLayout, QuantizedRow};
use super::simd::SimdLevel;
use super::thread_pool::DisjointSlice;

/// Number format of stored weights. Arithmetic is always in f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WeightFormat {
    /// 32 bits.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    Bf16,
}

impl WeightFormat {
    /// Returns the size of a number in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

/// Form of stored weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// Numbers.
    Numbers(WeightFormat),
    /// Codes with scales.
    Groups(GroupFormat),
}

/// A matrix `[outputs, inputs]` in panels.
pub struct Matrix {
    memory: AlignedMemory,
    storage: Storage,
    outputs: usize,
    inputs: usize,
    /// Instructions that the panels are made for.
    level: SimdLevel,
}

/// Returns the number of outputs of a panel.
pub(crate) fn panel(level: SimdLevel) -> usize {
    2 * level.lanes()
}

impl fmt::Debug for Matrix {
    /// Without the weights.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { storage, outputs, inputs, level, .. } = self;
        write!(f, "Matrix([{outputs}, {inputs}], {storage:?}, {level})")
    }
}

impl Matrix {
    /// Packs `values` (`[outputs, inputs]`, row after row), rounded to `format`, for the CPU's
    /// instructions.
    ///
    /// # Panics
    /// If there are not `outputs x inputs` values.
    pub fn pack(cpu: &Cpu, values: &[f32], outputs: usize, inputs: usize, format: WeightFormat) -> Self {
        assert_eq!(
            Some(values.len()),
            outputs.checked_mul(inputs),
            "values of a matrix [{outputs}, {inputs}]"
        );
        let panel = panel(cpu.level);
        let panels = outputs.div_ceil(panel);
        let mut memory = AlignedMemory::zeroed(panels * panel * inputs * format.bytes());
        match format {
            WeightFormat::F32 => fill(cpu, values, inputs, panel, memory.slice_mut::<f32>(), |x| x),
            WeightFormat::F16 => {
                fill(cpu, values, inputs, panel, memory.slice_mut::<u16>(), |x| f16::from_f32(x).to_bits());
            }
            WeightFormat::Bf16 => {
                fill(cpu, values, inputs, panel, memory.slice_mut::<u16>(), |x| bf16::from_f32(x).to_bits());
            }
        }
        Self { memory, storage: Storage::Numbers(format), outputs, inputs, level: cpu.level }
    }

    /// Packs quantized weights for the CPU's instructions. `row(i, to)` writes row `i` into `to`, which has the
    /// lengths of the format and is zero.
    ///
    /// # Panics
    /// If a block of the format does not divide 256.
    pub fn pack_groups(
        cpu: &Cpu,
        format: GroupFormat,
        outputs: usize,
        inputs: usize,
        row: impl Fn(usize, &mut QuantizedRow) + Sync,
    ) -> Self {
        assert!(MAX_BLOCK.is_multiple_of(format.block()), "blocks of {}", format.block());
        let panel = panel(cpu.level);
        let layout = PanelLayout { format, width: panel };
        let panels = outputs.div_ceil(panel);
        let mut memory = AlignedMemory::zeroed(panels * layout.bytes(inputs));
        let bytes = DisjointSlice::new(memory.slice_mut::<u8>());
        cpu.pool.for_each(panels, |_, p| {
            // SAFETY: panels do not overlap.
            let own = unsafe { bytes.part(p * layout.bytes(inputs), layout.bytes(inputs)) };
            let mut quantized = QuantizedRow::default();
            for (lane, i) in (p * panel..outputs.min((p + 1) * panel)).enumerate() {
                quantized.clear(format, inputs);
                row(i, &mut quantized);
                layout.write(&quantized, lane, own);
            }
        });
        Self { memory, storage: Storage::Groups(format), outputs, inputs, level: cpu.level }
    }

    /// Returns the number of rows: the length of a product's output.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Returns the number of columns: the length of a product's input.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Returns the form of the weights.
    pub fn storage(&self) -> Storage {
        self.storage
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> usize {
        self.memory.layout.size()
    }

    /// Copies a row, for example an embedding.
    ///
    /// # Panics
    /// If the row does not exist, or if `to` is not [`inputs`](Self::inputs) long.
    pub fn row(&self, row: usize, to: &mut [f32]) {
        assert!(
            row < self.outputs && to.len() == self.inputs,
            "row {row} of [{}, {}]",
            self.outputs,
            self.inputs
        );
        let (panel, lane) = (row / self.panel(), row % self.panel());
        let start = panel * self.panel() * self.inputs + lane;
        match self.storage {
            Storage::Numbers(WeightFormat::F32) => self.lane(start, to, |x: f32| x),
            Storage::Numbers(WeightFormat::F16) => self.lane(start, to, |bits| f16::from_bits(bits).to_f32()),
            Storage::Numbers(WeightFormat::Bf16) => {
                self.lane(start, to, |bits| bf16::from_bits(bits).to_f32())
            }
            Storage::Groups(format) => {
                let layout = PanelLayout { format, width: self.panel() };
                let panel = &self.memory.slice::<u8>()[panel * self.panel_bytes()..];
                to.iter_mut().enumerate().for_each(|(k, to)| *to = layout.weight(panel, lane, k));
            }
        }
    }

    /// Converts one number of each input, from the offset `start` on.
    fn lane<T: Copy>(&self, start: usize, to: &mut [f32], convert: impl Fn(T) -> f32) {
        let all = self.memory.slice::<T>();
        (start..).step_by(self.panel()).zip(to).for_each(|(i, to)| *to = convert(all[i]));
    }

    /// Returns the number of outputs of a panel.
    pub fn panel(&self) -> usize {
        panel(self.level)
    }

    /// Returns the instructions that the panels are made for.
    pub(crate) fn level(&self) -> SimdLevel {
        self.level
    }

    pub(crate) fn panels(&self) -> usize {
        self.outputs.div_ceil(self.panel())
    }

    /// Returns the address of a panel's weights.
    pub(crate) fn panel_start(&self, panel: usize) -> *const u8 {
        assert!(panel < self.panels(), "panel {panel} of {}", self.panels());
        // SAFETY: within the allocation, as checked.
        unsafe { self.memory.start.as_ptr().add(panel * self.panel_bytes()) }
    }

    fn panel_bytes(&self) -> usize {
        match self.storage {
            Storage::Numbers(format) => self.panel() * self.inputs * format.bytes(),
            Storage::Groups(format) => PanelLayout { format, width: self.panel() }.bytes(self.inputs),
        }
    }
}

/// Writes `values` (rows of `inputs`) into panels of `panel` rows.
fn fill<T: Copy + Send>(
    cpu: &Cpu,
    values: &[f32],
    inputs: usize,
    panel: usize,
    memory: &mut [T],
    convert: impl Fn(f32) -> T + Sync,
) {
    if inputs == 0 {
        return;
    }
    let rows: Vec<&[f32]> = values.chunks_exact(inputs).collect();
    let memory = DisjointSlice::new(memory);
    cpu.pool.for_each(rows.len().div_ceil(panel), |_, p| {
        let rows = &rows[p * panel..rows.len().min((p + 1) * panel)];
        // SAFETY: panels do not overlap.
        let own = unsafe { memory.part(p * panel * inputs, panel * inputs) };
        for (k, column) in own.chunks_exact_mut(panel).enumerate() {
            for (number, row) in column.iter_mut().zip(rows) {
                *number = convert(row[k]);
            }
        }
    });
}

/// Zeroed memory, aligned for vectors, or to huge pages if it is large: the CPU's own prefetching stops at
/// page borders.
struct AlignedMemory {
    start: NonNull<u8>,
    layout: Layout,
}

/// Size of a huge page in bytes.
const HUGE: usize = 2 << 20;

// SAFETY: the value owns its memory.
unsafe impl Send for AlignedMemory {}
// SAFETY: shared memory is only read.
unsafe impl Sync for AlignedMemory {}

impl AlignedMemory {
    fn zeroed(bytes: usize) -> Self {
        let align = if bytes >= HUGE { HUGE } else { 64 };
        let size = bytes.max(1).next_multiple_of(align.min(4096));
        #[allow(clippy::expect_used, reason = "no matrix comes near the size at which this fails")]
        let layout = Layout::from_size_align(size, align).expect("a size that fits memory");
        // SAFETY: the size is not zero.
        let start = unsafe { alloc(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        #[cfg(target_os = "linux")]
        if align == HUGE {
            // SAFETY: advice about memory that was just allocated. Without effect, pages stay small; no error
            // to handle.
            unsafe { libc::madvise(start.as_ptr().cast(), size, libc::MADV_HUGEPAGE) };
        }
        // SAFETY: just allocated with this size. The first write creates the large pages.
        unsafe { start.as_ptr().write_bytes(0, size) };
        Self { start, layout }
    }

    fn slice<T>(&self) -> &[T] {
        // SAFETY: T is f32, u16 or u8, for which every bit pattern is valid and whose alignment is at most 64; all bytes were
        // written.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.layout.size() / size_of::<T>()) }
    }

    fn slice_mut<T>(&mut self) -> &mut [T] {
        // SAFETY: as above, and borrowed exclusively.
        unsafe {
            std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.layout.size() / size_of::<T>())
        }
    }
}

impl Drop for AlignedMemory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}
