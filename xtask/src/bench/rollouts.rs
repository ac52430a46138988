//! `cargo xtask bench rollouts`: the rollouts of three examples beside the engine alone.
//!
//! A run records the passes of each step, by the number of completions in them (`engine` in `timings.jsonl`). The bench
//! `throughput` of pl-inference measures, with the same model on the same machine, how long passes with as many completions
//! take when nothing else happens, and how fast prompts are. The time that the engine alone would need for a step, divided by
//! the time that its rollouts took, is the share of the engine's speed that is left.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::engine::{Figures, figures};
use crate::cargo::cargo;
use crate::setup;

/// Steps of a run. The first one also compiles and fills caches.
const STEPS: u32 = 2;

/// Tasks per step. `None` for as many as the example has.
const TASKS: [Option<u32>; 2] = [None, Some(16)];

/// Numbers of completions that passes are measured with, up to the slots of the examples.
const ROWS: &str = "1,2,4,8,16,32,64";

struct Example {
    file: &'static str,
    /// Number of adapters in the engine.
    adapters: u64,
    settings: &'static [&'static str],
}

const EXAMPLES: [Example; 3] = [
    // The first, because it needs a data set: where that is missing, nothing has been measured in vain.
    Example {
        file: "code.mas",
        adapters: 1,
        settings: &["problems.tasks=mbpp:train", "test.tasks=mbpp:validation"],
    },
    Example { file: "math.mas", adapters: 2, settings: &[] },
    // Three agents.
    Example { file: "experts.mas", adapters: 2, settings: &[] },
];

/// Work of a step's rollouts, as the run has recorded it.
struct StepWork {
    step: u64,
    /// Seconds from the start of the first episode to the end of the last.
    seconds: f64,
    /// Seconds in which the engine was busy.
    busy: f64,
    sampled_tokens_per_second: f64,
    prefilled_tokens: f64,
    /// Numbers of passes and of their rows, of passes with similar numbers of rows.
    passes: Vec<(f64, f64)>,
}

/// Speed of the engine alone.
struct EngineRates {
    /// Numbers of rows and seconds of a pass with them, by rising rows.
    passes: Vec<(f64, f64)>,
    prefilled_tokens_per_second: f64,
}

pub fn run(root: &Path) -> Result<()> {
    let program = setup::all(root)?;
    let mut steps = Vec::new();
    for example in &EXAMPLES {
        for tasks in TASKS {
            let folder = tempfile::tempdir()?;
            let out = folder.path().join("run");
            play(&program, root, example, tasks, &out)?;
            steps.push((example, tasks, read(&out)?));
        }
    }
    eprintln!("cargo bench --workspace --bench throughput");
    let mut cargo = cargo(root);
    cargo.args(["bench", "--quiet", "--workspace", "--bench", "throughput"]);
    let measured = figures(cargo.env("PL_HOST_BENCH_ROWS", ROWS).env("OMP_WAIT_POLICY", "passive"))?;
    println!(
        "| file | tasks per step | step | rollouts, s | sampled tokens/s | rows per pass | tokens/s of the engine alone at \
         these rows | the engine alone, s: completions, prompts | share | engine busy beyond that | engine idle |\n\
         |---|---|---|---|---|---|---|---|---|---|---|"
    );
    for (example, tasks, works) in steps {
        let rates = EngineRates::of(&measured, example.adapters)?;
        let tasks = tasks.map_or("as shipped".to_owned(), |tasks| tasks.to_string());
        for work in works {
            println!("| {} | {tasks} | {}", example.file, work.cells(&rates));
        }
    }
    println!(
        "\nBusy beyond that: longer contexts, sampling with grammars and biases, scheduling, and whatever else used the cores \
         meanwhile. Idle: the engine had no request, because every episode waited for a plugin, a tool or the sandbox."
    );
    Ok(())
}

/// Trains a few steps of an example.
fn play(program: &Path, root: &Path, example: &Example, tasks: Option<u32>, out: &Path) -> Result<()> {
    let steps = format!("train.steps={STEPS}");
    let tasks = tasks.map(|tasks| format!("train.tasks_per_step={tasks}"));
    let common = ["test.every=0", steps.as_str()];
    let settings = common.iter().chain(example.settings).copied().chain(tasks.as_deref());
    let mut command = Command::new(program);
    command.arg("run").arg(root.join("examples").join(example.file)).arg("--out").arg(out);
    command.args(["--device", "cpu"]).args(settings.flat_map(|setting| ["--set", setting]));
    let status = command.stdout(Stdio::null()).status();
    let status = status.with_context(|| format!("cannot start {}", program.display()))?;
    if !status.success() {
        bail!("the run of {} ended with {status}", example.file);
    }
    Ok(())
}

/// Reads what a run has recorded of its steps.
fn read(out: &Path) -> Result<Vec<StepWork>> {
    let path = out.join("timings.jsonl");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let lines = text.lines().map(|line| StepWork::of(&serde_json::from_str::<Value>(line)?));
    lines.collect::<Result<Vec<_>>>().with_context(|| format!("cannot read {}", path.display()))
}

pub(super) fn number(value: &Value) -> Result<f64> {
    value.as_f64().with_context(|| format!("{value} is not a number"))
}

fn column(value: &Value) -> Result<Vec<f64>> {
    value.as_array().with_context(|| format!("{value} is not a list"))?.iter().map(number).collect()
}

impl StepWork {
    /// Reads a line of `timings.jsonl`.
    fn of(line: &Value) -> Result<StepWork> {
        let engine = &line["engine"];
        let (passes, rows) = (column(&engine["passes_by_rows"])?, column(&engine["rows"])?);
        Ok(StepWork {
            step: line["step"].as_u64().context("a line has no step")?,
            seconds: number(&line["seconds"]["play"])?,
            busy: number(&engine["seconds"])?,
            sampled_tokens_per_second: number(&line["sampled_tokens_per_second"])?,
            prefilled_tokens: number(&engine["prefilled_tokens"])?,
            // Passes without a row have prompts alone, whose tokens are counted.
            passes: passes.into_iter().zip(rows).filter(|(_, rows)| *rows > 0.0).collect(),
        })
    }

    fn rows(&self) -> f64 {
        self.passes.iter().map(|(_, rows)| rows).sum()
    }

    /// Returns the seconds that the engine alone takes for the completions of the step, and for its prompts.
    fn seconds_alone(&self, rates: &EngineRates) -> (f64, f64) {
        let completions = self.passes.iter().map(|(passes, rows)| passes * rates.pass_seconds(rows / passes));
        (completions.sum(), self.prefilled_tokens / rates.prefilled_tokens_per_second)
    }

    /// Returns the cells of the step in the table.
    fn cells(&self, rates: &EngineRates) -> String {
        let (completions, prompts) = self.seconds_alone(rates);
        let passes: f64 = self.passes.iter().map(|(passes, _)| passes).sum();
        let percent = |seconds: f64| 100.0 * seconds / self.seconds;
        format!(
            "{} | {:.2} | {:.0} | {:.1} | {:.0} | {completions:.2}, {prompts:.2} | {:.0} % | {:.0} % | {:.0} % |",
            self.step,
            self.seconds,
            self.sampled_tokens_per_second,
            self.rows() / passes,
            self.rows() / completions,
            percent(completions + prompts),
            percent(self.busy - completions - prompts),
            percent(self.seconds - self.busy),
        )
    }
}

impl EngineRates {
    /// Takes the rates with a number of adapters from what the bench has printed.
    fn of(measured: &Figures, adapters: u64) -> Result<EngineRates> {
        let own = || measured.values().filter(|line| line["adapters"] == adapters);
        let pass = |line: &Value| Some((line["rows"].as_f64()?, line["pass_seconds"].as_f64()?));
        let mut passes: Vec<(f64, f64)> = own().filter_map(pass).collect();
        passes.sort_by(|a, b| a.0.total_cmp(&b.0));
        let rate = own().find_map(|line| line["prefilled_tokens_per_second"].as_f64());
        match rate.filter(|_| !passes.is_empty()) {
            Some(prefilled_tokens_per_second) => Ok(EngineRates { passes, prefilled_tokens_per_second }),
            None => bail!("the bench printed nothing for {adapters} adapters: see above"),
        }
    }

    /// Returns the seconds of a pass with a number of rows, on the straight lines between those that were measured.
    fn pass_seconds(&self, rows: f64) -> f64 {
        let (mut fewer, mut before) = (0.0, 0.0);
        for (measured, seconds) in &self.passes {
            if rows <= *measured {
                return before + (seconds - before) * (rows - fewer) / (measured - fewer);
            }
            (fewer, before) = (*measured, *seconds);
        }
        before * rows / fewer
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A pass takes 10 ms with one row, 12 with two and 20 with four.
    fn rates() -> EngineRates {
        let pass = |rows: u64, seconds: f64| {
            let name = format!("pass/{rows}");
            (name, json!({ "adapters": 2, "rows": rows, "pass_seconds": seconds }))
        };
        let prefill = json!({ "adapters": 2, "prefilled_tokens_per_second": 1000.0 });
        let other = json!({ "adapters": 1, "rows": 3, "pass_seconds": 9.0 });
        let lines = [pass(4, 0.020), pass(1, 0.010), pass(2, 0.012)];
        let more = [("prefill".to_owned(), prefill), ("another".to_owned(), other)];
        EngineRates::of(&lines.into_iter().chain(more).collect(), 2).unwrap()
    }

    #[test]
    fn a_pass_between_two_that_were_measured_takes_a_time_between_theirs() {
        let rates = rates();
        for (rows, expected) in [(1.0, 0.010), (2.0, 0.012), (3.0, 0.016), (4.0, 0.020), (8.0, 0.040)] {
            assert!((rates.pass_seconds(rows) - expected).abs() < 1e-12, "{rows}");
        }
        assert!(EngineRates::of(&Figures::new(), 2).is_err());
    }

    #[test]
    fn the_share_of_the_engine_is_that_of_the_recorded_passes() {
        let line = json!({
            "step": 2, "seconds": { "play": 1.0 }, "sampled_tokens_per_second": 250.0,
            "engine": {
                "seconds": 0.8, "prefilled_tokens": 100, "passes": 43,
                "passes_by_rows": [3, 10, 30], "rows": [0, 10, 75],
            },
        });
        let work = StepWork::of(&line).unwrap();
        let (completions, prompts) = work.seconds_alone(&rates());
        // Ten passes of one row, thirty of 2.5 on average.
        assert!((completions - (10.0 * 0.010 + 30.0 * 0.014)).abs() < 1e-12, "{completions}");
        assert!((prompts - 0.1).abs() < 1e-12, "{prompts}");
        assert_eq!(work.cells(&rates()), "2 | 1.00 | 250 | 2.1 | 163 | 0.52, 0.10 | 62 % | 18 % | 20 % |");
        // Servers generated.
        assert!(StepWork::of(&json!({ "step": 1, "seconds": { "play": 1.0 }, "engine": null })).is_err());
    }
}
