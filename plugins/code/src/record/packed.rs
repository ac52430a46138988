//! Texts that are compressed by zlib and encoded in base64, pickled or not.

use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;

/// Limit of an unpacked text in bytes.
const MAX_LENGTH: u64 = 32 << 20;

/// Opcodes of a pickle of one text (PEP 3154): protocol, frame, text with a length of one or four bytes, end.
const PROTOCOL: u8 = 0x80;
const FRAME: u8 = 0x95;
const SHORT_TEXT: u8 = 0x8c;
const TEXT: u8 = b'X';
const MEMOIZE: u8 = 0x94;
const PUT: u8 = b'q';
const STOP: u8 = b'.';

/// Reason why a text can't be unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PackedError {
    #[error("it is neither JSON nor base64")]
    NotEncoded,
    #[error("it is base64, but not of data that zlib has compressed")]
    NotCompressed,
    #[error("it has more than 32 MiB")]
    TooLong,
    /// Objects of a pickle are code that runs when they are read.
    #[error("it is a pickle that is more than a text, which isn't read: store it as JSON")]
    OtherPickle,
    #[error("it is not text in UTF-8")]
    NotText,
}

/// Returns the text. Of pickles only that of a single text is read, and nothing of it is executed.
///
/// # Errors
/// The reason, if it is no such text.
pub fn unpack(packed: &str) -> Result<String, PackedError> {
    let bytes = STANDARD.decode(packed.trim()).map_err(|_| PackedError::NotEncoded)?;
    let mut unpacked = Vec::new();
    let mut decoder = ZlibDecoder::new(bytes.as_slice()).take(MAX_LENGTH + 1);
    decoder.read_to_end(&mut unpacked).map_err(|_| PackedError::NotCompressed)?;
    if unpacked.len() as u64 > MAX_LENGTH {
        return Err(PackedError::TooLong);
    }
    let text = match unpacked.first() {
        Some(&PROTOCOL) => pickled_text(&unpacked).ok_or(PackedError::OtherPickle)?.to_vec(),
        _ => unpacked,
    };
    String::from_utf8(text).map_err(|_| PackedError::NotText)
}

/// Returns the bytes of the one text of a pickle.
fn pickled_text(pickle: &[u8]) -> Option<&[u8]> {
    let [PROTOCOL, _, rest @ ..] = pickle else { return None };
    let rest = match rest {
        [FRAME, rest @ ..] => rest.get(8..)?,
        rest => rest,
    };
    let (length, rest) = match rest {
        [SHORT_TEXT, length, rest @ ..] => (usize::from(*length), rest),
        [TEXT, a, b, c, d, rest @ ..] => (usize::try_from(u32::from_le_bytes([*a, *b, *c, *d])).ok()?, rest),
        _ => return None,
    };
    let (text, end) = rest.split_at_checked(length)?;
    matches!(end, [STOP] | [MEMOIZE, STOP] | [PUT, _, STOP]).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_texts_are_read_from_pickles() {
        // Python's `pickle.dumps("[]", 2)` and `pickle.dumps("[]", 4)`.
        assert_eq!(pickled_text(b"\x80\x02X\x02\0\0\0[]q\0."), Some(&b"[]"[..]));
        assert_eq!(pickled_text(b"\x80\x04\x95\x06\0\0\0\0\0\0\0\x8c\x02[]\x94."), Some(&b"[]"[..]));
        let code = b"\x80\x04\x8c\x02os\x94\x8c\x06system\x94\x93\x94\x8c\x02ls\x94\x85\x94R\x94.";
        for other in
            [&code[..], b"\x80", b"\x80\x04\x8c\xff[]", b"\x80\x04\x8c\x02[]\x94..", b"\x80\x04]\x94."]
        {
            assert_eq!(pickled_text(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_bomb_is_refused() {
        use std::io::Write;
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        for _ in 0..33 {
            encoder.write_all(&[b' '; 1 << 20]).unwrap();
        }
        let packed = STANDARD.encode(encoder.finish().unwrap());
        assert_eq!(unpack(&packed), Err(PackedError::TooLong));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..32)) {
            let pickle: Vec<u8> = [PROTOCOL, 4].into_iter().chain(bytes).collect();
            pickled_text(&pickle);
            let _ = unpack(&STANDARD.encode(&pickle));
        }
    }
}
