//! Spans are exact for any form of a file: line ends, byte order marks, tabs, multi-byte characters, and a missing final
//! newline.

// clippy.toml excuses test functions, but not what they call.
#![allow(clippy::panic, clippy::unwrap_used)]

mod common;
#[path = "common/files.rs"]
mod files;

use common::TestCatalog;
use files::{folder, workflows};
use pl_dsl::{Checked, Source, check, render};

/// Code, message, and the text of each label with its line.
type Found = Vec<(String, String, Vec<(usize, String)>)>;

fn found(text: &str) -> Found {
    let source = Source { name: "x.mas".to_owned(), text: text.to_owned() };
    let Checked { diagnostics, sources, .. } = check(&source, &[], &TestCatalog);
    let one = |span| {
        let (file, span): (_, pl_dsl::Span) = sources.find(span).unwrap();
        let text = sources.text_of(file);
        // A span in another file doesn't change with this one.
        let line = if file.name == "x.mas" { text[..span.start].matches('\n').count() } else { 0 };
        (line, text[span.start..span.end].replace("\r\n", "\n"))
    };
    let mut out: Found = diagnostics
        .iter()
        .map(|diagnostic| {
            let labels = diagnostic.labels.iter().map(|label| one(label.span)).collect();
            (diagnostic.code.to_string(), diagnostic.message.clone(), labels)
        })
        .collect();
    out.sort();
    out
}

fn texts() -> Vec<(String, String)> {
    let sources = ["tests/mistakes", "tests/cases"].into_iter().flat_map(|name| workflows(&folder(name)));
    let out: Vec<(String, String)> = sources.map(|source| (source.name, source.text)).collect();
    assert!(out.len() > 120);
    out
}

#[test]
fn line_ends_do_not_matter() {
    for (name, text) in texts() {
        let plain = found(&text);
        assert_eq!(found(&text.replace('\n', "\r\n")), plain, "{name}");
    }
}

#[test]
fn a_byte_order_mark_does_not_matter() {
    for (name, text) in texts() {
        assert_eq!(found(&format!("\u{feff}{text}")), found(&text), "{name}");
    }
}

#[test]
fn the_last_newline_does_not_matter() {
    for (name, text) in texts() {
        assert_eq!(found(text.trim_end()), found(&text), "{name}");
    }
}

#[test]
fn tabs_and_multi_byte_characters_before_a_span_do_not_matter() {
    for (name, text) in texts() {
        // Adds a comment with characters of two, three and four bytes, and replaces the indentation by tabs.
        let mut changed = String::from("# é 漢 \u{1F600}\n");
        for line in text.split_inclusive('\n') {
            let rest = line.trim_start_matches("  ");
            let depth = (line.len() - rest.len()) / 2;
            if text.contains("\"\"\"") {
                changed.push_str(line);
            } else {
                changed.push_str(&"\t".repeat(depth));
                changed.push_str(rest);
            }
        }
        let moved = |found: Found| -> Found {
            found
                .into_iter()
                .map(|(code, message, labels)| {
                    let labels = labels.into_iter().map(|(line, text)| (line + 1, text.replace('\t', "  ")));
                    (code, message, labels.collect())
                })
                .collect()
        };
        let shown: Found = found(&changed)
            .into_iter()
            .map(|(code, message, labels)| {
                (
                    code,
                    message,
                    labels.into_iter().map(|(line, text)| (line, text.replace('\t', "  "))).collect(),
                )
            })
            .collect();
        let elsewhere = text.contains("include") || text.contains("use ");
        if !elsewhere {
            assert_eq!(shown, moved(found(&text)), "{name}");
        }
    }
}

/// A carriage return alone ends no line, also not in the frame with the source.
#[test]
fn both_forms_of_a_message_count_the_same_lines() {
    for text in [
        "workflow w\rparam x: int = y\r",
        "workflow w\r\nparam x: int = y\r\n",
        "workflow w\r\r\nparam x: int = y\r",
    ] {
        let source = Source { name: "x.mas".to_owned(), text: text.to_owned() };
        let Checked { diagnostics, sources, .. } = check(&source, &[], &TestCatalog);
        let short = render::short(&diagnostics, &sources);
        let human = render::human(&diagnostics, &sources, false);
        let places: Vec<&str> =
            short.lines().filter_map(|line| line.split_once(": ")).map(|(place, _)| place).collect();
        assert!(places.iter().any(|place| place.matches(':').count() == 2), "{short}");
        for place in places.into_iter().filter(|place| place.contains(':')) {
            assert!(human.contains(&format!("[{place}]")), "{text:?}\n{short}\n{human}");
        }
    }
}
