//! Data sets and their splits: where their files are, and what of a record is used.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::error::Error;
use crate::files::{find_files, read_file};

/// A data set of the catalogue.
#[derive(Debug)]
pub struct DataSet {
    /// Name before the colon.
    pub name: &'static str,
    pub title: &'static str,
    /// Environment that its records are for, as `PLUGIN.ITEM` of the plugins that are shipped.
    pub environment: &'static str,
    /// Place where it is published.
    pub published: &'static str,
    pub licence: &'static str,
    pub splits: &'static [Split],
}

/// A split of a data set.
#[derive(Debug)]
pub struct Split {
    /// Name after the colon.
    pub name: &'static str,
    /// Beginnings of the paths of its files in a data folder, the preferred ones first.
    pub files: &'static [&'static str],
    /// Its files on a hub. `None` if no hub has it in a form that can be read.
    pub hub: Option<HubFiles>,
    /// Fields of a task. Empty if the environment reads the records as they are.
    pub fields: &'static [Field],
    /// Field whose whole number must be in a range, both ends included, where one file has several splits.
    pub only: Option<(&'static str, i64, i64)>,
}

/// Files of a data set's repository on a hub.
#[derive(Debug)]
pub struct HubFiles {
    /// `OWNER/NAME`.
    pub repo: &'static str,
    /// Beginning of the paths of the split's files.
    pub prefix: &'static str,
}

/// A field of a task and those of a record that may hold it.
#[derive(Debug)]
pub struct Field {
    pub to: &'static str,
    /// Names in order of preference. A dot leads into an object.
    pub from: &'static [&'static str],
    /// Field that replaces it in records without any of these names. The task has it under its own name.
    pub instead: Option<&'static str>,
    pub required: bool,
}

impl Split {
    /// Returns the files of the split in the first of the folders that has it. Returns `None` if none has.
    ///
    /// # Errors
    /// [`Error::Read`] if a folder can't be listed.
    pub fn find(&self, data: &DataSet, folders: &[PathBuf]) -> Result<Option<Vec<PathBuf>>, Error> {
        // A folder of the hub, as it was cloned, is a data folder too.
        let cloned = self.hub.as_ref().map(|hub| format!("{}/{}", data.name, hub.prefix));
        for folder in folders {
            for prefix in self.files.iter().copied().chain(cloned.as_deref()) {
                let found = find_files(folder, prefix)?;
                if !found.is_empty() {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    /// Reads the task records of the split from its files.
    ///
    /// # Errors
    /// If a file can't be read, a record lacks a field, or the set has no file.
    pub fn read(&self, data: &DataSet, files: &[PathBuf]) -> Result<Vec<Map<String, Value>>, Error> {
        let mut tasks = Vec::new();
        for path in files {
            for (index, record) in read_file(path)?.into_iter().enumerate() {
                if self.has(&record) {
                    tasks.extend(self.task(record, path, index + 1)?);
                }
            }
        }
        if tasks.is_empty() {
            let path = files.first().cloned().unwrap_or_default();
            return Err(Error::Empty { path, name: format!("{}:{}", data.name, self.name) });
        }
        Ok(tasks)
    }

    /// Returns true if a record of its files is of this split.
    fn has(&self, record: &Map<String, Value>) -> bool {
        let Some((field, first, last)) = self.only else { return true };
        record.get(field).and_then(Value::as_i64).is_some_and(|number| (first..=last).contains(&number))
    }

    /// Makes a task of a record. Returns `None` if a required field is null: some sets have problems without an answer.
    fn task(
        &self,
        record: Map<String, Value>,
        path: &Path,
        number: usize,
    ) -> Result<Option<Map<String, Value>>, Error> {
        if self.fields.is_empty() {
            return Ok(Some(record));
        }
        let mut task = Map::new();
        for field in self.fields {
            match field.names().find_map(|(to, from)| Some((to, at(&record, from)?.clone()))) {
                Some((to, value)) => {
                    task.insert(to.to_owned(), plain(value));
                }
                None if !field.required => {}
                None if field.names().any(|(_, from)| record.contains_key(from)) => return Ok(None),
                None => {
                    return Err(Error::MissingField {
                        path: path.to_path_buf(),
                        record: number,
                        wanted: field.names().map(|(_, from)| from).collect(),
                        fields: record.keys().cloned().collect(),
                    });
                }
            }
        }
        Ok(Some(task))
    }
}

impl Field {
    /// Returns the names in a task and in a record that it may have, in order of preference.
    fn names(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let to = self.to;
        self.from.iter().map(move |from| (to, *from)).chain(self.instead.map(|name| (name, name)))
    }
}

/// Returns the value at a path of names with dots. Returns `None` if it is missing or null.
fn at<'r>(record: &'r Map<String, Value>, name: &str) -> Option<&'r Value> {
    let mut parts = name.split('.');
    let first = record.get(parts.next()?)?;
    let value = parts.try_fold(first, |value, part| value.get(part))?;
    (!value.is_null()).then_some(value)
}

/// Returns a list of one value as that value, and a whole number without its fraction.
fn plain(value: Value) -> Value {
    match value {
        Value::Array(mut values) if values.len() == 1 && values.iter().all(|one| !one.is_array()) => {
            values.pop().map_or(Value::Null, plain)
        }
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15 => {
                Value::from(float as i64)
            }
            _ => Value::Number(number),
        },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::catalogue::find;

    #[test]
    fn records_of_math_have_an_answer_or_a_solution() {
        let (data, split) = find("math", "train").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("train.json");
        let read = |records: serde_json::Value| {
            std::fs::write(&file, records.to_string()).unwrap();
            split.read(data, std::slice::from_ref(&file))
        };
        let records = json!([
            { "problem": "p", "level": "Level 1", "solution": "so \\boxed{3}." },
            { "problem": "q", "solution": "so \\boxed{4}.", "answer": "4" },
            { "problem": "r", "answer": null },
        ]);
        let tasks = json!([
            { "question": "p", "solution": "so \\boxed{3}." },
            { "question": "q", "answer": "4" },
        ]);
        assert_eq!(json!(read(records).unwrap()), tasks);
        let message = read(json!([{ "problem": "p" }])).unwrap_err().to_string();
        let wanted =
            "record 1 has no answer or final_answer or reward_model.ground_truth or solution; it has problem";
        assert!(message.ends_with(wanted), "{message}");
    }
}
