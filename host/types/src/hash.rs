//! BLAKE3 over a list of parts.
//!
//! Seeds and content hashes are all made here. A text or byte string is preceded by its length, so that two
//! different lists of parts never run together into the same bytes.

use blake3::Hasher;

/// A BLAKE3 hash under construction. Methods add parts and return the hasher, so that a derivation is one
/// expression.
#[derive(Debug, Clone)]
pub struct PartHasher(Hasher);

impl PartHasher {
    /// A hasher in key-derivation mode. `context` is a constant that is unique to one use of randomness.
    pub fn derive_key(context: &str) -> Self {
        Self(Hasher::new_derive_key(context))
    }

    /// A hasher of content, without a context.
    pub fn content() -> Self {
        Self(Hasher::new())
    }

    /// Adds a text, preceded by its length.
    pub fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    /// Adds bytes, preceded by their length as a 64-bit little-endian number.
    pub fn bytes(self, bytes: &[u8]) -> Self {
        self.u64(bytes.len() as u64).fixed(bytes)
    }

    /// Adds a 64-bit number, little-endian.
    pub fn u64(self, number: u64) -> Self {
        self.fixed(&number.to_le_bytes())
    }

    /// Adds a 32-bit number, little-endian.
    pub fn u32(self, number: u32) -> Self {
        self.fixed(&number.to_le_bytes())
    }

    /// Adds bytes without their length: for parts of a fixed size, and for the last part of a derivation.
    pub fn fixed(mut self, bytes: &[u8]) -> Self {
        self.0.update(bytes);
        self
    }

    /// The hash, as a seed of 32 bytes.
    pub fn seed(&self) -> [u8; 32] {
        *self.0.finalize().as_bytes()
    }

    /// The first eight bytes of the hash, as a little-endian number.
    pub fn seed_u64(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.seed();
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// The hash in 64 hexadecimal digits.
    pub fn hex(&self) -> String {
        self.0.finalize().to_hex().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_hashed_are_lengths_texts_and_little_endian_numbers() {
        let mut expected = Hasher::new_derive_key("a context");
        expected.update(&[2, 0, 0, 0, 0, 0, 0, 0]).update(b"ab").update(&[1, 0, 0, 0]).update(&[5; 32]);
        let hasher = PartHasher::derive_key("a context").text("ab").u32(1).fixed(&[5; 32]);
        assert_eq!(hasher.seed(), *expected.finalize().as_bytes());
        assert_eq!(hasher.seed_u64().to_le_bytes(), hasher.seed()[..8]);
        assert_eq!(hasher.hex(), expected.finalize().to_hex().to_string());
    }

    #[test]
    fn two_lists_of_parts_never_run_together() {
        let content = PartHasher::content;
        assert_ne!(content().text("ab").text("").hex(), content().text("a").text("b").hex());
        assert_ne!(content().text("ab").hex(), PartHasher::derive_key("ab").text("ab").hex());
    }
}
