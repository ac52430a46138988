//! `cargo xtask reproduce NAME`: the training runs behind a table of docs/learning.md, the table, and the picture.
//!
//! Every arm of an experiment is a sweep of `pl-host` over the seeds, which skips finished runs and continues others: the
//! same command goes on where it was stopped. `curves.png` of each run folder has its curve, `--figure` draws a line for each arm.
//! An experiment with search makes its questions from a corpus first.

mod figure;
mod intervals;
mod questions;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use self::figure::Curve;
use self::intervals::{Proportion, difference};
use crate::setup;

/// An experiment: arms that are compared with one of them.
struct Experiment {
    name: &'static str,
    /// Training steps of each run.
    steps: u32,
    /// Settings of all arms besides the number of steps.
    settings: &'static [&'static str],
    /// True if the questions of all arms are made from a corpus, which `--corpus` names.
    needs_corpus: bool,
    arms: &'static [Arm],
}

/// A workflow trained in one way.
struct Arm {
    name: &'static str,
    /// Workflow file below `examples/`.
    file: &'static str,
    /// Settings besides those of all arms.
    settings: &'static [&'static str],
    /// Name of the arm that it is compared with. `None` for that arm itself.
    control: Option<&'static str>,
}

const fn arm(name: &'static str, file: &'static str) -> Arm {
    Arm { name, file, settings: &[], control: Some("control") }
}

/// Permutes rewards within their groups.
const SHUFFLED: &str = "train.shuffle_rewards=true";

/// The arm whose rewards are permuted.
const fn control(file: &'static str) -> Arm {
    Arm { name: "control", file, settings: &[SHUFFLED], control: None }
}

/// Grids of 5 x 5 with walls: the untrained team finds one way in ten.
const GRIDS: &str = "maze.level=3";

const RECOMPUTED: &str = "train.old_logprobs=recompute";
const TRUNCATED: &str = "train.correction=tis";

/// Agents see the beginnings of the two passages that the newest search has found.
const SEARCH: &[&str] = &[
    "questions.passages=2",
    "questions.shown=2",
    "questions.passage_length=240",
    "samples=6",
    "train.tasks_per_step=8",
    "test.every=20",
    "test.limit=100",
];

/// The maths team under a staleness, compared with the one that waits for each update.
const fn stale(name: &'static str, settings: &'static [&'static str]) -> Arm {
    Arm { name, file: "math.mas", settings, control: Some("0") }
}

const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "objectives",
        steps: 10,
        settings: &[],
        needs_corpus: false,
        arms: &[
            arm("at_grpo", "math.mas"),
            arm("ppo", "algorithms/ppo.mas"),
            arm("rloo", "algorithms/rloo.mas"),
            arm("gspo", "algorithms/gspo.mas"),
            arm("cispo", "algorithms/cispo.mas"),
            arm("dr_grpo", "algorithms/dr_grpo.mas"),
            arm("dapo", "algorithms/dapo.mas"),
            control("math.mas"),
        ],
    },
    Experiment {
        name: "math-l1",
        steps: 10,
        settings: &[],
        needs_corpus: false,
        arms: &[arm("L1", "math-l1.mas"), control("math-l1.mas")],
    },
    Experiment {
        name: "math-l3",
        steps: 10,
        settings: &[],
        needs_corpus: false,
        arms: &[arm("L3", "math-l3.mas"), control("math-l3.mas")],
    },
    Experiment {
        name: "plan-path",
        steps: 20,
        settings: &[GRIDS],
        needs_corpus: false,
        arms: &[
            arm("L2", "plan-path.mas"),
            arm("L1", "plan-path-l1.mas"),
            arm("single", "plan-path-l0.mas"),
            control("plan-path.mas"),
        ],
    },
    Experiment {
        name: "search",
        steps: 20,
        settings: SEARCH,
        needs_corpus: true,
        arms: &[
            arm("L2", "search.mas"),
            arm("L1", "search-l1.mas"),
            arm("single", "search-l0.mas"),
            control("search.mas"),
        ],
    },
    Experiment {
        name: "staleness",
        steps: 20,
        settings: &[],
        needs_corpus: false,
        arms: &[
            Arm { name: "0", file: "math.mas", settings: &[], control: None },
            stale("1", &["train.schedule=async", "train.staleness=1"]),
            stale("4", &["train.schedule=async", "train.staleness=4"]),
            stale("8", &["train.schedule=async", "train.staleness=8"]),
            stale("4-corrected", &["train.schedule=async", "train.staleness=4", RECOMPUTED, TRUNCATED]),
            stale("8-corrected", &["train.schedule=async", "train.staleness=8", RECOMPUTED, TRUNCATED]),
        ],
    },
];

/// Command line of `reproduce`.
struct Options {
    experiment: &'static Experiment,
    seeds: Vec<u64>,
    /// Settings of all arms.
    settings: Vec<String>,
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
                "--set" => options.settings.push(value()?.clone()),
                "--seeds" => {
                    let seed = |text: &str| {
                        text.parse().with_context(|| format!("--seeds: {text:?} is not a seed; write 1,2,3"))
                    };
                    options.seeds = value()?.split(',').map(seed).collect::<Result<_>>()?;
                }
                _ => bail!(
                    "unknown option {flag}; there are --seeds 1,2,3, --set KEY=VALUE, --corpus FILE, --out DIR, --table, \
                     --figure FILE.svg"
                ),
            }
        }
        if experiment.needs_corpus && options.corpus.is_none() && !options.table_only {
            bail!(
                "{name} makes its questions from a corpus: name one with --corpus FILE (docs/search.md has the forms)"
            );
        }
        Ok(options)
    }

    /// Makes the questions about the corpus, and returns the settings that name them.
    fn questions(&self) -> Result<[String; 3]> {
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
        ])
    }

    fn arm_folder(&self, arm: &Arm) -> PathBuf {
        self.folder.join(arm.name)
    }

    fn sweep(&self, program: &Path, root: &Path, arm: &Arm) -> Result<()> {
        let seeds: Vec<String> = self.seeds.iter().map(u64::to_string).collect();
        let shared = self.settings.iter().map(String::as_str);
        let settings = shared.chain(arm.settings.iter().copied()).flat_map(|own| ["--set", own]);
        let status = Command::new(program)
            .arg("sweep")
            .arg(root.join("examples").join(arm.file))
            .arg("--out")
            .arg(self.arm_folder(arm))
            .args(["--seeds", &seeds.join(",")])
            .args(settings)
            .status()
            .with_context(|| format!("cannot start {}", program.display()))?;
        if !status.success() {
            bail!("arm {} of {} ended with {status}", arm.name, self.experiment.name);
        }
        Ok(())
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
            let runs = self.results(arm)?;
            let pooled = Proportion::pooled(runs.iter().flatten().copied());
            let _ = write!(text, "| `{}` |", arm.name);
            for run in &runs {
                let _ = write!(text, " {} |", run.map_or("-".to_owned(), |run| percent(run.share())));
            }
            let control = self.experiment.arms.iter().find(|one| Some(one.name) == arm.control);
            let difference = match (pooled, control) {
                (Some(own), Some(control)) => {
                    Proportion::pooled(self.results(control)?.into_iter().flatten())
                        .map(|control| difference(own, control))
                }
                _ => None,
            };
            let pooled = pooled.map_or("-".to_owned(), |pooled| percent(pooled.share()));
            let _ = match difference {
                Some((value, low, high)) => {
                    writeln!(text, " {pooled} | {} ({} to {}) |", percent(value), percent(low), percent(high))
                }
                None => writeln!(text, " {pooled} | |"),
            };
        }
        Ok(text)
    }

    /// Returns the curve of each arm, of the runs that there are.
    fn curves(&self) -> Vec<(&'static str, Curve)> {
        let curve = |arm: &Arm| {
            let mut curve = Curve::default();
            for seed in &self.seeds {
                let path = self.arm_folder(arm).join(format!("seed={seed}/metrics.jsonl"));
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
            let path = self.arm_folder(arm).join(format!("seed={seed}"));
            let steps = path.join("workflow.json");
            let metrics = path.join("metrics.jsonl");
            if !metrics.exists() {
                return Ok(None);
            }
            let read = |path: &Path| {
                std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
            };
            let workflow: Value =
                serde_json::from_str(&read(&steps)?).with_context(|| format!("{}", steps.display()))?;
            let last = workflow.pointer("/workflow/train/steps").and_then(Value::as_u64);
            Ok(last.and_then(|last| last_evaluation(&read_lines(&read(&metrics).ok()?), last)))
        };
        self.seeds.iter().map(run).collect()
    }
}

/// Lines of JSON, without a last one that is not complete.
fn read_lines(text: &str) -> Vec<Value> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Returns the episodes of the evaluation after the last step that succeeded.
fn last_evaluation(lines: &[Value], last: u64) -> Option<Proportion> {
    let is_last = |line: &&Value| line["kind"] == "evaluation" && line["step"] == last;
    let line = lines.iter().find(is_last)?;
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
    fn every_workflow_of_an_experiment_exists_and_has_its_control() {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
        for Experiment { name, arms, .. } in EXPERIMENTS {
            assert!(arms.iter().all(|arm| examples.join(arm.file).is_file()), "{name}");
            let names: Vec<&str> = arms.iter().map(|arm| arm.name).collect();
            assert!(arms.iter().filter_map(|arm| arm.control).all(|own| names.contains(&own)), "{name}");
        }
    }

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
    fn mistakes_in_the_command_line_name_what_there_is() {
        let error = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            format!("{:#}", Options::parse(&words).err().unwrap())
        };
        assert!(error(&["maths"]).contains("objectives, math-l1, math-l3"));
        assert!(error(&["math-l1", "--seeds", "one"]).contains("write 1,2,3"));
        assert!(error(&["math-l1", "--seed"]).contains("--seeds 1,2,3"));
        assert!(error(&["math-l1", "--out"]).contains("needs a value"));
        assert!(error(&["search"]).contains("name one with --corpus FILE"));
    }
}
