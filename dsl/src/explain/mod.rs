//! Documentation of the language for `pl-host explain`, in Markdown or as plain text.
//!
//! It is generated from the tables that the check reads: diagnostic codes, settings, blocks and functions.

mod algorithms;
mod blocks;
mod plain;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::diagnostic::spelling::{either, near};
use crate::diagnostic::{Diagnostic, DiagnosticCode};
use crate::eval::functions::{FUNCTIONS, Function};
use crate::settings::{self, ALGORITHMS, Choice, LAYOUTS, Setting, SettingKind, published_algorithm};
use crate::syntax::block_kind::BlockKind;

pub use algorithms::page as algorithm;
pub use plain::to_plain_text;

/// Only setting outside of blocks.
const LAYOUT: &str = "layout";

/// Error for an unknown topic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no topic `{topic}`; {}", hint(.near))]
pub struct UnknownTopic {
    /// Topic as it was requested.
    pub topic: String,
    /// Similar topics, the most likely first.
    pub near: Vec<String>,
}

fn hint(near: &[String]) -> String {
    match near {
        [] => "`pl-host explain` lists the topics".to_owned(),
        near => format!("did you mean {}?", either(near)),
    }
}

/// Explains a code, a block, a setting (`KEY` or `BLOCK.KEY`), a word of a setting, or a function, in Markdown. An ambiguous
/// topic gives all explanations.
///
/// # Errors
/// The topic is unknown; the error lists similar ones.
pub fn explain(topic: &str) -> Result<String, UnknownTopic> {
    if let Some(found) = DiagnosticCode::ALL.iter().find(|code| code.as_str().eq_ignore_ascii_case(topic)) {
        return Ok(code(*found));
    }
    let parts: Vec<&str> = topic.split('.').collect();
    let pages = match parts.as_slice() {
        // The path of an inner block may be complete: `policy.lora.rank` is `lora.rank`.
        [.., outer, name] => {
            let inner =
                blocks().filter(|kind| kind.keyword() == *outer).find_map(|kind| kind.inner_block(name));
            let mut pages = settings_where(|one| one.block.keyword() == *outer && one.key == *name);
            pages.extend(inner.map(block));
            pages
        }
        _ => pages_of_name(topic),
    };
    if pages.is_empty() { Err(unknown(topic)) } else { Ok(pages.join("\n\n")) }
}

/// Explanations of everything with a name.
fn pages_of_name(name: &str) -> Vec<String> {
    let mut pages: Vec<String> = blocks().filter(|kind| kind.keyword() == name).map(block).collect();
    pages.extend((name == LAYOUT).then(layout));
    pages.extend(FUNCTIONS.iter().filter(|one| one.name == name).map(function));
    pages.extend(settings_where(|one| one.key == name));
    pages.extend(published_algorithm(name).map(algorithms::page));
    if pages.is_empty() {
        pages = settings_where(|one| choices(one).iter().any(|choice| choice.word == name));
    }
    if pages.is_empty() && LAYOUTS.iter().any(|choice| choice.word == name) {
        pages.push(layout());
    }
    pages
}

fn settings_where(wanted: impl Fn(&Setting) -> bool) -> Vec<String> {
    settings::all().filter(|one| wanted(one)).map(Setting::describe).collect()
}

fn choices(setting: &Setting) -> &'static [Choice] {
    match setting.kind {
        SettingKind::Choice(choices) | SettingKind::Choices(choices) => choices,
        _ => &[],
    }
}

fn unknown(topic: &str) -> UnknownTopic {
    const MAX_SUGGESTIONS: usize = 3;
    let mut names: BTreeSet<String> = settings::all().map(Setting::path).collect();
    if !topic.contains('.') {
        names = settings::all().map(|one| one.key.to_owned()).collect();
        names.extend(ALGORITHMS.iter().map(|one| one.word.to_owned()));
        names.extend(blocks().map(|kind| kind.keyword().to_owned()));
        names.extend(FUNCTIONS.iter().map(|one| one.name.to_owned()));
        names.insert(LAYOUT.to_owned());
    }
    let mut near: Vec<String> =
        near(topic, names.iter().map(String::as_str)).into_iter().map(str::to_owned).collect();
    near.truncate(MAX_SUGGESTIONS);
    UnknownTopic { topic: topic.to_owned(), near }
}

/// All blocks, with inner blocks last.
pub fn blocks() -> impl Iterator<Item = BlockKind> {
    BlockKind::TOP.iter().chain(BlockKind::INNER).copied()
}

/// Explanation of a code, with an example of the mistake and of its correction.
pub fn code(code: DiagnosticCode) -> String {
    format!("# {code}: {}\n\n{}", code.title(), code.page().trim_end())
}

/// Form and purpose of a block.
pub fn head(kind: BlockKind) -> String {
    format!("```mas\n{}\n```\n\n{}", kind.form(), kind.doc())
}

/// Form and purpose of a block, with a line for each setting.
pub fn block(kind: BlockKind) -> String {
    let mut out = head(kind);
    if matches!(kind, BlockKind::PolicyTrain | BlockKind::PolicyDevices) {
        // Their descriptions are those of the file's `train` and `devices`.
        let keys: Vec<String> = settings::in_block(kind).map(|one| format!("`{}`", one.key)).collect();
        let _ = write!(out, "\n\nSettings: {}.", keys.join(", "));
        return out;
    }
    for (at, setting) in settings::head_setting(kind).into_iter().chain(settings::in_block(kind)).enumerate()
    {
        let before = if at == 0 { "\n\n" } else { "\n" };
        // Writing to a string never fails.
        let _ = write!(out, "{before}- {}", setting.summary());
    }
    for inner in kind.inner() {
        let _ = write!(out, "\n- `{}`: {}", inner.form(), inner.purpose());
    }
    out
}

/// Form and result of a function.
pub fn function(function: &Function) -> String {
    format!("**{}**: {}", function.form, function.doc)
}

/// Explanation of `layout = …`.
pub fn layout() -> String {
    let mut out = "**layout**: assertion of the way in which agents share models. The layout follows from the policies; a file \
                   that states it must have it. It is written outside of blocks.\n"
        .to_owned();
    for choice in LAYOUTS {
        // Writing to a string never fails.
        let _ = write!(out, "\n- {}", choice.describe());
    }
    out
}

/// List of all topics, in Markdown.
pub fn topics() -> String {
    let mut out = "# Blocks and their settings\n\n".to_owned();
    for kind in blocks().filter(|kind| !matches!(kind, BlockKind::PolicyTrain | BlockKind::PolicyDevices)) {
        let keys: Vec<&str> = settings::head_setting(kind)
            .into_iter()
            .chain(settings::in_block(kind))
            .map(|one| one.key)
            .collect();
        let keys = if keys.is_empty() { String::new() } else { format!(": {}", keys.join(", ")) };
        // Writing to a string never fails.
        let _ = writeln!(out, "- {}{keys}", kind.keyword());
    }
    let _ = writeln!(out, "- {LAYOUT}\n\n# Algorithms\n");
    for one in &ALGORITHMS {
        let _ = writeln!(out, "- {}: {}", one.word, one.source);
    }
    let _ = writeln!(out, "\n# Functions\n");
    for one in FUNCTIONS {
        let _ = writeln!(out, "- {}", one.form);
    }
    out.push_str("\n# Codes\n\n");
    for code in DiagnosticCode::ALL {
        let _ = writeln!(out, "- {code}: {}", code.title());
    }
    out
}

/// Command that explains the codes of a check. Returns `None` if there are no diagnostics.
pub fn more(diagnostics: &[Diagnostic]) -> Option<String> {
    const MAX_CODES: usize = 3;
    let mut codes: Vec<&str> = Vec::new();
    for code in diagnostics.iter().map(|one| one.code.as_str()) {
        if codes.len() < MAX_CODES && !codes.contains(&code) {
            codes.push(code);
        }
    }
    (!codes.is_empty()).then(|| format!("more: pl-host explain {}", codes.join(" ")))
}
