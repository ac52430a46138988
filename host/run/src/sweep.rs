//! Sweeps: a workflow trained with every combination of some settings and seeds, one run folder each.
//!
//! A sweep that was stopped goes on where it stopped: finished runs are skipped, others are resumed. If more steps are wanted
//! than before, finished runs go on, too.

mod remaining;
mod repetitions;

use std::path::PathBuf;
use std::str::FromStr;

use pl_dsl::Override;
use serde::Serialize;
use tch::Device;

use crate::checkpoints::last_checkpoint;
use crate::error::Error;
use crate::host::Host;
use crate::progress::Notice;
use crate::results::{EvaluationResults, MeanInterval, read_evaluations};
use crate::stop_request::StopRequest;
use crate::training::{ResumeOptions, RunEnding, RunOptions, TrainingRun};
use crate::workflow::CheckedWorkflow;

use self::remaining::{Remaining, Wanted, is_run, planned_steps};
use self::repetitions::refuse_repetitions;

/// Largest number of characters of a folder's name before the seed. File systems allow 255 bytes in all.
const LONGEST_NAME: usize = 128;

/// Number of characters of the hash in the names of folders that don't show all of a combination's settings.
const NAME_HASH: usize = 16;

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
    /// Returns the name of the run folder for a seed. It shows the settings, and has a hash of them if it can't show them
    /// exactly.
    fn folder_name(&self, seed: u64) -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.=".contains(c);
        let plain = |c: char| if is_plain(c) { c } else { '_' };
        let shown = self.settings.iter().map(|setting| setting.chars().map(plain).collect::<String>() + ",");
        let mut name: String = shown.collect();
        if name.len() > LONGEST_NAME || !self.settings.iter().all(|setting| setting.chars().all(is_plain)) {
            name.pop();
            name.truncate(LONGEST_NAME - NAME_HASH - 2);
            // As JSON: a value may contain any separator.
            let hash = blake3::hash(serde_json::json!(self.settings).to_string().as_bytes()).to_hex();
            name += &format!("-{},", &hash[..NAME_HASH]);
        }
        name + &format!("seed={seed}")
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

    /// Checks the workflows of all combinations.
    ///
    /// # Errors
    /// If a run is asked for several times ([`Error::Repetition`]), or a combination is not a valid workflow.
    pub fn check(&self, host: &Host) -> Result<CheckedSweep, Error> {
        refuse_repetitions(&self.seeds, &self.grid)?;
        let cells = self.cells().into_iter().map(|cell| Ok((Wanted::new(self.open(host, &cell)?), cell)));
        let cells = cells.collect::<Result<_, Error>>()?;
        Ok(CheckedSweep { cells, seeds: self.seeds.clone(), folder: self.folder.clone() })
    }

    fn open(&self, host: &Host, cell: &SweepCell) -> Result<CheckedWorkflow, Error> {
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
}

/// A sweep whose workflows were read and checked. What changes in their files afterwards has no effect on it.
pub struct CheckedSweep {
    cells: Vec<(Wanted, SweepCell)>,
    seeds: Vec<u64>,
    folder: PathBuf,
}

impl CheckedSweep {
    /// Trains every combination with every seed, or until a stop is requested. The runs that are in the folder are checked
    /// before the first one starts. A run that fails doesn't keep the others from being played.
    ///
    /// # Errors
    /// If a run in the folder is of another workflow or had other data ([`Error::OtherSweep`]), something is not allowed, or runs
    /// failed ([`Error::SweepRuns`]).
    pub fn run(&mut self, host: &Host, device: Device, stop: &StopRequest) -> Result<RunEnding, Error> {
        let mut remaining = Vec::with_capacity(self.cells.len() * self.seeds.len());
        for &seed in &self.seeds {
            for (wanted, cell) in &mut self.cells {
                remaining.push(wanted.remaining(host, &self.folder.join(cell.folder_name(seed)))?);
            }
        }
        let total = remaining.len();
        let mut failed: Vec<(String, Error)> = Vec::new();
        // Seeds are the outer loop: the first results of all cells come early.
        let runs = self.seeds.iter().flat_map(|&seed| self.cells.iter().map(move |one| (seed, one)));
        for ((index, remaining), (seed, (wanted, cell))) in remaining.into_iter().enumerate().zip(runs) {
            if matches!(remaining, Remaining::Nothing) {
                continue;
            }
            let name = cell.folder_name(seed);
            // Before it is started, for the error of one that can't be.
            host.notify(Notice::SweepRun { number: index + 1, total, name: name.clone() });
            let root = self.folder.join(&name);
            match train(host, device, &wanted.workflow, remaining, root, seed, stop) {
                Ok(RunEnding::Done) => {}
                Ok(RunEnding::Interrupted) => return Ok(RunEnding::Interrupted),
                // The user may allow it, and the sweep begins again.
                Err(error) if error.asks_for_permission() => return Err(error),
                Err(error) => {
                    host.notify(Notice::SweepRunFailed { name: name.clone(), error: error.to_string() });
                    failed.push((name, error));
                }
            }
        }
        let count = failed.len();
        match failed.into_iter().next() {
            None => Ok(RunEnding::Done),
            Some((name, error)) => {
                Err(Error::SweepRuns { failed: count, total, name, source: Box::new(error) })
            }
        }
    }

    /// Returns the results of all cells so far: those of the runs that have all of the steps that are wanted.
    ///
    /// # Errors
    /// If the metrics of a run can't be read.
    pub fn results(&self) -> Result<Vec<CellResults>, Error> {
        self.cells.iter().map(|(wanted, cell)| self.cell_results(wanted, cell)).collect()
    }

    fn cell_results(&self, wanted: &Wanted, cell: &SweepCell) -> Result<CellResults, Error> {
        let steps = planned_steps(&wanted.workflow.workflow);
        let mut runs = Vec::new();
        for &seed in &self.seeds {
            let root = self.folder.join(cell.folder_name(seed));
            if is_run(&root) && last_checkpoint(&root)?.unwrap_or(0) >= steps {
                runs.push(read_evaluations(&root)?);
            }
        }
        Ok(CellResults { cell: cell.clone(), finished: runs.len(), evaluations: cell_evaluations(&runs) })
    }
}

/// Does what is left of a run in the folder `root`.
fn train(
    host: &Host,
    device: Device,
    workflow: &CheckedWorkflow,
    remaining: Remaining,
    root: PathBuf,
    seed: u64,
    stop: &StopRequest,
) -> Result<RunEnding, Error> {
    let mut run = match remaining {
        Remaining::Nothing => return Ok(RunEnding::Done),
        Remaining::All => {
            let options = RunOptions { folder: Some(root), seed, ..RunOptions::default() };
            TrainingRun::start(host, workflow, device, &options)?
        }
        Remaining::Steps(overrides) => {
            let options = ResumeOptions { overrides, from_start: true, ..ResumeOptions::default() };
            TrainingRun::resume(host, &root, device, &options)?
        }
    };
    run.train(stop)
}

/// Returns the results of each evaluation over some runs, in the order in which the runs have them.
fn cell_evaluations(runs: &[Vec<EvaluationResults>]) -> Vec<CellEvaluation> {
    let mut names: Vec<&str> = Vec::new();
    for EvaluationResults { name, .. } in runs.iter().flatten() {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let evaluation = |name: &str| {
        let own = || runs.iter().flatten().filter(|evaluation| evaluation.name == name);
        let untrained: Vec<f64> = own().filter_map(EvaluationResults::untrained).collect();
        let last: Vec<f64> = own().filter_map(EvaluationResults::last).collect();
        let gain = own().filter_map(|evaluation| Some(evaluation.last()? - evaluation.untrained()?));
        let gain: Vec<f64> = gain.collect();
        CellEvaluation {
            name: name.to_owned(),
            untrained: MeanInterval::new(&untrained),
            last: MeanInterval::new(&last),
            gain: MeanInterval::new(&gain),
        }
    };
    names.into_iter().map(evaluation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::EvaluationScore;

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

    #[test]
    fn folders_of_different_settings_have_different_names() {
        let name = |settings: &[&str]| {
            SweepCell { settings: settings.iter().map(|&own| own.to_owned()).collect() }.folder_name(1)
        };
        let (hash, dollar) = (name(&[r##"tool.stop=["#"]"##]), name(&[r#"tool.stop=["$"]"#]));
        assert_ne!(hash, dollar);
        assert!(hash.starts_with("tool.stop=_____-") && hash.ends_with(",seed=1"), "{hash}");
        assert_ne!(name(&["a=x y", "b=z"]), name(&["a=x", "y b=z"]));
        // Short plain settings are the name.
        assert_eq!(name(&["a=1e-4", "b.c=x_y"]), "a=1e-4,b.c=x_y,seed=1");
        let [long, other] = ["x", "y"].map(|end| name(&[&format!("prompt={}{end}", "a".repeat(300))]));
        assert_ne!(long, other);
        let longest = LONGEST_NAME + "seed=1".len();
        assert!(long.starts_with("prompt=aaa") && long.len() == longest, "{long}");
        // All texts of a name are ASCII: none is cut within a character.
        assert_eq!(name(&[&format!("prompt=\"{}\"", "ü".repeat(300))]).len(), longest);
    }

    #[test]
    fn evaluations_of_all_runs_are_in_the_table() {
        let run = |names: &[&str]| -> Vec<EvaluationResults> {
            let results = |name: &&str| EvaluationResults {
                name: (*name).to_owned(),
                scores: [(0, 0.25), (2, 0.5)]
                    .map(|(step, success)| EvaluationScore { step, success, tasks: Some(4) })
                    .to_vec(),
            };
            names.iter().map(results).collect()
        };
        let evaluations =
            cell_evaluations(&[run(&["test"]), run(&["test", "hard"]), Vec::new(), run(&["easy"])]);
        let counts = evaluations.iter().map(|own| (own.name.as_str(), own.last.unwrap().count));
        assert_eq!(counts.collect::<Vec<_>>(), [("test", 2), ("hard", 1), ("easy", 1)]);
    }
}
