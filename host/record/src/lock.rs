//! The inputs of a run, so that another machine can compare its own with them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;

use pl_types::{PartHasher, SourcePath};
use serde::{Deserialize, Serialize};
use walkdir::WalkDir;

use crate::error::Error;
use crate::text_file::{not_a_file, open_file};

/// The run folder's `lock.json`. All hashes are BLAKE3, in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// Version of pl-host.
    pub version: String,
    /// Version of the plugin contract.
    pub contract: String,
    pub seed: u64,
    /// Date in UTC at which the run was started, which chat templates see as today: `2026-11-23`. Missing in
    /// runs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    pub device: String,
    /// Threads of one tensor operation. Results depend on it.
    pub threads: i32,
    /// Component hash by plugin name.
    pub plugins: BTreeMap<String, String>,
    /// Grants of plugins: `PLUGIN read /FOLDER` with the hash of the folder's content, and
    /// `PLUGIN http HOST`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub grants: BTreeMap<String, String>,
    /// Hash of the model's files by model name.
    pub models: BTreeMap<String, String>,
    /// Number format of the model's matrices by model name.
    pub dtypes: BTreeMap<String, String>,
    /// Hash by policy of the adapter or model folder that its `from` names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub starts: BTreeMap<String, String>,
    /// Hash by file.
    pub data: BTreeMap<String, String>,
    /// Access beyond the folder of the workflow that the user allowed: `read PATH`, `net HOST:PORT`, `env NAME`. It
    /// may grow when the run is resumed.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub permissions: BTreeSet<String>,
}

impl Lock {
    /// Returns the differences of `other`, the inputs now, one line each for a person who resumes the run. What has been
    /// added since is a difference too.
    pub fn differences(&self, other: &Lock) -> Vec<String> {
        let mut lines = Vec::new();
        let mut compare = |name: &str, ours: &str, theirs: &str| {
            if ours != theirs {
                lines.push(format!("{name}: the run began with {ours}, now it is {theirs}"));
            }
        };
        compare("pl-host", &self.version, &other.version);
        compare("plugin contract", &self.contract, &other.contract);
        compare("seed", &self.seed.to_string(), &other.seed.to_string());
        compare("device", &self.device, &other.device);
        compare("threads", &self.threads.to_string(), &other.threads.to_string());
        for (kind, ours, theirs) in [
            ("plugin", &self.plugins, &other.plugins),
            ("grant", &self.grants, &other.grants),
            ("model", &self.models, &other.models),
            ("number format of model", &self.dtypes, &other.dtypes),
            ("`from` of policy", &self.starts, &other.starts),
            ("data", &self.data, &other.data),
        ] {
            for (name, hash) in ours {
                let now = theirs.get(name).map_or("missing", String::as_str);
                compare(&format!("{kind} {name}"), hash, now);
            }
            for (name, hash) in theirs.iter().filter(|(name, _)| !ours.contains_key(*name)) {
                compare(&format!("{kind} {name}"), "none", hash);
            }
        }
        lines
    }
}

/// BLAKE3 of a file's bytes, in hexadecimal.
///
/// # Errors
/// [`Error::Io`], also if it is not a file.
pub fn hash_file(path: &Path) -> Result<String, Error> {
    hash_opened(open_file(path).map_err(Error::io("read", path))?, path)
}

fn hash_opened(file: File, path: &Path) -> Result<String, Error> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file).map_err(Error::io("read", path))?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// BLAKE3 of a folder's content: of the relative path and the hash of every file below it, in order of the
/// paths. Links are followed; each file is checked once it is open, as those of every [`SourcePath`].
///
/// # Errors
/// [`Error::Io`], also if something else than files and folders is below it: pipes and devices may never end.
pub fn hash_folder(source: impl Into<SourcePath>) -> Result<String, Error> {
    let source = source.into();
    let root = source.path();
    let mut hasher = PartHasher::content();
    for entry in WalkDir::new(root).follow_links(true).sort_by_file_name() {
        let entry = entry.map_err(|error| {
            let path = error.path().unwrap_or(root).to_owned();
            Error::io("read", &path)(error.into())
        })?;
        if !entry.file_type().is_dir() {
            let name = entry.path().strip_prefix(root).unwrap_or(entry.path());
            if !entry.file_type().is_file() {
                return Err(Error::io("read", entry.path())(not_a_file()));
            }
            let file = source.join(name).open().map_err(Error::io("read", entry.path()))?;
            // A name can't contain the byte that ends it, and hashes have one length.
            hasher = hasher.fixed(name.to_string_lossy().as_bytes()).fixed(&[0]);
            hasher = hasher.fixed(hash_opened(file, entry.path())?.as_bytes());
        }
    }
    Ok(hasher.hex())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::{fs, io};

    use pl_types::CheckOpened;

    use super::*;

    #[test]
    fn a_folder_hash_depends_on_names_and_bytes_below_it() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            hash_folder(folder.path()).unwrap()
        };
        let first = write("a", "1");
        let second = write("b/c", "2");
        assert_ne!(first, second);
        assert_ne!(write("b/c", "3"), second);
        assert_eq!(write("b/c", "2"), second);
        fs::rename(folder.path().join("a"), folder.path().join("d")).unwrap();
        assert_ne!(hash_folder(folder.path()).unwrap(), second);
    }

    #[test]
    fn devices_and_refused_files_below_a_folder_are_errors() {
        #[derive(Debug)]
        struct Refuse;
        impl CheckOpened for Refuse {
            fn check(&self, _: &File) -> io::Result<()> {
                Err(io::Error::other("it is elsewhere"))
            }
        }
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sub")).unwrap();
        fs::write(folder.path().join("sub/a"), "1").unwrap();
        let checked = SourcePath::checked(folder.path(), Arc::new(Refuse));
        let refused = hash_folder(&checked).unwrap_err().to_string();
        assert!(refused.contains("sub/a") && refused.contains("it is elsewhere"), "{refused}");
        let device = folder.path().join("sub/x");
        std::os::unix::fs::symlink("/dev/zero", &device).unwrap();
        for hashed in [hash_folder(folder.path()), hash_file(&device)] {
            let refused = hashed.unwrap_err().to_string();
            assert!(refused.contains("sub/x") && refused.contains("it is not a file"), "{refused}");
        }
    }

    #[test]
    fn what_was_added_or_removed_or_changed_is_a_difference() {
        let lock = |grants: &[(&str, &str)]| Lock {
            version: "0.1.0".to_owned(),
            contract: "0.1".to_owned(),
            seed: 1,
            date: None,
            device: "cpu".to_owned(),
            threads: 2,
            plugins: BTreeMap::new(),
            grants: grants.iter().map(|(name, hash)| ((*name).to_owned(), (*hash).to_owned())).collect(),
            models: BTreeMap::new(),
            dtypes: BTreeMap::new(),
            starts: BTreeMap::new(),
            data: BTreeMap::new(),
            permissions: BTreeSet::new(),
        };
        let (none, read) = (lock(&[]), lock(&[("web read /docs", "aa")]));
        let both = lock(&[("web read /docs", "aa"), ("web http api.example.org", "open")]);
        assert!(read.differences(&read).is_empty());
        assert_eq!(none.differences(&read), ["grant web read /docs: the run began with none, now it is aa"]);
        assert_eq!(
            read.differences(&none),
            ["grant web read /docs: the run began with aa, now it is missing"]
        );
        assert_eq!(
            read.differences(&both),
            ["grant web http api.example.org: the run began with none, now it is open"]
        );
        // Of the other inputs likewise.
        let names = || BTreeMap::from([("new".to_owned(), "bb".to_owned())]);
        let more = Lock {
            plugins: names(),
            models: names(),
            dtypes: names(),
            starts: names(),
            data: names(),
            ..read.clone()
        };
        assert_eq!(read.differences(&more).len(), 5);
        assert_eq!(more.differences(&read).len(), 5);
    }

    /// Locks of existing runs hold such hashes.
    #[test]
    fn a_folder_hash_is_the_same_in_every_version() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("b")).unwrap();
        for (name, text) in [("b/c", "2"), ("b.d", ""), ("a", "1")] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let mut expected = blake3::Hasher::new();
        for (name, text) in [("a", "1"), ("b/c", "2"), ("b.d", "")] {
            expected.update(name.as_bytes()).update(&[0]);
            expected.update(blake3::hash(text.as_bytes()).to_hex().as_bytes());
        }
        assert_eq!(hash_folder(folder.path()).unwrap(), expected.finalize().to_hex().to_string());
    }
}
