//! Folders laid out as a data set's repository on Hugging Face's hub: configurations and splits, and the files of each.
//!
//! The data card says which they are, or else the names of files and folders do, as the hub reads them:
//! <https://huggingface.co/docs/hub/datasets-data-files-configuration>.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use pl_types::{SourcePath, is_content_of};
use walkdir::WalkDir;

use crate::card::{self, CardConfig};
use crate::error::Error;
use crate::form::{drop_notes, is_readable};
use crate::glob;
use crate::shards::{self, Shard};

/// Largest number of files and folders that are looked at. Sets with more shards don't fit into memory.
const MOST_ENTRIES: usize = 10_000;

/// Deepest folder that is looked into. The hub's sets have two or three levels.
const DEEPEST: usize = 8;

/// Largest size of a split's files together, in bytes: tasks are kept in memory.
const LARGEST_SPLIT: u64 = 4 << 30;

/// Name of a data card.
const CARD: &str = "README.md";

/// Splits, and the words in the names of files and folders that stand for them.
const WORDS: [(&str, &[&str]); 3] = [
    ("train", &["train", "training"]),
    ("validation", &["validation", "valid", "val", "dev"]),
    ("test", &["test", "testing", "eval", "evaluation"]),
];

/// Configuration and split after the path of a folder: `FOLDER`, `FOLDER:SPLIT` or `FOLDER:CONFIG:SPLIT`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FolderSplit {
    /// `None` for the default configuration.
    pub config: Option<String>,
    /// `None` for the only split.
    pub split: Option<String>,
}

/// Name of a split and its files.
type SplitFiles = (String, Vec<FolderFile>);

/// File below a folder.
#[derive(Debug, Clone)]
struct FolderFile {
    /// Path below the folder, with `/` between names.
    name: String,
    /// True for a regular file, and for a link to one that is content of the folder, too.
    is_inside: bool,
    bytes: u64,
}

struct Config {
    name: String,
    is_default: bool,
    splits: Vec<SplitFiles>,
}

impl FolderSplit {
    /// Returns what a text may name: a path, and the configuration and split after it. The longest path is the first.
    pub fn readings(text: &str) -> Vec<(&str, FolderSplit)> {
        let is_word = |name: &str, more: &[u8]| {
            let is_part = |byte: u8| byte.is_ascii_alphanumeric() || more.contains(&byte);
            !name.is_empty() && name.bytes().all(is_part)
        };
        let mut readings = vec![(text, FolderSplit::default())];
        if let Some((path, split)) = text.rsplit_once(':').filter(|(_, split)| is_word(split, b"_-")) {
            readings.push((path, FolderSplit { config: None, split: Some(split.to_owned()) }));
            let longer = path.rsplit_once(':').filter(|(_, config)| is_word(config, b"_-."));
            if let Some((path, config)) = longer {
                let (config, split) = (Some(config.to_owned()), Some(split.to_owned()));
                readings.push((path, FolderSplit { config, split }));
            }
        }
        readings.retain(|(path, _)| !path.is_empty());
        readings
    }

    /// Returns the files of the split in a folder, in order of their names.
    ///
    /// # Errors
    /// If the folder has no such split, or several of which none is named; if a file is missing, a link out of the folder, or of
    /// a form that can't be read.
    pub fn files(&self, folder: &SourcePath) -> Result<Vec<SourcePath>, Error> {
        let splits = self.select(folder)?;
        if let [(split, files)] = splits.as_slice() {
            return sources(folder, split, files);
        }
        let splits = splits.into_iter().map(|(split, _)| split).collect();
        Err(Error::SeveralSplits { path: folder.path().to_path_buf(), splits })
    }

    /// Returns the split in a folder, or all splits if none is named, each with its files.
    ///
    /// # Errors
    /// Those of [`FolderSplit::files`].
    pub fn splits(&self, folder: &SourcePath) -> Result<Vec<(String, Vec<SourcePath>)>, Error> {
        let splits = self.select(folder)?.into_iter();
        splits.map(|(split, files)| sources(folder, &split, &files).map(|files| (split, files))).collect()
    }

    /// Returns the split, or all splits if none is named. There is at least one.
    fn select(&self, folder: &SourcePath) -> Result<Vec<SplitFiles>, Error> {
        let path = folder.path();
        let mut splits = self.select_config(path, configs(folder)?)?.splits;
        if let Some(wanted) = &self.split {
            let (found, others): (Vec<_>, Vec<_>) = splits.into_iter().partition(|(name, _)| name == wanted);
            if found.is_empty() {
                return Err(Error::UnknownFolderSplit {
                    path: path.to_path_buf(),
                    split: wanted.clone(),
                    splits: others.into_iter().map(|(name, _)| name).collect(),
                });
            }
            splits = found;
        }
        Ok(splits)
    }

    fn select_config(&self, path: &Path, mut configs: Vec<Config>) -> Result<Config, Error> {
        let wanted = match &self.config {
            Some(name) => configs.iter().position(|own| own.name == *name),
            None if configs.len() == 1 => Some(0),
            None => configs
                .iter()
                .position(|own| own.is_default)
                .or_else(|| configs.iter().position(|own| own.name == "default")),
        };
        if let Some(index) = wanted {
            return Ok(configs.swap_remove(index));
        }
        let (path, configs) = (path.to_path_buf(), configs.into_iter().map(|own| own.name).collect());
        Err(match &self.config {
            Some(config) => Error::UnknownConfig { path, config: config.clone(), configs },
            None => Error::SeveralConfigs { path, configs },
        })
    }
}

/// Returns the files of a split once they are known to be readable files of the folder.
fn sources(folder: &SourcePath, split: &str, files: &[FolderFile]) -> Result<Vec<SourcePath>, Error> {
    let path = folder.path();
    if files.is_empty() {
        return Err(Error::MissingFiles { path: path.to_path_buf(), split: split.to_owned() });
    }
    for file in files {
        if !file.is_inside {
            return Err(Error::NotInside { path: path.join(&file.name) });
        }
        if !is_readable(Path::new(&file.name)) {
            return Err(Error::Form { path: path.join(&file.name) });
        }
    }
    if files.iter().map(|file| file.bytes).fold(0, u64::saturating_add) > LARGEST_SPLIT {
        let (path, split) = (path.to_path_buf(), split.to_owned());
        return Err(Error::LargeSplit { path, split, largest: LARGEST_SPLIT });
    }
    shards::check(path, files.iter().map(|file| file.name.as_str()))?;
    Ok(files.iter().map(|file| folder.join(&file.name)).collect())
}

/// Returns the configurations of a folder that have splits. There is at least one.
fn configs(folder: &SourcePath) -> Result<Vec<Config>, Error> {
    let files = list_files(folder.path(), MOST_ENTRIES)?;
    let written = match files.iter().find(|file| file.name == CARD) {
        Some(file) if !file.is_inside => {
            return Err(Error::NotInside { path: folder.path().join(CARD) });
        }
        Some(_) => card::read_configs(&folder.join(CARD))?,
        None => Vec::new(),
    };
    let mut configs = match written.is_empty() {
        true => configs_by_names(&files),
        false => written.into_iter().map(|own| config_of_card(own, &files)).collect(),
    };
    configs.retain(|config| !config.splits.is_empty());
    if configs.is_empty() {
        return Err(Error::NoSplit { path: folder.path().to_path_buf() });
    }
    Ok(configs)
}

/// Lists the files below a folder in order of their paths, without hidden ones.
fn list_files(folder: &Path, most: usize) -> Result<Vec<FolderFile>, Error> {
    let failed = |source| Error::Read { path: folder.to_path_buf(), source };
    let root = folder.canonicalize().map_err(failed)?;
    let walk = WalkDir::new(folder).min_depth(1).max_depth(DEEPEST).into_iter();
    let walk = walk.filter_entry(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    let mut files = Vec::new();
    for (count, entry) in walk.enumerate() {
        let entry = entry.map_err(|error| failed(error.into()))?;
        if count == most {
            return Err(Error::TooManyFiles { path: folder.to_path_buf(), most });
        }
        let name = entry.path().strip_prefix(folder).ok().and_then(Path::to_str);
        if let (Some(name), false) = (name, entry.file_type().is_dir()) {
            let is_inside = match entry.file_type().is_symlink() {
                true => entry.path().canonicalize().is_ok_and(|to| is_content_of(&root, &to) && to.is_file()),
                false => entry.file_type().is_file(),
            };
            let bytes = if is_inside { fs::metadata(entry.path()).map_or(0, |file| file.len()) } else { 0 };
            files.push(FolderFile { name: name.to_owned(), is_inside, bytes });
        }
    }
    files.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(files)
}

fn config_of_card(written: CardConfig, files: &[FolderFile]) -> Config {
    let CardConfig { name, is_default, prefix, splits } = written;
    let matching = |patterns: &[String]| -> Vec<FolderFile> {
        let found = files.iter().filter(|file| patterns.iter().any(|own| glob::matches(own, &file.name)));
        let (readable, others): (Vec<FolderFile>, Vec<FolderFile>) =
            found.cloned().partition(|file| is_readable(Path::new(&file.name)));
        // Others have a form to be named in an error. Beside readable ones they are notes.
        if readable.is_empty() { others } else { readable }
    };
    let splits = match splits {
        Some(splits) => splits.into_iter().map(|(name, patterns)| (name, matching(&patterns))).collect(),
        None => splits_by_names(files, &prefix),
    };
    Config { name, is_default, splits }
}

/// Returns the configuration of a folder's own files, or else those of its subfolders.
fn configs_by_names(files: &[FolderFile]) -> Vec<Config> {
    let config = |name: &str, prefix: &str| Config {
        name: name.to_owned(),
        is_default: false,
        splits: splits_by_names(files, prefix),
    };
    let own = config("default", "");
    if !own.splits.is_empty() {
        return vec![own];
    }
    let folders: BTreeSet<&str> =
        files.iter().filter_map(|file| file.name.split_once('/')).map(|(folder, _)| folder).collect();
    folders.into_iter().map(|name| config(name, &format!("{name}/"))).collect()
}

/// Returns the splits that the names of files and folders say, of the files whose paths begin with a prefix.
fn splits_by_names(files: &[FolderFile], prefix: &str) -> Vec<SplitFiles> {
    let mut found: BTreeMap<String, Vec<FolderFile>> = BTreeMap::new();
    for file in files.iter().filter(|file| is_readable(Path::new(&file.name))) {
        if let Some(split) = file.name.strip_prefix(prefix).and_then(split_of) {
            found.entry(split).or_default().push(file.clone());
        }
    }
    let without_notes = |(split, mut files): SplitFiles| {
        drop_notes(&mut files, |file| Path::new(&file.name));
        (split, files)
    };
    found.into_iter().map(without_notes).collect()
}

/// Returns the split that a path names: in the file's name, or in that of the nearest folder. Returns `None` if it names none, or
/// has a folder that is neither of a split nor called `data`.
fn split_of(path: &str) -> Option<String> {
    let mut names = path.rsplit('/');
    let file = names.next()?;
    let folders: Vec<&str> = names.collect();
    if folders.iter().any(|folder| *folder != "data" && split_in(folder).is_none()) {
        return None;
    }
    let found = split_of_shard(file).or_else(|| split_in(file));
    found.or_else(|| folders.into_iter().find_map(split_in)).map(str::to_owned)
}

/// Returns the split of a shard, which may have any name: `NAME-00000-of-00002.parquet`.
fn split_of_shard(file: &str) -> Option<&str> {
    let name = Shard::of(file)?.name;
    let is_word = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_word.then_some(name)
}

/// Returns the split whose word is in a name, between separators.
fn split_in(name: &str) -> Option<&'static str> {
    let is_separator = |char: char| char.is_ascii_digit() || "-._ ".contains(char);
    name.split(is_separator)
        .find_map(|word| WORDS.iter().find(|(_, words)| words.contains(&word)).map(|(split, _)| *split))
}

#[cfg(test)]
mod tests;
