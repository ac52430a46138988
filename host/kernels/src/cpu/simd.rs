//! Vectors of f32, and the choice of instructions at run time.
//!
//! A kernel is a [`Kernel`]: a struct of its arguments with one function, generic over [`Simd`].
//! [`SimdLevel::run`] is compiled once for each set of instructions and calls the version for the CPU. This needs
//! `inline(always)` on everything between `run` and the intrinsics, and no closures in between.

use std::fmt;

/// Sets of instructions, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SimdLevel {
    /// Arrays, as the compiler vectorizes them.
    Portable,
    /// AVX2, FMA and F16C: 8 lanes.
    Avx2,
    /// AVX-512F: 16 lanes.
    Avx512,
}

impl SimdLevel {
    /// Returns the best set of this CPU.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                return Self::Avx512;
            }
            if is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c")
            {
                return Self::Avx2;
            }
        }
        Self::Portable
    }

    /// Returns the number of lanes of a vector.
    pub(crate) fn lanes(self) -> usize {
        match self {
            Self::Portable | Self::Avx2 => 8,
            Self::Avx512 => 16,
        }
    }

    /// Runs a kernel with these instructions.
    ///
    /// # Safety
    /// The CPU has them (the level is at most [`detect`](Self::detect)), and the kernel's own requirements
    /// hold.
    #[inline]
    pub(crate) unsafe fn run<K: Kernel>(self, kernel: K) {
        match self {
            // SAFETY: no special instructions; the caller guarantees the rest.
            Self::Portable => unsafe { kernel.run::<Portable>() },
            // SAFETY: guaranteed by the caller.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { x86::run_avx2(kernel) },
            // SAFETY: guaranteed by the caller.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => unsafe { x86::run_avx512(kernel) },
            // SAFETY: as for Portable; detection never gives another level here.
            #[cfg(not(target_arch = "x86_64"))]
            _ => unsafe { kernel.run::<Portable>() },
        }
    }
}

impl fmt::Display for SimdLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Portable => "portable",
            Self::Avx2 => "AVX2",
            Self::Avx512 => "AVX-512",
        })
    }
}

/// Code that is compiled for each set of instructions.
pub(crate) trait Kernel {
    /// Runs the kernel. Implementations are `inline(always)`.
    ///
    /// # Safety
    /// Stated by the implementation.
    unsafe fn run<S: Simd>(self);
}

/// A vector of f32.
///
/// # Safety (of all functions)
/// Pointers are valid for one vector; the CPU has the instructions.
pub(crate) trait Simd: Copy {
    /// Type of a vector.
    type V: Copy;
    /// Number of lanes.
    const LANES: usize;
    /// Number of rows whose sums, two vectors each, are in registers at a time, beside weights and inputs.
    const ROWS: usize;
    /// True if blocks of twice as many rows, whose sums are one vector each, are as fast, although a broadcast input then multiplies one
    /// vector of weights and not two.
    const TALL: bool;

    /// Runs a kernel with these instructions, as a function of its own: what its caller keeps in registers does not push the
    /// kernel's sums out of them. The kernel's own requirements hold.
    unsafe fn call<K: Kernel>(kernel: K);
    unsafe fn splat(x: f32) -> Self::V;
    unsafe fn load(from: *const f32) -> Self::V;
    unsafe fn store(to: *mut f32, v: Self::V);
    /// Widens halves (IEEE binary16).
    unsafe fn load_f16(from: *const u16) -> Self::V;
    /// Widens bfloat16.
    unsafe fn load_bf16(from: *const u16) -> Self::V;
    /// Converts signed bytes.
    unsafe fn load_i8(from: *const i8) -> Self::V;
    /// Converts the low halves of bytes (0 to 15), and their high halves.
    unsafe fn load_nibbles(from: *const u8) -> [Self::V; 2];
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn div(a: Self::V, b: Self::V) -> Self::V;
    /// Maximum; `b` if one is NaN.
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V;
    /// Minimum; `b` if one is NaN.
    unsafe fn min(a: Self::V, b: Self::V) -> Self::V;
    /// `a b + c`.
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// Rounds to the nearest integer, ties to even.
    unsafe fn round(v: Self::V) -> Self::V;
    /// `v 2^n` for whole `n` from -126 to 127.
    unsafe fn scale(v: Self::V, n: Self::V) -> Self::V;
    /// Prefetches a cache line.
    unsafe fn prefetch(address: *const u8);
    /// Prefetches a cache line into the second-level cache, which tracks more outstanding lines than the first.
    unsafe fn prefetch_second_level(address: *const u8);

    /// e^x, accurate to 2 units in the last place; x is clamped between -87 (1.6e-38) and 88 (1.7e38).
    #[inline(always)]
    unsafe fn exp(x: Self::V) -> Self::V {
        // SAFETY: only arithmetic.
        unsafe {
            let x = Self::min(Self::splat(88.0), Self::max(Self::splat(-87.0), x));
            let n = Self::round(Self::mul(x, Self::splat(std::f32::consts::LOG2_E)));
            // ln 2 in two parts, so that the product with n is exact to the last significant bit.
            let r = Self::fma(n, Self::splat(-0.693_359_4), x);
            let r = Self::fma(n, Self::splat(2.121_944_4e-4), r);
            // Minimax polynomial of (e^r - 1 - r) / r² on ±ln 2 / 2 (Cephes, expf).
            let mut p = Self::splat(1.987_569_1e-4);
            p = Self::fma(p, r, Self::splat(1.398_199_9e-3));
            p = Self::fma(p, r, Self::splat(8.333_452e-3));
            p = Self::fma(p, r, Self::splat(4.166_579_6e-2));
            p = Self::fma(p, r, Self::splat(1.666_666_5e-1));
            p = Self::fma(p, r, Self::splat(0.5));
            let e = Self::add(Self::fma(Self::mul(r, r), p, r), Self::splat(1.0));
            Self::scale(e, n)
        }
    }

    /// Sum of the lanes, halves first.
    #[inline(always)]
    unsafe fn sum(v: Self::V) -> f32 {
        let mut lanes = [0f32; 16];
        // SAFETY: no vector has more than 16 lanes.
        unsafe { Self::store(lanes.as_mut_ptr(), v) };
        let mut width = Self::LANES / 2;
        while width > 0 {
            for i in 0..width {
                lanes[i] += lanes[i + width];
            }
            width /= 2;
        }
        lanes[0]
    }

    /// Largest lane.
    #[inline(always)]
    unsafe fn largest(v: Self::V) -> f32 {
        let mut lanes = [f32::NEG_INFINITY; 16];
        // SAFETY: no vector has more than 16 lanes.
        unsafe { Self::store(lanes.as_mut_ptr(), v) };
        lanes.iter().copied().fold(f32::NEG_INFINITY, f32::max)
    }
}

/// Arrays, for CPUs without the other sets.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

#[inline(always)]
fn each(mut f: impl FnMut(usize) -> f32) -> [f32; 8] {
    let mut out = [0f32; 8];
    for (i, lane) in out.iter_mut().enumerate() {
        *lane = f(i);
    }
    out
}

impl Simd for Portable {
    type V = [f32; 8];
    const LANES: usize = 8;
    const ROWS: usize = 8;
    const TALL: bool = false;

    #[inline(never)]
    unsafe fn call<K: Kernel>(kernel: K) {
        // SAFETY: guaranteed by the caller.
        unsafe { kernel.run::<Self>() }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::V {
        [x; 8]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::V {
        // SAFETY: the caller's pointer is valid for 8.
        unsafe { from.cast::<[f32; 8]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, v: Self::V) {
        // SAFETY: the caller's pointer is valid for 8.
        unsafe { to.cast::<[f32; 8]>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self::V {
        // SAFETY: the caller's pointer is valid for 8.
        each(|i| half::f16::from_bits(unsafe { from.add(i).read_unaligned() }).to_f32())
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self::V {
        // SAFETY: the caller's pointer is valid for 8.
        each(|i| half::bf16::from_bits(unsafe { from.add(i).read_unaligned() }).to_f32())
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const i8) -> Self::V {
        // SAFETY: the caller's pointer is valid for 8.
        each(|i| f32::from(unsafe { *from.add(i) }))
    }
    #[inline(always)]
    unsafe fn load_nibbles(from: *const u8) -> [Self::V; 2] {
        // SAFETY: the caller's pointer is valid for 8.
        let byte = |i| unsafe { *from.add(i) };
        [each(|i| f32::from(byte(i) & 15)), each(|i| f32::from(byte(i) >> 4))]
    }
    #[inline(always)]
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V {
        each(|i| a[i] + b[i])
    }
    #[inline(always)]
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V {
        each(|i| a[i] - b[i])
    }
    #[inline(always)]
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V {
        each(|i| a[i] * b[i])
    }
    #[inline(always)]
    unsafe fn div(a: Self::V, b: Self::V) -> Self::V {
        each(|i| a[i] / b[i])
    }
    #[inline(always)]
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V {
        each(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    unsafe fn min(a: Self::V, b: Self::V) -> Self::V {
        each(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        // Two roundings: without the instruction, a fused product is a slow function call.
        each(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    unsafe fn round(v: Self::V) -> Self::V {
        each(|i| v[i].round_ties_even())
    }
    #[inline(always)]
    unsafe fn scale(v: Self::V, n: Self::V) -> Self::V {
        each(|i| v[i] * f32::from_bits(((n[i] as i32 + 127) as u32) << 23))
    }
    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}
    #[inline(always)]
    unsafe fn prefetch_second_level(_: *const u8) {}
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Kernel, Simd};

    #[target_feature(enable = "avx512f")]
    #[inline(never)]
    unsafe fn call_avx512<K: Kernel>(kernel: K) {
        // SAFETY: as in `run_avx512`.
        unsafe { kernel.run::<Avx512>() }
    }

    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn run_avx512<K: Kernel>(kernel: K) {
        // SAFETY: the CPU has the instructions; the caller guarantees the rest.
        unsafe { kernel.run::<Avx512>() }
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline(never)]
    unsafe fn call_avx2<K: Kernel>(kernel: K) {
        // SAFETY: as in `run_avx2`.
        unsafe { kernel.run::<Avx2>() }
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn run_avx2<K: Kernel>(kernel: K) {
        // SAFETY: the CPU has the instructions; the caller guarantees the rest.
        unsafe { kernel.run::<Avx2>() }
    }

    #[derive(Clone, Copy)]
    pub(super) struct Avx512;

    #[allow(
        clippy::undocumented_unsafe_blocks,
        reason = "of every body: the caller's pointers are valid for 16 lanes, and the CPU has the instructions"
    )]
    impl Simd for Avx512 {
        type V = __m512;
        const LANES: usize = 16;
        const ROWS: usize = 8;
        const TALL: bool = true;

        #[inline(always)]
        unsafe fn call<K: Kernel>(kernel: K) {
            unsafe { call_avx512(kernel) }
        }
        #[inline(always)]
        unsafe fn splat(x: f32) -> Self::V {
            unsafe { _mm512_set1_ps(x) }
        }
        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self::V {
            unsafe { _mm512_loadu_ps(from) }
        }
        #[inline(always)]
        unsafe fn store(to: *mut f32, v: Self::V) {
            unsafe { _mm512_storeu_ps(to, v) }
        }
        #[inline(always)]
        unsafe fn load_f16(from: *const u16) -> Self::V {
            unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
        }
        #[inline(always)]
        unsafe fn load_bf16(from: *const u16) -> Self::V {
            unsafe {
                let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
            }
        }
        #[inline(always)]
        unsafe fn load_i8(from: *const i8) -> Self::V {
            unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast()))) }
        }
        #[inline(always)]
        unsafe fn load_nibbles(from: *const u8) -> [Self::V; 2] {
            unsafe {
                let bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()));
                let low = _mm512_and_si512(bytes, _mm512_set1_epi32(15));
                [_mm512_cvtepi32_ps(low), _mm512_cvtepi32_ps(_mm512_srli_epi32::<4>(bytes))]
            }
        }
        #[inline(always)]
        unsafe fn add(a: Self::V, b: Self::V) -> Self::V {
            unsafe { _mm512_add_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn sub(a: Self::V, b: Self::V) -> Self::V {
            unsafe { _mm512_sub_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn mul(a: Self::V, b: Self::V) -> Self::V {
            unsafe { _mm512_mul_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn div(a: Self::V, b: Self::V) -> Self::V {
            unsafe { _mm512_div_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn max(a: Self::V, b: Self::V) -> Self::V {
            unsafe { _mm512_max_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn min(a: Self::V, b: Self::V) -> Self::V {
            unsafe { _mm512_min_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V {
            unsafe { _mm512_fmadd_ps(a, b, c) }
        }
        #[inline(always)]
        unsafe fn round(v: Self::V) -> Self::V {
            unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(v) }
        }
        #[inline(always)]
        unsafe fn scale(v: Self::V, n: Self::V) -> Self::V {
            unsafe { _mm512_scalef_ps(v, n) }
        }
        #[inline(always)]
        unsafe fn prefetch(address: *const u8) {
            unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
        }
        #[inline(always)]
        unsafe fn prefetch_second_level(address: *const u8) {
            unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) }
        }
    }

    #[derive(Clone, Copy)]
    pub(super) struct Avx2;

    #[allow(
        clippy::undocumented_unsafe_blocks,
        reason = "of every body: the caller's pointers are valid for 8 lanes, and the CPU has the instructions"
    )]
    impl Simd for Avx2 {
        type V = __m256;
        const LANES: usize = 8;
        const ROWS: usize = 6;
        const TALL: bool = false;

        #[inline(always)]
        unsafe fn call<K: Kernel>(kernel: K) {
            unsafe { call_avx2(kernel) }
        }
        #[inline(always)]
        unsafe fn splat(x: f32) -> Self::V {
            unsafe { _mm256_set1_ps(x) }
        }
        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self::V {
            unsafe { _mm256_loadu_ps(from) }
        }
        #[inline(always)]
        unsafe fn store(to: *mut f32, v: Self::V) {
            unsafe { _mm256_storeu_ps(to, v) }
        }
        #[inline(always)]
        unsafe fn load_f16(from: *const u16) -> Self::V {
            unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
        }
        #[inline(always)]
        unsafe fn load_bf16(from: *const u16) -> Self::V {
            unsafe {
                let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
            }
        }
        #[inline(always)]
        unsafe fn load_i8(from: *const i8) -> Self::V {
            unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast()))) }
        }
        #[inline(always)]
        unsafe fn load_nibbles(from: *const u8) -> [Self::V; 2] {
            unsafe {
                let bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.cast()));
                let low = _mm256_and_si256(bytes, _mm256_set1_epi32(15));
                [_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(_mm256_srli_epi32::<4>(bytes))]
            }
        }
        #[inline(always)]
        unsafe fn add(a: Self::V, b: Self::V) -> Self::V {
            unsafe { _mm256_add_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn sub(a: Self::V, b: Self::V) -> Self::V {
            unsafe { _mm256_sub_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn mul(a: Self::V, b: Self::V) -> Self::V {
            unsafe { _mm256_mul_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn div(a: Self::V, b: Self::V) -> Self::V {
            unsafe { _mm256_div_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn max(a: Self::V, b: Self::V) -> Self::V {
            unsafe { _mm256_max_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn min(a: Self::V, b: Self::V) -> Self::V {
            unsafe { _mm256_min_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V {
            unsafe { _mm256_fmadd_ps(a, b, c) }
        }
        #[inline(always)]
        unsafe fn round(v: Self::V) -> Self::V {
            unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(v) }
        }
        #[inline(always)]
        unsafe fn scale(v: Self::V, n: Self::V) -> Self::V {
            unsafe {
                let power = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
                _mm256_mul_ps(v, _mm256_castsi256_ps(_mm256_slli_epi32::<23>(power)))
            }
        }
        #[inline(always)]
        unsafe fn prefetch(address: *const u8) {
            unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
        }
        #[inline(always)]
        unsafe fn prefetch_second_level(address: *const u8) {
            unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) }
        }
    }
}
