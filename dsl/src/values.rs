//! From expressions to values of a setting's type and within its range.

use std::path::{self, Path};
use std::time::Duration;

use serde_json::Value as Json;

use crate::diagnostic::{Code, Place, Reports, either, suggest};
use crate::evaluate::{decided, evaluate};
use crate::overrides::{as_text, cooked};
use crate::scope::{Found, Scope};
use crate::settings::{Choice, Kind, show_bytes, show_duration, supported};
use crate::syntax::{Value, ValueKind};

/// A value with its type.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Scalar {
    Integer(i64),
    Number(f64),
    Boolean(bool),
    Text(String),
    Bytes(u64),
    Duration(Duration),
    List(Vec<Scalar>),
}

impl Scalar {
    /// In words, as messages call it.
    pub fn what(&self) -> &'static str {
        match self {
            Scalar::Integer(_) => "a whole number",
            Scalar::Number(_) => "a number",
            Scalar::Boolean(_) => "`true` or `false`",
            Scalar::Text(_) => "text",
            Scalar::Bytes(_) => "a size",
            Scalar::Duration(_) => "a duration",
            Scalar::List(_) => "a list",
        }
    }

    /// As plugins and run folders see it: sizes in bytes, durations in seconds.
    pub fn json(&self) -> Json {
        match self {
            Scalar::Integer(whole) => Json::from(*whole),
            Scalar::Number(number) => Json::from(*number),
            Scalar::Boolean(truth) => Json::from(*truth),
            Scalar::Text(text) => Json::from(text.as_str()),
            Scalar::Bytes(bytes) => Json::from(*bytes),
            Scalar::Duration(duration) => Json::from(duration.as_secs_f64()),
            Scalar::List(values) => values.iter().map(Scalar::json).collect(),
        }
    }

    /// As it stands in a text that it is inserted into.
    pub fn as_inserted(&self) -> String {
        match self {
            Scalar::Text(text) => text.clone(),
            other => other.shown(),
        }
    }

    /// As it would be written, shortened where it is long.
    pub fn shown(&self) -> String {
        const MOST: usize = 40;
        match self {
            Scalar::Integer(whole) => whole.to_string(),
            Scalar::Number(number) => number.to_string(),
            Scalar::Boolean(truth) => truth.to_string(),
            Scalar::Text(text) if text.chars().count() > MOST => {
                format!("{:?}…", text.chars().take(MOST).collect::<String>())
            }
            Scalar::Text(text) => format!("{text:?}"),
            Scalar::Bytes(bytes) => show_bytes(*bytes),
            Scalar::Duration(duration) => show_duration(*duration),
            Scalar::List(values) => match values.get(..MOST.min(values.len())) {
                Some(first) => {
                    let first: Vec<String> = first.iter().map(Scalar::shown).collect();
                    let more = if values.len() > MOST { ", …" } else { "" };
                    format!("[{}{more}]", first.join(", "))
                }
                None => String::new(),
            },
        }
    }

    /// Whole or not.
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Scalar::Integer(whole) => Some(*whole as f64),
            Scalar::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// Whether it is more or less than others of its kind.
    pub fn has_order(&self) -> bool {
        matches!(self, Scalar::Integer(_) | Scalar::Number(_) | Scalar::Bytes(_) | Scalar::Duration(_))
    }

    /// Bytes of text and elements of lists that it holds.
    pub fn size(&self) -> usize {
        match self {
            Scalar::Text(text) => text.len(),
            Scalar::List(values) => values.iter().map(|one| 32 + one.size()).sum(),
            _ => 0,
        }
    }
}

/// The value of a setting, of the setting's type and within its range. `key` is for messages. None: reported.
pub(crate) fn typed(
    key: &str,
    kind: Kind,
    value: &Value,
    scope: &mut Scope,
    reports: &mut Reports,
) -> Option<Scalar> {
    let before = reports.count();
    let found = decided(value, scope, reports).and_then(|value| of_kind(key, kind, value, scope, reports));
    if found.is_none() && reports.count() > before {
        reports.add_values(before, scope.in_play(value));
    }
    found
}

fn of_kind(key: &str, kind: Kind, value: &Value, scope: &mut Scope, reports: &mut Reports) -> Option<Scalar> {
    let text = match &value.kind {
        ValueKind::Raw(raw) => Some(as_text(raw, value.place)),
        _ => None,
    };
    match kind {
        Kind::Choice(choices) => {
            let word = word(key, kind, value, choices, scope, reports)?;
            Some(Scalar::Text(word))
        }
        Kind::Choices(choices) => words(key, kind, value, choices, scope, reports),
        Kind::Texts => texts(key, value, scope, reports),
        Kind::Model | Kind::Policy => {
            if let Some(text) = text {
                return Some(Scalar::Text(text));
            }
            if let ValueKind::Path(names) = &value.kind {
                let local = match names.as_slice() {
                    [name] => scope.local(name),
                    _ => None,
                };
                // What a template was given is already what the name is called in the whole workflow.
                return match local {
                    Some(Some(Scalar::Text(text))) => Some(Scalar::Text(text.clone())),
                    Some(None) => None,
                    Some(Some(_)) | None => Some(Scalar::Text(scope.full(names))),
                };
            }
            let found = evaluate(value, scope, reports)?;
            let mut help = format!("write `{key} = NAME`");
            if let Scalar::Text(text) = &found {
                help = format!("write the name without quotes: `{key} = {text}`");
            }
            mismatch(key, kind, &found, value.place, reports).help(help);
            None
        }
        Kind::Text => match text {
            Some(text) => Some(Scalar::Text(text)),
            None => fitting(key, kind, evaluate(value, scope, reports)?, value.place, reports),
        },
        Kind::Path | Kind::Source => match text {
            Some(text) => Some(Scalar::Text(from_here(text, kind))),
            None => {
                let found = fitting(key, kind, evaluate(value, scope, reports)?, value.place, reports)?;
                Some(match found {
                    Scalar::Text(text) if is_path(&text, kind) => {
                        let path = scope.path_from(value.place, &text);
                        Scalar::Text(path.to_string_lossy().into_owned())
                    }
                    other => other,
                })
            }
        },
        _ => fitting(key, kind, evaluate(value, scope, reports)?, value.place, reports),
    }
}

/// A path that came with `--set` is relative to the working folder, and no longer once it is absolute.
fn from_here(text: String, kind: Kind) -> String {
    match path::absolute(&text) {
        Ok(absolute) if is_path(&text, kind) => absolute.to_string_lossy().into_owned(),
        _ => text,
    }
}

/// Whether a text names something on this machine.
fn is_path(text: &str, kind: Kind) -> bool {
    let file = Path::new(text).extension().is_some_and(|extension| extension == "gguf");
    kind == Kind::Path || !text.starts_with("hf:") && (file || text.starts_with('.') || text.contains('/'))
}

/// The value where it is of the kind and within its range; whole numbers are numbers, and numbers without a
/// fraction (`2e9`) are whole.
pub(crate) fn fitting(
    key: &str,
    kind: Kind,
    found: Scalar,
    place: Place,
    reports: &mut Reports,
) -> Option<Scalar> {
    // Up to here every whole number is exact as a float.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let mut outside = |shown: String, range: String| {
        let message = format!("`{key}` is {shown}, but must be {range}");
        reports.error(Code::OutOfRange, place, message, format!("must be {range}"));
        None
    };
    match (kind, found) {
        (Kind::Integer { min, max }, Scalar::Integer(whole)) => {
            if (min..=max).contains(&whole) {
                return Some(Scalar::Integer(whole));
            }
            outside(whole.to_string(), integer_range(min, max))
        }
        (Kind::Integer { .. }, Scalar::Number(float)) if float.fract() == 0.0 && float.abs() <= EXACT => {
            fitting(key, kind, Scalar::Integer(float as i64), place, reports)
        }
        (Kind::Number { .. }, Scalar::Integer(whole)) => {
            fitting(key, kind, Scalar::Number(whole as f64), place, reports)
        }
        (Kind::Number { min, max, above }, Scalar::Number(float)) => {
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
        (Kind::Bytes { min, max }, Scalar::Bytes(bytes)) => {
            if (min..=max).contains(&bytes) {
                return Some(Scalar::Bytes(bytes));
            }
            outside(show_bytes(bytes), format!("between {} and {}", show_bytes(min), show_bytes(max)))
        }
        (Kind::Duration { min, max }, Scalar::Duration(duration)) => {
            if (min..=max).contains(&duration) {
                return Some(Scalar::Duration(duration));
            }
            let range = format!("between {} and {}", show_duration(min), show_duration(max));
            outside(show_duration(duration), range)
        }
        (Kind::Boolean, found @ Scalar::Boolean(_)) => Some(found),
        (Kind::Text | Kind::Path | Kind::Source, found @ Scalar::Text(_)) => Some(found),
        (kind, found) => {
            let help = match (kind, &found) {
                (Kind::Bytes { .. }, Scalar::Integer(whole)) => {
                    Some(format!("write `{whole}MiB`, or KiB or GiB"))
                }
                (Kind::Duration { .. }, Scalar::Integer(whole)) => {
                    Some(format!("write `{whole}s`, or ms, m or h"))
                }
                (Kind::Duration { .. }, Scalar::Number(float)) => {
                    Some(format!("write `{float}s`, or ms, m or h"))
                }
                _ => None,
            };
            mismatch(key, kind, &found, place, reports).maybe_help(help);
            None
        }
    }
}

fn integer_range(min: i64, max: i64) -> String {
    if max >= i64::from(u32::MAX) { format!("at least {min}") } else { format!("between {min} and {max}") }
}

fn mismatch<'r>(
    key: &str,
    kind: Kind,
    found: &Scalar,
    place: Place,
    reports: &'r mut Reports,
) -> &'r mut crate::diagnostic::Diagnostic {
    let message = format!("`{key}` wants {kind}, and this is {}", found.what());
    reports.error(Code::WrongType, place, message, format!("expected {kind}"))
}

/// One of a setting's words; a param with a text may stand for it.
fn word(
    key: &str,
    kind: Kind,
    value: &Value,
    choices: &[Choice],
    scope: &mut Scope,
    reports: &mut Reports,
) -> Option<String> {
    let known = |word: &str| choices.iter().find(|choice| choice.word == word);
    let written = match &value.kind {
        ValueKind::Raw(raw) => as_text(raw, value.place),
        ValueKind::Path(names) if known(&names.join(".")).is_some() => names.join("."),
        ValueKind::Path(names) => match scope.look_up(names) {
            Found::Value(param) => match param? {
                Scalar::Text(text) => text,
                other => {
                    mismatch(key, kind, &other, value.place, reports);
                    return None;
                }
            },
            Found::Later => {
                evaluate(value, scope, reports)?;
                return None;
            }
            Found::Nothing => names.join("."),
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
                mismatch(key, kind, &found, value.place, reports).maybe_help(help);
                return None;
            }
        },
    };
    match known(&written) {
        Some(choice) if choice.supported => Some(written),
        Some(_) => {
            let message = format!("`{key} = {written}` is not supported yet");
            let words = either(&supported(choices));
            reports.error(Code::NotSupported, value.place, message, "").help(format!("use {words}"));
            None
        }
        None => {
            let message = format!("`{key}` knows no `{written}`");
            let hint = suggest(&written, &format!("`{key}` knows"), supported(choices));
            reports.error(Code::UnknownChoice, value.place, message, "").maybe_help(hint);
            None
        }
    }
}

fn words(
    key: &str,
    kind: Kind,
    value: &Value,
    choices: &[Choice],
    scope: &mut Scope,
    reports: &mut Reports,
) -> Option<Scalar> {
    let mut values = elements(key, kind, value, scope, reports)?;
    if !matches!(value.kind, ValueKind::List(_)) {
        // What a param holds are texts, and here each of them is a word.
        for one in &mut values {
            if let ValueKind::Text(text) = &one.kind {
                one.kind = ValueKind::Path(vec![text.clone()]);
            }
        }
    }
    each(key, &values, reports, |one, reports| word(key, kind, one, choices, scope, reports))
}

fn texts(key: &str, value: &Value, scope: &mut Scope, reports: &mut Reports) -> Option<Scalar> {
    let values = elements(key, Kind::Texts, value, scope, reports)?;
    each(key, &values, reports, |one, reports| match evaluate(one, scope, reports)? {
        Scalar::Text(text) if text.is_empty() => {
            let message = format!("`{key}` holds an empty text");
            reports.error(Code::OutOfRange, one.place, message, "").help("remove it");
            None
        }
        Scalar::Text(text) => Some(text),
        other => {
            mismatch(key, Kind::Texts, &other, one.place, reports);
            None
        }
    })
}

/// What stands in a list that holds at least one.
fn elements(
    key: &str,
    kind: Kind,
    value: &Value,
    scope: &mut Scope,
    reports: &mut Reports,
) -> Option<Vec<Value>> {
    let cooked = match &value.kind {
        ValueKind::Raw(raw) => cooked(raw, value.place),
        _ => value.clone(),
    };
    let cooked = as_list(cooked, scope, reports)?;
    let ValueKind::List(values) = cooked.kind else {
        let help = match &cooked.kind {
            ValueKind::Path(names) => Some(format!("write `{key} = [{}]`", names.join("."))),
            ValueKind::Text(text) => Some(format!("write `{key} = [{text:?}]`")),
            _ => None,
        };
        let message = format!("`{key}` wants {kind}");
        reports.error(Code::WrongType, value.place, message, "expected a list").maybe_help(help);
        return None;
    };
    if values.is_empty() {
        let message = format!("`{key}` is empty, but must hold at least one");
        reports
            .error(Code::OutOfRange, value.place, message, "")
            .help(format!("leave `{key}` out to have the default"));
        return None;
    }
    Some(values)
}

/// The list that a param or a calculation stands for; the value itself where it is neither.
fn as_list(value: Value, scope: &mut Scope, reports: &mut Reports) -> Option<Value> {
    let calculated = match &value.kind {
        ValueKind::Path(names) => scope.knows(names),
        ValueKind::Call(_) | ValueKind::Row(..) | ValueKind::Index(_) => true,
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
                    other => ValueKind::Number(other.shown()),
                };
                Value { kind, place: value.place }
            });
            Value { kind: ValueKind::List(texts.collect()), place: value.place }
        }
        _ => value,
    })
}

/// A list of what `read` makes of the elements, each of which may be there once.
fn each(
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
                reports.error(Code::Duplicate, one.place, format!("`{text}` stands twice in `{key}`"), "");
                sound = false;
            }
            Some(text) => out.push(text),
            None => sound = false,
        }
    }
    sound.then_some(Scalar::List(out))
}
