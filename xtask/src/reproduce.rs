//! `cargo xtask reproduce NAME`: the training runs behind a table of docs/learning.md, the table, and the picture.
//!
//! Every arm of an experiment is a sweep of `pl-host` over the seeds, which skips finished runs and continues others: the
//! same command goes on where it was stopped. `curves.png` of each run folder has its curve, `--figure` draws a line for each arm.
//! An experiment with search makes its questions from a corpus first.

mod clusters;
mod experiments;
mod figure;
mod finished;
mod intervals;
mod questions;
mod rooms;
mod table;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use self::experiments::{Arm, EXPERIMENTS, Experiment, Swapped};
use self::figure::Curve;
use self::finished::FinishedRun;
use self::intervals::{Difference, Proportion};
use self::table::Row;
use crate::setup;

/// Command line of `reproduce`.
struct Options {
    experiment: &'static Experiment,
    seeds: Vec<u64>,
    /// Settings of all arms.
    settings: Vec<String>,
    /// Device of all runs. `None` for what `pl-host` chooses.
    device: Option<String>,
    /// Corpus that questions are made from.
    corpus: Option<PathBuf>,
    folder: PathBuf,
    /// Only prints the table of what is finished.
    table_only: bool,
    /// Picture to draw of what is finished.
    figure: Option<PathBuf>,
}

/// Runs an experiment and prints its table.
pub fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let mut options = Options::parse(arguments)?;
    if !options.table_only {
        let program = setup::all(root)?;
        if options.experiment.needs_corpus {
            let questions = options.questions()?;
            options.settings.extend(questions);
        }
        for arm in options.experiment.arms {
            options.sweep(&program, root, arm)?;
        }
        if let Some(swapped) = &options.experiment.swapped {
            options.evaluate_swapped(&program, root, swapped)?;
        }
    }
    print!("{}", options.table()?);
    if let Some(path) = &options.figure {
        figure::draw(path, &options.curves())?;
    }
    Ok(())
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Options> {
        let names = || EXPERIMENTS.iter().map(|one| one.name).collect::<Vec<_>>().join(", ");
        let Some((name, rest)) = arguments.split_first() else {
            bail!("name an experiment: {}", names());
        };
        let experiment = EXPERIMENTS
            .iter()
            .find(|one| one.name == name)
            .with_context(|| format!("there is no experiment {name}; there are {}", names()))?;
        let steps = format!("train.steps={}", experiment.steps);
        let settings = experiment.settings.iter().map(|own| (*own).to_owned());
        let mut options = Options {
            experiment,
            seeds: vec![1, 2, 3],
            settings: settings.chain([steps]).collect(),
            device: None,
            corpus: None,
            folder: PathBuf::from("runs/reproduce").join(name),
            table_only: false,
            figure: None,
        };
        let mut rest = rest.iter();
        while let Some(flag) = rest.next() {
            let mut value = || rest.next().with_context(|| format!("{flag} needs a value"));
            match flag.as_str() {
                "--table" => options.table_only = true,
                "--figure" => options.figure = Some(value()?.into()),
                "--out" => options.folder = value()?.into(),
                "--corpus" => options.corpus = Some(value()?.into()),
                "--device" => options.device = Some(value()?.clone()),
                "--set" => options.settings.push(value()?.clone()),
                "--seeds" => {
                    let seed = |text: &str| {
                        text.parse().with_context(|| format!("--seeds: {text:?} is not a seed; write 1,2,3"))
                    };
                    options.seeds = value()?.split(',').map(seed).collect::<Result<_>>()?;
                }
                _ => bail!(
                    "unknown option {flag}; there are --seeds 1,2,3, --set KEY=VALUE, --device DEVICE, --corpus FILE, --out DIR, \
                     --table, --figure FILE.svg"
                ),
            }
        }
        if experiment.needs_corpus && options.corpus.is_none() && !options.table_only {
            bail!(
                "{name} makes its questions from a corpus: name one with --corpus FILE, an object {{\"TITLE\": [\"SENTENCE\", …], …}}"
            );
        }
        Ok(options)
    }

    /// Makes the questions about the corpus, and returns the settings that go with them.
    fn questions(&self) -> Result<[String; 4]> {
        let corpus = self.corpus.as_deref().context("the experiment has no corpus")?;
        let [train, test] = questions::write(corpus, &self.folder.join("questions"))?;
        let setting = |key: &str, path: &Path| -> Result<String> {
            let path = std::path::absolute(path).with_context(|| format!("{}", path.display()))?;
            Ok(format!("{key}={}", path.display()))
        };
        Ok([
            setting("wiki.source", corpus)?,
            setting("questions.tasks", &train)?,
            setting("test.tasks", &test)?,
            format!("questions.passage_length={}", questions::BEGINNING),
        ])
    }

    fn arm_folder(&self, arm: &Arm) -> PathBuf {
        self.folder.join(arm.name)
    }

    /// Run folder of an arm.
    fn run_folder(&self, arm: &Arm, seed: u64) -> PathBuf {
        self.arm_folder(arm).join(format!("seed={seed}"))
    }

    fn sweep(&self, program: &Path, root: &Path, arm: &Arm) -> Result<()> {
        let seeds: Vec<String> = self.seeds.iter().map(u64::to_string).collect();
        let mut command = Command::new(program);
        command.arg("sweep").arg(workflow(root, arm)).arg("--out").arg(self.arm_folder(arm));
        command.args(["--seeds", &seeds.join(",")]).args(self.arguments(arm.settings));
        let status = command.status().with_context(|| format!("cannot start {}", program.display()))?;
        if !status.success() {
            bail!("arm {} of {} ended with {status}", arm.name, self.experiment.name);
        }
        Ok(())
    }

    /// Evaluates the trained runs of an arm once more, each agent with the policy of the other one.
    fn evaluate_swapped(&self, program: &Path, root: &Path, swapped: &Swapped) -> Result<()> {
        let arm = self.experiment.arm(swapped.arm);
        let arm = arm.with_context(|| format!("there is no arm {}", swapped.arm))?;
        for seed in &self.seeds {
            let path = self.swapped_result(*seed);
            if path.is_file() {
                continue;
            }
            let mut command = Command::new(program);
            command.arg("evaluate").arg(workflow(root, arm)).args(self.arguments(arm.settings));
            command.args(["--json", "--checkpoint"]).arg(self.run_folder(arm, *seed));
            command.args(swapped.settings.iter().flat_map(|own| ["--set", own])).stderr(Stdio::inherit());
            let output = command.output().with_context(|| format!("cannot start {}", program.display()))?;
            if !output.status.success() {
                bail!("arm {} with swapped policies, seed {seed}: {}", arm.name, output.status);
            }
            let folder = path.parent().unwrap_or(&path);
            std::fs::create_dir_all(folder)
                .and_then(|()| std::fs::write(&path, &output.stdout))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// File of the evaluation of a seed with swapped policies.
    fn swapped_result(&self, seed: u64) -> PathBuf {
        self.folder.join(format!("swapped/seed={seed}.json"))
    }

    /// Returns the arguments of a command of `pl-host` that give an arm its settings.
    fn arguments<'a>(&'a self, arm: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
        let settings = self.settings.iter().map(String::as_str).chain(arm.iter().copied());
        let device = self.device.iter().flat_map(|device| ["--device", device]);
        settings.flat_map(|own| ["--set", own]).chain(device)
    }

    /// Returns the table of the finished runs in Markdown.
    fn table(&self) -> Result<String> {
        let mut text = table::heading(&self.seeds);
        for arm in self.experiment.arms {
            let runs = self.finished_runs(arm)?;
            let difference = self.difference(arm, &runs).with_context(|| format!("arm {}", arm.name))?;
            let all = || runs.iter().flatten();
            let row = Row {
                name: format!("`{}`", arm.name),
                untrained: Proportion::pooled(all().filter_map(|run| run.untrained)),
                seeds: runs.iter().map(|run| run.as_ref().map(|run| run.trained)).collect(),
                difference,
                tokens: all().map(|run| run.tokens).collect(),
            };
            text += &row.to_string();
        }
        if let Some(swapped) = &self.experiment.swapped {
            let name = format!("`{}` with swapped policies", swapped.arm);
            let seeds = self.swapped_results()?;
            text += &Row { name, untrained: None, seeds, difference: None, tokens: Vec::new() }.to_string();
        }
        Ok(text)
    }

    /// Returns the run of each seed of an arm. `None` for those that have not finished.
    fn finished_runs(&self, arm: &Arm) -> Result<Vec<Option<FinishedRun>>> {
        self.seeds.iter().map(|seed| FinishedRun::read(&self.run_folder(arm, *seed))).collect()
    }

    /// Returns the difference of the runs of an arm to those of its control. `None` without a control, and if either
    /// has no finished run.
    fn difference(&self, arm: &Arm, runs: &[Option<FinishedRun>]) -> Result<Option<Difference>> {
        let Some(control) = arm.control.and_then(|name| self.experiment.arm(name)) else {
            return Ok(None);
        };
        let control = self.finished_runs(control)?;
        let pooled =
            |runs: &[Option<FinishedRun>]| Proportion::pooled(runs.iter().flatten().map(|run| run.trained));
        let (Some(own), Some(pooled_control)) = (pooled(runs), pooled(&control)) else {
            return Ok(None);
        };
        Ok(Some(match self.experiment.cluster {
            None => intervals::difference(own, pooled_control),
            Some(key) => clusters::difference(&finished::tasks(runs)?, &finished::tasks(&control)?, key)?,
        }))
    }

    /// Returns the successes of each seed with swapped policies. `None` for those that were not evaluated.
    fn swapped_results(&self) -> Result<Vec<Option<Proportion>>> {
        let read = |seed: &u64| -> Result<Option<Proportion>> {
            let path = self.swapped_result(*seed);
            if !path.is_file() {
                return Ok(None);
            }
            Ok(finished::successes(&finished::read_json(&path)?))
        };
        self.seeds.iter().map(read).collect()
    }

    /// Returns the curve of each arm, of the runs that there are.
    fn curves(&self) -> Vec<(&'static str, Curve)> {
        let curve = |arm: &Arm| {
            let mut curve = Curve::default();
            for seed in &self.seeds {
                let path = self.run_folder(arm, *seed).join("metrics.jsonl");
                // A run that has not started has no steps.
                curve.add(&finished::read_lines(&std::fs::read_to_string(path).unwrap_or_default()));
            }
            (arm.name, curve)
        };
        self.experiment.arms.iter().map(curve).collect()
    }
}

fn workflow(root: &Path, arm: &Arm) -> PathBuf {
    root.join("examples").join(arm.file)
}

#[cfg(test)]
mod tests {
    use pl_record::{TraceFile, Traces};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_has_the_finished_runs_and_their_difference_to_the_control() {
        let folder = tempfile::tempdir().unwrap();
        let write = |arm: &str, seed: u64, success: f64| {
            let run = folder.path().join(arm).join(format!("seed={seed}"));
            std::fs::create_dir_all(&run).unwrap();
            std::fs::write(run.join("workflow.json"), r#"{"workflow":{"train":{"steps":2}}}"#).unwrap();
            let line = |step: u64, success: f64| {
                json!({
                    "kind": "evaluation", "step": step, "name": "test", "success": success, "episodes": 30, "lost": 2
                })
            };
            let step = json!({ "kind": "step", "step": 1, "tokens": 1000 * seed + 40 });
            let text = format!("{}\n{step}\n{step}\n{}\n{{\"kind\":", line(0, 0.25), line(2, success));
            std::fs::write(run.join("metrics.jsonl"), text).unwrap();
        };
        write("L1", 1, 0.75);
        write("L1", 2, 0.5);
        write("control", 1, 0.25);
        let text = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let out = folder.path().to_str().unwrap();
        let options = Options::parse(&text(&["math-l1", "--seeds", "1,2", "--table", "--out", out])).unwrap();
        let table = options.table().unwrap();
        let rows: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(rows[0], "| `L1` | 25 | 75 | 50 | 62 | 38 (16 to 53) | 2,100 to 4,100 |");
        assert_eq!(rows[1], "| `control` | 25 | 25 | - | 25 | | 2,100 |");
    }

    /// The team solves both episodes of a task, and not the one of a task in another room: two of three, but one
    /// of two tasks.
    #[test]
    fn tasks_of_sokoban_count_once_and_are_clustered_by_room() {
        let folder = tempfile::tempdir().unwrap();
        for (arm, solved) in [("L2", true), ("control", false)] {
            let run = folder.path().join(arm).join("seed=1");
            let traces = Traces::for_run(&run);
            std::fs::create_dir_all(traces.folder()).unwrap();
            std::fs::write(run.join("workflow.json"), r#"{"workflow":{"train":{"steps":2}}}"#).unwrap();
            let success = if solved { 2.0 / 3.0 } else { 0.0 };
            let line = json!({
                "kind": "evaluation", "step": 2, "name": "test", "success": success, "episodes": 3, "lost": 0
            });
            std::fs::write(run.join("metrics.jsonl"), line.to_string()).unwrap();
            let trace = |(task, room, success): (u32, &str, bool)| {
                let phase = json!({ "evaluate": "test" });
                let key =
                    json!({ "seed": 1, "phase": phase, "step": 2, "task": task, "sample": 0, "attempt": 0 });
                let task = json!({ "id": "t", "data": json!({ "room": [room] }).to_string() });
                let end = json!({ "success": success, "truncated": false, "turns": 1, "tokens": 5 });
                json!({ "key": key, "task": task, "mode": "flat", "events": [], "end": end })
            };
            let episodes = [(0, ".$@", solved), (1, ".$@", solved), (2, ". $@", false)];
            let file = TraceFile { step: 2, evaluation: Some("test".to_owned()) };
            traces.write(&file, &episodes.map(trace)).unwrap();
        }
        let words = ["sokoban", "--seeds", "1", "--table", "--out", folder.path().to_str().unwrap()];
        let table = Options::parse(&words.map(str::to_owned)).unwrap().table().unwrap();
        assert_eq!(table.lines().nth(2), Some("| `L2` | | 67 | 67 | 50 (0 to 100) | 0 |"));
    }

    #[test]
    fn a_table_has_the_team_with_swapped_policies() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("swapped")).unwrap();
        let line = r#"{"name":"test","success":0.25,"episodes":30,"lost":2}"#;
        std::fs::write(folder.path().join("swapped/seed=2.json"), line).unwrap();
        let words = ["search", "--seeds", "1,2", "--table", "--out", folder.path().to_str().unwrap()];
        let table = Options::parse(&words.map(str::to_owned)).unwrap().table().unwrap();
        assert_eq!(table.lines().last(), Some("| `L2` with swapped policies | | - | 25 | 25 | | |"));
    }

    #[test]
    fn mistakes_in_the_command_line_name_what_there_is() {
        let error = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            format!("{:#}", Options::parse(&words).err().unwrap())
        };
        assert!(error(&["maths"]).contains("objectives, math, math-l1, math-l3"));
        assert!(error(&["math-l1", "--seeds", "one"]).contains("write 1,2,3"));
        assert!(error(&["math-l1", "--seed"]).contains("--seeds 1,2,3"));
        assert!(error(&["math-l1", "--out"]).contains("needs a value"));
        assert!(error(&["search"]).contains("name one with --corpus FILE"));
    }
}
