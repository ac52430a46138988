//! Task files made of records.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use pl_types::SourcePath;
use serde_json::{Map, Value};

use crate::error::Error;

/// Writes records as JSONL.
///
/// # Errors
/// [`Error::Write`].
pub fn write_jsonl(path: &Path, records: &[Map<String, Value>]) -> Result<(), Error> {
    let write = || {
        let mut out = BufWriter::new(File::create(path)?);
        for record in records {
            serde_json::to_writer(&mut out, record)?;
            out.write_all(b"\n")?;
        }
        out.flush()
    };
    write().map_err(|source| Error::Write { path: path.to_path_buf(), source })
}

/// Returns a hash, in hexadecimal, of the content of files and of the program's version, whose catalogue may convert them
/// differently.
///
/// # Errors
/// [`Error::Read`].
pub fn hash_files(files: &[SourcePath]) -> Result<String, Error> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(env!("CARGO_PKG_VERSION").as_bytes());
    for path in files {
        let read = || {
            let mut own = blake3::Hasher::new();
            own.update_reader(path.open()?)?;
            Ok(own.finalize())
        };
        let hash = read().map_err(|source| Error::Read { path: path.path().to_path_buf(), source })?;
        hasher.update(hash.as_bytes());
    }
    Ok(hasher.finalize().to_hex().to_string())
}
