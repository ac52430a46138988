//! The inputs of a run, so that another machine can compare its own with them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use pl_types::{PartHasher, SourcePath, is_content_of, open_file};
use serde::{Deserialize, Serialize};
use walkdir::WalkDir;

use crate::error::Error;

/// Largest number of files and folders below a folder that is hashed. A model or an adapter has some dozens.
const MOST_ENTRIES: usize = 10_000;

/// Largest number of levels below it.
const MOST_LEVELS: usize = 16;

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
    /// Id of the sandbox's image by its name, if programs run in containers. If engines have different images, their ids
    /// are joined by commas.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub images: BTreeMap<String, String>,
    /// Access beyond the folder of the workflow that the user allowed: `read PATH`, `net HOST:PORT`, `env NAME`. It
    /// may grow when the run is resumed.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub permissions: BTreeSet<String>,
}

impl Lock {
    /// Returns the differences of `other`, the inputs now, one line each for a person who resumes the run. What has been
    /// added since is a difference too.
    pub fn differences(&self, other: &Lock) -> Vec<String> {
        self.differences_of_files(other, &BTreeMap::new())
    }

    /// Returns the same differences with the paths of `files`, the data now by name.
    pub fn differences_of_files(&self, other: &Lock, files: &BTreeMap<String, PathBuf>) -> Vec<String> {
        let mut lines = Vec::new();
        // Earlier runs kept no ids of images.
        let none = BTreeMap::new();
        let images = if self.images.is_empty() { &none } else { &other.images };
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
            ("image", &self.images, images),
        ] {
            for (name, hash) in ours {
                let now = theirs.get(name).map_or("missing", String::as_str);
                compare(&format!("{kind} {name}"), hash, now);
            }
            for (name, hash) in theirs.iter().filter(|(name, _)| !ours.contains_key(*name)) {
                compare(&format!("{kind} {name}"), "none", hash);
            }
        }
        lines.extend(self.data_differences(other, files));
        lines
    }

    /// Returns a line for each file of data that differs, with the names of all that use it.
    fn data_differences(&self, other: &Lock, files: &BTreeMap<String, PathBuf>) -> Vec<String> {
        let mut users: BTreeMap<_, Vec<&str>> = BTreeMap::new();
        for name in self.data.keys().chain(other.data.keys().filter(|name| !self.data.contains_key(*name))) {
            let (began, now) = (self.data.get(name), other.data.get(name));
            if began != now {
                users.entry((files.get(name), began, now)).or_default().push(name);
            }
        }
        let mut lines = Vec::new();
        for ((file, began, now), names) in users {
            let file = file.map_or_else(|| "its file".to_owned(), |file| file.display().to_string());
            let difference = match (began, now) {
                (Some(began), Some(now)) => {
                    format!(
                        "has changed since the run began (BLAKE3 {}, now {})",
                        first_digits(began),
                        first_digits(now)
                    )
                }
                (Some(began), None) => format!("is missing (BLAKE3 {})", first_digits(began)),
                (None, _) => "was not there when the run began".to_owned(),
            };
            lines.push(format!("data {}: {file} {difference}", names.join(", ")));
        }
        lines
    }
}

/// Returns the first digits of a hash, for people.
pub fn first_digits(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
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
/// paths. Links within the folder are followed, and those of a hub's snapshot into the blobs of its repository. Of a checked
/// [`SourcePath`], the check decides where other links may lead.
///
/// # Errors
/// [`Error::Io`], also if something else than files and folders is below it, if a link leads elsewhere or around in a circle,
/// and if the folder has more than 10,000 entries or 16 levels.
pub fn hash_folder(source: impl Into<SourcePath>) -> Result<String, Error> {
    let source = source.into();
    let root = source.path();
    let mut hasher = PartHasher::content();
    for name in files_below(&source)? {
        let path = root.join(&name);
        let file = source.join(&name).open().map_err(Error::io("read", &path))?;
        // A name can't contain the byte that ends it, and hashes have one length.
        hasher = hasher.fixed(name.to_string_lossy().as_bytes()).fixed(&[0]);
        hasher = hasher.fixed(hash_opened(file, &path)?.as_bytes());
    }
    Ok(hasher.hex())
}

/// Returns the paths of everything below a folder that is no folder, relative to it and in their order.
fn files_below(source: &SourcePath) -> Result<Vec<PathBuf>, Error> {
    let root = source.path();
    let refused = |path: &Path, reason: String| Error::io("read", path)(io::Error::other(reason));
    let real_root = root.canonicalize().map_err(Error::io("read", root))?;
    let mut files = Vec::new();
    // Sorted afterwards: the walk would read a folder as a whole to sort it.
    let walk = WalkDir::new(root).follow_links(true).max_depth(MOST_LEVELS + 1);
    for (count, entry) in walk.into_iter().enumerate() {
        let entry = entry.map_err(|error| {
            let path = error.path().unwrap_or(root).to_owned();
            Error::io("read", &path)(error.into())
        })?;
        if count > MOST_ENTRIES {
            return Err(refused(root, format!("it has more than {MOST_ENTRIES} files and folders")));
        }
        if entry.depth() > MOST_LEVELS {
            return Err(refused(entry.path(), format!("it is more than {MOST_LEVELS} folders deep")));
        }
        // The folder itself may be a link: that is the user's choice.
        if entry.path_is_symlink() && entry.depth() > 0 && !source.is_checked() {
            let target = entry.path().canonicalize().map_err(Error::io("read", entry.path()))?;
            if !is_content_of(&real_root, &target) {
                let target = target.display();
                let reason =
                    format!("it is a link to {target}, outside of the folder; put a copy in its place");
                return Err(refused(entry.path(), reason));
            }
        }
        if !entry.file_type().is_dir() {
            files.push(entry.path().strip_prefix(root).unwrap_or(entry.path()).to_owned());
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::sync::Arc;

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
        let (device, pipe) = (folder.path().join("sub/x"), folder.path().join("sub/pipe"));
        symlink("/dev/zero", &device).unwrap();
        let refused = hash_file(&device).unwrap_err().to_string();
        assert!(refused.contains("sub/x") && refused.contains("it is not a file"), "{refused}");
        fs::remove_file(&device).unwrap();
        // Opening it would wait for a writer.
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for hashed in [hash_folder(folder.path()), hash_file(&pipe)] {
            let refused = hashed.unwrap_err().to_string();
            assert!(refused.contains("sub/pipe") && refused.contains("it is not a file"), "{refused}");
        }
    }

    #[test]
    fn links_lead_to_files_of_the_folder_or_to_blobs_of_its_snapshot() {
        let disk = tempfile::tempdir().unwrap();
        let place = disk.path().canonicalize().unwrap();
        let snapshot = place.join("models--a--b/snapshots/0123");
        for folder in [&snapshot, &place.join("models--a--b/blobs"), &place.join("models--c--d/blobs")] {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join("file"), "1").unwrap();
        }
        let (copy, link) = (place.join("copy"), snapshot.join("link"));
        fs::create_dir(&copy).unwrap();
        for name in ["file", "link"] {
            fs::write(copy.join(name), "1").unwrap();
        }
        for target in ["../../blobs/file", "file"] {
            symlink(target, &link).unwrap();
            assert_eq!(hash_folder(&snapshot).unwrap(), hash_folder(&copy).unwrap(), "{target}");
            // The folder itself may be a link.
            symlink(&snapshot, place.join("start")).unwrap();
            assert_eq!(hash_folder(place.join("start")).unwrap(), hash_folder(&copy).unwrap(), "{target}");
            fs::remove_file(place.join("start")).unwrap();
            fs::remove_file(&link).unwrap();
        }
        for target in ["../../../models--c--d/blobs/file", "../../../copy", "/dev/zero", ".."] {
            symlink(target, &link).unwrap();
            let refused = hash_folder(&snapshot).unwrap_err().to_string();
            assert!(refused.contains("snapshots/0123/link"), "{target}: {refused}");
            fs::remove_file(&link).unwrap();
        }
        symlink("../../../copy/file", &link).unwrap();
        let refused = hash_folder(&snapshot).unwrap_err().to_string();
        let target = copy.join("file");
        assert!(refused.contains(&format!("it is a link to {}", target.display())), "{refused}");
        // Where links of a checked folder lead is the check's to decide.
        #[derive(Debug)]
        struct Allow;
        impl CheckOpened for Allow {
            fn check(&self, _: &File) -> io::Result<()> {
                Ok(())
            }
        }
        let checked = SourcePath::checked(&snapshot, Arc::new(Allow));
        assert_eq!(hash_folder(&checked).unwrap(), hash_folder(&copy).unwrap());
    }

    #[test]
    fn folders_with_circles_or_too_many_entries_or_levels_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let refusal = |what: &str| {
            let refused = hash_folder(folder.path()).unwrap_err().to_string();
            assert!(refused.contains(what), "{refused}");
        };
        symlink(".", folder.path().join("circle")).unwrap();
        refusal("circle");
        fs::remove_file(folder.path().join("circle")).unwrap();
        let deepest = (0..MOST_LEVELS).fold(folder.path().to_owned(), |path, _| path.join("a"));
        fs::create_dir_all(&deepest).unwrap();
        hash_folder(folder.path()).unwrap();
        fs::write(deepest.join("file"), "").unwrap();
        refusal("it is more than 16 folders deep");
        fs::remove_dir_all(folder.path().join("a")).unwrap();
        for index in 0..MOST_ENTRIES {
            fs::write(folder.path().join(index.to_string()), "").unwrap();
        }
        hash_folder(folder.path()).unwrap();
        fs::write(folder.path().join("another"), "").unwrap();
        refusal("it has more than 10000 files and folders");
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
            images: BTreeMap::new(),
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
            images: names(),
            ..read.clone()
        };
        assert_eq!(read.differences(&more).len(), 5, "all but the image, of which earlier runs kept nothing");
        assert_eq!(more.differences(&read).len(), 6);
    }

    #[test]
    fn a_changed_file_is_named_once_with_all_that_use_it() {
        let lock = |data: &[(&str, &str)]| {
            let text = r#"{"version":"0.1.0","contract":"0.1","seed":1,"device":"cpu","threads":2,"plugins":{},
                "models":{},"dtypes":{},"data":{}}"#;
            let mut lock: Lock = serde_json::from_str(text).unwrap();
            lock.data = data.iter().map(|(name, hash)| ((*name).to_owned(), (*hash).to_owned())).collect();
            lock
        };
        let files =
            ["problems", "held_out", "test"].map(|name| (name.to_owned(), PathBuf::from("/t/a.jsonl")));
        let began =
            lock(&[("problems", "0b0123456789abcdef"), ("held_out", "0b0123456789abcdef"), ("gone", "aa")]);
        let now = lock(&[("problems", "d57d"), ("held_out", "d57d"), ("new", "bb")]);
        assert_eq!(
            began.differences_of_files(&now, &BTreeMap::from(files)),
            [
                "data new: its file was not there when the run began",
                "data gone: its file is missing (BLAKE3 aa)",
                "data held_out, problems: /t/a.jsonl has changed since the run began (BLAKE3 0b0123456789, now d57d)",
            ]
        );
    }

    #[test]
    fn another_image_of_the_same_name_is_a_difference() {
        let text = |images: &str| {
            format!(
                r#"{{"version":"0.1.0","contract":"0.1","seed":1,"device":"cpu","threads":2,"plugins":{{}},
                "models":{{}},"dtypes":{{}},"data":{{}}{images}}}"#
            )
        };
        let lock = |images: &str| serde_json::from_str::<Lock>(&text(images)).unwrap();
        let began = lock(r#","images":{"python:3.12":"sha256:aa"}"#);
        assert!(began.differences(&began).is_empty());
        assert_eq!(
            began.differences(&lock(r#","images":{"python:3.12":"sha256:bb"}"#)),
            ["image python:3.12: the run began with sha256:aa, now it is sha256:bb"]
        );
        // Runs without containers, and those of earlier versions, have none.
        let none = lock("");
        assert!(none.images.is_empty() && !serde_json::to_string(&none).unwrap().contains("images"));
        assert_eq!(
            began.differences(&none),
            ["image python:3.12: the run began with sha256:aa, now it is missing"]
        );
        assert!(none.differences(&began).is_empty());
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
