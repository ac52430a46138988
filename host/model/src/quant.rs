//! GGUF's number formats, unpacked to f32.
//!
//! The arithmetic is that of the `gguf` reference reader (product, then sum, in f32), so that weights are equal
//! bit for bit.

use half::{bf16, f16};

/// A tensor format that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    F32,
    F16,
    Bf16,
    /// Blocks of 32: an f16 scale, then 32 signed bytes.
    Q8_0,
    /// Blocks of 32: an f16 scale, an f16 minimum, then 16 bytes: low halves are values 0 to 15, high halves
    /// 16 to 31.
    Q4_1,
}

impl Format {
    /// From the number in the file.
    pub(crate) fn from_id(id: u32) -> Option<Self> {
        Some(match id {
            0 => Self::F32,
            1 => Self::F16,
            3 => Self::Q4_1,
            8 => Self::Q8_0,
            30 => Self::Bf16,
            _ => return None,
        })
    }

    /// Values and bytes of one block.
    fn block(self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::Bf16 => (1, 2),
            Self::Q8_0 => (32, 34),
            Self::Q4_1 => (32, 20),
        }
    }

    /// Bytes of `count` values; none when they do not make whole blocks or the number is too large.
    pub(crate) fn bytes(self, count: usize) -> Option<usize> {
        let (values, bytes) = self.block();
        if count.is_multiple_of(values) { (count / values).checked_mul(bytes) } else { None }
    }

    /// Unpacks whole blocks.
    pub(crate) fn unpack(self, data: &[u8]) -> Vec<f32> {
        let (values, bytes) = self.block();
        let mut out = Vec::with_capacity(data.len() / bytes * values);
        for block in data.chunks_exact(bytes) {
            match self {
                Self::F32 => out.push(f32::from_le_bytes([block[0], block[1], block[2], block[3]])),
                Self::F16 => out.push(half_at(block, 0)),
                Self::Bf16 => out.push(bf16::from_le_bytes([block[0], block[1]]).to_f32()),
                Self::Q8_0 => {
                    let scale = half_at(block, 0);
                    out.extend(block[2..].iter().map(|q| f32::from(*q as i8) * scale));
                }
                Self::Q4_1 => {
                    let (scale, min) = (half_at(block, 0), half_at(block, 2));
                    out.extend(block[4..].iter().map(|q| f32::from(q & 15) * scale + min));
                    out.extend(block[4..].iter().map(|q| f32::from(q >> 4) * scale + min));
                }
            }
        }
        out
    }
}

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q4_1_puts_low_halves_first() {
        let mut block = vec![0u8; 20];
        block[..2].copy_from_slice(&f16::from_f32(0.5).to_le_bytes());
        block[2..4].copy_from_slice(&f16::from_f32(-1.0).to_le_bytes());
        block[4] = 0xF1;
        let values = Format::Q4_1.unpack(&block);
        assert_eq!(values.len(), 32);
        assert_eq!((values[0], values[1], values[16], values[17]), (-0.5, -1.0, 6.5, -1.0));
    }

    #[test]
    fn q8_0_is_signed() {
        let mut block = vec![0u8; 34];
        block[..2].copy_from_slice(&f16::from_f32(0.25).to_le_bytes());
        block[2] = 0x80;
        block[33] = 127;
        let values = Format::Q8_0.unpack(&block);
        assert_eq!((values[0], values[1], values[31]), (-32.0, 0.0, 31.75));
    }

    #[test]
    fn half_formats() {
        assert_eq!(Format::F16.unpack(&f16::from_f32(1.5).to_le_bytes()), [1.5]);
        assert_eq!(Format::Bf16.unpack(&bf16::from_f32(-3.0).to_le_bytes()), [-3.0]);
        assert_eq!(Format::F32.unpack(&0.1f32.to_le_bytes()), [0.1]);
    }

    #[test]
    fn sizes_need_whole_blocks() {
        assert_eq!(Format::Q4_1.bytes(64), Some(40));
        assert_eq!(Format::Q4_1.bytes(33), None);
        assert_eq!(Format::F32.bytes(usize::MAX), None);
    }
}
