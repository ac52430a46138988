//! Weights in a folder that all machines of a run share: whole models are too large for the server of a run.
//!
//! `DIR/RUN/LEARNER/` has a file for each version, named after the BLAKE3 hash of the weights: `HASH.full` has all their bytes,
//! `HASH-BASE.delta` the bits that differ from `BASE.full`, compressed with zstd. An update changes the low bits of most
//! numbers alone, so that a delta is smaller. A learner's process writes a full version first, and again when deltas grow.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use pl_record::write_atomically;

use crate::error::cluster::ClusterError;

/// Level of zstd: the fastest.
const LEVEL: i32 = 1;

/// Largest delta, as a share of the weights. A larger one saves too little.
const LARGEST_DELTA: f64 = 0.75;

/// Time in which a file that another machine has written may not be visible yet, as on NFS.
const LONGEST_DELAY: Duration = Duration::from_secs(10);

/// Pause before a file that is not visible is looked for again.
const PAUSE: Duration = Duration::from_millis(200);

/// The weights of a run in a folder.
#[derive(Debug)]
pub(super) struct WeightsFolder {
    /// Folder of the run.
    folder: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Hash of the full version that deltas of a learner refer to.
    bases: BTreeMap<u32, String>,
    /// Versions that no lease names any more.
    unused: BTreeSet<(u32, String)>,
}

/// A file of a version.
enum Stored {
    Full(PathBuf),
    Delta { path: PathBuf, base: String },
}

impl WeightsFolder {
    /// The weights of `run` in the shared folder `shared`.
    pub fn new(shared: &Path, run: &str) -> WeightsFolder {
        WeightsFolder { folder: shared.join(run), state: Mutex::default() }
    }

    /// Writes weights of a learner, unless they are there. Returns their hash.
    ///
    /// # Errors
    /// If a file can't be written or read.
    pub fn put(&self, learner: u32, bytes: &[u8]) -> Result<String, ClusterError> {
        let hash = blake3::hash(bytes).to_hex().to_string();
        let folder = self.of(learner);
        fs::create_dir_all(&folder).map_err(ClusterError::file(&folder))?;
        if find(&folder, &hash)?.is_some() {
            return Ok(hash);
        }
        let base = self.state.lock().bases.get(&learner).cloned();
        if let Some(base) = base
            && let Some(delta) = delta(&folder.join(full(&base)), bytes)?
        {
            write_atomically(&folder.join(format!("{hash}-{base}.delta")), &delta)?;
            return Ok(hash);
        }
        write_atomically(&folder.join(full(&hash)), bytes)?;
        self.state.lock().bases.insert(learner, hash.clone());
        Ok(hash)
    }

    /// Reads the weights of a learner that have a hash.
    ///
    /// # Errors
    /// If they are missing or damaged.
    pub fn get(&self, learner: u32, hash: &str) -> Result<Vec<u8>, ClusterError> {
        let folder = self.of(learner);
        let begun = Instant::now();
        let stored = loop {
            match find(&folder, hash) {
                Ok(Some(stored)) => break stored,
                Ok(None) if begun.elapsed() < LONGEST_DELAY => std::thread::sleep(PAUSE),
                Ok(None) | Err(ClusterError::File { .. }) => {
                    return Err(ClusterError::NoWeights { folder, hash: hash.to_owned() });
                }
                Err(error) => return Err(error),
            }
        };
        let bytes = match stored {
            Stored::Full(path) => fs::read(&path).map_err(ClusterError::file(&path))?,
            Stored::Delta { path, base } => {
                let base = folder.join(full(&base));
                let mut bytes = fs::read(&base).map_err(ClusterError::file(&base))?;
                let delta = fs::read(&path).map_err(ClusterError::file(&path))?;
                let delta = zstd::bulk::decompress(&delta, bytes.len()).map_err(ClusterError::file(&path))?;
                xor(&mut bytes, &delta);
                bytes
            }
        };
        match blake3::hash(&bytes).to_hex().as_str() == hash {
            true => Ok(bytes),
            false => {
                let what = format!("the weights {hash} in {}", folder.display());
                Err(ClusterError::unreadable(what, "they differ from their hash"))
            }
        }
    }

    /// Removes weights that no lease names any more. A full version stays while deltas refer to it, and as the newest of its
    /// learner, because the learner's process may be writing a delta.
    pub fn remove(&self, learner: u32, hash: &str) {
        let mut state = self.state.lock();
        state.unused.insert((learner, hash.to_owned()));
        let folder = self.of(learner);
        let Ok(names) = names(&folder) else { return };
        let is_unused = |hash: &str| state.unused.contains(&(learner, hash.to_owned()));
        let (mut kept, mut removed) = (BTreeSet::new(), Vec::new());
        for (hash, base) in names.iter().filter_map(|name| parts(name)) {
            match base {
                Some(base) if is_unused(hash) => removed.push(format!("{hash}-{base}.delta")),
                Some(base) => drop(kept.insert(base.to_owned())),
                None => {}
            }
        }
        kept.extend(newest(&folder, &names));
        for (hash, _) in names.iter().filter_map(|name| parts(name)).filter(|(_, base)| base.is_none()) {
            if is_unused(hash) && !kept.contains(hash) {
                removed.push(full(hash));
            }
        }
        for name in removed {
            if let Err(error) = fs::remove_file(folder.join(&name)) {
                tracing::debug!(name, %error, "weights were not removed");
            }
        }
    }

    /// Removes all weights of the run.
    pub fn clear(&self) {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(folder = %self.folder.display(), %error, "the weights of the run were not removed");
            }
            _ => {}
        }
    }

    fn of(&self, learner: u32) -> PathBuf {
        self.folder.join(learner.to_string())
    }
}

fn full(hash: &str) -> String {
    format!("{hash}.full")
}

/// Returns the hash and the base that a file's name has. `None` for other files.
fn parts(name: &str) -> Option<(&str, Option<&str>)> {
    match name.strip_suffix(".delta") {
        Some(both) => both.split_once('-').map(|(hash, base)| (hash, Some(base))),
        None => name.strip_suffix(".full").map(|hash| (hash, None)),
    }
}

fn names(folder: &Path) -> Result<Vec<String>, ClusterError> {
    let entries = fs::read_dir(folder).map_err(ClusterError::file(folder))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.collect())
}

/// Finds the file of a version.
fn find(folder: &Path, hash: &str) -> Result<Option<Stored>, ClusterError> {
    let names = names(folder)?;
    let own = names
        .iter()
        .find_map(|name| parts(name).filter(|(own, _)| *own == hash).map(|(_, base)| (name, base)));
    Ok(own.map(|(name, base)| match base {
        Some(base) => Stored::Delta { path: folder.join(name), base: base.to_owned() },
        None => Stored::Full(folder.join(name)),
    }))
}

/// Returns the hash of the newest full version.
fn newest(folder: &Path, names: &[String]) -> Option<String> {
    let written =
        |name: &str| -> Option<SystemTime> { fs::metadata(folder.join(name)).ok()?.modified().ok() };
    let full = names
        .iter()
        .filter_map(|name| parts(name).filter(|(_, base)| base.is_none()).map(|(hash, _)| (name, hash)));
    full.max_by_key(|(name, _)| written(name)).map(|(_, hash)| hash.to_owned())
}

/// Returns the compressed difference of weights to a full version. `None` if there is no such version, or it saves too little.
fn delta(base: &Path, bytes: &[u8]) -> Result<Option<Vec<u8>>, ClusterError> {
    let mut difference = match fs::read(base) {
        Ok(base) if base.len() == bytes.len() => base,
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(ClusterError::file(base)(error)),
    };
    xor(&mut difference, bytes);
    let delta = zstd::bulk::compress(&difference, LEVEL).map_err(ClusterError::file(base))?;
    Ok(Some(delta).filter(|delta| (delta.len() as f64) < LARGEST_DELTA * bytes.len() as f64))
}

fn xor(bytes: &mut [u8], other: &[u8]) {
    bytes.iter_mut().zip(other).for_each(|(byte, other)| *byte ^= other);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Weights after some updates, each of which changes low bits.
    fn weights(updates: u32) -> Vec<u8> {
        let number = |index: u32| {
            let bits = (0.1 + (index as f32).sin()).to_bits();
            bits ^ (updates * (index % 7)) & 0xff
        };
        (0..10_000).flat_map(|index| number(index).to_le_bytes()).collect()
    }

    fn files(shared: &Path) -> Vec<String> {
        let mut names = names(&shared.join("run-1/0")).unwrap();
        names.sort_by_key(|name| name.ends_with(".delta"));
        names
    }

    #[test]
    fn later_versions_are_deltas_and_all_are_read_elsewhere() {
        let shared = tempfile::tempdir().unwrap();
        let (writer, reader) =
            (WeightsFolder::new(shared.path(), "run-1"), WeightsFolder::new(shared.path(), "run-1"));
        let hashes: Vec<String> = (0..3).map(|update| writer.put(0, &weights(update)).unwrap()).collect();
        assert_eq!(files(shared.path()).iter().filter(|name| name.ends_with(".full")).count(), 1);
        for (update, hash) in (0..3).zip(&hashes) {
            assert_eq!(reader.get(0, hash).unwrap(), weights(update));
        }
        let size = |name: &String| fs::metadata(shared.path().join("run-1/0").join(name)).unwrap().len();
        let sizes: Vec<u64> = files(shared.path()).iter().map(size).collect();
        assert!(sizes[1] < sizes[0] * 3 / 4, "{sizes:?}");
        // The same weights again, also of another process, are not written.
        assert_eq!(reader.put(0, &weights(2)).unwrap(), hashes[2]);
        assert_eq!(files(shared.path()).len(), 3);
        // Other sizes, and numbers that have nothing in common, are written in full.
        let noise: Vec<u8> =
            (0..40_000u32).map(|index| blake3::hash(&index.to_le_bytes()).as_bytes()[0]).collect();
        let hash = writer.put(0, &noise).unwrap();
        assert_eq!(reader.get(0, &hash).unwrap(), noise);
        assert_eq!(files(shared.path()).iter().filter(|name| name.ends_with(".full")).count(), 2);
        writer.clear();
        assert!(!shared.path().join("run-1").exists());
    }

    #[test]
    fn a_full_version_stays_while_deltas_refer_to_it() {
        let shared = tempfile::tempdir().unwrap();
        let writer = WeightsFolder::new(shared.path(), "run-1");
        let hashes: Vec<String> = (0..3).map(|update| writer.put(0, &weights(update)).unwrap()).collect();
        writer.remove(0, &hashes[0]);
        writer.remove(0, &hashes[1]);
        assert_eq!(writer.get(0, &hashes[2]).unwrap(), weights(2));
        assert_eq!(files(shared.path()).len(), 2);
        // The newest full version stays for the next delta.
        writer.remove(0, &hashes[2]);
        assert_eq!(files(shared.path()), [full(&hashes[0])]);
        // A process that is started again begins with a full version; the earlier one is not needed any more.
        let again = WeightsFolder::new(shared.path(), "run-1");
        let newer = again.put(0, &weights(4)).unwrap();
        writer.remove(0, &hashes[0]);
        assert_eq!(files(shared.path()), [full(&newer)]);
    }

    #[test]
    fn a_failure_to_write_names_its_path_once() {
        let shared = tempfile::tempdir().unwrap();
        // Linux allows paths of 4,095 bytes: that of the folder is not too long, those of its files are.
        let folders = (4080 - shared.path().as_os_str().len()) / 50;
        let run = format!("{}/", "x".repeat(49)).repeat(folders);
        let error = WeightsFolder::new(shared.path(), &run).put(0, b"weights").unwrap_err().to_string();
        let path = shared.path().join(run).join("0").join(full(&blake3::hash(b"weights").to_hex()));
        assert_eq!(error.matches(path.to_str().unwrap()).count(), 1, "{error}");
    }

    #[test]
    fn damage_is_found_and_missing_weights_name_the_folder() {
        let shared = tempfile::tempdir().unwrap();
        let folder = WeightsFolder::new(shared.path(), "run-1");
        let hash = folder.put(0, &weights(0)).unwrap();
        fs::write(shared.path().join("run-1/0").join(full(&hash)), weights(1)).unwrap();
        assert!(folder.get(0, &hash).unwrap_err().to_string().contains("differ from their hash"));
        let message = folder.get(7, &hash).unwrap_err().to_string();
        assert!(message.contains("--weights-folder") && message.contains(&hash), "{message}");
    }
}
