//! Codec of the messages between the processes of a run: postcard, packed by zstd if they are large.

use std::fmt::Display;
use std::io::Read;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::cluster::ClusterError;

/// Level of zstd: the fastest, since most of what is packed is random numbers.
const LEVEL: i32 = 1;

/// Encodes a message, which errors call `what`.
///
/// # Errors
/// If it has no such form.
pub(super) fn encode<T: Serialize + ?Sized>(what: &str, message: &T) -> Result<Vec<u8>, ClusterError> {
    postcard::to_allocvec(message).map_err(unreadable(what))
}

/// Decodes a message.
///
/// # Errors
/// If the bytes are not exactly one.
pub(super) fn decode<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, ClusterError> {
    match postcard::take_from_bytes(bytes).map_err(unreadable(what))? {
        (message, []) => Ok(message),
        // A later version of the type may have more fields at its end.
        (_, rest) => Err(ClusterError::unreadable(what, format!("{} bytes follow it", rest.len()))),
    }
}

/// Encodes and packs a message.
///
/// # Errors
/// Those of [`encode`].
pub(super) fn pack<T: Serialize + ?Sized>(what: &str, message: &T) -> Result<Vec<u8>, ClusterError> {
    zstd::bulk::compress(&encode(what, message)?, LEVEL).map_err(unreadable(what))
}

/// Unpacks and decodes a message of at most `largest` bytes: a longer one would be a broken process's.
///
/// # Errors
/// If the bytes are not exactly one.
pub(super) fn unpack<T: DeserializeOwned>(what: &str, bytes: &[u8], largest: u64) -> Result<T, ClusterError> {
    let mut unpacked = Vec::new();
    // As a stream: the size in the header of an archive may be a lie.
    let reader = zstd::stream::Decoder::new(bytes).map_err(unreadable(what))?;
    reader.take(largest.saturating_add(1)).read_to_end(&mut unpacked).map_err(unreadable(what))?;
    if unpacked.len() as u64 > largest {
        return Err(ClusterError::unreadable(what, format!("it has more than {largest} bytes")));
    }
    decode(what, &unpacked)
}

fn unreadable<E: Display>(what: &str) -> impl Fn(E) -> ClusterError {
    move |reason| ClusterError::unreadable(what, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_whole() {
        let bytes = encode("a pair", &(7_u32, "text")).unwrap();
        assert_eq!(decode::<(u32, String)>("a pair", &bytes).unwrap(), (7, "text".to_owned()));
        let longer = decode::<u32>("a number", &bytes).unwrap_err().to_string();
        assert!(longer.starts_with("a number can't be read: 5 bytes follow it"), "{longer}");
        assert!(decode::<(u32, String)>("a pair", &bytes[..3]).is_err());
    }

    #[test]
    fn a_packed_message_is_read_up_to_its_largest_size() {
        let message = vec![0_u8; 1000];
        let packed = pack("zeros", &message).unwrap();
        assert!(packed.len() < 100);
        assert_eq!(unpack::<Vec<u8>>("zeros", &packed, 1002).unwrap(), message);
        let error = unpack::<Vec<u8>>("zeros", &packed, 1001).unwrap_err().to_string();
        assert!(error.contains("more than 1001 bytes"), "{error}");
    }
}
