//! The documents are true: their workflows are right and written the one way, and the reference page is current.

// clippy.toml excuses test functions, but not what they call.
#![allow(clippy::panic, clippy::unwrap_used)]

mod common;
#[path = "common/fences.rs"]
mod fences;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use common::Shelf;
use fences::fences;
use pl_dsl::explain::{blocks, function, head, layout};
use pl_dsl::functions::FUNCTIONS;
use pl_dsl::settings::{self, Setting};
use pl_dsl::{BlockKind, Code, Source, Sources, check, render, syntax_errors};

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

/// An example is a whole workflow, which is right, or a `fragment`, which can be read.
#[test]
fn examples_in_documents_are_right() {
    let mut amiss = Vec::new();
    let mut count = 0;
    for path in documents() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let document = fs::read_to_string(&path).unwrap();
        for example in fences(&document) {
            count += 1;
            let place = format!("{name}:{}", example.line);
            let source = Source { name: place.clone(), text: example.text.clone() };
            let said = match example.word {
                "fragment" => render::short(&syntax_errors(&example.text), &Sources::from(source)),
                "" => {
                    let checked = check(&source, &[], &Shelf);
                    render::short(&checked.diagnostics, &checked.sources)
                }
                other => format!("{place}: an example is whole or a `fragment`, and not `{other}`\n"),
            };
            amiss.extend((!said.is_empty()).then_some(said));
            match pl_dsl::format(&example.text) {
                Ok(formatted) if formatted != example.text => {
                    amiss.push(format!("{place}: not as the formatter writes it:\n{formatted}"));
                }
                _ => {}
            }
        }
    }
    assert!(count >= 6, "only {count} examples were found");
    assert!(amiss.is_empty(), "{}", amiss.join("\n"));
}

/// `INSTA_UPDATE=always` writes the page anew, as it does with snapshots.
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

/// All of the language's tables as one page.
fn reference() -> String {
    let mut out = "# Reference of the .mas language\n\n\
        Made from the tables that the check reads (`dsl/src/settings/table.rs` and its neighbours). `pl-host explain TOPIC` \
        shows the same piece by piece; [language.md](language.md) says how it fits together.\n\n"
        .to_owned();
    let names: Vec<String> = blocks().map(|kind| link(kind.keyword())).collect();
    writeln!(
        out,
        "Blocks: {}, {}. [Functions](#functions). [Codes](#codes).\n",
        names.join(", "),
        link("layout")
    )
    .unwrap();
    out.push_str("# Blocks\n\n");
    for kind in blocks() {
        writeln!(out, "## {}\n\n{}\n", kind.keyword(), block_page(kind)).unwrap();
    }
    writeln!(out, "## layout\n\n{}\n\n# Functions\n", layout()).unwrap();
    for one in FUNCTIONS {
        writeln!(out, "- {}", function(one)).unwrap();
    }
    out.push_str("\n# Codes\n\nEach links to a page with an example, wrong and right.\n\n");
    for code in Code::ALL {
        writeln!(out, "- [{code}](../dsl/src/explain/{code}.md): {}", code.title()).unwrap();
    }
    out
}

fn link(name: &str) -> String {
    format!("[{name}](#{name})")
}

/// The block, then each of its settings at length.
fn block_page(kind: BlockKind) -> String {
    let pages = settings::in_head(kind).into_iter().chain(settings::of(kind)).map(Setting::page);
    std::iter::once(head(kind).replace("```mas", "```text")).chain(pages).collect::<Vec<_>>().join("\n\n")
}
