//! `cargo xtask reproduce NAME`: the training runs behind a table of docs/learning.md, the table, and the picture.
//!
//! Every arm of an experiment is a sweep of `pl-host` over the seeds, which skips finished runs and continues others: the
//! same command goes on where it was stopped. `curves.png` of each run folder has its curve, `--figure` draws a line for each arm.
//! An experiment with search makes its questions from a corpus first.

mod experiments;
mod figure;
mod intervals;
mod questions;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use self::experiments::{Arm, EXPERIMENTS, Experiment, Swapped};
use self::figure::Curve;
use self::intervals::{Proportion, difference};
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
        let mut text = "| arm |".to_owned();
        for seed in &self.seeds {
            let _ = write!(text, " seed {seed} |");
        }
        text += " pooled | difference to the control |\n|---|";
        text += &"---|".repeat(self.seeds.len() + 2);
        text.push('\n');
        for arm in self.experiment.arms {
            let control = arm.control.and_then(|name| self.experiment.arm(name));
            let control = control.map(|control| self.results(control)).transpose()?;
            text += &row(&format!("`{}`", arm.name), &self.results(arm)?, control.as_deref());
        }
        if let Some(swapped) = &self.experiment.swapped {
            text += &row(&format!("`{}` with swapped policies", swapped.arm), &self.swapped_results()?, None);
        }
        Ok(text)
    }

    /// Returns the successes of each seed with swapped policies. `None` for those that were not evaluated.
    fn swapped_results(&self) -> Result<Vec<Option<Proportion>>> {
        let read = |seed: &u64| -> Result<Option<Proportion>> {
            let path = self.swapped_result(*seed);
            if !path.is_file() {
                return Ok(None);
            }
            Ok(successes(&read_json(&path)?))
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
                curve.add(&read_lines(&std::fs::read_to_string(path).unwrap_or_default()));
            }
            (arm.name, curve)
        };
        self.experiment.arms.iter().map(curve).collect()
    }

    /// Returns the successes of each seed's last evaluation. `None` for runs that have not finished.
    fn results(&self, arm: &Arm) -> Result<Vec<Option<Proportion>>> {
        let run = |seed: &u64| -> Result<Option<Proportion>> {
            let folder = self.run_folder(arm, *seed);
            let metrics = folder.join("metrics.jsonl");
            if !metrics.exists() {
                return Ok(None);
            }
            let workflow = read_json(&folder.join("workflow.json"))?;
            let last = workflow.pointer("/workflow/train/steps").and_then(Value::as_u64);
            Ok(last.and_then(|last| last_evaluation(&read_lines(&read(&metrics).ok()?), last)))
        };
        self.seeds.iter().map(run).collect()
    }
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn read_json(path: &Path) -> Result<Value> {
    serde_json::from_str(&read(path)?).with_context(|| format!("{}", path.display()))
}

fn workflow(root: &Path, arm: &Arm) -> PathBuf {
    root.join("examples").join(arm.file)
}

/// Returns a row of the table: the share of each run, of all together, and the difference to the control.
fn row(name: &str, runs: &[Option<Proportion>], control: Option<&[Option<Proportion>]>) -> String {
    let pooled = |runs: &[Option<Proportion>]| Proportion::pooled(runs.iter().flatten().copied());
    let own = pooled(runs);
    let mut text = format!("| {name} |");
    for run in runs.iter().chain([&own]) {
        let _ = write!(text, " {} |", run.map_or("-".to_owned(), |run| percent(run.share())));
    }
    if let (Some(own), Some(control)) = (own, control.and_then(pooled)) {
        let (value, low, high) = difference(own, control);
        let _ = write!(text, " {} ({} to {})", percent(value), percent(low), percent(high));
    }
    text + " |\n"
}

/// Lines of JSON, without a last one that is not complete.
fn read_lines(text: &str) -> Vec<Value> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Returns the episodes of the evaluation after the last step that succeeded.
fn last_evaluation(lines: &[Value], last: u64) -> Option<Proportion> {
    let is_last = |line: &&Value| line["kind"] == "evaluation" && line["step"] == last;
    successes(lines.iter().find(is_last)?)
}

/// Returns the episodes of an evaluation that succeeded.
fn successes(line: &Value) -> Option<Proportion> {
    let count = line["episodes"].as_u64()? + line["lost"].as_u64()?;
    let successes = (line["success"].as_f64()? * count as f64).round() as u64;
    Some(Proportion { successes, count })
}

fn percent(share: f64) -> String {
    format!("{:.0}", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_finished_runs_and_their_difference_to_the_control() {
        let folder = tempfile::tempdir().unwrap();
        let write = |arm: &str, seed: u64, success: f64| {
            let run = folder.path().join(arm).join(format!("seed={seed}"));
            std::fs::create_dir_all(&run).unwrap();
            std::fs::write(run.join("workflow.json"), r#"{"workflow":{"train":{"steps":2}}}"#).unwrap();
            let line = |step: u64, success: f64| {
                format!(r#"{{"kind":"evaluation","step":{step},"success":{success},"episodes":30,"lost":2}}"#)
            };
            let text = format!("{}\n{}\n{{\"kind\":", line(0, 0.25), line(2, success));
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
        assert_eq!(rows[0], "| `L1` | 75 | 50 | 62 | 38 (16 to 53) |");
        assert_eq!(rows[1], "| `control` | 25 | - | 25 | |");
    }

    #[test]
    fn a_table_has_the_team_with_swapped_policies() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("swapped")).unwrap();
        let line = r#"{"name":"test","success":0.25,"episodes":30,"lost":2}"#;
        std::fs::write(folder.path().join("swapped/seed=2.json"), line).unwrap();
        let words = ["search", "--seeds", "1,2", "--table", "--out", folder.path().to_str().unwrap()];
        let table = Options::parse(&words.map(str::to_owned)).unwrap().table().unwrap();
        assert_eq!(table.lines().last(), Some("| `L2` with swapped policies | - | 25 | 25 | |"));
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
