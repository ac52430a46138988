//! Sweeps: a workflow trained with every combination of some settings and seeds, one run folder each.
//!
//! A sweep that was stopped goes on where it stopped: finished runs are skipped, others are resumed.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use pl_dsl::Override;
use serde::Serialize;
use tch::Device;

use crate::error::Error;
use crate::host::Host;
use crate::progress::Notice;
use crate::results::{MeanInterval, read_evaluations};
use crate::resume::fixed_settings;
use crate::stop_request::StopRequest;
use crate::stored::StoredWorkflow;
use crate::training::{ResumeOptions, RunEnding, RunOptions, TrainingRun, finished_steps};
use crate::workflow::CheckedWorkflow;

/// Values of one setting: `train.learning_rate=[1e-4, 2e-4]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GridAxis {
    /// Name of a param, or dotted path of a setting.
    pub path: String,
    /// Values as the language writes them.
    pub values: Vec<String>,
}

/// Reason for which a text is not a [`GridAxis`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`PATH=[VALUE, VALUE, …]` is expected, as in train.learning_rate=[1e-4, 2e-4]")]
pub struct InvalidAxis;

impl FromStr for GridAxis {
    type Err = InvalidAxis;

    fn from_str(text: &str) -> Result<GridAxis, InvalidAxis> {
        let (path, values) = text.split_once('=').ok_or(InvalidAxis)?;
        let values =
            values.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).ok_or(InvalidAxis)?;
        let values: Vec<String> =
            split_values(values).into_iter().map(|value| value.trim().to_owned()).collect();
        if path.trim().is_empty() || values.iter().any(String::is_empty) {
            return Err(InvalidAxis);
        }
        Ok(GridAxis { path: path.trim().to_owned(), values })
    }
}

/// Splits at commas outside of inner lists and texts.
fn split_values(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth, mut quoted) = (Vec::new(), 0, 0u32, false);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'"' => quoted = !quoted,
            b'[' if !quoted => depth += 1,
            b']' if !quoted => depth = depth.saturating_sub(1),
            b',' if !quoted && depth == 0 => {
                parts.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// A sweep over a workflow file.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// Workflow file.
    pub file: PathBuf,
    /// Settings of all runs.
    pub given: Vec<Override>,
    pub grid: Vec<GridAxis>,
    pub seeds: Vec<u64>,
    /// Folder of the run folders.
    pub folder: PathBuf,
}

/// One combination of a sweep's settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SweepCell {
    /// Settings as in `train.samples=8`. Empty for a sweep over seeds alone.
    pub settings: Vec<String>,
}

impl SweepCell {
    /// Name of the run folder for a seed.
    fn folder_name(&self, seed: u64) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.=".contains(c) { c } else { '_' };
        let mut name: String = self
            .settings
            .iter()
            .map(|setting| setting.chars().map(plain).collect::<String>() + ",")
            .collect();
        name += &format!("seed={seed}");
        name
    }
}

/// Results of the finished runs of a cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CellResults {
    #[serde(flatten)]
    pub cell: SweepCell,
    /// Number of finished runs.
    pub finished: usize,
    pub evaluations: Vec<CellEvaluation>,
}

/// Success of an evaluation over the finished runs of a cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CellEvaluation {
    pub name: String,
    /// Success of the untrained team.
    pub untrained: Option<MeanInterval>,
    /// Success after the last step.
    pub last: Option<MeanInterval>,
    /// Gain of the last step over the untrained team, run by run.
    pub gain: Option<MeanInterval>,
}

impl Sweep {
    /// Returns all combinations of settings, the last axis varying fastest.
    pub fn cells(&self) -> Vec<SweepCell> {
        let mut cells = vec![SweepCell { settings: Vec::new() }];
        for axis in &self.grid {
            cells = cells
                .iter()
                .flat_map(|cell| {
                    axis.values.iter().map(|value| {
                        let mut settings = cell.settings.clone();
                        settings.push(format!("{}={value}", axis.path));
                        SweepCell { settings }
                    })
                })
                .collect();
        }
        cells
    }

    /// Trains every combination with every seed, or until a stop is requested. The whole grid is checked before
    /// the first run starts.
    ///
    /// # Errors
    /// If a combination is not a valid workflow, a run in the folder is of another workflow
    /// ([`Error::OtherSweep`]), or a run fails.
    pub fn run(&self, host: &Host, device: Device, stop: &StopRequest) -> Result<RunEnding, Error> {
        let checked = self
            .cells()
            .into_iter()
            .map(|cell| Ok((self.check(host, &cell)?, cell)))
            .collect::<Result<Vec<_>, Error>>()?;
        let total = checked.len() * self.seeds.len();
        let mut number = 0;
        // Seeds are the outer loop: the first results of all cells come early.
        for &seed in &self.seeds {
            for (workflow, cell) in &checked {
                number += 1;
                let name = cell.folder_name(seed);
                let root = self.folder.join(&name);
                let Some(mut run) = open_run(host, workflow, &root, seed, device)? else { continue };
                host.notify(Notice::SweepRun { number, total, name });
                if run.train(stop)? == RunEnding::Interrupted {
                    return Ok(RunEnding::Interrupted);
                }
            }
        }
        Ok(RunEnding::Done)
    }

    fn check(&self, host: &Host, cell: &SweepCell) -> Result<CheckedWorkflow, Error> {
        let mut given = self.given.clone();
        for setting in &cell.settings {
            let parsed = setting.parse::<Override>().map_err(|error| Error::GridSetting {
                setting: setting.clone(),
                problem: error.to_string(),
            })?;
            given.push(Override { shown: format!("--grid {setting}"), ..parsed });
        }
        CheckedWorkflow::open(host, &self.file, &given)
    }

    /// Returns the results of all cells so far.
    ///
    /// # Errors
    /// If the metrics of a run can't be read.
    pub fn results(&self) -> Result<Vec<CellResults>, Error> {
        self.cells().into_iter().map(|cell| self.cell_results(cell)).collect()
    }

    fn cell_results(&self, cell: SweepCell) -> Result<CellResults, Error> {
        let mut runs = Vec::new();
        for &seed in &self.seeds {
            let root = self.folder.join(cell.folder_name(seed));
            if is_finished(&root)? {
                runs.push(read_evaluations(&root)?);
            }
        }
        let names = runs.first().into_iter().flatten().map(|evaluation| evaluation.name.clone());
        let evaluations = names
            .map(|name| {
                let own = || runs.iter().flatten().filter(|evaluation| evaluation.name == name);
                let untrained: Vec<f64> = own().filter_map(|evaluation| evaluation.untrained()).collect();
                let last: Vec<f64> = own().filter_map(|evaluation| evaluation.last()).collect();
                let gain: Vec<f64> = own()
                    .filter_map(|evaluation| Some(evaluation.last()? - evaluation.untrained()?))
                    .collect();
                CellEvaluation {
                    untrained: MeanInterval::new(&untrained),
                    last: MeanInterval::new(&last),
                    gain: MeanInterval::new(&gain),
                    name,
                }
            })
            .collect();
        Ok(CellResults { cell, finished: runs.len(), evaluations })
    }
}

/// Starts or resumes the run in `root`. Returns `None` if it is finished.
fn open_run<'h>(
    host: &'h Host,
    checked: &CheckedWorkflow,
    root: &Path,
    seed: u64,
    device: Device,
) -> Result<Option<TrainingRun<'h>>, Error> {
    if !is_run(root) {
        let options = RunOptions { folder: Some(root.to_path_buf()), seed, ..RunOptions::default() };
        return TrainingRun::start(host, checked, device, &options).map(Some);
    }
    let stored = StoredWorkflow::read(root)?;
    let mut wanted = checked.workflow.clone();
    // The run has pinned the commits of its models.
    for (wanted, stored) in wanted.models.iter_mut().zip(&stored.workflow.models) {
        wanted.source.clone_from(&stored.source);
    }
    let reasons = fixed_settings(&stored.workflow, &wanted, 0);
    if !reasons.is_empty() {
        return Err(Error::OtherSweep { path: root.to_path_buf(), reasons });
    }
    if is_finished(root)? {
        return Ok(None);
    }
    let options = ResumeOptions { from_start: true, ..ResumeOptions::default() };
    TrainingRun::resume(host, root, device, &options).map(Some)
}

fn is_run(root: &Path) -> bool {
    root.join("workflow.json").is_file()
}

/// Returns true if all steps of a run are finished.
fn is_finished(root: &Path) -> Result<bool, Error> {
    if !is_run(root) {
        return Ok(false);
    }
    let steps = StoredWorkflow::read(root)?.workflow.train.map_or(0, |train| u64::from(train.steps));
    Ok(finished_steps(root)? >= steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(text: &str) -> Option<(String, Vec<String>)> {
        text.parse().ok().map(|GridAxis { path, values }| (path, values))
    }

    #[test]
    fn axes_are_parsed() {
        let values = |list: &[&str]| list.iter().map(|&value| value.to_owned()).collect::<Vec<_>>();
        assert_eq!(
            axis("train.learning_rate=[1e-4, 2e-4]"),
            Some(("train.learning_rate".to_owned(), values(&["1e-4", "2e-4"])))
        );
        assert_eq!(
            axis("coder.lora.targets = [[q, k], [v]]"),
            Some(("coder.lora.targets".to_owned(), values(&["[q, k]", "[v]"])))
        );
        assert_eq!(
            axis(r#"tasks=["a,b", "c"]"#),
            Some(("tasks".to_owned(), values(&[r#""a,b""#, r#""c""#])))
        );
        for invalid in ["", "samples", "samples=4", "samples=[]", "samples=[4,]", "=[1]", "samples=[1"] {
            assert_eq!(axis(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn cells_are_all_combinations() {
        let sweep = Sweep {
            file: PathBuf::new(),
            given: Vec::new(),
            grid: ["a=[1, 2]", "b.c=[x, y]"].map(|axis| axis.parse().unwrap()).to_vec(),
            seeds: vec![7],
            folder: PathBuf::new(),
        };
        let names: Vec<String> = sweep.cells().iter().map(|cell| cell.folder_name(7)).collect();
        assert_eq!(names, ["a=1,b.c=x,seed=7", "a=1,b.c=y,seed=7", "a=2,b.c=x,seed=7", "a=2,b.c=y,seed=7"]);
        let alone = Sweep { grid: Vec::new(), ..sweep };
        assert_eq!(alone.cells()[0].folder_name(1), "seed=1");
    }
}
