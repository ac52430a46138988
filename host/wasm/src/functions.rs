//! Compiled functions on disk, so that a component which differs little from others compiles only what is new in it: most
//! of a plugin in Python or JavaScript is its interpreter.
//!
//! An entry of the compile cache has a third file, `KEY.functions`, with those functions that were compiled for it because
//! no other entry had them. It is a BLAKE3 of the rest, which is compressed by zstd: per function 32 bytes of key, four of
//! length (little-endian), and the compiler's own serialised form.
//!
//! A key is the compiler's hash of a function's intermediate code; about one function in twenty gets another one in the next
//! build. The compiler's authors call it experimental, so this is for components that a user builds, not for those of
//! others: [`EngineConfig::reuse_functions`](crate::EngineConfig).

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;

use parking_lot::Mutex;
use wasmtime::CacheStore;

/// Fast: the file is read as often as it is written.
const LEVEL: i32 = 1;

/// Length of a key and of the sum, in bytes.
const HASH: usize = 32;

type Key = [u8; HASH];

/// Functions by their keys, while a component is compiled.
#[derive(Default)]
pub(crate) struct Functions(Mutex<State>);

#[derive(Default)]
struct State {
    /// Those of other entries of the cache.
    known: HashMap<Key, Vec<u8>>,
    /// Those that were compiled now.
    new: HashMap<Key, Vec<u8>>,
}

impl Functions {
    /// Adds the functions of a file. A damaged one is left out: its functions are compiled again.
    pub(crate) fn read(&self, file: &Path) {
        match fs::read(file).and_then(|bytes| decode(&bytes)) {
            Ok(functions) => self.0.lock().known.extend(functions),
            Err(error) => tracing::warn!(file = %file.display(), %error, "compiled functions can't be read"),
        }
    }

    /// Removes all functions and returns the new ones as the contents of a file. Returns `None` if there are none.
    pub(crate) fn take_new(&self) -> Option<std::io::Result<Vec<u8>>> {
        let State { new, .. } = std::mem::take(&mut *self.0.lock());
        (!new.is_empty()).then(|| encode(&new))
    }
}

impl std::fmt::Debug for Functions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.0.lock();
        write!(f, "Functions {{ known: {}, new: {} }}", state.known.len(), state.new.len())
    }
}

impl CacheStore for Functions {
    fn get(&self, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        let key: &Key = key.try_into().ok()?;
        let state = self.0.lock();
        state.known.get(key).or_else(|| state.new.get(key)).cloned().map(Cow::Owned)
    }

    fn insert(&self, key: &[u8], value: Vec<u8>) -> bool {
        key.try_into().is_ok_and(|key: Key| {
            self.0.lock().new.insert(key, value);
            true
        })
    }
}

fn encode(functions: &HashMap<Key, Vec<u8>>) -> std::io::Result<Vec<u8>> {
    let mut compressed = zstd::Encoder::new(vec![0; HASH], LEVEL)?;
    for (key, function) in functions {
        let length = u32::try_from(function.len()).map_err(std::io::Error::other)?;
        compressed.write_all(key)?;
        compressed.write_all(&length.to_le_bytes())?;
        compressed.write_all(function)?;
    }
    let mut bytes = compressed.finish()?;
    let sum = blake3::hash(&bytes[HASH..]);
    bytes[..HASH].copy_from_slice(sum.as_bytes());
    Ok(bytes)
}

fn decode(bytes: &[u8]) -> std::io::Result<HashMap<Key, Vec<u8>>> {
    let damaged = || std::io::Error::new(std::io::ErrorKind::InvalidData, "the file is damaged");
    let (sum, compressed) = bytes.split_first_chunk::<HASH>().ok_or_else(damaged)?;
    if blake3::hash(compressed) != *sum {
        return Err(damaged());
    }
    let mut plain = Vec::new();
    zstd::Decoder::new(compressed)?.read_to_end(&mut plain)?;
    let mut rest = plain.as_slice();
    let mut functions = HashMap::new();
    while !rest.is_empty() {
        let (key, after) = rest.split_first_chunk::<HASH>().ok_or_else(damaged)?;
        let (length, after) = after.split_first_chunk::<4>().ok_or_else(damaged)?;
        let (function, after) =
            after.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(damaged)?;
        functions.insert(*key, function.to_owned());
        rest = after;
    }
    Ok(functions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_new_functions_and_a_damaged_one_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.functions");
        let compiled = Functions::default();
        assert!(compiled.insert(&[1; HASH], vec![7; 1000]) && compiled.insert(&[2; HASH], Vec::new()));
        assert!(!compiled.insert(&[1], Vec::new()));
        let bytes = compiled.take_new().unwrap().unwrap();
        assert!(compiled.get(&[1; HASH]).is_none() && compiled.take_new().is_none());

        fs::write(&file, &bytes).unwrap();
        compiled.read(&file);
        assert_eq!(compiled.get(&[1; HASH]).unwrap(), vec![7; 1000]);
        assert!(compiled.get(&[2; HASH]).unwrap().is_empty());
        assert!(compiled.take_new().is_none(), "they are written already");

        for cut in [0, 10, HASH, bytes.len() - 1] {
            fs::write(&file, &bytes[..cut]).unwrap();
            compiled.read(&file);
            assert!(compiled.get(&[1; HASH]).is_none(), "{cut}");
        }
    }
}
