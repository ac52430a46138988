//! Compiled code on disk, so that a component is compiled once per machine and version of the engine.
//!
//! An entry is two files: `KEY.cwasm`, which is mapped into memory, and `KEY.sum`, its BLAKE3. KEY is derived from the
//! component's bytes and from everything in the engine that the code depends on. Both files are renamed into place, so
//! another process sees a complete entry or none; an entry with a wrong sum is compiled again. Mapped code stays valid
//! when its entry is replaced or removed. Components of the user's own have a third file: [`functions`](crate::functions).
//! A process that compiles holds a lock, `KEY.lock`, so that others which need the same code wait for it.
//! Write access to the folder means running code in this process, so only the user may have it, as for the user's programs.
//!
//! The folder is limited to [`MAX_BYTES`]: writing an entry removes the least recently used ones.

use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::hash::{Hash, Hasher};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::Error;
use crate::functions::Functions;

/// Maximum size of all entries together, in bytes: about twenty interpreters, or thousands of plugins in Rust.
const MAX_BYTES: u64 = 4 << 30;

/// Age after which a partly written file counts as abandoned.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);

/// Prefix of files while they are written.
const PARTIAL_PREFIX: &str = ".writing-";

/// BLAKE3 of a component. Large ones occupy all cores for some milliseconds.
pub(crate) fn hash(component: &[u8]) -> blake3::Hash {
    blake3::Hasher::new().update_rayon(component).finalize()
}

/// A folder of compiled components.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    folder: PathBuf,
    /// Hash of the engine's version and settings.
    engine: String,
    /// Maximum size of all entries together, in bytes.
    max_bytes: u64,
}

impl Cache {
    pub(crate) fn open(folder: &Path, engine: &wasmtime::Engine) -> Result<Self, Error> {
        fs::create_dir_all(folder).map_err(|source| Error::Cache { path: folder.to_owned(), source })?;
        let mut hasher = Blake3Hasher(blake3::Hasher::new());
        engine.precompile_compatibility_hash().hash(&mut hasher);
        let engine = hasher.0.finalize().to_hex()[..16].to_owned();
        Ok(Self { folder: folder.to_owned(), engine, max_bytes: MAX_BYTES })
    }

    /// Path of a file that belongs to a component, such as its code or its description.
    pub(crate) fn path(&self, component: &blake3::Hash, extension: &str) -> PathBuf {
        let component = &component.to_hex()[..32];
        self.folder.join(format!("{component}-{}.{extension}", self.engine))
    }

    /// Returns true if there is an entry, which may still be damaged.
    pub(crate) fn has(&self, component: &blake3::Hash) -> bool {
        ["cwasm", "sum"].into_iter().all(|part| self.path(component, part).is_file())
    }

    /// Loads an entry. Returns `None` if it is missing or damaged.
    pub(crate) fn get(
        &self,
        engine: &wasmtime::Engine,
        component: &blake3::Hash,
    ) -> Option<wasmtime::component::Component> {
        let code = self.intact(component)?;
        // SAFETY: the sum shows that `put` wrote the file, and `put` writes code of this engine's compiler. That only the
        // user can write the folder is a requirement of this module.
        let loaded = unsafe { wasmtime::component::Component::deserialize_file(engine, &code) };
        self.loaded(component, loaded)
    }

    /// Does the same as [`Cache::get`] for a core module.
    pub(crate) fn get_module(
        &self,
        engine: &wasmtime::Engine,
        module: &blake3::Hash,
    ) -> Option<wasmtime::Module> {
        let code = self.intact(module)?;
        // SAFETY: as in `get`.
        let loaded = unsafe { wasmtime::Module::deserialize_file(engine, &code) };
        self.loaded(module, loaded)
    }

    /// Returns the file with the code of an entry. Returns `None` if it is missing or has another sum.
    fn intact(&self, component: &blake3::Hash) -> Option<PathBuf> {
        let code = self.path(component, "cwasm");
        let expected = fs::read_to_string(self.path(component, "sum")).ok()?;
        let mut hasher = blake3::Hasher::new();
        hasher.update_mmap_rayon(&code).ok()?;
        if hasher.finalize().to_hex().as_str() != expected {
            tracing::warn!(file = %code.display(), "recompiling a damaged entry of the compile cache");
            return None;
        }
        Some(code)
    }

    fn loaded<T>(&self, component: &blake3::Hash, loaded: wasmtime::Result<T>) -> Option<T> {
        let code = self.path(component, "cwasm");
        loaded
            .inspect_err(|error| tracing::warn!(file = %code.display(), %error, "recompiling an unreadable entry of the compile cache"))
            .inspect(|_| mark_used(&self.path(component, "sum")))
            .ok()
    }

    /// Stores serialised code. A failure, such as a full disk, only means that the next start compiles again.
    pub(crate) fn put(&self, component: &blake3::Hash, serialized: wasmtime::Result<Vec<u8>>) {
        self.report(serialized.map_err(std::io::Error::other).and_then(|code| {
            self.write(&self.path(component, "cwasm"), &code)?;
            let sum = blake3::hash(&code).to_hex();
            self.write(&self.path(component, "sum"), sum.as_bytes())?;
            self.prune()
        }));
    }

    /// Waits until no other process compiles a component, and keeps others from it until the file is dropped. Returns `None`
    /// if the folder can't be written or locked: then both compile it.
    pub(crate) fn lock(&self, component: &blake3::Hash) -> Option<fs::File> {
        self.lock_file(&self.path(component, "lock"))
    }

    /// Does the same as [`Cache::lock`] for all components whose functions are kept, so that each has those of the ones before.
    pub(crate) fn lock_functions(&self) -> Option<fs::File> {
        self.lock_file(&self.folder.join(format!("functions-{}.lock", self.engine)))
    }

    fn lock_file(&self, path: &Path) -> Option<fs::File> {
        // Other users can't open it, so they can't hold the lock.
        let file = fs::File::options().create(true).append(true).mode(0o600).open(path);
        file.and_then(|file| file.lock().map(|()| file))
            .inspect_err(|error| tracing::debug!(file = %path.display(), %error, "compiling without a lock"))
            .ok()
    }

    /// Reads the functions of all entries.
    pub(crate) fn read_functions(&self, functions: &Functions) {
        let ending = format!("-{}.functions", self.engine);
        let Ok(files) = fs::read_dir(&self.folder) else { return };
        for file in files.flatten().filter(|file| file.file_name().to_string_lossy().ends_with(&ending)) {
            functions.read(&file.path());
        }
    }

    /// Stores the functions that were compiled for a component. Does nothing if there are none.
    pub(crate) fn put_functions(&self, component: &blake3::Hash, functions: &Functions) {
        if let Some(bytes) = functions.take_new() {
            self.report(bytes.and_then(|bytes| self.write(&self.path(component, "functions"), &bytes)));
        }
    }

    fn report(&self, written: std::io::Result<()>) {
        if let Err(error) = written {
            tracing::warn!(folder = %self.folder.display(), %error, "the compile cache could not be written; the next start compiles again");
        }
    }

    /// Makes the entry of a component that of another one with the same code. A failure only means that the other one is
    /// compiled.
    pub(crate) fn reassign(&self, from: &blake3::Hash, to: &blake3::Hash) {
        let renamed = ["cwasm", "sum"]
            .into_iter()
            .try_for_each(|part| fs::rename(self.path(from, part), self.path(to, part)));
        // Most components have none.
        let _ = fs::rename(self.path(from, "functions"), self.path(to, "functions"));
        if let Err(error) = renamed {
            tracing::debug!(folder = %self.folder.display(), %error, "the next start compiles the component again");
        }
    }

    /// Writes to a temporary file and renames it.
    pub(crate) fn write(&self, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
        // Other users may load what an administrator has compiled, if the mask lets them read it, but never change it.
        let mut file = tempfile::Builder::new()
            .prefix(PARTIAL_PREFIX)
            .permissions(Permissions::from_mode(0o644))
            .tempfile_in(&self.folder)?;
        file.write_all(bytes)?;
        file.persist(path)?;
        Ok(())
    }

    /// Removes the least recently used entries until the rest fits, and abandoned files. Another process may do the same at
    /// the same time.
    fn prune(&self) -> std::io::Result<()> {
        let now = SystemTime::now();
        // Keyed by the name up to the first dot: the code, its sum and its notes are one entry.
        let mut entries: HashMap<String, CacheEntry> = HashMap::new();
        for file in fs::read_dir(&self.folder)? {
            let file = file?;
            // Another process has just removed it.
            let Ok(found) = file.metadata() else { continue };
            let (path, changed) = (file.path(), found.modified().unwrap_or(now));
            let name = file.file_name().to_string_lossy().into_owned();
            if name.starts_with(PARTIAL_PREFIX) {
                if now.duration_since(changed).is_ok_and(|age| age > ABANDONED) {
                    remove(&path);
                }
                continue;
            }
            let key = name.split('.').next().unwrap_or_default().to_owned();
            let entry = entries.entry(key).or_insert(CacheEntry {
                files: Vec::new(),
                bytes: 0,
                used: SystemTime::UNIX_EPOCH,
            });
            entry.bytes += found.len();
            entry.used = entry.used.max(changed);
            entry.files.push(path);
        }
        let mut bytes: u64 = entries.values().map(|entry| entry.bytes).sum();
        let mut oldest: Vec<CacheEntry> = entries.into_values().collect();
        oldest.sort_by(|a, b| a.used.cmp(&b.used).then_with(|| a.files.cmp(&b.files)));
        // The last one has just been written.
        oldest.pop();
        for entry in oldest {
            if bytes <= self.max_bytes {
                break;
            }
            bytes -= entry.bytes;
            entry.files.iter().for_each(|file| remove(file));
        }
        Ok(())
    }
}

/// The files of one component.
struct CacheEntry {
    files: Vec<PathBuf>,
    bytes: u64,
    used: SystemTime,
}

/// Marks an entry as used. In a read-only folder this fails, but then nothing is pruned either.
fn mark_used(sum: &Path) {
    if let Ok(file) = fs::File::options().append(true).open(sum) {
        let _ = file.set_modified(SystemTime::now());
    }
}

/// Removes a file unless it is already gone.
fn remove(file: &Path) {
    if let Err(error) = fs::remove_file(file)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(file = %file.display(), %error, "an old entry of the compile cache could not be removed");
    }
}

/// BLAKE3 as a `Hasher`: stable between runs, unlike the default hasher.
struct Blake3Hasher(blake3::Hasher);

impl Hasher for Blake3Hasher {
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

    fn cache(folder: &Path, max_bytes: u64) -> Cache {
        let engine = wasmtime::Engine::default();
        Cache { max_bytes, ..Cache::open(folder, &engine).unwrap() }
    }

    #[test]
    fn the_least_recently_used_entries_are_removed_completely() {
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
        // The entry used last stays, however large it is.
        cache(folder.path(), 1).prune().unwrap();
        assert_eq!(names(folder.path()), ["used.cwasm", "used.items-0.1.json", "used.sum"]);
    }

    #[test]
    fn abandoned_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        file(folder.path(), ".writing-abandoned", 10, 2 * ABANDONED.as_secs());
        file(folder.path(), ".writing-now", 10, 1);
        cache(folder.path(), 0).prune().unwrap();
        assert_eq!(names(folder.path()), [".writing-now"]);
    }

    #[test]
    fn others_may_read_an_entry_as_the_mask_says_and_only_the_user_may_write_it() {
        let folder = tempfile::tempdir().unwrap();
        let (entry, other) = (folder.path().join("entry.sum"), folder.path().join("other"));
        cache(folder.path(), MAX_BYTES).write(&entry, b"sum").unwrap();
        fs::write(&other, b"by the mask").unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&entry), mode(&other) & 0o644);
    }

    #[test]
    fn loading_marks_an_entry_as_used() {
        let folder = tempfile::tempdir().unwrap();
        let engine = wasmtime::Engine::default();
        let component = wasmtime::component::Component::from_binary(&engine, b"\0asm\x0d\0\x01\0").unwrap();
        let (cache, key) = (cache(folder.path(), MAX_BYTES), hash(b"a component"));
        cache.put(&key, component.serialize());
        let sum = cache.path(&key, "sum");
        file(folder.path(), sum.file_name().unwrap().to_str().unwrap(), 0, 1000);
        assert!(cache.get(&engine, &key).is_none(), "an empty sum was accepted");
        cache.put(&key, component.serialize());
        let old = SystemTime::now() - Duration::from_secs(1000);
        fs::File::options().append(true).open(&sum).unwrap().set_modified(old).unwrap();
        assert!(cache.get(&engine, &key).is_some());
        assert!(sum.metadata().unwrap().modified().unwrap() > old + Duration::from_secs(500));
    }
}
