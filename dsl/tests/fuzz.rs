//! Any text, mutated workflow files among them: the check and the formatter don't panic or contradict themselves.

// clippy.toml excuses test functions, but not what they call.
#![allow(clippy::panic, clippy::unwrap_used)]

mod common;
#[path = "common/seeds.rs"]
mod seeds;
#[path = "common/tokens.rs"]
mod tokens;

use common::TestCatalog;
use pl_dsl::{Severity, Source, check, render};
use pl_testing::fuzz::fuzz;
use seeds::{WORDS, seeds};
use tokens::essence;

/// Folder of the language, from that of this package.
const LANGUAGE: &str = "";

/// A text has a workflow or an error, against a catalog as the examples need it.
#[test]
fn checks() {
    fuzz("check", &seeds(), WORDS, |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        let source = Source { name: "fuzz.mas".to_owned(), text: text.to_owned() };
        let checked = check(&source, &[], &TestCatalog);
        let failed = checked.diagnostics.iter().any(|one| one.severity == Severity::Error);
        assert_eq!(checked.workflow.is_none(), failed);
        render::human(&checked.diagnostics, &checked.sources, false);
        render::json(&checked.diagnostics, &checked.sources);
    });
}

/// Formatting is idempotent and loses no token or comment.
#[test]
fn formats() {
    fuzz("format", &seeds(), WORDS, |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        let Ok(once) = pl_dsl::format(text) else { return };
        assert_eq!(pl_dsl::format(&once).as_ref(), Ok(&once));
        assert_eq!(essence(&once), essence(text));
    });
}
