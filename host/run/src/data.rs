//! Data sets that workflows name: found on this machine or fetched, and made into task files.
//!
//! Data is looked for in the folder `$PL_HOST_DATA` and in `data` of the cache. A split's task file is kept in `tasks` of the
//! cache, under a hash of the files that it is made of.

use std::path::{Path, PathBuf};

use pl_data::{DataSet, FolderSplit, Split};
use pl_dsl::workflow::DataName;
use pl_model::{Hub, HubData};
use pl_toolchain::cache;
use pl_types::SourcePath;
use serde_json::{Map, Value};

use crate::error::locate::{LocateError, MissingData};
use crate::host::Host;
use crate::locate::{Downloads, TaskPath};
use crate::progress::Notice;

/// Number of digits of a hash in the names of folders.
const DIGITS: usize = 16;

/// A split of the catalogue, and its files on this machine.
#[derive(Debug)]
pub struct LocatedSplit {
    pub data: &'static DataSet,
    pub split: &'static Split,
    /// `None` if they are not on this machine.
    pub files: Option<Vec<PathBuf>>,
}

impl LocatedSplit {
    fn new(data: &'static DataSet, split: &'static Split) -> Result<LocatedSplit, LocateError> {
        let files = split.find(data, &folders()?)?;
        Ok(LocatedSplit { data, split, files })
    }

    /// Returns `NAME:SPLIT`.
    pub fn name(&self) -> String {
        format!("{}:{}", self.data.name, self.split.name)
    }

    /// Reads the task records. Returns `None` if the files are not on this machine.
    ///
    /// # Errors
    /// If a file or a record can't be read.
    pub fn tasks(&self) -> Option<Result<Vec<Map<String, Value>>, pl_data::Error>> {
        let files = self.files.as_ref()?;
        Some(self.split.read(self.data, files))
    }
}

/// Returns the folders in which data sets are looked for, the first one first.
///
/// # Errors
/// If there is no cache folder.
pub fn folders() -> Result<Vec<PathBuf>, LocateError> {
    let named = std::env::var_os("PL_HOST_DATA").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    Ok(named.into_iter().chain([cache::root()?.join("data")]).collect())
}

/// Returns the splits of `NAME`, the one of `NAME:SPLIT`, or those of all data sets.
///
/// # Errors
/// If there is no such data set or split, or a folder can't be listed.
pub fn splits(name: Option<&str>) -> Result<Vec<LocatedSplit>, LocateError> {
    let all_of = |data: &'static DataSet| data.splits.iter().map(move |split| (data, split));
    let wanted = match name {
        Some(name) => pl_data::find_splits(name)?,
        None => pl_data::CATALOGUE.iter().flat_map(all_of).collect(),
    };
    wanted.into_iter().map(|(data, split)| LocatedSplit::new(data, split)).collect()
}

/// Tasks that a path names: those of a file, or of a split of a folder.
#[derive(Debug)]
pub struct PathTasks {
    /// Path, with the split of a folder.
    pub name: String,
    pub files: Vec<SourcePath>,
}

impl PathTasks {
    /// Reads the task records.
    ///
    /// # Errors
    /// If a file or a record can't be read.
    pub fn tasks(&self) -> Result<Vec<Map<String, Value>>, pl_data::Error> {
        pl_data::read_files(&self.files)
    }
}

/// Returns the tasks of a file, the splits of `FOLDER`, or the one of `FOLDER:SPLIT` or `FOLDER:CONFIG:SPLIT`. Returns `None` if
/// the text is no path: without a slash or a dot at its beginning, it is the name of a data set.
///
/// # Errors
/// If there is no such path, or its folder has no such split.
pub fn tasks_at(text: &str) -> Result<Option<Vec<PathTasks>>, LocateError> {
    if !text.contains('/') && !text.starts_with('.') {
        return Ok(None);
    }
    let mut readings = FolderSplit::readings(text).into_iter();
    let found = readings.find_map(|(path, split)| TaskPath::find(path.into(), split));
    let TaskPath { path, split } = found.ok_or_else(|| LocateError::NoFile(text.into()))?;
    let Some(split) = split else {
        return Ok(Some(vec![PathTasks { name: text.to_owned(), files: vec![path.into()] }]));
    };
    let folder = match &split.config {
        Some(config) => format!("{}:{config}", path.display()),
        None => path.display().to_string(),
    };
    let splits = split.splits(&SourcePath::from(path))?.into_iter();
    let tasks = splits.map(|(name, files)| PathTasks { name: format!("{folder}:{name}"), files });
    Ok(Some(tasks.collect()))
}

/// Checks that the files of a split are on this machine, or at a hub.
///
/// # Errors
/// [`LocateError::NoData`] if they are on neither; if the catalogue has no such split, or a folder can't be listed.
pub(crate) fn check_available(name: &DataName) -> Result<(), LocateError> {
    let (data, split) = pl_data::find(&name.data, &name.split)?;
    match LocatedSplit::new(data, split)?.files {
        None if split.hub.is_none() => Err(missing(data, split, None)?),
        _ => Ok(()),
    }
}

/// Returns a split's task file, which is made if the cache has none. Files that are not on this machine are fetched.
///
/// # Errors
/// If the files can't be found, fetched or read.
pub(crate) fn task_file(host: &Host, name: &DataName) -> Result<PathBuf, LocateError> {
    let (data, split) = pl_data::find(&name.data, &name.split)?;
    let files = match LocatedSplit::new(data, split)?.files {
        Some(files) => files,
        None => fetch(host, data, split)?,
    };
    let stem = format!("{}-{}", data.name, split.name);
    let sources: Vec<SourcePath> = files.iter().map(SourcePath::from).collect();
    converted(&stem, &sources, || Ok(split.read(data, &files)?))
}

/// Returns the number of tasks of a split. Nothing is fetched or written.
///
/// # Errors
/// If the files are not on this machine or can't be read.
pub(crate) fn count(name: &DataName) -> Result<(PathBuf, u64), LocateError> {
    let (data, split) = pl_data::find(&name.data, &name.split)?;
    let located = LocatedSplit::new(data, split)?;
    let (Some(tasks), Some(first)) =
        (located.tasks(), located.files.as_ref().and_then(|files| files.first()))
    else {
        return Err(missing(data, split, None)?);
    };
    Ok((first.clone(), tasks?.len() as u64))
}

/// Returns a JSONL file with the records of task files. A JSONL file on its own is returned as it is.
///
/// # Errors
/// If a file can't be read.
pub(crate) fn as_jsonl(sources: &[SourcePath]) -> Result<SourcePath, LocateError> {
    if let [source] = sources
        && source.path().to_string_lossy().ends_with(".jsonl")
    {
        return Ok(source.clone());
    }
    let first = sources.first().and_then(|source| source.path().file_name());
    let name = first.unwrap_or_default().to_string_lossy();
    let stem = name.split('.').next().unwrap_or_default().to_owned();
    let read = || match pl_data::read_files(sources)? {
        // The file that is made of it has a name that nobody knows.
        records if records.is_empty() => {
            let path = sources.first().map(|source| source.path().to_path_buf()).unwrap_or_default();
            Err(pl_data::Error::NoTasks { path }.into())
        }
        records => Ok(records),
    };
    let made = converted(&stem, sources, read)?;
    Ok(made.into())
}

fn converted(
    stem: &str,
    files: &[SourcePath],
    read: impl FnOnce() -> Result<Vec<Map<String, Value>>, LocateError>,
) -> Result<PathBuf, LocateError> {
    let hash = pl_data::hash_files(files)?;
    let digits: String = hash.chars().take(DIGITS).collect();
    let folder = cache::root()?.join("tasks").join(format!("{stem}-{digits}"));
    let name = format!("{stem}.jsonl");
    cache::folder(&folder, |partial| {
        pl_data::write_jsonl(&partial.join(&name), &read()?)?;
        Ok::<_, LocateError>(())
    })?;
    Ok(folder.join(name))
}

fn fetch(host: &Host, data: &DataSet, split: &Split) -> Result<Vec<PathBuf>, LocateError> {
    let Some(hub) = &split.hub else { return Err(missing(data, split, None)?) };
    let wanted = HubData { repo: hub.repo.to_owned(), prefix: hub.prefix.to_owned() };
    let is_wanted = |name: &str| pl_data::is_readable(Path::new(name));
    let mut downloads = Downloads::new(host);
    let fetched =
        Hub::from_env()?.fetch_data(&wanted, &is_wanted, &mut |progress| downloads.update(progress));
    drop(downloads);
    match fetched {
        Ok(fetched) => {
            if let Some(reason) = fetched.cache_reason {
                host.notify(Notice::DataFromCache { data: data.name.to_owned(), reason });
            }
            Ok(fetched.files)
        }
        Err(error) => Err(missing(data, split, Some(error.to_string()))?),
    }
}

/// Returns the error for a split that is not on this machine, with the reason for which it was not fetched.
fn missing(data: &DataSet, split: &Split, reason: Option<String>) -> Result<LocateError, LocateError> {
    let folder = cache::root()?.join("data");
    // Beginnings of names are completed by the form.
    let file = split
        .files
        .first()
        .map_or_else(String::new, |first| format!("{}.jsonl", first.trim_end_matches('.')));
    Ok(LocateError::NoData(Box::new(MissingData {
        name: format!("{}:{}", data.name, split.name),
        file,
        folder,
        published: data.published,
        licence: data.licence,
        reason: reason.map(|reason| format!("\nit was not fetched: {reason}")).unwrap_or_default(),
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_tasks_is_named_and_not_the_file_that_is_made_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("none.json");
        std::fs::write(&path, "[]").unwrap();
        let error = as_jsonl(&[path.clone().into()]).unwrap_err().to_string();
        assert_eq!(error, format!("{} has no tasks", path.display()));
    }
}
