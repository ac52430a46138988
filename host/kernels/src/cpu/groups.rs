//! Quantized weights: codes of 4 or 8 bits, and scales that groups of inputs share.
//!
//! A weight is `scale code` or `scale code + minimum`, computed in f32 with a rounding after each operation, as readers of
//! GGUF files compute it. A product of a quantized matrix therefore has the same bits as one of the same weights in
//! f32.

use half::f16;

use super::simd::Simd;
use super::storage::{Bytes, CodeStorage, Nibbles};

/// Largest number of inputs with a common scale; other numbers divide it.
pub(crate) const MAX_BLOCK: usize = 256;

/// Width of a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CodeWidth {
    /// 4 bits: 0 to 15 with a minimum, otherwise -8 to 7.
    Four,
    /// 8 bits: -128 to 127.
    Eight,
}

/// Format of quantized weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GroupFormat {
    /// Width of a code.
    pub width: CodeWidth,
    /// Number of neighbouring inputs with the same scale.
    pub group: usize,
    /// Number of neighbouring groups with a common scale in 16 bits. If there are several, a group's scale is that times a
    /// factor of its own.
    pub groups: usize,
    /// Adds a minimum, stored as the scale is.
    pub minimum: bool,
}

impl GroupFormat {
    /// Eight bits in groups of 32, each with a scale (GGUF's Q8_0).
    pub const Q8: Self = Self { width: CodeWidth::Eight, group: 32, groups: 1, minimum: false };

    /// Number of inputs with a common scale.
    pub fn block(self) -> usize {
        self.group * self.groups
    }

    /// Size in bytes of a matrix `[outputs, inputs]`, without rounding up to whole panels and blocks.
    pub fn bytes(self, outputs: usize, inputs: usize) -> usize {
        let layout = PanelLayout { format: self, width: 2 };
        (outputs * layout.bytes(inputs)).div_ceil(2)
    }
}

/// A row of quantized weights.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QuantizedRow {
    /// Code of each input.
    pub codes: Vec<i8>,
    /// Scale of each block.
    pub scales: Vec<f16>,
    /// Minimum of each block, in formats that have one.
    pub minimums: Vec<f16>,
    /// Factor of each group for the scale, in formats that have several groups in a block.
    pub scale_factors: Vec<i8>,
    /// The same for the minimum.
    pub minimum_factors: Vec<i8>,
}

impl QuantizedRow {
    /// Sets the lengths for rows of `inputs` weights, and all contents to zero.
    pub(crate) fn clear(&mut self, format: GroupFormat, inputs: usize) {
        let blocks = inputs.div_ceil(format.block());
        let factors = if format.groups > 1 { blocks * format.groups } else { 0 };
        let with_minimum = |count: usize| if format.minimum { count } else { 0 };
        let Self { codes, scales, minimums, scale_factors, minimum_factors } = self;
        let zeros = |numbers: &mut Vec<i8>, count| {
            numbers.clear();
            numbers.resize(count, 0);
        };
        zeros(codes, inputs);
        zeros(scale_factors, factors);
        zeros(minimum_factors, with_minimum(factors));
        for (numbers, count) in [(scales, blocks), (minimums, with_minimum(blocks))] {
            numbers.clear();
            numbers.resize(count, f16::ZERO);
        }
    }

    /// Rounds weights to [`GroupFormat::Q8`]: a group's largest magnitude has the code 127 or -127.
    ///
    /// # Panics
    /// If `values` has another length than the row.
    pub fn round(&mut self, values: &[f32]) {
        assert_eq!(values.len(), self.codes.len(), "values of a row");
        let group = GroupFormat::Q8.group;
        let groups = values.chunks(group).zip(self.codes.chunks_mut(group)).zip(&mut self.scales);
        for ((values, codes), scale) in groups {
            let largest = values.iter().fold(0f32, |largest, x| largest.max(x.abs()));
            *scale = f16::from_f32(largest / 127.0);
            let inverse = if *scale == f16::ZERO { 0.0 } else { scale.to_f32().recip() };
            for (code, x) in codes.iter_mut().zip(values) {
                *code = (x * inverse).round().clamp(-127.0, 127.0) as i8;
            }
        }
    }
}

/// Layout of a panel: its blocks of inputs one after the other. A block has, for each output of the panel, its scale and
/// minimum, then the factors of each group, then the codes input by input.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PanelLayout {
    pub(crate) format: GroupFormat,
    /// Number of outputs.
    pub(crate) width: usize,
}

impl PanelLayout {
    /// Number of values that each scale has: itself, and a minimum if the format has one.
    fn terms(self) -> usize {
        1 + usize::from(self.format.minimum)
    }

    /// Offset in a block of the factors of a group: `width` for the scale, and `width` for the minimum.
    fn factors(self, group: usize) -> usize {
        debug_assert!(self.format.groups > 1, "formats with one group in a block have no factors");
        (2 + group) * self.width * self.terms()
    }

    /// Offset of the codes in a block.
    fn codes(self) -> usize {
        let factors = if self.format.groups > 1 { self.format.groups } else { 0 };
        (2 + factors) * self.width * self.terms()
    }

    /// Size in bytes of the codes of one input.
    fn code_bytes(self) -> usize {
        match self.format.width {
            CodeWidth::Four => self.width / 2,
            CodeWidth::Eight => self.width,
        }
    }

    /// Size of a block in bytes.
    pub(crate) fn block_bytes(self) -> usize {
        self.codes() + self.format.block() * self.code_bytes()
    }

    /// Size of a panel in bytes.
    pub(crate) fn bytes(self, inputs: usize) -> usize {
        inputs.div_ceil(self.format.block()) * self.block_bytes()
    }

    /// Writes row `lane` of a panel.
    pub(crate) fn write(self, row: &QuantizedRow, lane: usize, panel: &mut [u8]) {
        let (format, width) = (self.format, self.width);
        let block_inputs = format.block();
        for (index, block) in panel.chunks_exact_mut(self.block_bytes()).enumerate() {
            let halves = [row.scales.get(index), row.minimums.get(index)];
            for (term, half) in halves.into_iter().flatten().enumerate() {
                block[2 * (term * width + lane)..][..2].copy_from_slice(&half.to_le_bytes());
            }
            for group in 0..format.groups {
                let at = index * format.groups + group;
                let factors = [row.scale_factors.get(at), row.minimum_factors.get(at)];
                for (term, factor) in factors.into_iter().flatten().enumerate() {
                    block[self.factors(group) + term * width + lane] = factor.cast_unsigned();
                }
            }
            let codes = row.codes[index * block_inputs..].iter().take(block_inputs);
            for (bytes, code) in block[self.codes()..].chunks_exact_mut(self.code_bytes()).zip(codes) {
                match format.width {
                    CodeWidth::Eight => bytes[lane] = code.cast_unsigned(),
                    CodeWidth::Four => {
                        let code = if format.minimum { *code } else { code + 8 };
                        let shift = lane / (width / 2) * 4;
                        bytes[lane % (width / 2)] |= (code.cast_unsigned() & 15) << shift;
                    }
                }
            }
        }
    }

    /// Reads a weight.
    pub(crate) fn weight(self, panel: &[u8], lane: usize, input: usize) -> f32 {
        let (format, width) = (self.format, self.width);
        let block = &panel[input / format.block() * self.block_bytes()..][..self.block_bytes()];
        let within = input % format.block();
        let term = |index: usize| {
            let at = 2 * (index * width + lane);
            let shared = f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
            if format.groups == 1 {
                return shared;
            }
            let factor = block[self.factors(within / format.group) + index * width + lane];
            shared * f32::from(factor.cast_signed())
        };
        let codes = &block[self.codes() + within * self.code_bytes()..];
        let code = match format.width {
            CodeWidth::Eight => f32::from(codes[lane].cast_signed()),
            CodeWidth::Four => {
                let nibble = (codes[lane % (width / 2)] >> (lane / (width / 2) * 4)) & 15;
                f32::from(nibble) - if format.minimum { 0.0 } else { 8.0 }
            }
        };
        if format.minimum { term(0) * code + term(1) } else { term(0) * code }
    }
}

/// Scales of a group, and its codes.
pub(crate) struct Group<S: Simd> {
    scale: [S::V; 2],
    minimum: [S::V; 2],
    codes: *const u8,
}

impl<S: Simd> Group<S> {
    /// Loads the scales of the group of inputs that starts at `input` of a panel.
    #[inline(always)]
    unsafe fn load(layout: PanelLayout, panel: *const u8, input: usize) -> Self {
        let format = layout.format;
        // SAFETY: the caller's panel has this layout and this input.
        unsafe {
            let block = panel.add(input / format.block() * layout.block_bytes());
            let within = input % format.block();
            let factors = (format.groups > 1).then(|| layout.factors(within / format.group));
            let mut terms = [[S::splat(0.0); 2]; 2];
            for (index, term) in terms.iter_mut().enumerate().take(layout.terms()) {
                for (half, term) in term.iter_mut().enumerate() {
                    let lanes = index * layout.width + half * S::LANES;
                    *term = S::load_f16(block.cast::<u16>().add(lanes));
                    if let Some(factors) = factors {
                        *term = S::mul(*term, S::load_i8(block.add(factors + lanes).cast()));
                    }
                }
            }
            let [scale, minimum] = terms;
            Self { scale, minimum, codes: block.add(layout.codes() + within * layout.code_bytes()) }
        }
    }

    /// Computes the weights of input `k` of the group.
    #[inline(always)]
    pub(crate) unsafe fn weights<F: Format>(&self, k: usize) -> [S::V; 2] {
        // SAFETY: the caller's group has this input and this format.
        unsafe {
            let [low, high] = F::Codes::load::<S>(self.codes, k);
            if F::MINIMUM {
                return [
                    S::add(S::mul(self.scale[0], low), self.minimum[0]),
                    S::add(S::mul(self.scale[1], high), self.minimum[1]),
                ];
            }
            let offset = S::splat(F::OFFSET);
            [S::mul(self.scale[0], S::sub(low, offset)), S::mul(self.scale[1], S::sub(high, offset))]
        }
    }
}

/// The parts of a [`GroupFormat`] that the innermost loops are compiled for.
pub(crate) trait Format {
    type Codes: CodeStorage;
    const MINIMUM: bool;
    /// Offset of a code without a minimum.
    const OFFSET: f32;
}

pub(crate) struct Four;
pub(crate) struct FourMinimum;
pub(crate) struct Eight;
pub(crate) struct EightMinimum;

impl Format for Four {
    type Codes = Nibbles;
    const MINIMUM: bool = false;
    const OFFSET: f32 = 8.0;
}

impl Format for FourMinimum {
    type Codes = Nibbles;
    const MINIMUM: bool = true;
    const OFFSET: f32 = 0.0;
}

impl Format for Eight {
    type Codes = Bytes;
    const MINIMUM: bool = false;
    const OFFSET: f32 = 0.0;
}

impl Format for EightMinimum {
    type Codes = Bytes;
    const MINIMUM: bool = true;
    const OFFSET: f32 = 0.0;
}

/// Some inputs of a panel, from the start of a block on.
#[derive(Clone, Copy)]
pub(crate) struct QuantizedStride {
    pub(crate) layout: PanelLayout,
    /// Start of the panel.
    panel: *const u8,
    input: usize,
    pub(crate) count: usize,
    /// Following bytes to prefetch, `share` for each input.
    ahead: *const u8,
    share: usize,
}

impl QuantizedStride {
    /// `count` inputs from `input` on. While they are processed, the following bytes are prefetched.
    #[inline(always)]
    pub(crate) fn new(layout: PanelLayout, panel: *const u8, input: usize, count: usize) -> Self {
        let ahead = panel.wrapping_add(layout.bytes(input + count));
        let share = layout.bytes(count).div_ceil(count.max(1));
        Self { layout, panel, input, count, ahead, share }
    }

    /// Loads the scales of the group that starts at input `done` of the stride.
    #[inline(always)]
    pub(crate) unsafe fn group<S: Simd>(&self, done: usize) -> Group<S> {
        // SAFETY: guaranteed by the caller.
        unsafe { Group::load(self.layout, self.panel, self.input + done) }
    }

    /// Prefetches the share of input `k`. An address past the end has no effect.
    #[inline(always)]
    pub(crate) unsafe fn prefetch<S: Simd>(&self, k: usize) {
        // SAFETY: without effect on values.
        unsafe { S::prefetch(self.ahead.wrapping_add(k * self.share)) }
    }

    /// Computes the weights in f32, input by input.
    #[inline(always)]
    pub(crate) unsafe fn unpack<S: Simd, F: Format>(&self, to: *mut f32) {
        let width = 2 * S::LANES;
        let mut done = 0;
        while done < self.count {
            let inputs = self.layout.format.group.min(self.count - done);
            // SAFETY: the caller's panel has these inputs, and `to` has space for them.
            unsafe {
                let group = self.group::<S>(done);
                for k in 0..inputs {
                    let [low, high] = group.weights::<F>(k);
                    self.prefetch::<S>(done + k);
                    S::store(to.add((done + k) * width), low);
                    S::store(to.add((done + k) * width + S::LANES), high);
                }
            }
            done += inputs;
        }
    }
}
