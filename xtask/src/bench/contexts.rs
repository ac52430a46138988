//! `cargo xtask bench contexts`: generation and updates with contexts of 256 to 8,192 tokens.
//!
//! The benches `contexts` of pl-inference and `update` of pl-trainer measure each length in a process of its own, whose peak of
//! memory is the length's, and count the work of each figure: operations of prompts and updates, and bytes that a pass reads
//! which continues each completion by a token. The table shows how much of this work is done in a second, relative to the
//! shortest context. At 100 % time grows exactly as the work does, with the square of the context in attention; less is worse.
//!
//! Beside each peak is the sum of those parts of `pl-host plan`'s estimate that such a process has. The estimate is that of a
//! run, which has both generation and training.
//!
//! `PL_HOST_BENCH_CONTEXTS` lists other lengths, `PL_HOST_BENCH_MODEL` is the absolute path of another model, and
//! `PL_HOST_BENCH_DTYPE` the number format in which it generates.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::engine::{Figures, figures};
use super::rollouts::number;
use crate::cargo::cargo;
use crate::setup;

const CONTEXTS: &str = "256,2048,8192";

/// Columns of speeds: a figure, and the kinds of work that it is compared by.
const SPEEDS: [(&str, &[&str]); 6] = [
    ("prefill, tokens/s", &["relative"]),
    ("decode of 1, ms a pass", &["relative"]),
    ("decode of 16 siblings, ms a pass", &["relative", "relative, prompt read once for all"]),
    ("train/full, tokens/s", &["relative"]),
    ("train/lora, tokens/s", &["relative"]),
    ("train/lora, checkpointed, tokens/s", &["relative"]),
];

/// Columns of memory.
const PROCESSES: [&str; 4] = ["generation", "train/full", "train/lora", "train/lora, checkpointed"];

/// An update that is measured.
struct Update {
    /// Name of the bench's case.
    name: &'static str,
    /// Settings with which the workflow of the plan trains in the same way.
    settings: &'static [&'static str],
}

const UPDATES: [Update; 3] = [
    Update { name: "train/full", settings: &[] },
    Update { name: "train/lora", settings: &["reasoner.lora.rank=16"] },
    Update {
        name: "train/lora, checkpointed",
        settings: &["reasoner.lora.rank=16", "train.gradient_checkpointing=true"],
    },
];

/// Tokens of an update of short sequences, all of them in one pass.
const UPDATE_TOKENS: u64 = 2048;

/// Parts of a plan's memory in a process that only generates, with a model that is loaded as for a run.
const GENERATION: [&str; 4] = ["weights, training", "weights, generation", "KV cache", "program and plugins"];

/// Parts in a process that only trains. With all weights in training, the reserve includes a quarter of their size for a
/// transfer to generation.
const TRAINING: [&str; 6] = [
    "weights, training",
    "adapters",
    "gradients and optimiser",
    "activations",
    "program and plugins",
    "allocator's reserve",
];

/// A measured figure.
#[derive(Debug)]
struct Speed {
    figure: String,
    /// Work done per second, by each kind of work that the figure is compared by.
    work_rates: Vec<f64>,
}

/// Memory of a process, in bytes.
#[derive(Debug)]
struct Memory {
    peak: f64,
    foreseen: f64,
}

/// Figures of a context, in the order of the columns.
#[derive(Debug)]
struct Row {
    context: u64,
    speeds: Vec<Speed>,
    memory: Vec<Memory>,
}

pub fn run(root: &Path) -> Result<()> {
    let program = setup::all(root)?;
    let contexts = std::env::var("PL_HOST_BENCH_CONTEXTS").unwrap_or_else(|_| CONTEXTS.to_owned());
    let mut rows = Vec::new();
    for context in contexts.split(',') {
        let context = context.trim();
        let context =
            context.parse::<u64>().with_context(|| format!("`{context}` is not a number of tokens"))?;
        // A context beyond the model's positions has no row.
        rows.extend(Row::measure(root, &program, context)?);
    }
    print!("{}\n{}", speed_table(&rows), memory_table(&rows));
    println!(
        "\nRelative: operations a second (prefill, train), or bytes read a second (decode: the weights, and keys and values of \
         the context), divided by those of the first row. Foreseen: parts of the estimate of `pl-host plan`, with \
         `train.token_budget` of at least a sequence."
    );
    Ok(())
}

impl Row {
    /// Measures a context. Returns `None` if it is beyond the model's positions, which the bench has told.
    fn measure(root: &Path, program: &Path, context: u64) -> Result<Option<Row>> {
        let generation = bench(root, "contexts", &[], "PL_HOST_BENCH_CONTEXTS", context)?;
        let Some(own) = generation.get(&format!("memory/{context}")) else { return Ok(None) };
        let mut speeds = vec![
            Speed::of_tokens(line(&generation, &format!("prefill/{context}"))?)?,
            Speed::of_passes(line(&generation, &format!("decode/{context}, 1"))?, &["kv_bytes"])?,
            Speed::of_passes(
                line(&generation, &format!("decode/{context}, 16"))?,
                &["kv_bytes", "kv_bytes_prompt_once"],
            )?,
        ];
        let kv_cache =
            format!("inference.kv_cache={}MiB", number(&own["kv_cache_bytes"])? / f64::from(1 << 20));
        let dtype = std::env::var("PL_HOST_BENCH_DTYPE").unwrap_or_else(|_| "f32".to_owned());
        let settings = ["reasoner.lora.rank=16".to_owned(), format!("base.dtype={dtype}"), kv_cache];
        let mut memory = vec![Memory::of(own, &plan(root, program, &settings)?, &GENERATION)?];
        for update in &UPDATES {
            let figures =
                bench(root, "update", &["--exact", update.name], "PL_HOST_BENCH_SEQUENCE", context)?;
            let own = line(&figures, update.name)?;
            let mut settings: Vec<String> =
                update.settings.iter().map(|&setting| setting.to_owned()).collect();
            settings.push("base.dtype=f32".to_owned());
            settings.push(format!("train.token_budget={}", context.max(UPDATE_TOKENS)));
            speeds.push(Speed::of_tokens(own)?);
            memory.push(Memory::of(own, &plan(root, program, &settings)?, &TRAINING)?);
        }
        Ok(Some(Row { context, speeds, memory }))
    }
}

impl Speed {
    /// Takes the speed of a prompt or an update, by its operations.
    fn of_tokens(line: &Value) -> Result<Speed> {
        let rate = number(&line["tokens_per_second"])?;
        let operations = number(&line["product_operations"])? + number(&line["attention_operations"])?;
        let work_rates = vec![rate * operations / number(&line["tokens"])?];
        Ok(Speed { figure: format!("{rate:.0}"), work_rates })
    }

    /// Takes the time of a pass with a token of each completion, by the bytes of the weights and of keys and values.
    fn of_passes(line: &Value, kv_bytes: &[&str]) -> Result<Speed> {
        let (seconds, weights) = (number(&line["pass_seconds"])?, number(&line["weight_bytes"])?);
        let rate = |key: &&str| Ok::<f64, anyhow::Error>((weights + number(&line[*key])?) / seconds);
        let work_rates = kv_bytes.iter().map(rate).collect::<Result<Vec<f64>>>()?;
        Ok(Speed { figure: format!("{:.1}", 1e3 * seconds), work_rates })
    }
}

impl Memory {
    /// Takes the peak of a bench's process and the parts of a plan's estimate that the process has.
    fn of(line: &Value, plan: &Value, parts: &[&str]) -> Result<Memory> {
        let estimate = plan["memory"]["parts"].as_array();
        let estimate =
            estimate.with_context(|| format!("the plan has no memory: {}", plan["memory_unknown"]))?;
        let bytes = |part: &&str| {
            let found = estimate.iter().find(|own| own["part"].as_str() == Some(*part));
            number(&found.with_context(|| format!("the plan has no memory of `{part}`"))?["bytes"])
        };
        let foreseen = parts.iter().map(bytes).sum::<Result<f64>>()?;
        Ok(Memory { peak: number(&line["peak_memory_bytes"])?, foreseen })
    }
}

/// Runs a bench with a context.
fn bench(root: &Path, name: &str, arguments: &[&str], variable: &str, context: u64) -> Result<Figures> {
    eprintln!("{variable}={context} cargo bench --workspace --bench {name} -- {}", arguments.join(" "));
    let mut cargo = cargo(root);
    cargo.args(["bench", "--quiet", "--workspace", "--bench", name, "--"]).args(arguments);
    // As pl-host itself: threads that wait in OpenMP's loops let others work. The plans are those of a CPU.
    cargo
        .env(variable, context.to_string())
        .env("OMP_WAIT_POLICY", "passive")
        .env_remove("PL_HOST_BENCH_DEVICE");
    figures(&mut cargo)
}

fn line<'a>(figures: &'a Figures, name: &str) -> Result<&'a Value> {
    figures.get(name).with_context(|| format!("the bench printed no `{name}`: see above"))
}

/// Returns the plan of one agent's training with settings.
fn plan(root: &Path, program: &Path, settings: &[String]) -> Result<Value> {
    let mut command = Command::new(program);
    command.arg("plan").arg(root.join("examples/math-l0.mas")).args(["--json", "--device", "cpu"]);
    command.args(settings.iter().flat_map(|setting| ["--set", setting.as_str()]));
    if let Ok(model) = std::env::var("PL_HOST_BENCH_MODEL") {
        command.args(["--set", &format!("base.source={model}"), &format!("--allow-read={model}")]);
    }
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot start {}", program.display()))?;
    if !output.status.success() {
        bail!("{command:?} ended with {}", output.status);
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("{command:?} printed no JSON"))
}

/// Returns a line of a table in Markdown.
fn table_line(cells: impl IntoIterator<Item = String>) -> String {
    cells.into_iter().fold("|".to_owned(), |line, cell| line + " " + &cell + " |") + "\n"
}

/// Returns the first lines of a table.
fn table_head(titles: Vec<String>) -> String {
    let rule = format!("|{}\n", "---|".repeat(titles.len()));
    table_line(titles) + &rule
}

/// Returns the table of speeds, each relative to that of the first row.
fn speed_table(rows: &[Row]) -> String {
    let titles = SPEEDS.iter().flat_map(|(figure, kinds)| std::iter::once(figure).chain(*kinds));
    let titles = std::iter::once(&"context").chain(titles).map(|title| (*title).to_owned());
    let mut table = table_head(titles.collect());
    for row in rows {
        let mut cells = vec![row.context.to_string()];
        for (speed, first) in row.speeds.iter().zip(&rows[0].speeds) {
            cells.push(speed.figure.clone());
            let rates = speed.work_rates.iter().zip(&first.work_rates);
            cells.extend(rates.map(|(rate, first)| format!("{:.0} %", 100.0 * rate / first)));
        }
        table += &table_line(cells);
    }
    table
}

/// Returns the table of memory in GB.
fn memory_table(rows: &[Row]) -> String {
    let titles =
        PROCESSES.iter().flat_map(|process| [format!("{process}: peak, GB"), "foreseen, GB".to_owned()]);
    let mut table = table_head(std::iter::once("context".to_owned()).chain(titles).collect());
    for row in rows {
        let gigabytes = |bytes: f64| format!("{:.2}", bytes / 1e9);
        let memory = row.memory.iter().flat_map(|own| [gigabytes(own.peak), gigabytes(own.foreseen)]);
        table += &table_line(std::iter::once(row.context.to_string()).chain(memory));
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn prefill(tokens: f64, tokens_per_second: f64, attention: f64) -> Value {
        json!({
            "tokens": tokens, "tokens_per_second": tokens_per_second,
            "product_operations": 10.0 * tokens, "attention_operations": attention,
        })
    }

    fn decode(seconds: f64, kv: f64, once: f64) -> Value {
        json!({ "pass_seconds": seconds, "weight_bytes": 100.0, "kv_bytes": kv, "kv_bytes_prompt_once": once })
    }

    fn row(context: u64, speeds: Vec<Speed>) -> Row {
        Row { context, speeds, memory: vec![Memory { peak: 1.5e9, foreseen: 2e9 }] }
    }

    /// Cells of a row, without those of columns that a test leaves out.
    fn cells(table: &str, row: usize) -> Vec<&str> {
        table.lines().nth(2 + row).unwrap().trim_matches('|').split('|').map(str::trim).collect()
    }

    #[test]
    fn speeds_are_relative_to_the_work_of_the_first_row() {
        let both = ["kv_bytes", "kv_bytes_prompt_once"];
        let rows = [
            row(
                10,
                vec![
                    // 1,000 and 100 operations in a tenth of a second.
                    Speed::of_tokens(&prefill(100.0, 1000.0, 100.0)).unwrap(),
                    Speed::of_passes(&decode(0.010, 20.0, 5.0), &both).unwrap(),
                ],
            ),
            row(
                40,
                vec![
                    // 4,000 and 1,500 operations in a second: half as many a second as before.
                    Speed::of_tokens(&prefill(400.0, 400.0, 1500.0)).unwrap(),
                    // 420 bytes in 35 ms, as many a second as 120 in 10; 205 in 35 ms.
                    Speed::of_passes(&decode(0.035, 320.0, 105.0), &both).unwrap(),
                ],
            ),
        ];
        let table = speed_table(&rows);
        assert_eq!(cells(&table, 0), ["10", "1000", "100 %", "10.0", "100 %", "100 %"]);
        assert_eq!(cells(&table, 1), ["40", "400", "50 %", "35.0", "100 %", "56 %"]);
        let head: Vec<&str> = table.lines().next().unwrap().trim_matches('|').split(" | ").collect();
        let columns = SPEEDS.iter().map(|(_, kinds)| 1 + kinds.len()).sum::<usize>();
        assert_eq!(
            (head.len(), table.lines().nth(1).unwrap().matches("---|").count()),
            (1 + columns, 1 + columns)
        );
        // A bench that measured nothing.
        assert!(Speed::of_tokens(&json!({ "tokens": 1 })).is_err());
        assert!(Speed::of_passes(&json!({ "pass_seconds": 1.0 }), &both).is_err());
    }

    #[test]
    fn foreseen_memory_is_that_of_the_parts_which_a_process_has() {
        let part = |part: &str, bytes: u64| json!({ "part": part, "bytes": bytes });
        let parts = json!([
            part("weights, training", 3_000_000_000),
            part("KV cache", 500_000_000),
            part("adapters", 7)
        ]);
        let plan = json!({ "memory": { "parts": parts } });
        let line = json!({ "peak_memory_bytes": 3_210_000_000u64 });
        let memory = Memory::of(&line, &plan, &["weights, training", "KV cache"]).unwrap();
        let row = Row { context: 8192, speeds: Vec::new(), memory: vec![memory] };
        assert_eq!(cells(&memory_table(&[row]), 0), ["8192", "3.21", "3.50"]);
        // A part of another name would be missing in the sum.
        let error = Memory::of(&line, &plan, &["activations"]).unwrap_err().to_string();
        assert_eq!(error, "the plan has no memory of `activations`");
        let unknown = json!({ "memory": null, "memory_unknown": "no model" });
        let error = Memory::of(&line, &unknown, &["activations"]).unwrap_err().to_string();
        assert_eq!(error, "the plan has no memory: \"no model\"");
    }

    #[test]
    fn every_update_has_a_column_of_memory_and_of_speed() {
        let names = UPDATES.map(|update| update.name);
        assert_eq!(names, PROCESSES[1..]);
        let columns: Vec<String> = SPEEDS[3..].iter().map(|(column, _)| (*column).to_owned()).collect();
        assert_eq!(names.map(|name| format!("{name}, tokens/s")).to_vec(), columns);
    }
}
