//! Evaluates expressions to values of a setting's type and range.

use std::path::{self, Path};

use super::evaluate::{check_other_branches, evaluate, is_written_out, resolve_choice};
use super::raw::{parse_raw, raw_text};
use super::scalar::Scalar;
use super::scope::{Lookup, Scope};
use crate::diagnostic::DiagnosticCode;
use crate::diagnostic::reports::Reports;
use crate::diagnostic::spelling::suggest;
use crate::settings::{self, Choice, SettingKind, show_bytes, show_duration};
use crate::source::Location;
use crate::syntax::block_kind::BlockKind;
use crate::syntax::tree::{Value, ValueKind};
use crate::workflow::DataName;

/// Evaluates the value of a setting and checks its type and range. `key` is for messages. Returns `None` if an error was
/// reported.
pub(crate) fn evaluate_as(
    key: &str,
    kind: SettingKind,
    value: &Value,
    scope: &mut Scope,
    reports: &mut Reports,
) -> Option<Scalar> {
    let before = reports.count();
    let chosen = resolve_choice(value, scope, reports);
    let found = chosen.and_then(|value| evaluate_kind(key, kind, value, scope, reports));
    if let Some(chosen) = chosen {
        check_other_branches(value, chosen, scope, reports, |other, scope, aside| {
            let names = match evaluate_kind(key, kind, other, scope, aside) {
                Some(Scalar::Text(name)) => vec![name],
                Some(Scalar::List(names)) => names.iter().map(Scalar::to_text).collect(),
                _ => Vec::new(),
            };
            if kind.named_blocks() != [BlockKind::Param] && is_written_out(other, scope) {
                scope.other_names.extend(names.into_iter().map(|name| (kind, name, other.location)));
            }
        });
    }
    if found.is_none() && reports.count() > before {
        reports.add_values(before, scope.values_of_names(value));
    }
    found
}

fn evaluate_kind(
    key: &str,
    kind: SettingKind,
    value: &Value,
    scope: &mut Scope,
    reports: &mut Reports,
) -> Option<Scalar> {
    match kind {
        SettingKind::Choice(choices) => {
            let word = word(key, kind, value, choices, scope, reports)?;
            Some(Scalar::Text(word))
        }
        SettingKind::Choices(choices) => words(key, kind, value, choices, scope, reports),
        SettingKind::Texts => texts(key, kind, value, scope, reports),
        SettingKind::Addresses | SettingKind::Devices => {
            // One is a list of one.
            let single = match &value.kind {
                ValueKind::Text(_) => Some(value.clone()),
                ValueKind::Raw(raw) if !raw.trim_start().starts_with('[') => {
                    let text = raw_text(raw, value.location).map(ValueKind::Text);
                    Some(text.map_or_else(|| value.clone(), |kind| Value { kind, location: value.location }))
                }
                _ => None,
            };
            let list = single.map(|one| Value { kind: ValueKind::List(vec![one]), location: value.location });
            texts(key, kind, list.as_ref().unwrap_or(value), scope, reports)
        }
        SettingKind::Model
        | SettingKind::Policy
        | SettingKind::Server
        | SettingKind::Environment
        | SettingKind::Reward
        | SettingKind::Scenario
        | SettingKind::Designer => name(key, kind, value, scope, reports).map(Scalar::Text),
        SettingKind::CorpusNames | SettingKind::PolicyNames => {
            let values = match is_list(value) {
                true => elements(key, kind, value, scope, reports)?,
                // One name is a list of one.
                false => vec![value.clone()],
            };
            unique_elements(key, &values, reports, |one, reports| name(key, kind, one, scope, reports))
        }
        SettingKind::Items => {
            let values = elements(key, kind, value, scope, reports)?;
            unique_elements(key, &values, reports, |one, reports| item(key, kind, one, scope, reports))
        }
        SettingKind::Text => match text_of_raw(value) {
            Some(text) => Some(Scalar::Text(text)),
            None => convert(key, kind, evaluate(value, scope, reports)?, value.location, reports),
        },
        SettingKind::Path | SettingKind::Tasks | SettingKind::Source | SettingKind::Corpus => {
            match text_of_raw(value) {
                Some(text) => Some(Scalar::Text(absolute_path(text, kind))),
                None => {
                    let found =
                        convert(key, kind, evaluate(value, scope, reports)?, value.location, reports)?;
                    let outside = matches!(value.location, Location::Override(_));
                    Some(match found {
                        Scalar::Text(text) if outside => Scalar::Text(absolute_path(text, kind)),
                        Scalar::Text(text) if is_path(&text, kind) => {
                            let path = scope.path_from(value.location, &text);
                            Scalar::Text(path.to_string_lossy().into_owned())
                        }
                        other => other,
                    })
                }
            }
        }
        _ => convert(key, kind, evaluate(value, scope, reports)?, value.location, reports),
    }
}

/// Returns the text of a value given by `--set`, unless it has to be evaluated.
fn text_of_raw(value: &Value) -> Option<String> {
    match &value.kind {
        ValueKind::Raw(raw) => raw_text(raw, value.location),
        _ => None,
    }
}

/// True if a value is written as a list.
fn is_list(value: &Value) -> bool {
    match &value.kind {
        ValueKind::List(_) => true,
        ValueKind::Raw(raw) => raw.trim_start().starts_with('['),
        _ => false,
    }
}

/// Evaluates the name of a block.
fn name(
    key: &str,
    kind: SettingKind,
    value: &Value,
    scope: &mut Scope,
    reports: &mut Reports,
) -> Option<String> {
    if let Some(text) = text_of_raw(value) {
        return Some(text);
    }
    if let ValueKind::Path(names) = &value.kind {
        let local = match names.as_slice() {
            [name] => scope.local(name),
            _ => None,
        };
        // An argument of a template already is a full name.
        return match local {
            Some(Some(Scalar::Text(text))) => Some(text.clone()),
            Some(None) => None,
            Some(Some(_)) | None => Some(scope.full_name(names)),
        };
    }
    let found = evaluate(value, scope, reports)?;
    let mut help = format!("write `{key} = NAME`");
    if let Scalar::Text(text) = &found {
        help = match kind {
            SettingKind::Server if text.contains("//") => {
                format!("declare it, `server NAME = {text:?}`, and write `{key} = NAME`")
            }
            SettingKind::CorpusNames if text.contains(['/', '.']) => {
                format!("declare it, `corpus NAME = {text:?}`, and write `{key} = NAME`")
            }
            _ => format!("write the name without quotes: `{key} = {text}`"),
        };
    }
    mismatch(key, kind, &found, value.location, reports).help(help);
    None
}

/// Evaluates an item, `PLUGIN.ITEM`, to its full name.
fn item(
    key: &str,
    kind: SettingKind,
    value: &Value,
    scope: &mut Scope,
    reports: &mut Reports,
) -> Option<String> {
    let (plugin, item) = match &value.kind {
        ValueKind::Path(names) if names.len() >= 2 => (&names[..names.len() - 1], &names[names.len() - 1]),
        _ => {
            let message = format!("`{key}` must be {kind}");
            reports
                .error(DiagnosticCode::WrongType, value.location, message, "expected `PLUGIN.ITEM`")
                .help("write the plugin and the item without quotes: `maths.tool`");
            return None;
        }
    };
    Some(format!("{}.{item}", scope.full_name(plugin)))
}

/// Makes a path given by `--set` absolute: it is relative to the working directory.
fn absolute_path(text: String, kind: SettingKind) -> String {
    match path::absolute(&text) {
        Ok(absolute) if is_path(&text, kind) => absolute.to_string_lossy().into_owned(),
        _ => text,
    }
}

/// True if a text is the path of a local file or folder.
fn is_path(text: &str, kind: SettingKind) -> bool {
    let file = Path::new(text).extension().is_some_and(|extension| extension == "gguf");
    kind == SettingKind::Path
        || kind == SettingKind::Tasks && DataName::parse(text).is_none()
        || kind == SettingKind::Corpus && !text.contains("://")
        || kind == SettingKind::Source
            && !text.starts_with("hf:")
            && (file || text.starts_with('.') || text.contains('/'))
}

/// Converts a value to a setting's type and checks its range. Whole numbers are valid as numbers, and numbers without a
/// fraction (`2e9`) as whole numbers. Returns `None` if an error was reported.
pub(crate) fn convert(
    key: &str,
    kind: SettingKind,
    found: Scalar,
    location: Location,
    reports: &mut Reports,
) -> Option<Scalar> {
    // Up to 2^53, a float represents every whole number exactly.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let mut outside = |shown: String, range: String| {
        let message = format!("`{key}` is {shown}, but must be {range}");
        reports.error(DiagnosticCode::OutOfRange, location, message, format!("must be {range}"));
        None
    };
    match (kind, found) {
        (SettingKind::Integer { min, max }, Scalar::Integer(whole)) => {
            if (min..=max).contains(&whole) {
                return Some(Scalar::Integer(whole));
            }
            outside(whole.to_string(), integer_range(min, max))
        }
        (SettingKind::Integer { .. }, Scalar::Number(float))
            if float.fract() == 0.0 && float.abs() <= EXACT =>
        {
            convert(key, kind, Scalar::Integer(float as i64), location, reports)
        }
        (SettingKind::Number { .. }, Scalar::Integer(whole)) => {
            convert(key, kind, Scalar::Number(whole as f64), location, reports)
        }
        (SettingKind::Number { min, max, above }, Scalar::Number(float)) => {
            if (min..=max).contains(&float) && !(above && float == min) {
                return Some(Scalar::Number(float));
            }
            let range = if above {
                format!("above {min} and at most {max}")
            } else {
                format!("between {min} and {max}")
            };
            outside(float.to_string(), range)
        }
        (SettingKind::Bytes { min, max }, Scalar::Bytes(bytes)) => {
            if (min..=max).contains(&bytes) {
                return Some(Scalar::Bytes(bytes));
            }
            outside(show_bytes(bytes), format!("between {} and {}", show_bytes(min), show_bytes(max)))
        }
        (SettingKind::Duration { min, max }, Scalar::Duration(duration)) => {
            if (min..=max).contains(&duration) {
                return Some(Scalar::Duration(duration));
            }
            let range = format!("between {} and {}", show_duration(min), show_duration(max));
            outside(show_duration(duration), range)
        }
        (SettingKind::Boolean, found @ Scalar::Boolean(_)) => Some(found),
        (
            SettingKind::Text
            | SettingKind::Path
            | SettingKind::Tasks
            | SettingKind::Source
            | SettingKind::Corpus,
            found @ Scalar::Text(_),
        ) => Some(found),
        (kind, found) => {
            let help = match (kind, &found) {
                (SettingKind::Bytes { .. }, Scalar::Integer(whole)) => {
                    Some(format!("write `{whole}MiB`, or KiB or GiB"))
                }
                (SettingKind::Duration { .. }, Scalar::Integer(whole)) => {
                    Some(format!("write `{whole}s`, or ms, m or h"))
                }
                (SettingKind::Duration { .. }, Scalar::Number(float)) => {
                    Some(format!("write `{float}s`, or ms, m or h"))
                }
                _ => None,
            };
            mismatch(key, kind, &found, location, reports).maybe_help(help);
            None
        }
    }
}

fn integer_range(min: i64, max: i64) -> String {
    if max == i64::MAX { format!("at least {min}") } else { format!("between {min} and {max}") }
}

fn mismatch<'r>(
    key: &str,
    kind: SettingKind,
    found: &Scalar,
    location: Location,
    reports: &'r mut Reports,
) -> &'r mut crate::diagnostic::Diagnostic {
    let message = format!("`{key}` must be {kind}, not {}", found.type_phrase());
    reports.error(DiagnosticCode::WrongType, location, message, format!("expected {kind}"))
}

/// Evaluates one of a setting's words. A param with a text may name the word.
fn word(
    key: &str,
    kind: SettingKind,
    value: &Value,
    choices: &[Choice],
    scope: &mut Scope,
    reports: &mut Reports,
) -> Option<String> {
    let known = |word: &str| choices.iter().find(|choice| choice.word == word);
    let written = match &value.kind {
        ValueKind::Raw(raw) if let Some(text) = raw_text(raw, value.location) => text,
        ValueKind::Path(names) if known(&names.join(".")).is_some() => names.join("."),
        ValueKind::Path(names) => match scope.look_up(names) {
            Lookup::Value(param) => match param? {
                Scalar::Text(text) => text,
                other => {
                    mismatch(key, kind, &other, value.location, reports);
                    return None;
                }
            },
            Lookup::Pending => {
                evaluate(value, scope, reports)?;
                return None;
            }
            Lookup::Unknown => names.join("."),
        },
        literal => match evaluate(value, scope, reports)? {
            Scalar::Text(text) if !matches!(literal, ValueKind::Text(_)) => text,
            found => {
                let help = match &found {
                    Scalar::Text(text) if known(text).is_some() => {
                        Some(format!("write it without quotes: `{text}`"))
                    }
                    _ => None,
                };
                mismatch(key, kind, &found, value.location, reports).maybe_help(help);
                return None;
            }
        },
    };
    match known(&written) {
        Some(_) => Some(written),
        None => {
            let message = format!("`{written}` is not a valid value of `{key}`");
            let hint = suggest(&written, &format!("`{key}` accepts"), settings::words(choices));
            reports.error(DiagnosticCode::UnknownChoice, value.location, message, "").maybe_help(hint);
            None
        }
    }
}

fn words(
    key: &str,
    kind: SettingKind,
    value: &Value,
    choices: &[Choice],
    scope: &mut Scope,
    reports: &mut Reports,
) -> Option<Scalar> {
    let mut values = elements(key, kind, value, scope, reports)?;
    if !matches!(value.kind, ValueKind::List(_)) {
        // A param holds texts, each of which is a word here.
        for one in &mut values {
            if let ValueKind::Text(text) = &one.kind {
                one.kind = ValueKind::Path(vec![text.clone()]);
            }
        }
    }
    unique_elements(key, &values, reports, |one, reports| word(key, kind, one, choices, scope, reports))
}

fn texts(
    key: &str,
    kind: SettingKind,
    value: &Value,
    scope: &mut Scope,
    reports: &mut Reports,
) -> Option<Scalar> {
    let values = elements(key, kind, value, scope, reports)?;
    unique_elements(key, &values, reports, |one, reports| {
        if let ValueKind::Path(names) = &one.kind
            && matches!(scope.look_up(names), Lookup::Unknown)
        {
            let name = names.join(".");
            let message = format!("there is no param `{name}`");
            let help = format!("text needs quotes: `{name:?}`");
            reports.error(DiagnosticCode::UnknownName, one.location, message, "").help(help);
            return None;
        }
        text_element(key, kind, one, evaluate(one, scope, reports)?, reports)
    })
}

fn text_element(
    key: &str,
    kind: SettingKind,
    one: &Value,
    found: Scalar,
    reports: &mut Reports,
) -> Option<String> {
    match found {
        Scalar::Text(text) if text.is_empty() => {
            let message = format!("`{key}` contains an empty text");
            reports.error(DiagnosticCode::OutOfRange, one.location, message, "").help("remove it");
            None
        }
        Scalar::Text(text) => Some(text),
        other => {
            mismatch(key, kind, &other, one.location, reports);
            None
        }
    }
}

/// Returns the elements of a list, which must not be empty.
fn elements(
    key: &str,
    kind: SettingKind,
    value: &Value,
    scope: &mut Scope,
    reports: &mut Reports,
) -> Option<Vec<Value>> {
    let parsed = match &value.kind {
        ValueKind::Raw(raw) => parse_raw(raw, value.location),
        _ => value.clone(),
    };
    let parsed = as_list(parsed, scope, reports)?;
    let ValueKind::List(values) = parsed.kind else {
        let help = match &parsed.kind {
            ValueKind::Path(names) if kind == SettingKind::Texts && !scope.contains_name(names) => {
                Some(format!("write `{key} = [{:?}]`", names.join(".")))
            }
            ValueKind::Path(_) if kind == SettingKind::Addresses => {
                Some("write an address in quotes, such as `\"http://HOST:PORT\"`".to_owned())
            }
            ValueKind::Path(names) => Some(format!("write `{key} = [{}]`", names.join("."))),
            ValueKind::Text(text) => Some(format!("write `{key} = [{text:?}]`")),
            _ => None,
        };
        let message = format!("`{key}` must be {kind}");
        reports.error(DiagnosticCode::WrongType, value.location, message, "expected a list").maybe_help(help);
        return None;
    };
    if values.is_empty() {
        let message = format!("`{key}` must not be empty");
        let help = match kind {
            SettingKind::Addresses => "write an address in it, such as `\"http://HOST:PORT\"`".to_owned(),
            _ => format!("omit `{key}` to use its default"),
        };
        reports.error(DiagnosticCode::OutOfRange, value.location, message, "").help(help);
        return None;
    }
    Some(values)
}

/// Evaluates a param or a calculation that yields a list. Returns other values unchanged.
fn as_list(value: Value, scope: &mut Scope, reports: &mut Reports) -> Option<Value> {
    let calculated = match &value.kind {
        ValueKind::Path(names) => scope.contains_name(names),
        ValueKind::Call(_) | ValueKind::Arithmetic(..) | ValueKind::Index(_) => true,
        _ => false,
    };
    if !calculated {
        return Some(value);
    }
    Some(match evaluate(&value, scope, reports)? {
        Scalar::List(values) => {
            let texts = values.into_iter().map(|one| {
                let kind = match one {
                    Scalar::Text(text) => ValueKind::Text(text),
                    other => ValueKind::Number(other.display()),
                };
                Value { kind, location: value.location }
            });
            Value { kind: ValueKind::List(texts.collect()), location: value.location }
        }
        _ => value,
    })
}

/// Converts each element with `read`, and reports repeated ones.
fn unique_elements(
    key: &str,
    values: &[Value],
    reports: &mut Reports,
    mut read: impl FnMut(&Value, &mut Reports) -> Option<String>,
) -> Option<Scalar> {
    let mut out = Vec::new();
    let mut sound = true;
    for one in values {
        match read(one, reports).map(Scalar::Text) {
            Some(again) if out.contains(&again) => {
                let Scalar::Text(text) = again else { continue };
                reports.error(
                    DiagnosticCode::Duplicate,
                    one.location,
                    format!("`{text}` is listed twice in `{key}`"),
                    "",
                );
                sound = false;
            }
            Some(text) => out.push(text),
            None => sound = false,
        }
    }
    sound.then_some(Scalar::List(out))
}
