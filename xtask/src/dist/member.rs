//! The files of a package.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Version of the program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A file of a package.
pub struct Member {
    /// Path within the package.
    pub path: String,
    pub bytes: Vec<u8>,
    pub executable: bool,
}

impl Member {
    pub fn new(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Member {
        Member { path: path.into(), bytes: bytes.into(), executable: false }
    }

    pub fn read(path: impl Into<String>, file: &Path) -> Result<Member> {
        let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        Ok(Member::new(path, bytes))
    }
}
