//! The language explained: what `pl-host explain` shows, in Markdown or as plain text.
//!
//! Everything comes from the tables that the check reads: codes, settings, blocks, functions.

mod blocks;
mod plain;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::diagnostic::{Code, Diagnostic, either, near};
use crate::functions::{FUNCTIONS, Function};
use crate::settings::{self, Choice, Kind, LAYOUTS, SETTINGS, Setting};
use crate::syntax::BlockKind;

pub use plain::plain;

/// The one setting that stands outside of blocks.
const LAYOUT: &str = "layout";

/// A topic that is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("nothing is called `{topic}`; {}", hint(.near))]
pub struct UnknownTopic {
    /// As it was asked for.
    pub topic: String,
    /// What was probably meant, the likeliest first.
    pub near: Vec<String>,
}

fn hint(near: &[String]) -> String {
    match near {
        [] => "`pl-host explain` lists what there is".to_owned(),
        near => format!("did you mean {}?", either(near)),
    }
}

/// Explains a code, a block, a setting (`KEY` or `BLOCK.KEY`), a word that a setting knows, or a function, in Markdown.
/// What means several things is explained as each of them.
///
/// # Errors
/// Names near a topic that is not known.
pub fn explain(topic: &str) -> Result<String, UnknownTopic> {
    if let Some(known) = Code::ALL.iter().find(|code| code.as_str().eq_ignore_ascii_case(topic)) {
        return Ok(code(*known));
    }
    let parts: Vec<&str> = topic.split('.').collect();
    let pages = match parts.as_slice() {
        // However deep the block is: `policy.lora.rank` is `lora.rank`.
        [.., block, key] => pages_of(|one| one.block.keyword() == *block && one.key == *key),
        _ => named(topic),
    };
    if pages.is_empty() { Err(unknown(topic)) } else { Ok(pages.join("\n\n")) }
}

/// Everything that has one name.
fn named(name: &str) -> Vec<String> {
    let mut pages: Vec<String> = blocks().filter(|kind| kind.keyword() == name).map(block).collect();
    pages.extend((name == LAYOUT).then(layout));
    pages.extend(FUNCTIONS.iter().filter(|one| one.name == name).map(function));
    pages.extend(pages_of(|one| one.key == name));
    if pages.is_empty() {
        pages = pages_of(|one| choices(one).iter().any(|choice| choice.word == name));
    }
    if pages.is_empty() && LAYOUTS.iter().any(|choice| choice.word == name) {
        pages.push(layout());
    }
    pages
}

fn pages_of(wanted: impl Fn(&Setting) -> bool) -> Vec<String> {
    SETTINGS.iter().filter(|one| wanted(one)).map(Setting::page).collect()
}

fn choices(setting: &Setting) -> &'static [Choice] {
    match setting.kind {
        Kind::Choice(choices) | Kind::Choices(choices) => choices,
        _ => &[],
    }
}

fn unknown(topic: &str) -> UnknownTopic {
    const MOST: usize = 3;
    let mut names: BTreeSet<String> = SETTINGS.iter().map(Setting::path).collect();
    if !topic.contains('.') {
        names = SETTINGS.iter().map(|one| one.key.to_owned()).collect();
        names.extend(blocks().map(|kind| kind.keyword().to_owned()));
        names.extend(FUNCTIONS.iter().map(|one| one.name.to_owned()));
        names.insert(LAYOUT.to_owned());
    }
    let mut near: Vec<String> =
        near(topic, names.iter().map(String::as_str)).into_iter().map(str::to_owned).collect();
    near.truncate(MOST);
    UnknownTopic { topic: topic.to_owned(), near }
}

/// Every block, those inside others last.
pub fn blocks() -> impl Iterator<Item = BlockKind> {
    BlockKind::TOP.iter().chain(BlockKind::INNER).copied()
}

/// What a code means, with an example wrong and right.
pub fn code(code: Code) -> String {
    format!("# {code}: {}\n\n{}", code.title(), code.page().trim_end())
}

/// How a block is written and what it is for.
pub fn head(kind: BlockKind) -> String {
    format!("```mas\n{}\n```\n\n{}", kind.form(), kind.doc())
}

/// A block with a line for each of its settings.
pub fn block(kind: BlockKind) -> String {
    let mut out = head(kind);
    for (at, setting) in settings::in_head(kind).into_iter().chain(settings::of(kind)).enumerate() {
        let before = if at == 0 { "\n\n" } else { "\n" };
        // Writing to a string never fails.
        let _ = write!(out, "{before}- {}", setting.line());
    }
    if let Some(inner) = kind.inner() {
        let _ = write!(out, "\n- `{}`: {}", inner.form(), inner.purpose());
    }
    out
}

/// How a function is called and what it gives.
pub fn function(function: &Function) -> String {
    format!("**{}**: {}", function.form, function.doc)
}

/// What `layout = …` asserts.
pub fn layout() -> String {
    let mut out = "**layout**: how the agents share models, asserted. It follows from the policies; where a file states \
                   it, it must hold. It stands alone, outside of blocks.\n"
        .to_owned();
    for choice in LAYOUTS {
        // Writing to a string never fails.
        let _ = write!(out, "\n- {}", choice.line());
    }
    out
}

/// A list of all that can be explained, in Markdown.
pub fn topics() -> String {
    let mut out = "# Blocks, and their settings\n\n".to_owned();
    for kind in blocks() {
        let keys: Vec<&str> =
            settings::in_head(kind).into_iter().chain(settings::of(kind)).map(|one| one.key).collect();
        let keys = if keys.is_empty() { String::new() } else { format!(": {}", keys.join(", ")) };
        // Writing to a string never fails.
        let _ = writeln!(out, "- {}{keys}", kind.keyword());
    }
    let _ = writeln!(out, "- {LAYOUT}\n\n# Functions\n");
    for one in FUNCTIONS {
        let _ = writeln!(out, "- {}", one.form);
    }
    out.push_str("\n# Codes\n\n");
    for code in Code::ALL {
        let _ = writeln!(out, "- {code}: {}", code.title());
    }
    out
}

/// Where to read on about what a check found. None: it found nothing.
pub fn more(diagnostics: &[Diagnostic]) -> Option<String> {
    const MOST: usize = 3;
    let mut codes: Vec<&str> = Vec::new();
    for code in diagnostics.iter().map(|one| one.code.as_str()) {
        if codes.len() < MOST && !codes.contains(&code) {
            codes.push(code);
        }
    }
    (!codes.is_empty()).then(|| format!("more: pl-host explain {}", codes.join(" ")))
}
