//! No text makes the check panic or contradict itself, against a catalog as the examples need it.

#![no_main]

#[path = "../../tests/common/mod.rs"]
mod common;

use libfuzzer_sys::fuzz_target;
use pl_dsl::{Severity, Source, check, render};

fuzz_target!(|text: &str| {
    let source = Source { name: "fuzz.mas".to_owned(), text: text.to_owned() };
    let checked = check(&source, &[], &common::TestCatalog);
    let failed = checked.diagnostics.iter().any(|one| one.severity == Severity::Error);
    assert_eq!(checked.workflow.is_none(), failed);
    render::human(&checked.diagnostics, &checked.sources, false);
    render::json(&checked.diagnostics, &checked.sources);
});
