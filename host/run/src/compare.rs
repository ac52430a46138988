//! Comparison of runs: their differing settings and their results.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pl_record::{Lock, RunFolder, first_digits, settings_by_path};
use serde::Serialize;
use serde_json::Value;

use crate::checkpoints::last_checkpoint;
use crate::error::Error;
use crate::results::{EvaluationResults, read_evaluations};
use crate::stored::StoredWorkflow;

/// Comparison of some runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunComparison {
    pub runs: Vec<ComparedRun>,
    /// Settings, files, plugins and devices that are not the same in all runs.
    pub settings: Vec<DifferingSetting>,
}

/// Results of one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComparedRun {
    pub folder: PathBuf,
    /// Number of finished steps.
    pub step: u64,
    pub evaluations: Vec<EvaluationResults>,
}

/// A setting, a file or a plugin with its value in each run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DifferingSetting {
    /// Dotted path, such as `train.learning_rate` or `policies.coder.lora.rank`. Of lock.json: `seed`, `device`, `threads`, and
    /// others named by what they are: `data tasks`, `plugin math`, `from of policy coder`, `number format of model base`.
    pub path: String,
    /// Values in the order of the runs; the beginning of the hash for files and plugins. `None` for a run without the setting.
    pub values: Vec<Option<Value>>,
}

impl RunComparison {
    /// Compares the runs in some folders.
    ///
    /// # Errors
    /// If one of them is not a run folder, or can't be read.
    pub fn new(folders: &[PathBuf]) -> Result<RunComparison, Error> {
        let settings = folders.iter().map(|folder| settings(folder)).collect::<Result<Vec<_>, Error>>()?;
        let runs = folders
            .iter()
            .map(|folder| {
                let (step, evaluations) = (last_checkpoint(folder)?.unwrap_or(0), read_evaluations(folder)?);
                Ok(ComparedRun { folder: folder.clone(), step, evaluations })
            })
            .collect::<Result<Vec<_>, Error>>()?;
        Ok(RunComparison { runs, settings: differing(&settings) })
    }
}

/// Returns all settings of a run, and what its lock.json has of its start, by [`DifferingSetting::path`].
fn settings(folder: &Path) -> Result<BTreeMap<String, Value>, Error> {
    let stored = StoredWorkflow::read(folder)?;
    let lock = RunFolder::read_lock(folder).map_err(Error::RunFolder)?;
    let mut settings = settings_by_path(&serde_json::json!(stored.workflow));
    settings.extend(start(&lock));
    Ok(settings)
}

/// Returns the seed, the program, the device and the inputs of a run by kind and name: files and plugins as short hashes. No
/// setting has a path with a space.
fn start(lock: &Lock) -> impl Iterator<Item = (String, Value)> {
    let hashes = [
        ("plugin", &lock.plugins),
        ("grant", &lock.grants),
        ("model", &lock.models),
        ("from of policy", &lock.starts),
        ("data", &lock.data),
    ];
    let texts = [("number format of model", &lock.dtypes), ("image", &lock.images)];
    let own = [
        ("seed", Value::from(lock.seed)),
        ("version of pl-host", lock.version.as_str().into()),
        ("device", lock.device.as_str().into()),
        ("threads", lock.threads.into()),
    ];
    let named = |kind: &str, name: &str, value: &str| (format!("{kind} {name}"), Value::from(value));
    let inputs = hashes.into_iter().flat_map(move |(kind, hashes)| {
        hashes.iter().map(move |(name, hash)| named(kind, name, first_digits(hash)))
    });
    let further = texts
        .into_iter()
        .flat_map(move |(kind, texts)| texts.iter().map(move |(name, text)| named(kind, name, text)));
    own.map(|(name, value)| (name.to_owned(), value)).into_iter().chain(inputs).chain(further)
}

/// Returns the settings whose values are not the same in all runs.
fn differing(runs: &[BTreeMap<String, Value>]) -> Vec<DifferingSetting> {
    let paths: std::collections::BTreeSet<&String> = runs.iter().flat_map(BTreeMap::keys).collect();
    paths
        .into_iter()
        .map(|path| DifferingSetting {
            path: path.clone(),
            values: runs.iter().map(|run| run.get(path).cloned()).collect(),
        })
        .filter(|setting| setting.values.windows(2).any(|pair| pair[0] != pair[1]))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_differing_settings_are_listed() {
        let run = |rate: f64, policies: Value| {
            settings_by_path(&json!({ "train": { "rate": rate, "steps": 3 }, "policies": policies }))
        };
        let runs = [
            run(0.1, json!([{ "name": "coder", "rank": 4 }])),
            run(0.2, json!([{ "name": "coder", "rank": 4 }, { "name": "tester", "rank": 8 }])),
        ];
        let found = differing(&runs);
        let shown: Vec<(&str, &[Option<Value>])> =
            found.iter().map(|setting| (setting.path.as_str(), setting.values.as_slice())).collect();
        assert_eq!(
            shown,
            [
                ("policies.tester.name", &[None, Some(json!("tester"))][..]),
                ("policies.tester.rank", &[None, Some(json!(8))]),
                ("train.rate", &[Some(json!(0.1)), Some(json!(0.2))]),
            ]
        );
    }

    #[test]
    fn what_runs_began_with_is_listed_where_it_differs_with_short_hashes() {
        let run = |data: &str, from: &str, device: &str, dtype: &str| {
            let lock = json!({
                "version": "0.1.0", "contract": "0.1", "seed": 1, "device": device, "threads": 2,
                "plugins": { "letters": "ab".repeat(32) }, "models": {}, "dtypes": { "base": dtype },
                "starts": { "coder": from.repeat(32) }, "data": { "held_out": data.repeat(32) },
            });
            start(&serde_json::from_value(lock).unwrap()).collect::<BTreeMap<String, Value>>()
        };
        let found = differing(&[run("01", "23", "cpu", "f32"), run("45", "67", "cuda:0", "bf16")]);
        let shown: Vec<(&str, &[Option<Value>])> =
            found.iter().map(|setting| (setting.path.as_str(), setting.values.as_slice())).collect();
        assert_eq!(
            shown,
            [
                ("data held_out", &[Some(json!("010101010101")), Some(json!("454545454545"))][..]),
                ("device", &[Some(json!("cpu")), Some(json!("cuda:0"))]),
                ("from of policy coder", &[Some(json!("232323232323")), Some(json!("676767676767"))]),
                ("number format of model base", &[Some(json!("f32")), Some(json!("bf16"))]),
            ]
        );
    }
}
