//! Packing of GGUF's matrices for the CPU's kernels, with their own numbers or codes.

use half::f16;
use pl_kernels::cpu::{CodeWidth, Cpu, GroupFormat, Matrix, QuantizedRow, WeightFormat};

use crate::formats::gguf::file::TensorData;
use crate::formats::gguf::quant::{GgmlType, fifth_bits, group_factors, word_at};

impl TensorData<'_> {
    /// Packs the matrix. Its row `i` is the stored row `stored(i)`.
    pub(crate) fn pack(&self, cpu: &Cpu, stored: impl Fn(usize) -> usize + Sync) -> Matrix {
        let Self { format, rows, columns, bytes } = *self;
        let row_bytes = bytes.len() / rows.max(1);
        let row = |i: usize| &bytes[stored(i) * row_bytes..][..row_bytes];
        match packed_format(format) {
            PackedFormat::Groups(groups) => {
                Matrix::pack_groups(cpu, groups, rows, columns, |i, to| copy_row(format, row(i), to))
            }
            PackedFormat::Numbers(numbers) => {
                let mut values = vec![0f32; rows * columns];
                for (i, values) in values.chunks_exact_mut(columns.max(1)).enumerate() {
                    format.unpack(row(i), values);
                }
                Matrix::pack(cpu, &values, rows, columns, numbers)
            }
        }
    }

    /// Returns the size in bytes that [`pack`](Self::pack) gives the matrix.
    pub(crate) fn packed_bytes(&self) -> usize {
        match packed_format(self.format) {
            PackedFormat::Groups(groups) => groups.bytes(self.rows, self.columns),
            PackedFormat::Numbers(numbers) => self.rows * self.columns * numbers.bytes(),
        }
    }
}

/// Form of a packed tensor.
enum PackedFormat {
    Numbers(WeightFormat),
    Groups(GroupFormat),
}

/// Returns the form that has the numbers of a stored format. Codes of 5 and 6 bits take 8.
fn packed_format(format: GgmlType) -> PackedFormat {
    let (width, group, groups, minimum) = match format {
        GgmlType::F32 => return PackedFormat::Numbers(WeightFormat::F32),
        GgmlType::F16 => return PackedFormat::Numbers(WeightFormat::F16),
        GgmlType::Bf16 => return PackedFormat::Numbers(WeightFormat::Bf16),
        GgmlType::Q4_0 => (CodeWidth::Four, 32, 1, false),
        GgmlType::Q4_1 => (CodeWidth::Four, 32, 1, true),
        GgmlType::Q5_0 | GgmlType::Q8_0 => (CodeWidth::Eight, 32, 1, false),
        GgmlType::Q5_1 => (CodeWidth::Eight, 32, 1, true),
        GgmlType::Q4K => (CodeWidth::Four, 32, 8, true),
        GgmlType::Q5K => (CodeWidth::Eight, 32, 8, true),
        GgmlType::Q6K => (CodeWidth::Eight, 16, 16, false),
    };
    PackedFormat::Groups(GroupFormat { width, group, groups, minimum })
}

/// Copies the codes and scales of a stored row.
fn copy_row(format: GgmlType, data: &[u8], row: &mut QuantizedRow) {
    let QuantizedRow { codes, scales, minimums, scale_factors, minimum_factors } = row;
    match format {
        // Packed as numbers.
        GgmlType::F32 | GgmlType::F16 | GgmlType::Bf16 => {}
        GgmlType::Q4_0 => blocks(data, codes, |b, block: &[u8; 18], codes: &mut [i8; 32]| {
            scales[b] = half_at(block, 0);
            nibbles(&block[2..], codes, |code, _| code - 8);
        }),
        GgmlType::Q4_1 => blocks(data, codes, |b, block: &[u8; 20], codes: &mut [i8; 32]| {
            (scales[b], minimums[b]) = (half_at(block, 0), half_at(block, 2));
            nibbles(&block[4..], codes, |code, _| code);
        }),
        GgmlType::Q5_0 => blocks(data, codes, |b, block: &[u8; 22], codes: &mut [i8; 32]| {
            scales[b] = half_at(block, 0);
            let fifths = word_at(block, 2);
            nibbles(&block[6..], codes, |code, i| (code | fifth(fifths, i)) - 16);
        }),
        GgmlType::Q5_1 => blocks(data, codes, |b, block: &[u8; 24], codes: &mut [i8; 32]| {
            (scales[b], minimums[b]) = (half_at(block, 0), half_at(block, 2));
            let fifths = word_at(block, 4);
            nibbles(&block[8..], codes, |code, i| code | fifth(fifths, i));
        }),
        GgmlType::Q8_0 => blocks(data, codes, |b, block: &[u8; 34], codes: &mut [i8; 32]| {
            scales[b] = half_at(block, 0);
            codes.iter_mut().zip(&block[2..]).for_each(|(code, byte)| *code = byte.cast_signed());
        }),
        GgmlType::Q4K => blocks(data, codes, |b, block: &[u8; 144], codes: &mut [i8; 256]| {
            // Stored minimums are subtracted.
            (scales[b], minimums[b]) = (half_at(block, 0), -half_at(block, 2));
            for (group, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
                copy_factors(&block[4..16], b, group, scale_factors, minimum_factors);
                let halves = &block[16 + group / 2 * 32..][..32];
                for (code, byte) in codes.iter_mut().zip(halves) {
                    *code = ((byte >> (group % 2 * 4)) & 15).cast_signed();
                }
            }
        }),
        GgmlType::Q5K => blocks(data, codes, |b, block: &[u8; 176], codes: &mut [i8; 256]| {
            (scales[b], minimums[b]) = (half_at(block, 0), -half_at(block, 2));
            for (group, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
                copy_factors(&block[4..16], b, group, scale_factors, minimum_factors);
                let halves = &block[48 + group / 2 * 32..][..32];
                for ((code, byte), fifths) in codes.iter_mut().zip(halves).zip(&block[16..48]) {
                    *code = (((byte >> (group % 2 * 4)) & 15) | (((fifths >> group) & 1) << 4)).cast_signed();
                }
            }
        }),
        GgmlType::Q6K => blocks(data, codes, |b, block: &[u8; 210], codes: &mut [i8; 256]| {
            scales[b] = half_at(block, 208);
            for (factor, byte) in scale_factors[b * 16..][..16].iter_mut().zip(&block[192..208]) {
                *factor = byte.cast_signed();
            }
            for (group, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
                let (half, quarter) = (group / 4, group % 4);
                let lows = &block[half * 64 + quarter % 2 * 32..][..32];
                let highs = &block[128 + half * 32..][..32];
                for (code, (low, high)) in codes.iter_mut().zip(lows.iter().zip(highs)) {
                    let low = (low >> (quarter / 2 * 4)) & 15;
                    let high = (high >> (quarter * 2)) & 3;
                    *code = (low | (high << 4)).cast_signed() - 32;
                }
            }
        }),
    }
}

/// Calls `copy` with each block of `B` bytes, its number, and its `N` codes.
fn blocks<const B: usize, const N: usize>(
    data: &[u8],
    codes: &mut [i8],
    mut copy: impl FnMut(usize, &[u8; B], &mut [i8; N]),
) {
    for (b, (block, codes)) in data.as_chunks().0.iter().zip(codes.as_chunks_mut().0).enumerate() {
        copy(b, block, codes);
    }
}

fn half_at<const B: usize>(block: &[u8; B], at: usize) -> f16 {
    f16::from_le_bytes([block[at], block[at + 1]])
}

/// Converts the low halves of 16 bytes, values 0 to 15, and their high halves, values 16 to 31.
fn nibbles(bytes: &[u8], codes: &mut [i8; 32], code: impl Fn(i8, usize) -> i8) {
    for (i, byte) in bytes.iter().enumerate() {
        codes[i] = code((byte & 15).cast_signed(), i);
        codes[i + 16] = code((byte >> 4).cast_signed(), i + 16);
    }
}

/// Returns the fifth bit of value `i` of a block, in place.
fn fifth(word: u32, i: usize) -> i8 {
    let (low, high) = fifth_bits(word, i % 16);
    (if i < 16 { low } else { high }) as i8
}

/// Copies the 6-bit factors of a group of a block with eight groups.
fn copy_factors(packed: &[u8], block: usize, group: usize, scales: &mut [i8], minimums: &mut [i8]) {
    let at = block * 8 + group;
    (scales[at], minimums[at]) = {
        let (scale, minimum) = group_factors(packed, group);
        (scale.cast_signed(), minimum.cast_signed())
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packed weights are those that the file's format has in f32, in the order of `stored`.
    #[test]
    fn packed_rows_have_the_bits_of_unpacked_ones() {
        let cpu = Cpu::new(2).unwrap();
        for id in [0, 1, 2, 3, 6, 7, 8, 12, 13, 14, 30] {
            let format = GgmlType::from_id(id).unwrap();
            let (rows, columns) = (37, 512);
            let length = format.bytes(rows, columns).unwrap();
            // Bytes of all values, without infinities and NaN among the halves.
            let bytes: Vec<u8> = (0..length).map(|i| ((i * 31 + i / 7) % 251) as u8 & 0xbb).collect();
            let data = TensorData { format, rows, columns, bytes: &bytes };
            let stored = |row: usize| (row * 5) % rows;
            let matrix = data.pack(&cpu, stored);
            let mut expected = vec![0f32; rows * columns];
            format.unpack(&bytes, &mut expected);
            let mut found = vec![f32::NAN; rows * columns];
            matrix.unpack(0..rows, &mut found);
            for (row, found) in found.chunks(columns).enumerate() {
                assert_eq!(found, &expected[stored(row) * columns..][..columns], "{format:?}, row {row}");
            }
            assert!(expected.iter().all(|x| x.is_finite()), "{format:?}");
            assert!(matrix.bytes() >= data.packed_bytes(), "{format:?}");
        }
    }
}
