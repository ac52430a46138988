//! Loading of stored weights as vectors of f32.

use super::simd::Simd;

/// Number format of weights that are stored as numbers.
pub(crate) trait WeightStorage {
    /// Type of a stored number.
    type Number;
    /// True if a load also computes.
    const CONVERTS: bool;
    /// Loads a vector as f32.
    unsafe fn load<S: Simd>(from: *const Self::Number) -> S::V;
}

pub(crate) struct F32;
pub(crate) struct F16;
pub(crate) struct Bf16;

impl WeightStorage for F32 {
    type Number = f32;
    const CONVERTS: bool = false;
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const f32) -> S::V {
        // SAFETY: guaranteed by the caller.
        unsafe { S::load(from) }
    }
}

impl WeightStorage for F16 {
    type Number = u16;
    const CONVERTS: bool = true;
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u16) -> S::V {
        // SAFETY: guaranteed by the caller.
        unsafe { S::load_f16(from) }
    }
}

impl WeightStorage for Bf16 {
    type Number = u16;
    const CONVERTS: bool = true;
    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const u16) -> S::V {
        // SAFETY: guaranteed by the caller.
        unsafe { S::load_bf16(from) }
    }
}

/// Width of the codes of quantized weights.
pub(crate) trait CodeStorage {
    /// Loads the codes of input `k` for the two vectors of a panel.
    unsafe fn load<S: Simd>(codes: *const u8, k: usize) -> [S::V; 2];
}

/// Codes from 0 to 15. A byte holds one of the first vector in its low half, and one of the second in its high half.
pub(crate) struct Nibbles;
/// Signed bytes.
pub(crate) struct Bytes;

impl CodeStorage for Nibbles {
    #[inline(always)]
    unsafe fn load<S: Simd>(codes: *const u8, k: usize) -> [S::V; 2] {
        // SAFETY: guaranteed by the caller.
        unsafe { S::load_nibbles(codes.add(k * S::LANES)) }
    }
}

impl CodeStorage for Bytes {
    #[inline(always)]
    unsafe fn load<S: Simd>(codes: *const u8, k: usize) -> [S::V; 2] {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let codes = codes.cast::<i8>().add(k * 2 * S::LANES);
            [S::load_i8(codes), S::load_i8(codes.add(S::LANES))]
        }
    }
}
