//! `cargo xtask bench`: the main job as a whole, three steps of it.
//!
//! Rates come from the run's own `timings.jsonl`, memory from the kernel. Machines differ and are shared: compare
//! rows of one table with each other.

pub mod cluster;
pub mod contexts;
pub mod engine;
pub mod rollouts;
pub mod servers;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cargo::cargo;
use crate::setup;

const STEPS: usize = 3;

pub fn run(root: &Path) -> Result<()> {
    let program = setup::all(root)?;
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("run");
    let start = Instant::now();
    let mut child = Command::new(&program)
        .arg("run")
        .arg(root.join("examples/math.mas"))
        .arg("--out")
        .arg(&out)
        .args(["--device", "cpu", "--set", "test.every=0", "--set"])
        .arg(format!("train.steps={STEPS}"))
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let mut peak = 0;
    let mut first_episode = None;
    let status = loop {
        // The last reading before the end stands: the kernel's figure never falls.
        peak = peak_kib(child.id()).unwrap_or(peak);
        if first_episode.is_none() && out.join("workflow.json").exists() {
            first_episode = Some(start.elapsed());
        }
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    if !status.success() {
        bail!("the run ended with {status}");
    }
    report(&out, first_episode.unwrap_or_default(), peak)
}

/// Both backends of untrusted code beside a bare process, `docker exec` and `docker run`.
pub fn sandbox(root: &Path) -> Result<()> {
    setup::all(root)?;
    let status = cargo(root)
        .args(["bench", "--quiet", "--workspace", "--bench", "sandbox"])
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("the benchmark failed: see above");
    }
    Ok(())
}

/// Largest resident set of a process so far.
fn peak_kib(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

fn report(out: &Path, first_episode: Duration, peak: u64) -> Result<()> {
    let path = out.join("timings.jsonl");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    println!("| step | played s | trained s | sampled tokens/s | trained tokens/s |");
    println!("|---|---|---|---|---|");
    for line in text.lines() {
        let line: Value = serde_json::from_str(line)?;
        let number = |value: &Value| value.as_f64().unwrap_or_default();
        println!(
            "| {} | {:.1} | {:.1} | {:.0} | {:.0} |",
            line["step"],
            number(&line["seconds"]["play"]),
            number(&line["seconds"]["train"]),
            number(&line["sampled_tokens_per_second"]),
            number(&line["trained_tokens_per_second"]),
        );
    }
    println!();
    println!("ready for the first episode after {:.1} s", first_episode.as_secs_f64());
    println!("peak memory {:.2} GB", peak as f64 * 1024.0 / 1e9);
    Ok(())
}
