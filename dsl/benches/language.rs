//! Speed of parsing, checking and formatting, compared with libraries for HCL and KDL, languages of the same shape, on
//! files of the same content.
//!
//! `cargo bench --workspace --bench language` prints the speeds and their ratios.

#![allow(clippy::expect_used, reason = "a benchmark has no results if its files can't be parsed")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;
use std::time::{Duration, Instant};

use common::TestCatalog;
use divan::Bencher;
use divan::counter::BytesCount;
use pl_dsl::Source;

/// Approximate numbers of lines of the files.
const LINES: [usize; 2] = [1_000, 100_000];

fn main() {
    divan::main();
    // `cargo test` runs benchmarks too, without measuring.
    if std::env::args().any(|argument| argument == "--bench") {
        ratios();
    }
}

/// A file of many agents with nine lines each, and one block with as many edges.
fn many(
    lines: usize,
    head: &str,
    agent: impl Fn(usize) -> String,
    edges: &str,
    edge: impl Fn(usize) -> String,
) -> String {
    let agents = lines / 10;
    let agent: String = (0..agents).map(agent).collect();
    let edge: String = (0..agents).map(edge).collect();
    format!("{head}\n{agent}{edges}{edge}}}\n")
}

/// A workflow of many agents in sequence.
fn mas(lines: usize) -> String {
    let head = "workflow many\n\nplugin maths = \"math.wasm\"\nmodel base = \"smollm2-135m\"\n\n\
                policy coder { model = base; lora { rank = 16; alpha = 32 } }\n\n\
                environment problems = maths.problems\n\nreward score = maths.score\n";
    let agent = |index| {
        format!(
            "agent a{index} = std.chat {{\n  policy      = coder\n  max_tokens  = 40\n  temperature = 0.7    # warm\n  \
             system      = \"You solve word problems. Answer with one sum.\"\n  template    = \"{{question}}\"\n  \
             stop        = [\"one\", \"two\"]\n}}\n\n"
        )
    };
    let last = lines / 10 - 1;
    let edge = |index| {
        let next = if index < last { format!("a{}", index + 1) } else { "end".to_owned() };
        format!("  a{index} -> {next}\n")
    };
    many(lines, head, agent, "turns {\n  start -> a0\n", edge)
}

/// The same in HCL.
fn hcl(lines: usize) -> String {
    let head = "workflow = \"many\"\n\nplugin \"maths\" {\n  source = \"math.wasm\"\n}\n";
    let agent = |index| {
        format!(
            "agent \"a{index}\" {{\n  policy      = coder\n  max_tokens  = 40\n  temperature = 0.7    # warm\n  \
             system      = \"You solve word problems. Answer with one sum.\"\n  template    = \"{{question}}\"\n  \
             stop        = [\"one\", \"two\"]\n}}\n\n"
        )
    };
    let edge = |index| format!("  a{index} = a{}\n", index + 1);
    many(lines, head, agent, "turns {\n  start = a0\n", edge)
}

/// The same in KDL.
fn kdl(lines: usize) -> String {
    let head = "workflow many\n\nplugin maths {\n  source \"math.wasm\"\n}\n";
    let agent = |index| {
        format!(
            "agent a{index} {{\n  policy      coder\n  max_tokens  40\n  temperature 0.7    // warm\n  \
             system      \"You solve word problems. Answer with one sum.\"\n  template    \"{{question}}\"\n  \
             stop        one two\n}}\n\n"
        )
    };
    let edge = |index| format!("  a{index} a{}\n", index + 1);
    many(lines, head, agent, "turns {\n  start a0\n", edge)
}

fn read_mas(text: &str) {
    assert!(pl_dsl::syntax_errors(black_box(text)).is_empty());
}

fn check_mas(source: &Source) {
    let checked = pl_dsl::check(black_box(source), &[], &TestCatalog);
    assert!(checked.workflow.is_some(), "{}", pl_dsl::render::short(&checked.diagnostics, &checked.sources));
}

fn format_mas(text: &str) {
    black_box(pl_dsl::format(black_box(text)).expect("a file that can be read"));
}

fn read_hcl(text: &str) {
    assert!(pl_peers::read_hcl(black_box(text)));
}

fn edit_hcl(text: &str) {
    assert!(pl_peers::edit_hcl(black_box(text)));
}

fn format_hcl(text: &str) {
    black_box(pl_peers::format_hcl(black_box(text)).expect("HCL"));
}

fn read_kdl(text: &str) {
    assert!(pl_peers::read_kdl(black_box(text)));
}

fn format_kdl(text: &str) {
    black_box(pl_peers::format_kdl(black_box(text)).expect("KDL"));
}

/// Runs `work` on a text and counts its bytes.
fn bench(bencher: Bencher, text: String, work: fn(&str)) {
    bencher.counter(BytesCount::of_str(&text)).bench_local(|| work(&text));
}

#[divan::bench(args = LINES)]
fn check(bencher: Bencher, lines: usize) {
    let source = Source { name: "many.mas".to_owned(), text: mas(lines) };
    bencher.counter(BytesCount::of_str(&source.text)).bench_local(|| check_mas(&source));
}

#[divan::bench(args = LINES)]
fn read(bencher: Bencher, lines: usize) {
    bench(bencher, mas(lines), read_mas);
}

#[divan::bench(args = LINES)]
fn read_hcl_values(bencher: Bencher, lines: usize) {
    bench(bencher, hcl(lines), read_hcl);
}

#[divan::bench(args = LINES)]
fn read_hcl_edit(bencher: Bencher, lines: usize) {
    bench(bencher, hcl(lines), edit_hcl);
}

#[divan::bench(args = LINES)]
fn read_kdl_document(bencher: Bencher, lines: usize) {
    bench(bencher, kdl(lines), read_kdl);
}

#[divan::bench(args = LINES)]
fn format(bencher: Bencher, lines: usize) {
    bench(bencher, mas(lines), format_mas);
}

#[divan::bench(args = LINES)]
fn format_hcl_values(bencher: Bencher, lines: usize) {
    bench(bencher, hcl(lines), format_hcl);
}

#[divan::bench(args = LINES)]
fn format_kdl_document(bencher: Bencher, lines: usize) {
    bench(bencher, kdl(lines), format_kdl);
}

/// Speed in MB per second, in the best of several rounds: other load on the machine only adds time.
fn speed(text: &str, work: impl Fn(&str)) -> f64 {
    const ROUNDS: usize = 5;
    let once = || {
        let begun = Instant::now();
        work(text);
        begun.elapsed()
    };
    let best = (0..ROUNDS).map(|_| once()).min().unwrap_or(Duration::MAX);
    text.len() as f64 / 1e6 / best.as_secs_f64()
}

/// Prints our speeds, and their ratios to the others: 2.0× means twice as many bytes per second.
fn ratios() {
    println!("\nMB/s, and ratios to other libraries");
    for lines in LINES {
        let (ours, hcl, kdl) = (mas(lines), hcl(lines), kdl(lines));
        let source = Source { name: "many.mas".to_owned(), text: ours.clone() };
        let check = speed(&ours, |_| check_mas(&source));
        let (read, format) = (speed(&ours, read_mas), speed(&ours, format_mas));
        let (values, edit, document) = (speed(&hcl, read_hcl), speed(&hcl, edit_hcl), speed(&kdl, read_kdl));
        let (hcl_format, kdl_format) = (speed(&hcl, format_hcl), speed(&kdl, format_kdl));
        println!("{lines} lines");
        println!("  check   {check:6.1}");
        println!(
            "  read    {read:6.1}   hcl-rs {:.1}×   hcl-edit {:.1}×   kdl {:.1}×",
            read / values,
            read / edit,
            read / document
        );
        println!(
            "  format  {format:6.1}   hcl-rs {:.1}×   kdl {:.1}×",
            format / hcl_format,
            format / kdl_format
        );
    }
}
