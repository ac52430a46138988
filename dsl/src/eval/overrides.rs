//! Applies overrides: params and settings given by `--set`, a file, or environment variables.
//!
//! A bare name is a param. A dotted path is a setting: the name of a block (or its keyword if it has no name), the inner
//! block if any, and the key. If two blocks of different kinds share a name, the keyword comes first:
//! `--set "agent tool.temperature=0"`.

use crate::diagnostic::DiagnosticCode;
use crate::diagnostic::reports::Reports;
use crate::diagnostic::spelling::{list, suggest};
use crate::settings;
use crate::source::Location;
use crate::source::overrides::{Override, OverrideError};
use crate::source::{Lines, Source, Span};
use crate::syntax::block_kind::BlockKind;
use crate::syntax::scan::{Statement, scan};
use crate::syntax::tree::{Block, Body, Entry, File, Name, Setting, Value, ValueKind};

impl Override {
    /// Parses a file of overrides: one `PATH = VALUE` per line, in the language's notation.
    ///
    /// # Errors
    /// Returns the first line that is not an override or has brackets or quotes without a counterpart, with the name of the
    /// file and its line number.
    pub fn from_file(source: &Source) -> Result<Vec<Override>, OverrideError> {
        let mut reports = Reports::new(&[]);
        let lines = Lines::new(&source.text);
        let statements = scan(&source.text, 0..source.text.len(), &mut reports);
        if let Some(first) = reports.finish().into_iter().next() {
            let line = first.labels.first().map_or(1, |label| lines.position(label.span.start).0);
            let place = format!("{}:{line}", source.name);
            return Err(OverrideError::Syntax { place, mistake: first.message });
        }
        let read = |piece: &Statement| {
            let head = piece.head.slice(&source.text);
            let (line, _) = lines.position(piece.head.start);
            let shown = format!("{}:{line}: {head}", source.name);
            match head.split_once('=').map(|(path, value)| (path.trim(), value.trim())) {
                Some((path, value)) if !path.is_empty() && piece.body.is_none() => {
                    Ok(Override { path: path.to_owned(), value: value.to_owned(), shown, optional: false })
                }
                _ if piece.body.is_some() => {
                    let (place, mistake) =
                        (format!("{}:{line}", source.name), "a value can't begin a block `{ … }`".to_owned());
                    Err(OverrideError::Syntax { place, mistake })
                }
                _ => Err(OverrideError::NoValue(shown)),
            }
        };
        statements.iter().map(read).collect()
    }
}

/// Writes the overrides into the tree. The last one of a path wins. Replaced values are not checked.
pub(crate) fn apply(file: &mut File, overrides: &[Override], reports: &mut Reports) {
    for (index, given) in overrides.iter().enumerate() {
        let location = Location::Override(index);
        let value = Value { kind: ValueKind::Raw(given.value.clone()), location };
        if given.optional && !is_param(file, &given.path) {
            continue;
        }
        let parts: Vec<&str> = given.path.split('.').map(str::trim).collect();
        if parts.len() == 1 || is_param(file, &parts.join(".")) {
            param(file, &parts.join("."), value, reports);
            continue;
        }
        // The name of a block may contain dots: the longest match counts.
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

/// True if the block has settings that can be overridden.
fn settable(block: &Block) -> bool {
    !matches!(block.kind, BlockKind::Workflow | BlockKind::Param) && !block.kind.names_file()
}

/// True if `target` names the block: `train`, `tool` or `agent tool`.
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
    reports.error(DiagnosticCode::BadOverride, value.location, message, "").help(
        hint.unwrap_or_else(|| "to override a setting, give its path, such as `train.steps=3`".to_owned()),
    );
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
            extra: None,
            body: Body::empty(),
            sound: true,
            namespace: 0,
            imported: false,
        });
    }
    let Some(block) = find(file, target, value.location, reports) else { return };
    match rest {
        [key] => {
            if settings::head_setting(block.kind).is_some_and(|own| own.key == *key) {
                block.value = Some(value);
                return;
            }
            match block.kind.inner_block(key) {
                Some(inner) if settings::find(block.kind, key).is_none() => {
                    let message = format!("`{key}` is a block of {}, not a setting", block.title());
                    let help = settings::in_block(inner).next().map(|first| {
                        format!("set one of its settings, such as `{target}.{key}.{}`", first.key)
                    });
                    reports.error(DiagnosticCode::BadOverride, value.location, message, "").maybe_help(help);
                    return;
                }
                // `train` is both a setting and an inner block of a policy.
                Some(_) => {}
                None => {
                    let is_it = |name: &Name| name.text == *key;
                    block
                        .body
                        .entries
                        .retain(|entry| !matches!(entry, Entry::Nested { name, .. } if is_it(name)));
                }
            }
            set(&mut block.body, key, value);
        }
        [inner, key] => {
            let nested = block.body.entries.iter_mut().find_map(|entry| match entry {
                Entry::Nested { name, body } if name.text == *inner => Some(body),
                _ => None,
            });
            // The block that the template makes decides.
            let from_template = block.kind == BlockKind::Policy && block.value.is_some();
            match nested {
                Some(body) => set(body, key, value),
                None if from_template || block.kind.inner_block(inner).is_some() => {
                    let name = Name { text: (*inner).to_owned(), location: value.location };
                    let mut body = Body::empty();
                    set(&mut body, key, value);
                    block.body.entries.push(Entry::Nested { name, body });
                }
                None => {
                    let message = format!("{} has no `{inner}` block", block.title());
                    let blocks = block.kind.inner().iter().map(|kind| kind.keyword());
                    let hint = suggest(inner, "it may have", blocks);
                    reports.error(DiagnosticCode::BadOverride, value.location, message, "").maybe_help(hint);
                }
            }
        }
        _ => {
            let message = "a path has at most three parts: block, inner block, setting";
            reports.error(DiagnosticCode::BadOverride, value.location, message, "");
        }
    }
}

fn set(body: &mut Body, key: &str, value: Value) {
    body.entries.retain(|entry| !matches!(entry, Entry::Setting(old) if old.key.text == key));
    let key = Name { text: key.to_owned(), location: value.location };
    body.entries.push(Entry::Setting(Setting { key, value, body: None, namespace: 0 }));
}

/// Finds the block that `target` names: `train`, `tool` or `agent tool`.
fn find<'f>(
    file: &'f mut File,
    target: &str,
    location: Location,
    reports: &mut Reports,
) -> Option<&'f mut Block> {
    let name = target.split_once(char::is_whitespace).map_or(target, |(_, name)| name.trim());
    let found: Vec<usize> = (0..file.blocks.len())
        .filter(|at| settable(&file.blocks[*at]) && fits(&file.blocks[*at], target))
        .collect();
    // Two blocks of one kind are reported as duplicates elsewhere.
    let kinds: Vec<BlockKind> = found.iter().map(|at| file.blocks[*at].kind).collect();
    if let (Some(first), Some(other)) =
        (kinds.first(), kinds.iter().find(|kind| Some(*kind) != kinds.first()))
    {
        let titles = [format!("{} {name}", first.keyword()), format!("{} {name}", other.keyword())];
        reports
            .error(
                DiagnosticCode::BadOverride,
                location,
                format!("`{name}` is the name of several blocks"),
                "",
            )
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
    // A block that the file could have, but doesn't.
    let absent = BlockKind::from_keyword(name).filter(|kind| !kind.is_named());
    let help = absent.map(|kind| format!("the file has no `{}` block: add one", kind.keyword())).or(hint);
    reports
        .error(DiagnosticCode::BadOverride, location, format!("there is no block `{target}`"), "")
        .maybe_help(help);
    None
}
