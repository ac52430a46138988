//! `cargo xtask bench engine`: generation and training beside transformers and llama.cpp, in one run.
//!
//! The benches of pl-inference and pl-trainer and the scripts in `bench/peers` print lines of JSON; here they become
//! one table, which is printed and written to docs/results.md between the two marks for the processor's instructions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cargo::cargo;
use crate::page::write_table;
use crate::{python_env, setup};

/// A row of the table: our figure, the peers' figures beside it, and the ratio that is aimed at.
struct Row {
    ours: &'static str,
    transformers: Option<&'static str>,
    llama: Option<&'static str>,
}

const ROWS: [Row; 17] = [
    Row { ours: "generate/1/f32", transformers: Some("generate/1/f32"), llama: Some("generate/1/q4_1") },
    Row { ours: "generate/1/f16", transformers: Some("generate/1/f32"), llama: Some("generate/1/q4_1") },
    Row { ours: "generate/16/f32", transformers: Some("generate/16/f32"), llama: Some("generate/16/q4_1") },
    Row { ours: "generate/16/f16", transformers: Some("generate/16/f32"), llama: Some("generate/16/q4_1") },
    Row { ours: "generate/1/file", transformers: Some("generate/1/f32"), llama: Some("generate/1/q4_1") },
    Row { ours: "generate/16/file", transformers: Some("generate/16/f32"), llama: Some("generate/16/q4_1") },
    Row { ours: "generate/1/q8", transformers: Some("generate/1/f32"), llama: Some("generate/1/q4_1") },
    Row { ours: "generate/16/q8", transformers: Some("generate/16/f32"), llama: Some("generate/16/q4_1") },
    Row { ours: "generate/16/f32, 4 adapters", transformers: None, llama: None },
    Row { ours: "generate/64/f32", transformers: None, llama: None },
    Row { ours: "generate/16/f32, 64 of 132 tokens", transformers: None, llama: None },
    Row { ours: "generate/16/f32, 64 of 8 to 256 tokens", transformers: None, llama: None },
    Row { ours: "train/full", transformers: Some("train/full"), llama: None },
    Row { ours: "train/lora", transformers: Some("train/lora"), llama: None },
    Row { ours: "train/lora, 2 adapters", transformers: None, llama: None },
    Row { ours: "train/lora, 4 siblings", transformers: None, llama: None },
    Row { ours: "train/lora, checkpointed", transformers: None, llama: None },
];

pub(super) type Figures = BTreeMap<String, Value>;

pub fn run(root: &Path) -> Result<()> {
    setup::all(root)?;
    let python = python()?;
    let peer = |script: &str, arguments: &[&str]| {
        eprintln!("bench/peers/{script} {}", arguments.join(" "));
        figures(Command::new(&python).arg(root.join("bench/peers").join(script)).args(arguments))
    };
    let ours = |bench: &str| {
        eprintln!("cargo bench --workspace --bench {bench}");
        // As pl-host itself: threads that wait in OpenMP's loops let others work.
        let mut cargo = cargo(root);
        cargo.args(["bench", "--quiet", "--workspace", "--bench", bench]).env("OMP_WAIT_POLICY", "passive");
        figures(&mut cargo)
    };
    let mut own = ours("throughput")?;
    own.extend(ours("update")?);
    let mut transformers = peer("generate_transformers.py", &[])?;
    transformers.extend(peer("train_transformers.py", &["full"])?);
    transformers.extend(peer("train_transformers.py", &["lora"])?);
    let llama = peer("generate_llama.py", &[])?;
    let table = table(&own, &transformers, &llama);
    print!("{table}");
    // Machines of different kinds have tables of their own.
    let kind = own.get("machine").and_then(|machine| machine["kind"].as_str());
    let name = format!("bench engine, {}", kind.unwrap_or_default());
    write_table(&root.join("docs/results.md"), &name, &table)
}

/// The interpreter that has the peers: `$PL_HOST_PEERS_PYTHON`, or one made in the cache.
fn python() -> Result<PathBuf> {
    if let Some(python) = std::env::var_os("PL_HOST_PEERS_PYTHON") {
        return Ok(python.into());
    }
    python_env::set_up("peers", "the peers, about 3 GB,", |_| Ok(()))
}

/// The lines of JSON that a program prints, by name.
pub(super) fn figures(command: &mut Command) -> Result<Figures> {
    let output =
        command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} ended with {}", output.status);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let values = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(values.filter_map(|value| Some((value["name"].as_str()?.to_owned(), value))).collect())
}

fn rate(figures: &Figures, name: &str) -> Option<f64> {
    figures.get(name)?["tokens_per_second"].as_f64()
}

fn table(own: &Figures, transformers: &Figures, llama: &Figures) -> String {
    let mut out = String::from(
        "| tokens/s | pl-host | of what the machine allows | with attention and prompts | transformers | ratio \
         | llama.cpp, Q4_1 | ratio |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for row in &ROWS {
        let Some(ours) = rate(own, row.ours) else { continue };
        let share = |bound: &str| match own[row.ours][bound].as_f64() {
            Some(allowed) => format!("{:.0} %", 100.0 * ours / allowed),
            None => String::new(),
        };
        let beside = |figures: &Figures, name: Option<&str>| match name.and_then(|name| rate(figures, name)) {
            Some(theirs) => format!("{theirs:.0} | {:.1}", ours / theirs),
            None => " | ".to_owned(),
        };
        out += &format!(
            "| {} | {ours:.0} | {} | {} | {} | {} |\n",
            row.ours,
            share("machine_allows"),
            share("machine_allows_with_attention"),
            beside(transformers, row.transformers),
            beside(llama, row.llama),
        );
    }
    if let Some(machine) = own.get("machine") {
        let number = |key: &str| machine[key].as_f64().unwrap_or_default();
        out += &format!(
            "\nThis machine, in the same run: {}, {} threads, {}; reads {:.0} GB/s, multiplies {:.0} GFLOP/s (f32, all cores).\n",
            machine["processor"].as_str().unwrap_or_default(),
            machine["threads"],
            machine["instructions"].as_str().unwrap_or_default(),
            number("read_gb_per_second"),
            number("product_gflops"),
        );
    }
    out
}
