//! Tile registers: eight of 16 rows of 64 bytes.

use std::arch::asm;
use std::marker::PhantomData;

/// Size of a step of a packed panel in units of f32: three parts of two tiles.
pub(super) const STEP_SIZE: usize = 3 * PART;
/// Size of one part of a step.
pub(super) const PART: usize = 2 * TILE;
/// Size of a tile.
pub(super) const TILE: usize = 256;

/// Size of what a step prefetches, in the same units: a line of the cache for each of its 24 products of tiles.
pub(super) const PREFETCHED: usize = 24 * 16;

/// Feature of Linux's `arch_prctl` that lets a process use tile registers, and its number of their state.
const REQUEST: i32 = 0x1023;
const TILE_DATA: i32 = 18;

/// Asks the system for the use of tile registers. Returns false if it or the CPU has none.
pub(super) fn request() -> bool {
    let leaf = std::arch::x86_64::__cpuid_count(7, 0);
    let has = |bit: u32| leaf.edx & (1 << bit) != 0;
    // AMX-BF16 and AMX-TILE; packing takes AVX-512.
    let is_there =
        has(22) && has(24) && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
    #[cfg(target_os = "linux")]
    // SAFETY: a request without memory, which holds for all threads of this process.
    return is_there && unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST, TILE_DATA) } == 0;
    #[cfg(not(target_os = "linux"))]
    false
}

/// The tile registers of this thread, in use.
pub(super) struct Tiles {
    /// They belong to the thread.
    _thread: PhantomData<*const ()>,
}

/// Configuration of the registers, as `ldtilecfg` reads it.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes_per_row: [u16; 16],
    rows: [u8; 16],
}

impl Tiles {
    /// Configures all registers as whole tiles. The caller checked that there are any.
    pub(super) fn configure() -> Self {
        let mut configuration = Configuration {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            bytes_per_row: [0; 16],
            rows: [0; 16],
        };
        configuration.bytes_per_row[..8].fill(64);
        configuration.rows[..8].fill(16);
        // SAFETY: it reads 64 bytes and writes only tile registers, which compiled code does not use.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const configuration, options(nostack, preserves_flags, readonly))
        };
        Self { _thread: PhantomData }
    }

    /// Writes the sums of products of two packed panels to `out`, 32 rows of 32 numbers at a distance of `stride`.
    ///
    /// The smallest products come first, and a load of two tiles serves up to three of the six products of parts. Meanwhile,
    /// [`PREFETCHED`] numbers per step are prefetched from `ahead` on, into the second-level cache; an address without memory has
    /// no effect.
    ///
    /// # Safety
    /// `out` is valid for these rows.
    ///
    /// # Panics
    /// If there is no step or a panel has fewer.
    pub(super) unsafe fn sums(
        &self,
        left: &[f32],
        right: &[f32],
        steps: usize,
        ahead: *const f32,
        out: *mut f32,
        stride: usize,
    ) {
        let size = steps * STEP_SIZE;
        assert!(steps > 0 && left.len() >= size && right.len() >= size, "steps of a panel");
        // SAFETY: loads are within the panels, as checked, and stores within the rows, as the caller guarantees. Compiled code
        // does not use tile registers.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "2:",
                // a3 b1
                "tileloadd tmm4, [{a} + {row} + 4096]",
                "tileloadd tmm5, [{a} + {row} + 5120]",
                "tileloadd tmm6, [{b} + {row}]",
                "tileloadd tmm7, [{b} + {row} + 1024]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "prefetcht1 [{ahead}]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "prefetcht1 [{ahead} + 64]",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "prefetcht1 [{ahead} + 128]",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "prefetcht1 [{ahead} + 192]",
                // a2 b1
                "tileloadd tmm4, [{a} + {row} + 2048]",
                "tileloadd tmm5, [{a} + {row} + 3072]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "prefetcht1 [{ahead} + 256]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "prefetcht1 [{ahead} + 320]",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "prefetcht1 [{ahead} + 384]",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "prefetcht1 [{ahead} + 448]",
                // a2 b2
                "tileloadd tmm6, [{b} + {row} + 2048]",
                "tileloadd tmm7, [{b} + {row} + 3072]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "prefetcht1 [{ahead} + 512]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "prefetcht1 [{ahead} + 576]",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "prefetcht1 [{ahead} + 640]",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "prefetcht1 [{ahead} + 704]",
                // a1 b2
                "tileloadd tmm4, [{a} + {row}]",
                "tileloadd tmm5, [{a} + {row} + 1024]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "prefetcht1 [{ahead} + 768]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "prefetcht1 [{ahead} + 832]",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "prefetcht1 [{ahead} + 896]",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "prefetcht1 [{ahead} + 960]",
                // a1 b3
                "tileloadd tmm6, [{b} + {row} + 4096]",
                "tileloadd tmm7, [{b} + {row} + 5120]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "prefetcht1 [{ahead} + 1024]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "prefetcht1 [{ahead} + 1088]",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "prefetcht1 [{ahead} + 1152]",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "prefetcht1 [{ahead} + 1216]",
                // a1 b1
                "tileloadd tmm6, [{b} + {row}]",
                "tileloadd tmm7, [{b} + {row} + 1024]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "prefetcht1 [{ahead} + 1280]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "prefetcht1 [{ahead} + 1344]",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "prefetcht1 [{ahead} + 1408]",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "prefetcht1 [{ahead} + 1472]",
                "add {a}, 6144",
                "add {b}, 6144",
                "add {ahead}, 1536",
                "dec {steps}",
                "jnz 2b",
                "tilestored [{out} + {stride}], tmm0",
                "tilestored [{out} + {stride} + 64], tmm1",
                "tilestored [{below} + {stride}], tmm2",
                "tilestored [{below} + {stride} + 64], tmm3",
                a = inout(reg) left.as_ptr() => _,
                b = inout(reg) right.as_ptr() => _,
                ahead = inout(reg) ahead => _,
                steps = inout(reg) steps => _,
                row = in(reg) 64usize,
                out = in(reg) out,
                below = in(reg) out.add(16 * stride),
                stride = in(reg) 4 * stride,
                options(nostack),
            );
        }
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: it empties the registers, so that the system does not save them when threads change.
        unsafe { asm!("tilerelease", options(nostack, nomem, preserves_flags)) };
    }
}
