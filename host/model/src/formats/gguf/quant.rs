//! GGUF's number formats, unpacked to f32.
//!
//! Formats with blocks store runs of values with a common scale. The arithmetic, order of operations
//! included, is that of the `gguf` reference reader, so that weights are equal bit for bit.

use half::{bf16, f16};
use rayon::prelude::*;

/// Number of values that one thread unpacks at a time: large enough to make scheduling cheap, and a multiple
/// of all block sizes.
const CHUNK: usize = 1 << 15;

/// A supported number format of tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GgmlType {
    F32,
    F16,
    Bf16,
    /// Blocks of 32: scale, 16 bytes of halves; low halves are values 0 to 15, high halves 16 to 31, less 8.
    Q4_0,
    /// Blocks of 32: scale, minimum, 16 bytes of halves.
    Q4_1,
    /// Same as `Q4_0` with a 32-bit word of fifth bits after the scale; less 16.
    Q5_0,
    /// Same as `Q4_1` with a word of fifth bits after the minimum.
    Q5_1,
    /// Blocks of 32: scale, 32 signed bytes.
    Q8_0,
    /// Blocks of 256 in eight groups, each with a 6-bit scale and minimum of its own: common scale, common
    /// minimum, 12 bytes of those, 128 bytes of halves.
    Q4K,
    /// Same as `Q4K` with 32 bytes of fifth bits before the halves.
    Q5K,
    /// Blocks of 256 in sixteen groups: 128 bytes of low halves, 64 of high quarters, 16 signed scales,
    /// common scale; less 32.
    Q6K,
}

/// List of the supported formats, for messages.
pub(crate) const READABLE: &str = "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K and Q6_K";

impl GgmlType {
    /// Converts the number in a file.
    pub(crate) fn from_id(id: u32) -> Option<Self> {
        Some(match id {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            6 => Self::Q5_0,
            7 => Self::Q5_1,
            8 => Self::Q8_0,
            12 => Self::Q4K,
            13 => Self::Q5K,
            14 => Self::Q6K,
            30 => Self::Bf16,
            _ => return None,
        })
    }

    /// Returns the number of values and of bytes of one block.
    fn block(self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::Bf16 => (1, 2),
            Self::Q4_0 => (32, 18),
            Self::Q4_1 => (32, 20),
            Self::Q5_0 => (32, 22),
            Self::Q5_1 => (32, 24),
            Self::Q8_0 => (32, 34),
            Self::Q4K => (256, 144),
            Self::Q5K => (256, 176),
            Self::Q6K => (256, 210),
        }
    }

    /// Returns the size in bytes of `rows` rows of `columns` values. Returns `None` if rows are not whole
    /// blocks or the count overflows.
    pub(crate) fn bytes(self, rows: usize, columns: usize) -> Option<usize> {
        let (values, bytes) = self.block();
        if !columns.is_multiple_of(values) {
            return None;
        }
        (columns / values).checked_mul(bytes)?.checked_mul(rows)
    }

    /// Unpacks whole blocks into their values, on all cores.
    pub(crate) fn unpack(self, data: &[u8], out: &mut [f32]) {
        let (values, bytes) = self.block();
        let parts = out.par_chunks_mut(CHUNK).zip(data.par_chunks(CHUNK / values * bytes));
        parts.for_each(|(out, data)| match self {
            Self::F32 => blocks(data, out, |block: &[u8; 4], out: &mut [f32; 1]| {
                *out = [f32::from_le_bytes(*block)];
            }),
            Self::F16 => blocks(data, out, |block: &[u8; 2], out: &mut [f32; 1]| {
                *out = [f16::from_le_bytes(*block).to_f32()];
            }),
            Self::Bf16 => blocks(data, out, |block: &[u8; 2], out: &mut [f32; 1]| {
                *out = [bf16::from_le_bytes(*block).to_f32()];
            }),
            Self::Q4_0 => blocks(data, out, q4_0),
            Self::Q4_1 => blocks(data, out, q4_1),
            Self::Q5_0 => blocks(data, out, q5_0),
            Self::Q5_1 => blocks(data, out, q5_1),
            Self::Q8_0 => blocks(data, out, q8_0),
            Self::Q4K => blocks(data, out, q4_k),
            Self::Q5K => blocks(data, out, q5_k),
            Self::Q6K => blocks(data, out, q6_k),
        });
    }
}

/// Returns GGML's name of a format, for messages about unsupported formats.
pub(crate) fn format_name(id: u32) -> String {
    let name = match id {
        9 => "Q8_1",
        10 => "Q2_K",
        11 => "Q3_K",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        20 => "IQ4_NL",
        21 => "IQ3_S",
        22 => "IQ2_S",
        23 => "IQ4_XS",
        24 => "I8",
        25 => "I16",
        26 => "I32",
        27 => "I64",
        28 => "F64",
        29 => "IQ1_M",
        34 => "TQ1_0",
        35 => "TQ2_0",
        39 => "MXFP4",
        other => return format!("number {other}"),
    };
    name.to_owned()
}

/// Runs `unpack` over blocks of `B` bytes and `N` values.
fn blocks<const B: usize, const N: usize>(
    data: &[u8],
    out: &mut [f32],
    unpack: impl Fn(&[u8; B], &mut [f32; N]),
) {
    for (block, out) in data.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
        unpack(block, out);
    }
}

fn half_at<const B: usize>(block: &[u8; B], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

fn q4_0(block: &[u8; 18], out: &mut [f32; 32]) {
    let scale = half_at(block, 0);
    for (i, byte) in block[2..].iter().enumerate() {
        out[i] = scale * (i32::from(byte & 15) - 8) as f32;
        out[i + 16] = scale * (i32::from(byte >> 4) - 8) as f32;
    }
}

fn q4_1(block: &[u8; 20], out: &mut [f32; 32]) {
    let (scale, min) = (half_at(block, 0), half_at(block, 2));
    for (i, byte) in block[4..].iter().enumerate() {
        out[i] = scale * f32::from(byte & 15) + min;
        out[i + 16] = scale * f32::from(byte >> 4) + min;
    }
}

fn q5_0(block: &[u8; 22], out: &mut [f32; 32]) {
    let scale = half_at(block, 0);
    let fifths = word_at(block, 2);
    for (i, byte) in block[6..].iter().enumerate() {
        let (low, high) = fifth_bits(fifths, i);
        out[i] = scale * ((i32::from(byte & 15) | low) - 16) as f32;
        out[i + 16] = scale * ((i32::from(byte >> 4) | high) - 16) as f32;
    }
}

fn q5_1(block: &[u8; 24], out: &mut [f32; 32]) {
    let (scale, min) = (half_at(block, 0), half_at(block, 2));
    let fifths = word_at(block, 4);
    for (i, byte) in block[8..].iter().enumerate() {
        let (low, high) = fifth_bits(fifths, i);
        out[i] = scale * (i32::from(byte & 15) | low) as f32 + min;
        out[i + 16] = scale * (i32::from(byte >> 4) | high) as f32 + min;
    }
}

pub(crate) fn word_at<const B: usize>(block: &[u8; B], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// Returns the fifth bits of values `i` and `i + 16`, in place.
pub(crate) fn fifth_bits(word: u32, i: usize) -> (i32, i32) {
    let bit = |at: usize| (((word >> at) & 1) << 4) as i32;
    (bit(i), bit(i + 16))
}

fn q8_0(block: &[u8; 34], out: &mut [f32; 32]) {
    let scale = half_at(block, 0);
    for (out, byte) in out.iter_mut().zip(&block[2..]) {
        *out = f32::from(*byte as i8) * scale;
    }
}

/// Returns the factors of the scale and the minimum of group `group` (0 to 7) in the 12 bytes that hold all: the first four
/// groups have six bits in one byte each, the others four bits in the last bytes and two on top of the first
/// ones.
pub(crate) fn group_factors(packed: &[u8], group: usize) -> (u8, u8) {
    if group < 4 {
        (packed[group] & 63, packed[group + 4] & 63)
    } else {
        let rest = packed[group + 4];
        ((rest & 15) | ((packed[group - 4] >> 2) & 48), (rest >> 4) | ((packed[group] >> 2) & 48))
    }
}

fn q4_k(block: &[u8; 144], out: &mut [f32; 256]) {
    let (scale, min) = (half_at(block, 0), half_at(block, 2));
    for (group, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (own_scale, own_min) = group_factors(&block[4..16], group);
        let (scale, min) = (scale * f32::from(own_scale), min * f32::from(own_min));
        // Two groups share 32 bytes.
        let shift = group % 2 * 4;
        let halves = &block[16 + group / 2 * 32..][..32];
        for (out, byte) in out.iter_mut().zip(halves) {
            *out = scale * f32::from((byte >> shift) & 15) - min;
        }
    }
}

fn q5_k(block: &[u8; 176], out: &mut [f32; 256]) {
    let (scale, min) = (half_at(block, 0), half_at(block, 2));
    for (group, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (own_scale, own_min) = group_factors(&block[4..16], group);
        let (scale, min) = (scale * f32::from(own_scale), min * f32::from(own_min));
        let shift = group % 2 * 4;
        let halves = &block[48 + group / 2 * 32..][..32];
        for ((out, byte), fifths) in out.iter_mut().zip(halves).zip(&block[16..48]) {
            let value = ((byte >> shift) & 15) | (((fifths >> group) & 1) << 4);
            *out = scale * f32::from(value) - min;
        }
    }
}

fn q6_k(block: &[u8; 210], out: &mut [f32; 256]) {
    let scale = half_at(block, 208);
    for (group, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        // Four groups of 32 share 64 bytes of low halves and 32 bytes of high quarters.
        let (half, quarter) = (group / 4, group % 4);
        let lows = &block[half * 64 + quarter % 2 * 32..][..32];
        let highs = &block[128 + half * 32..][..32];
        let scales = [192 + group * 2, 193 + group * 2].map(|at| scale * f32::from(block[at] as i8));
        for (i, (out, (low, high))) in out.iter_mut().zip(lows.iter().zip(highs)).enumerate() {
            let low = (low >> (quarter / 2 * 4)) & 15;
            let high = (high >> (quarter * 2)) & 3;
            *out = scales[i / 16] * (i32::from(low | (high << 4)) - 32) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The `gguf` package's own unpacking of the same bytes (data from tests/conformance/quants.py).
    #[test]
    fn equal_bit_for_bit() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/conformance/quants");
        let stored = std::fs::read(format!("{folder}/blocks.safetensors")).unwrap();
        let stored = safetensors::SafeTensors::deserialize(&stored).unwrap();
        let mut checked = 0;
        for (id, name) in [
            (0, "F32"),
            (1, "F16"),
            (2, "Q4_0"),
            (3, "Q4_1"),
            (6, "Q5_0"),
            (7, "Q5_1"),
            (8, "Q8_0"),
            (12, "Q4_K"),
            (13, "Q5_K"),
            (14, "Q6_K"),
            (30, "BF16"),
        ] {
            let format = GgmlType::from_id(id).unwrap();
            let packed = stored.tensor(&format!("{name}.packed")).unwrap();
            let expected = stored.tensor(&format!("{name}.values")).unwrap();
            let expected: Vec<u32> =
                expected.data().as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
            let (values, bytes) = format.block();
            assert_eq!(packed.data().len() / bytes * values, expected.len(), "{name}");
            assert_eq!(format.bytes(1, expected.len()), Some(packed.data().len()), "{name}");
            let mut got = vec![0.0; expected.len()];
            format.unpack(packed.data(), &mut got);
            for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
                assert_eq!(got.to_bits(), *expected, "{name}, value {i}: {got}");
            }
            checked += expected.len();
        }
        assert!(checked > 10_000);
    }

    /// Tensors longer than one thread's part are unpacked whole, the last, shorter part too.
    #[test]
    fn in_parts() {
        for format in [GgmlType::Q8_0, GgmlType::Q6K] {
            let (values, bytes) = format.block();
            let count = 2 * CHUNK + 3 * values;
            let data: Vec<u8> = (0..count / values * bytes).map(|i| (i * 31 % 97) as u8).collect();
            let mut whole = vec![f32::NAN; count];
            format.unpack(&data, &mut whole);
            for (block, expected) in data.chunks_exact(bytes).zip(whole.chunks_exact(values)) {
                let mut alone = vec![0.0; values];
                format.unpack(block, &mut alone);
                assert_eq!(alone, expected);
            }
        }
    }

    #[test]
    fn rows_need_whole_blocks() {
        assert_eq!(GgmlType::Q4_1.bytes(2, 64), Some(80));
        // Whole blocks in all, but not in a row.
        assert_eq!(GgmlType::Q4_1.bytes(2, 48), None);
        assert_eq!(GgmlType::Q4K.bytes(1, 32), None);
        assert_eq!(GgmlType::F32.bytes(2, usize::MAX), None);
        assert_eq!(GgmlType::F32.bytes(usize::MAX, 2), None);
    }
}
