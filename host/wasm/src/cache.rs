//! Compiled code on disk, so that a component is compiled once per machine and version of the engine.
//!
//! An entry is two files: `KEY.cwasm`, which is mapped into memory, and `KEY.sum`, the BLAKE3 of it. KEY names
//! the component's bytes and everything of the engine that the code depends on. Both files appear by renaming,
//! so another process sees a whole entry or none; an entry whose sum doesn't fit is compiled anew. Whoever can
//! write the folder can run code in this process, so it must belong to the user alone, as their programs do.

use std::fs;
use std::hash::{Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::Error;

/// A folder of compiled components.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    folder: PathBuf,
    /// Hash of the engine's version and settings.
    engine: String,
}

impl Cache {
    pub(crate) fn open(folder: &Path, engine: &wasmtime::Engine) -> Result<Self, Error> {
        fs::create_dir_all(folder).map_err(|source| Error::Cache { path: folder.to_owned(), source })?;
        let mut hasher = Blake(blake3::Hasher::new());
        engine.precompile_compatibility_hash().hash(&mut hasher);
        let engine = hasher.0.finalize().to_hex()[..16].to_owned();
        Ok(Self { folder: folder.to_owned(), engine })
    }

    /// Where something that belongs to a component (its code, its description) is kept.
    pub(crate) fn path(&self, component: &blake3::Hash, extension: &str) -> PathBuf {
        let component = &component.to_hex()[..32];
        self.folder.join(format!("{component}-{}.{extension}", self.engine))
    }

    /// Whether there is an entry; it may still turn out to be damaged.
    pub(crate) fn has(&self, component: &blake3::Hash) -> bool {
        ["cwasm", "sum"].into_iter().all(|part| self.path(component, part).is_file())
    }

    /// The entry, or none where there is none or it is damaged.
    pub(crate) fn get(
        &self,
        engine: &wasmtime::Engine,
        component: &blake3::Hash,
    ) -> Option<wasmtime::component::Component> {
        let code = self.path(component, "cwasm");
        let expected = fs::read_to_string(self.path(component, "sum")).ok()?;
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(fs::File::open(&code).ok()?).ok()?;
        if hasher.finalize().to_hex().as_str() != expected {
            tracing::warn!(file = %code.display(), "a damaged entry of the compile cache is compiled anew");
            return None;
        }
        // SAFETY: the sum shows that the file is what `put` wrote, and `put` writes what this engine's compiler
        // made; that nobody else writes the folder is the folder's contract.
        let loaded = unsafe { wasmtime::component::Component::deserialize_file(engine, &code) };
        loaded
            .inspect_err(|error| tracing::warn!(file = %code.display(), %error, "an unreadable entry of the compile cache is compiled anew"))
            .ok()
    }

    /// Keeps the code. A disk that is full costs the next start its time and nothing else.
    pub(crate) fn put(&self, component: &blake3::Hash, compiled: &wasmtime::component::Component) {
        let kept = compiled.serialize().map_err(std::io::Error::other).and_then(|code| {
            self.write(&self.path(component, "cwasm"), &code)?;
            let sum = blake3::hash(&code).to_hex();
            self.write(&self.path(component, "sum"), sum.as_bytes())
        });
        if let Err(error) = kept {
            tracing::warn!(folder = %self.folder.display(), %error, "the compile cache could not be written; the next start compiles again");
        }
    }

    /// Writes aside, then renames.
    pub(crate) fn write(&self, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        file.write_all(bytes)?;
        file.persist(path)?;
        Ok(())
    }
}

/// BLAKE3 behind the standard library's hashing: stable between runs, as the default hasher is not.
struct Blake(blake3::Hasher);

impl Hasher for Blake {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let hash = self.0.finalize();
        let mut first = [0; 8];
        first.copy_from_slice(&hash.as_bytes()[..8]);
        u64::from_le_bytes(first)
    }
}
