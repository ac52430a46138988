//! Compiled code on disk, so that a component is compiled once per machine and version of the engine.
//!
//! An entry is two files: `KEY.cwasm`, which is mapped into memory, and `KEY.sum`, the BLAKE3 of it. KEY names
//! the component's bytes and everything of the engine that the code depends on. Both files appear by renaming,
//! so another process sees a whole entry or none; an entry whose sum doesn't fit is compiled anew. What is mapped
//! stays as it was when the entry is replaced or removed. Whoever can write the folder can run code in this process,
//! so it must belong to the user alone, as their programs do.
//!
//! The folder keeps to [`KEPT`] bytes: whenever an entry is written, those that were not used for longest go.

use std::collections::HashMap;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::Error;

/// Bytes of all entries together: some twenty interpreters, or thousands of plugins in Rust.
const KEPT: u64 = 4 << 30;

/// Age at which a file that was being written is nobody's any more.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);

/// How files are called while they are written.
const WRITING: &str = ".writing-";

/// BLAKE3 of a component. Large ones take every core for some milliseconds.
pub(crate) fn hash(component: &[u8]) -> blake3::Hash {
    blake3::Hasher::new().update_rayon(component).finalize()
}

/// A folder of compiled components.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    folder: PathBuf,
    /// Hash of the engine's version and settings.
    engine: String,
    /// Bytes of all entries together.
    kept: u64,
}

impl Cache {
    pub(crate) fn open(folder: &Path, engine: &wasmtime::Engine) -> Result<Self, Error> {
        fs::create_dir_all(folder).map_err(|source| Error::Cache { path: folder.to_owned(), source })?;
        let mut hasher = Blake(blake3::Hasher::new());
        engine.precompile_compatibility_hash().hash(&mut hasher);
        let engine = hasher.0.finalize().to_hex()[..16].to_owned();
        Ok(Self { folder: folder.to_owned(), engine, kept: KEPT })
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
        let sum = self.path(component, "sum");
        let expected = fs::read_to_string(&sum).ok()?;
        let mut hasher = blake3::Hasher::new();
        hasher.update_mmap_rayon(&code).ok()?;
        if hasher.finalize().to_hex().as_str() != expected {
            tracing::warn!(file = %code.display(), "a damaged entry of the compile cache is compiled anew");
            return None;
        }
        // SAFETY: the sum shows that the file is what `put` wrote, and `put` writes what this engine's compiler
        // made; that nobody else writes the folder is the folder's contract.
        let loaded = unsafe { wasmtime::component::Component::deserialize_file(engine, &code) };
        loaded
            .inspect_err(|error| tracing::warn!(file = %code.display(), %error, "an unreadable entry of the compile cache is compiled anew"))
            .inspect(|_| used(&sum))
            .ok()
    }

    /// Keeps the code. A disk that is full costs the next start its time and nothing else.
    pub(crate) fn put(&self, component: &blake3::Hash, compiled: &wasmtime::component::Component) {
        let kept = compiled.serialize().map_err(std::io::Error::other).and_then(|code| {
            self.write(&self.path(component, "cwasm"), &code)?;
            let sum = blake3::hash(&code).to_hex();
            self.write(&self.path(component, "sum"), sum.as_bytes())?;
            self.prune()
        });
        if let Err(error) = kept {
            tracing::warn!(folder = %self.folder.display(), %error, "the compile cache could not be written; the next start compiles again");
        }
    }

    /// Writes aside, then renames.
    pub(crate) fn write(&self, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
        let mut file = tempfile::Builder::new().prefix(WRITING).tempfile_in(&self.folder)?;
        file.write_all(bytes)?;
        file.persist(path)?;
        Ok(())
    }

    /// Removes what was not used for longest until the rest fits, and what nobody will finish writing. Another
    /// process may do the same at the same time.
    fn prune(&self) -> std::io::Result<()> {
        let now = SystemTime::now();
        // By the part of the name before the first dot: the code, its sum and its notes are one entry.
        let mut entries: HashMap<String, Entry> = HashMap::new();
        for file in fs::read_dir(&self.folder)? {
            let file = file?;
            // One that another process has just removed.
            let Ok(found) = file.metadata() else { continue };
            let (path, changed) = (file.path(), found.modified().unwrap_or(now));
            let name = file.file_name().to_string_lossy().into_owned();
            if name.starts_with(WRITING) {
                if now.duration_since(changed).is_ok_and(|age| age > ABANDONED) {
                    remove(&path);
                }
                continue;
            }
            let key = name.split('.').next().unwrap_or_default().to_owned();
            let entry = entries.entry(key).or_insert(Entry {
                files: Vec::new(),
                bytes: 0,
                used: SystemTime::UNIX_EPOCH,
            });
            entry.bytes += found.len();
            entry.used = entry.used.max(changed);
            entry.files.push(path);
        }
        let mut bytes: u64 = entries.values().map(|entry| entry.bytes).sum();
        let mut oldest: Vec<Entry> = entries.into_values().collect();
        oldest.sort_by(|a, b| a.used.cmp(&b.used).then_with(|| a.files.cmp(&b.files)));
        // The last is what has just been written.
        oldest.pop();
        for entry in oldest {
            if bytes <= self.kept {
                break;
            }
            bytes -= entry.bytes;
            entry.files.iter().for_each(|file| remove(file));
        }
        Ok(())
    }
}

/// The files of one component, as [`Cache::prune`] sees them.
struct Entry {
    files: Vec<PathBuf>,
    bytes: u64,
    used: SystemTime,
}

/// Notes that an entry was used. Where the folder may only be read, nobody prunes it either.
fn used(sum: &Path) {
    if let Ok(file) = fs::File::options().append(true).open(sum) {
        let _ = file.set_modified(SystemTime::now());
    }
}

/// Removes a file that may be gone already.
fn remove(file: &Path) {
    if let Err(error) = fs::remove_file(file)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(file = %file.display(), %error, "an old entry of the compile cache could not be removed");
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

#[cfg(test)]
mod tests {
    use super::*;

    fn file(folder: &Path, name: &str, bytes: usize, age: u64) {
        fs::write(folder.join(name), vec![0; bytes]).unwrap();
        let file = fs::File::options().append(true).open(folder.join(name)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn cache(folder: &Path, kept: u64) -> Cache {
        let engine = wasmtime::Engine::default();
        Cache { kept, ..Cache::open(folder, &engine).unwrap() }
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first_and_whole() {
        let folder = tempfile::tempdir().unwrap();
        for (entry, age) in [("old", 300), ("used", 200), ("new", 100)] {
            file(folder.path(), &format!("{entry}.cwasm"), 1000, age);
            file(folder.path(), &format!("{entry}.items-0.1.json"), 10, age);
        }
        file(folder.path(), "old.sum", 64, 250);
        // Its code is the oldest of all, but it was loaded a minute ago.
        file(folder.path(), "used.sum", 64, 60);
        file(folder.path(), "new.sum", 64, 100);
        cache(folder.path(), 2200).prune().unwrap();
        assert_eq!(
            names(folder.path()),
            ["new.cwasm", "new.items-0.1.json", "new.sum", "used.cwasm", "used.items-0.1.json", "used.sum"]
        );
        // What was written or used last stays, however large it is.
        cache(folder.path(), 1).prune().unwrap();
        assert_eq!(names(folder.path()), ["used.cwasm", "used.items-0.1.json", "used.sum"]);
    }

    #[test]
    fn what_nobody_finishes_writing_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        file(folder.path(), ".writing-abandoned", 10, 2 * ABANDONED.as_secs());
        file(folder.path(), ".writing-now", 10, 1);
        cache(folder.path(), 0).prune().unwrap();
        assert_eq!(names(folder.path()), [".writing-now"]);
    }

    #[test]
    fn loading_an_entry_makes_it_used() {
        let folder = tempfile::tempdir().unwrap();
        let engine = wasmtime::Engine::default();
        let component = wasmtime::component::Component::from_binary(&engine, b"\0asm\x0d\0\x01\0").unwrap();
        let (cache, key) = (cache(folder.path(), KEPT), hash(b"a component"));
        cache.put(&key, &component);
        let sum = cache.path(&key, "sum");
        file(folder.path(), sum.file_name().unwrap().to_str().unwrap(), 0, 1000);
        assert!(cache.get(&engine, &key).is_none(), "an empty sum was believed");
        cache.put(&key, &component);
        let old = SystemTime::now() - Duration::from_secs(1000);
        fs::File::options().append(true).open(&sum).unwrap().set_modified(old).unwrap();
        assert!(cache.get(&engine, &key).is_some());
        assert!(sum.metadata().unwrap().modified().unwrap() > old + Duration::from_secs(500));
    }
}
