//! Messages between the processes of a run, as postcard has them.

use serde::de::DeserializeOwned;

/// Reason for which bytes are no message of a type.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum MessageError {
    #[error(transparent)]
    Form(#[from] postcard::Error),
    /// A later version of the type may have more fields at its end.
    #[error("{0} bytes follow it")]
    Longer(usize),
}

/// Decodes a message.
///
/// # Errors
/// If the bytes are not exactly one.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, MessageError> {
    match postcard::take_from_bytes(bytes)? {
        (message, []) => Ok(message),
        (_, rest) => Err(MessageError::Longer(rest.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_whole() {
        let bytes = postcard::to_allocvec(&(7_u32, "text")).unwrap();
        assert_eq!(decode(&bytes), Ok((7_u32, "text".to_owned())));
        assert_eq!(decode::<u32>(&bytes), Err(MessageError::Longer(5)));
        assert!(matches!(decode::<(u32, String)>(&bytes[..3]), Err(MessageError::Form(_))));
    }
}
