//! Bytes as a hexadecimal string. A JSON list of numbers would be twice as long and slow to read.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serializer};

pub(crate) fn serialize<S: Serializer>(bytes: &impl AsRef<[u8]>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&hex::encode(bytes))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>, B: TryFrom<Vec<u8>>>(from: D) -> Result<B, D::Error> {
    let text = String::deserialize(from)?;
    let bytes = hex::decode(text).map_err(D::Error::custom)?;
    let length = bytes.len();
    B::try_from(bytes).map_err(|_| D::Error::custom(format!("{length} bytes are the wrong length")))
}
