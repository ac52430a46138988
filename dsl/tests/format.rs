//! The formatter: every file in `tests/format` against its snapshot, and properties of all files.

// clippy.toml excuses test functions, but not what they call.
#![allow(clippy::panic, clippy::unwrap_used)]

#[path = "common/files.rs"]
mod files;
#[path = "common/generate.rs"]
mod generate;
#[path = "common/tokens.rs"]
mod tokens;

use files::{folder, workflows};
use pl_dsl::{format, render, syntax_tree};
use proptest::prelude::*;
use tokens::essence;

#[test]
fn every_case_has_its_form() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(folder("tests/format"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        for source in workflows(&folder("tests/format")) {
            let shown = match format(&source.text) {
                Ok(formatted) => formatted,
                Err(diagnostics) => render::human(&diagnostics, &source.clone().into(), false),
            };
            insta::assert_snapshot!(source.name.trim_end_matches(".mas"), shown);
        }
    });
}

#[test]
fn examples_are_formatted() {
    for source in workflows(&folder("../examples")) {
        assert_eq!(format(&source.text).unwrap(), source.text, "{}", source.name);
    }
}

/// Asserts that formatting is idempotent and loses nothing, if the text can be formatted.
fn check_properties(text: &str) {
    let Ok(once) = format(text) else { return };
    assert_eq!(format(&once).unwrap(), once, "formatting is not idempotent, of:\n{text}");
    assert_eq!(essence(&once), essence(text), "of:\n{text}\nformatted:\n{once}");
    assert!(once.is_empty() || once.ends_with('\n'), "{once}");
}

/// Words, signs and other parts of files.
const TOKENS: &[&str] = &[
    "agent", "a", "policy", "turns", "when", "and", "in", "if", "1", "0.5", "1e", "e5", "\"x\"", "\"",
    "\"\"\"", "\"${a}\"", "${", "\\", "=", "==", "!", "<", ">", "->", "-", "+", ".", "..", ",", ":", ";",
    "(", ")", "[", "]", "{", "}", "{}", "[]", "#", "# c\n", "\n", "\n\n", " ", "\t", "\r\n", "é", "@",
    "\u{feff}",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_file(seed: u64, statements in 0_usize..24) {
        let text = generate::file(seed, statements);
        prop_assert!(format(&text).is_ok(), "{:?} of:\n{text}", format(&text));
        check_properties(&text);
    }

    #[test]
    fn any_tokens(tokens in proptest::collection::vec(proptest::sample::select(TOKENS), 0..60), glue in " ?") {
        check_properties(&tokens.join(&glue));
    }

    #[test]
    fn any_text(text in "\\PC*|(?s).*") {
        check_properties(&text);
    }
}

/// Checks that formatting keeps the syntax tree.
fn keeps_its_tree(text: &str) {
    if let (Some(before), Ok(formatted)) = (syntax_tree(text), format(text)) {
        assert_eq!(syntax_tree(&formatted), Some(before), "of:\n{text}\nformatted:\n{formatted}");
    }
}

#[test]
fn examples_and_cases_keep_their_trees() {
    let mut parsed = 0;
    for name in ["../examples", "tests/cases", "tests/mistakes", "tests/format"] {
        for source in workflows(&folder(name)) {
            parsed += usize::from(syntax_tree(&source.text).is_some());
            keeps_its_tree(&source.text);
        }
    }
    assert!(parsed > 100, "only {parsed} files could be parsed");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_file_keeps_its_tree(seed: u64, statements in 0_usize..24) {
        keeps_its_tree(&generate::file(seed, statements));
    }
}

/// Guards the property above: the generator also writes files that the brackets allow and the grammar doesn't.
#[test]
fn many_generated_files_have_a_tree() {
    let parsed = (0..400).filter(|seed| syntax_tree(&generate::file(*seed, 2)).is_some()).count();
    assert!(parsed > 40, "only {parsed} of 400");
}

/// Work grows linearly with the size of the text: with quadratic work, any of these files of a megabyte would take
/// minutes.
#[test]
fn large_files_are_fine() {
    let many = |line: &str| line.repeat(1_000_000 / line.len());
    for text in [
        many("agent a = b.c { policy = p; heat = 0.7; max = 20 }  # one\n"),
        many("x"),
        many("-"),
        many("a\n"),
        many("\n"),
        many("# c\n"),
        many("é."),
        many("a -> "),
        many("\"${"),
        many("a { "),
        many("a = [ "),
        format!("a {{ {} }}", many("b = 1; ")),
        format!("a {{\n{} }}", many("b { c = 1; d = [2, 3] }; ")),
        format!("a = [{}]", many("f(1), ")),
        format!("a = {}{}{}", "[".repeat(60), many("1, \n"), "]".repeat(60)),
        format!("a = {}{}{}", "[".repeat(60), many("[]\n\n\n"), "]".repeat(60)),
        format!("a = f({}{})", many("1 # c\n"), many(", 1")),
    ] {
        check_properties(&text);
    }
}

/// A token that seems to continue on the next line belongs to its own line.
#[test]
fn a_line_ends_what_it_began() {
    for text in ["a . ; b c", "a .\nb c", "a = 1 ..\n2", "a = -\n1", "a = [1 .. # c\n2]", "a = (b . # c\nc)"]
    {
        assert!(format(text).is_ok());
        check_properties(text);
    }
}
