//! Params and settings given from outside: by `--set`, a file of them, or the environment.
//!
//! A bare name is a parameter; a dotted path is a setting: the name of a block (or its keyword, where it has
//! none), an inner block where there is one, and the key. Where two blocks of different kinds share a name,
//! the keyword goes before it: `--set "agent tool.temperature=0"`.

use std::fmt;

use crate::diagnostic::{Code, Place, Reports, list, suggest};
use crate::parse::lone_value;
use crate::scan::{Piece, scan};
use crate::settings;
use crate::source::{Lines, Source, Span};
use crate::syntax::{Block, BlockKind, Body, Entry, File, Name, Setting, Value, ValueKind};

/// The environment's variables that are params begin with this.
pub const VARIABLE: &str = "PL_HOST_PARAM_";

/// One `PATH=VALUE` from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    /// A param's name, or a dotted path to a setting.
    pub path: String,
    /// As given: text needs no quotes.
    pub value: String,
    /// How messages call it, such as `--set samples=8`.
    pub shown: String,
    /// Whether it is passed over where there is no such param: the environment holds those of all workflows.
    pub optional: bool,
}

/// What is no `PATH=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` has no value: give a param as `NAME=VALUE` and a setting as `BLOCK.SETTING=VALUE`")]
pub struct OverrideError {
    /// What was given.
    pub given: String,
}

impl std::str::FromStr for Override {
    type Err = OverrideError;

    /// What stands behind `--set`.
    fn from_str(given: &str) -> Result<Self, Self::Err> {
        let shown = format!("--set {given}");
        match given.split_once('=').map(|(path, value)| (path.trim(), value.trim())) {
            Some((path, value)) if !path.is_empty() => {
                Ok(Override { path: path.to_owned(), value: value.to_owned(), shown, optional: false })
            }
            _ => Err(OverrideError { given: shown }),
        }
    }
}

impl Override {
    /// A param given by an environment variable called [`VARIABLE`] and its name.
    pub fn from_variable(name: &str, value: &str) -> Option<Override> {
        let path = name.strip_prefix(VARIABLE).filter(|path| !path.is_empty())?;
        let shown = format!("{name}={value}");
        Some(Override { path: path.to_owned(), value: value.to_owned(), shown, optional: true })
    }

    /// What a file says: a line `PATH = VALUE` for each, in the language's own writing.
    ///
    /// # Errors
    /// The first line that is none, by the file's name and its number.
    pub fn from_file(source: &Source) -> Result<Vec<Override>, OverrideError> {
        let mut reports = Reports::new(&[]);
        let lines = Lines::new(&source.text);
        let pieces = scan(&source.text, 0..source.text.len(), &mut reports);
        let read = |piece: &Piece| {
            let head = piece.head.of(&source.text);
            let (line, _) = lines.position(piece.head.start);
            let shown = format!("{}:{line}: {head}", source.name);
            match head.split_once('=').map(|(path, value)| (path.trim(), value.trim())) {
                Some((path, value)) if !path.is_empty() && piece.sound && piece.body.is_none() => {
                    Ok(Override { path: path.to_owned(), value: value.to_owned(), shown, optional: false })
                }
                _ => Err(OverrideError { given: shown }),
            }
        };
        pieces.iter().map(read).collect()
    }
}

impl fmt::Display for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// Writes the overrides into the tree, the last one of a path winning. What they replace is not looked at.
pub(crate) fn apply(file: &mut File, overrides: &[Override], reports: &mut Reports) {
    for (index, given) in overrides.iter().enumerate() {
        let place = Place::Set(index);
        let value = Value { kind: ValueKind::Raw(given.value.clone()), place };
        if given.optional && !is_param(file, &given.path) {
            continue;
        }
        let parts: Vec<&str> = given.path.split('.').map(str::trim).collect();
        if parts.len() == 1 || is_param(file, &parts.join(".")) {
            param(file, &parts.join("."), value, reports);
            continue;
        }
        // A block's own name may hold dots, so the longest that there is counts.
        let most = parts.len() - 1;
        let least = parts.len().saturating_sub(2).max(1);
        let named = (least..=most).rev().find(|length| is_block(file, &parts[..*length].join(".")));
        let (block, rest) = parts.split_at(named.unwrap_or(1));
        setting(file, &block.join("."), rest, value, reports);
    }
}

fn is_param(file: &File, name: &str) -> bool {
    let is_it = |block: &Block| block.name.as_ref().is_some_and(|own| own.text == name);
    file.blocks.iter().any(|block| block.kind == BlockKind::Param && is_it(block))
}

fn is_block(file: &File, target: &str) -> bool {
    file.blocks.iter().any(|block| settable(block) && fits(block, target))
}

/// Params and the workflow itself have no settings, and neither have names of files.
fn settable(block: &Block) -> bool {
    !matches!(block.kind, BlockKind::Workflow | BlockKind::Param) && !block.kind.is_of_file()
}

/// Whether a block is called `train`, `tool` or `agent tool`.
fn fits(block: &Block, target: &str) -> bool {
    let (kind, name) = match target.split_once(char::is_whitespace) {
        Some((kind, name)) => (Some(kind), name.trim()),
        None => (None, target),
    };
    match &block.name {
        Some(own) => own.text == name && kind.is_none_or(|kind| kind == block.kind.keyword()),
        None => kind.is_none() && !block.kind.is_named() && block.kind.keyword() == name,
    }
}

fn param(file: &mut File, name: &str, value: Value, reports: &mut Reports) {
    let mut params = Vec::new();
    for block in file.blocks.iter_mut().filter(|block| block.kind == BlockKind::Param) {
        let Some(own) = &block.name else { continue };
        if own.text == name {
            block.value = Some(value);
            return;
        }
        params.push(own.text.clone());
    }
    let message = format!("there is no param `{name}`");
    let hint = suggest(name, "the params are", params.iter().map(String::as_str));
    reports
        .error(Code::BadOverride, value.place, message, "")
        .help(hint.unwrap_or_else(|| "a setting is given by its path, such as `train.steps=3`".to_owned()));
}

fn setting(file: &mut File, target: &str, rest: &[&str], value: Value, reports: &mut Reports) {
    let implied = BlockKind::from_keyword(target).filter(|kind| kind.is_implied());
    if let Some(kind) = implied.filter(|kind| !file.blocks.iter().any(|block| block.kind == *kind)) {
        file.blocks.push(Block {
            kind,
            keyword: Span::new(0, 0),
            head: Span::new(0, 0),
            name: None,
            value: None,
            more: None,
            body: Body::empty(),
            sound: true,
            space: 0,
            imported: false,
        });
    }
    let Some(block) = find(file, target, value.place, reports) else { return };
    match rest {
        [key] => {
            if settings::in_head(block.kind).is_some_and(|own| own.key == *key) {
                block.value = Some(value);
                return;
            }
            set(&mut block.body, key, value);
        }
        [inner, key] => {
            let nested = block.body.entries.iter_mut().find_map(|entry| match entry {
                Entry::Nested { name, body } if name.text == *inner => Some(body),
                _ => None,
            });
            let from_template = block.kind == BlockKind::Policy && block.value.is_some();
            match nested {
                Some(body) => set(body, key, value),
                // The template may well have it.
                None if from_template => {
                    let name = Name { text: (*inner).to_owned(), place: value.place };
                    let mut body = Body::empty();
                    set(&mut body, key, value);
                    block.body.entries.push(Entry::Nested { name, body });
                }
                None => {
                    let message = format!("{} has no `{inner}` block", block.title());
                    reports.error(Code::BadOverride, value.place, message, "");
                }
            }
        }
        _ => {
            let message = "a path has at most three parts: block, inner block, setting";
            reports.error(Code::BadOverride, value.place, message, "");
        }
    }
}

fn set(body: &mut Body, key: &str, value: Value) {
    body.entries.retain(|entry| !matches!(entry, Entry::Setting(old) if old.key.text == key));
    let key = Name { text: key.to_owned(), place: value.place };
    body.entries.push(Entry::Setting(Setting { key, value, body: None, space: 0 }));
}

/// The block that `target` names: `train`, `tool` or `agent tool`.
fn find<'f>(file: &'f mut File, target: &str, place: Place, reports: &mut Reports) -> Option<&'f mut Block> {
    let name = target.split_once(char::is_whitespace).map_or(target, |(_, name)| name.trim());
    let found: Vec<usize> = (0..file.blocks.len())
        .filter(|at| settable(&file.blocks[*at]) && fits(&file.blocks[*at], target))
        .collect();
    // Two of one kind are reported as duplicates.
    let kinds: Vec<BlockKind> = found.iter().map(|at| file.blocks[*at].kind).collect();
    if let (Some(first), Some(other)) =
        (kinds.first(), kinds.iter().find(|kind| Some(*kind) != kinds.first()))
    {
        let titles = [format!("{} {name}", first.keyword()), format!("{} {name}", other.keyword())];
        reports
            .error(Code::BadOverride, place, format!("`{name}` is the name of several blocks"), "")
            .help(format!("write {} before the dot", list(&titles).replace(" and ", " or ")));
        return None;
    }
    if let Some(at) = found.first() {
        return file.blocks.get_mut(*at);
    }
    let names: Vec<String> = file
        .blocks
        .iter()
        .filter(|block| settable(block))
        .map(|block| block.name.as_ref().map_or(block.kind.keyword(), |name| &name.text).to_owned())
        .collect();
    let hint = suggest(name, "the blocks are", names.iter().map(String::as_str));
    // A block that may well stand in the file, and just does not.
    let absent = BlockKind::from_keyword(name).filter(|kind| !kind.is_named());
    let help = absent.map(|kind| format!("the file has no `{}` block: add one", kind.keyword())).or(hint);
    reports.error(Code::BadOverride, place, format!("there is no block `{target}`"), "").maybe_help(help);
    None
}

/// What a raw value is, where anything but text is wanted; text where it is nothing else.
pub(crate) fn cooked(raw: &str, place: Place) -> Value {
    lone_value(raw, place).unwrap_or_else(|| Value { kind: ValueKind::Text(raw.to_owned()), place })
}

/// What a raw value is, where text is wanted: itself, or what stands between its quotes.
pub(crate) fn as_text(raw: &str, place: Place) -> String {
    let quoted = raw.len() >= 2 && raw.starts_with('"') && raw.ends_with('"');
    match quoted.then(|| lone_value(raw, place)).flatten() {
        Some(Value { kind: ValueKind::Text(text), .. }) => text,
        _ => raw.to_owned(),
    }
}
