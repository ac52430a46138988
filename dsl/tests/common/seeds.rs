//! Workflow files as seeds of the fuzzers, and what such files have.

use std::path::Path;

use pl_testing::fuzz::files;

/// Words and signs of the language.
pub const WORDS: &[&str] = &[
    "workflow ",
    "param ",
    "policy ",
    "agent ",
    "template ",
    "turns {",
    "layout = ",
    "std.chat",
    "start -> ",
    " when ",
    " and ",
    " in ",
    "if ",
    " then ",
    " else ",
    "\"\"\"",
    "${",
    "\\\"",
    "->",
    "..",
    "# c\n",
    "\r\n",
    "==",
    "1e5",
    "64MiB",
];

/// Returns the cases, mistakes and formats of the tests and the examples.
pub fn seeds() -> Vec<Vec<u8>> {
    let language = Path::new(env!("CARGO_MANIFEST_DIR")).join(super::LANGUAGE);
    let folders = ["tests/cases", "tests/mistakes", "tests/format", "../examples"];
    folders.iter().flat_map(|folder| files(&language.join(folder))).collect()
}
