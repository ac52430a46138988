//! Tests of the documentation: its workflows are valid and formatted, and the reference page is current.

// clippy.toml excuses test functions, but not what they call.
#![allow(clippy::panic, clippy::unwrap_used)]

mod common;
#[path = "common/fences.rs"]
mod fences;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use common::TestCatalog;
use fences::fences;
use pl_dsl::explain::{algorithm, block, blocks, function, head, layout};
use pl_dsl::functions::FUNCTIONS;
use pl_dsl::settings::{self, ALGORITHMS, Setting};
use pl_dsl::{BlockKind, DiagnosticCode, Source, Sources, check, render, syntax_errors};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// README.md, `docs/*.md`, and the READMEs of the editors.
fn documents() -> Vec<PathBuf> {
    let root = repository();
    let inside = |folder: &str| fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut documents = vec![root.join("README.md")];
    documents.extend(inside("docs").filter(|path| path.extension().is_some_and(|one| one == "md")));
    documents.extend(inside("editors").map(|folder| folder.join("README.md")).filter(|path| path.is_file()));
    documents.sort();
    documents
}

/// An example is a complete, valid workflow, or a `fragment` without syntax errors.
#[test]
fn examples_in_documents_are_valid() {
    let mut problems = Vec::new();
    let mut count = 0;
    for path in documents() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let document = fs::read_to_string(&path).unwrap();
        for example in fences(&document) {
            count += 1;
            let place = format!("{name}:{}", example.line);
            let source = Source { name: place.clone(), text: example.text.clone() };
            let diagnostics = match example.word {
                "fragment" => render::short(&syntax_errors(&example.text), &Sources::from(source)),
                "" => {
                    let checked = check(&source, &[], &TestCatalog);
                    render::short(&checked.diagnostics, &checked.sources)
                }
                other => format!("{place}: an example is complete or a `fragment`, not `{other}`\n"),
            };
            problems.extend((!diagnostics.is_empty()).then_some(diagnostics));
            match pl_dsl::format(&example.text) {
                Ok(formatted) if formatted != example.text => {
                    problems.push(format!("{place}: not formatted:\n{formatted}"));
                }
                _ => {}
            }
        }
    }
    assert!(count >= 6, "only {count} examples were found");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// `INSTA_UPDATE=always` rewrites the page, like snapshots.
#[test]
fn the_reference_is_current() {
    let path = repository().join("docs/reference.md");
    let reference = reference();
    if std::env::var("INSTA_UPDATE").is_ok_and(|how| how == "always") {
        fs::write(&path, &reference).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == reference,
        "docs/reference.md is out of date: `INSTA_UPDATE=always cargo nextest run --release -p pl-dsl` writes it"
    );
}

/// Reference page of all tables.
fn reference() -> String {
    let mut out = "# Reference of the .mas language\n\n\
        This page is generated from the tables that the check reads (`dsl/src/settings` and others). `pl-host explain \
        TOPIC` shows a single topic; [language.md](language.md) describes the language as a whole.\n\n"
        .to_owned();
    let names: Vec<String> = blocks().map(|kind| link(kind.full_keyword())).collect();
    writeln!(
        out,
        "Blocks: {}, {}. [Algorithms](#algorithms). [Functions](#functions). [Codes](#codes).\n",
        names.join(", "),
        link("layout")
    )
    .unwrap();
    out.push_str("# Blocks\n\n");
    for kind in blocks() {
        writeln!(out, "## {}\n\n{}\n", kind.full_keyword(), block_page(kind)).unwrap();
    }
    writeln!(out, "## layout\n\n{}\n\n# Algorithms\n", layout()).unwrap();
    out.push_str("Values of `train.algorithm`, with the settings that each stands for.\n\n");
    for one in &ALGORITHMS {
        writeln!(out, "## {}\n\n{}\n", one.word, algorithm(one)).unwrap();
    }
    out.push_str("# Functions\n\n");
    for one in FUNCTIONS {
        writeln!(out, "- {}", function(one)).unwrap();
    }
    out.push_str(
        "\n# Codes\n\nEach code links to a page with an example of the mistake and of its correction.\n\n",
    );
    for code in DiagnosticCode::ALL {
        writeln!(out, "- [{code}](../dsl/src/explain/{code}.md): {}", code.title()).unwrap();
    }
    out
}

fn link(name: &str) -> String {
    // GitHub's anchors have no dots.
    format!("[{name}](#{})", name.replace('.', ""))
}

/// Description of a block and of all its settings.
fn block_page(kind: BlockKind) -> String {
    if matches!(kind, BlockKind::PolicyTrain | BlockKind::PolicyDevices) {
        return block(kind).replace("```mas", "```text");
    }
    let pages =
        settings::head_setting(kind).into_iter().chain(settings::in_block(kind)).map(Setting::describe);
    std::iter::once(head(kind).replace("```mas", "```text")).chain(pages).collect::<Vec<_>>().join("\n\n")
}
