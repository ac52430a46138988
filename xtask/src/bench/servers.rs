//! `cargo xtask bench servers`: `serve` under load beside the embedded engine, and the client's CPU time beside hyper's.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use super::engine::{Figures, figures};
use crate::cargo::cargo;
use crate::setup;

/// Rows of the table: name of a line, keys of our figure and of the one beside it, and what they are.
const ROWS: [(&str, &str, &str, &str); 5] = [
    (
        "throughput/64",
        "served_tokens_per_second",
        "embedded_tokens_per_second",
        "tokens/s, 64 requests in progress; the embedded engine",
    ),
    ("first token/idle", "served_ms", "prefill_ms", "ms to the first token, idle; a prefill"),
    (
        "first token/64",
        "served_ms",
        "prefill_and_two_steps_ms",
        "ms to the first token, 64 in progress; a prefill and two steps",
    ),
    (
        "request/100 tokens",
        "client_us",
        "hyper_us",
        "\u{b5}s of the client's CPU per request of 100 tokens; hyper with the same bytes",
    ),
    (
        "request/200 tokens",
        "client_us",
        "hyper_us",
        "\u{b5}s of the client's CPU per request of 200 tokens; hyper with the same bytes",
    ),
];

pub fn run(root: &Path) -> Result<()> {
    setup::all(root)?;
    let mut found = Figures::new();
    for bench in ["load", "client"] {
        eprintln!("cargo bench --workspace --bench {bench}");
        let mut cargo = cargo(root);
        cargo.args(["bench", "--quiet", "--workspace", "--bench", bench]).env("OMP_WAIT_POLICY", "passive");
        found.extend(figures(&mut cargo)?);
    }
    println!("| | pl-host | beside it | ratio |\n|---|---|---|---|");
    for (name, ours, beside, words) in ROWS {
        let Some(line) = found.get(name) else { continue };
        let number = |key: &str| line.get(key).and_then(Value::as_f64).unwrap_or_default();
        println!("| {words} | {:.1} | {:.1} | {:.2} |", number(ours), number(beside), number("ratio"));
    }
    Ok(())
}
