//! The check doesn't panic, hang or contradict itself on any text.

// clippy.toml excuses test functions, but not what they call.
#![allow(clippy::panic, clippy::unwrap_used)]

mod common;

use common::TestCatalog;
use pl_dsl::workflow::Workflow;
use pl_dsl::{Checked, Override, Severity, Source, check, render};
use proptest::prelude::*;

/// Words and signs of the language, and some that are not part of it.
const TOKENS: &[&str] = &[
    "workflow",
    "param",
    "plugin",
    "model",
    "policy",
    "environment",
    "agent",
    "turns",
    "reward",
    "sandbox",
    "train",
    "evaluate",
    "lora",
    "layout",
    "start",
    "end",
    "when",
    "and",
    "or",
    "not",
    "true",
    "env.agreed",
    "turn",
    "reward.team",
    "a",
    "b",
    "maths",
    "maths.tool",
    "std.chat",
    "int",
    "L2",
    "tree",
    "rank",
    "steps",
    "=",
    "==",
    "<=",
    ":",
    ",",
    ".",
    ";",
    "->",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "\"",
    "\"text\"",
    "\\",
    "#",
    "\n",
    "\n\n",
    " ",
    "\t",
    "\r\n",
    "4",
    "-1",
    "1e400",
    "20s",
    "64MiB",
    "9e99h",
    "5e-6",
    "é",
    "\u{1F600}",
    "\u{0}",
    "\u{2028}",
    "\u{feff}",
];

const FILES: &[&str] = &[
    include_str!("cases/design.mas"),
    include_str!("cases/side_by_side.mas"),
    include_str!("cases/item_settings.mas"),
    include_str!("cases/chat_settings.mas"),
];

/// Checks a text, renders its diagnostics in all forms, and asserts the invariants of any result.
fn check_invariants(text: String, overrides: &[Override]) {
    let source = Source { name: "x.mas".to_owned(), text };
    let Checked { workflow, diagnostics, sources, .. } = check(&source, overrides, &TestCatalog);
    let failed = diagnostics.iter().any(|one| one.severity == Severity::Error);
    assert_eq!(workflow.is_none(), failed, "{diagnostics:?}");
    for label in diagnostics.iter().flat_map(|one| &one.labels) {
        assert!(
            source.text.get(label.span.start..label.span.end).is_some() || sources.files().len() > 1,
            "{label:?}"
        );
    }
    let spans = diagnostics.iter().map(|one| one.labels.first().map(|label| label.span));
    assert!(spans.is_sorted());
    for color in [false, true] {
        let shown = render::human(&diagnostics, &sources, color);
        assert_eq!(shown.is_empty(), diagnostics.is_empty());
    }
    assert!(render::short(&diagnostics, &sources).lines().count() >= diagnostics.len());
    assert_eq!(render::json(&diagnostics, &sources).as_array().unwrap().len(), diagnostics.len());
    if let Some(workflow) = workflow {
        // A workflow survives the round trip through a run folder.
        let text = serde_json::to_string(&workflow).unwrap();
        assert_eq!(serde_json::from_str::<Workflow>(&text).unwrap(), workflow);
    }
}

fn token() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(TOKENS)
}

/// A file with some parts replaced.
fn mutated() -> impl Strategy<Value = String> {
    let edit = (any::<proptest::sample::Index>(), 0_usize..12, proptest::collection::vec(token(), 0..4));
    (proptest::sample::select(FILES), proptest::collection::vec(edit, 1..6)).prop_map(|(file, edits)| {
        let mut text: Vec<char> = file.chars().collect();
        for (at, length, tokens) in edits {
            let at = at.index(text.len() + 1);
            let end = (at + length).min(text.len());
            text.splice(at..end, tokens.concat().chars());
        }
        text.into_iter().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text(text in "\\PC*|(?s).*") {
        check_invariants(text, &[]);
    }

    #[test]
    fn any_tokens(tokens in proptest::collection::vec(token(), 0..80), glue in "[ \n]?") {
        check_invariants(tokens.join(&glue), &[]);
    }

    #[test]
    fn any_mutation(text in mutated()) {
        check_invariants(text, &[]);
    }

    #[test]
    fn any_override(path in "[a-z. ]{0,12}|(train|tool|coder|base|problems)\\.[a-z_.]{1,12}", value in "\\PC{0,16}") {
        check_invariants(FILES[0].to_owned(), &[Override { shown: format!("{path}={value}"), path, value, optional: false }]);
    }
}

/// A workflow whose one edge to `end` has this condition.
fn with_condition(condition: &str) -> Source {
    let text = FILES[1].replace("a -> end\n", &format!("a -> end when {condition}\n  a -> end\n"));
    assert_ne!(text, FILES[1]);
    Source { name: "x.mas".to_owned(), text }
}

/// Long chains don't make deep trees, so that code that walks them doesn't run out of stack, here or in a reader of the
/// run folder.
#[test]
fn long_chains_are_shallow() {
    for join in [" and ", " or "] {
        let chain = vec!["env.agreed"; 20_000].join(join);
        let workflow = check(&with_condition(&chain), &[], &TestCatalog).workflow.unwrap();
        let text = serde_json::to_string(&workflow).unwrap();
        assert_eq!(serde_json::from_str::<Workflow>(&text).unwrap(), workflow);
    }
    let workflow =
        check(&with_condition(&format!("{}env.agreed", "not ".repeat(100_001))), &[], &TestCatalog);
    assert!(workflow.workflow.is_some());
}

#[test]
fn deep_nesting_is_refused() {
    for (open, close) in [("(", ")"), ("not (", ")"), ("turn < 1 or (env.agreed and (", "))")] {
        let nested = format!("{}env.agreed{}", open.repeat(50_000), close.repeat(50_000));
        let checked = check(&with_condition(&nested), &[], &TestCatalog);
        assert!(checked.workflow.is_none());
        assert!(checked.diagnostics.len() <= 2, "{:?}", checked.diagnostics);
    }
    for text in ["a {".repeat(50_000), "a = [".repeat(50_000), "agent a = b.c { x {".repeat(50_000)] {
        check_invariants(text, &[]);
    }
}

/// Work grows linearly with the size of the text: with quadratic work, any of these files of two megabytes would take
/// minutes.
#[test]
fn large_files_are_fine() {
    let many = |line: &str| line.repeat(2_000_000 / line.len());
    for text in [
        many("model base = \"x\"\n"),
        many("x"),
        many("turns { a -> b -> c\n }\n"),
        format!("turns {{\n{}}}\n", many("a -> b when env.x == \"y\"\n")),
        format!("train {{\n{}}}\n", many("steps = 3; ")),
        many("\"\n"),
        many("{\n"),
        many("}\n"),
        many("( [ \n"),
        many("policy p { model = base\n"),
    ] {
        let source = Source { name: "x.mas".to_owned(), text };
        let checked = check(&source, &[], &TestCatalog);
        assert!(checked.workflow.is_none());
    }
}
