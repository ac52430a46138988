//! From what was written to typed values: units, params, ranges.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{self, Path};
use std::time::Duration;

use serde_json::Value as Json;

use crate::diagnostic::{Code, Place, Reports, either, suggest};
use crate::overrides::{as_text, cooked};
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
}

/// The types of params.
pub(crate) const PARAM_TYPES: &[(&str, Kind)] = &[
    ("int", Kind::Integer { min: i64::MIN, max: i64::MAX }),
    ("float", Kind::Number { min: f64::MIN, max: f64::MAX, above: false }),
    ("bool", Kind::Boolean),
    ("string", Kind::Text),
    ("size", Kind::Bytes { min: 0, max: u64::MAX }),
    ("duration", Kind::Duration { min: Duration::ZERO, max: Duration::MAX }),
];

/// The params in reach of an expression.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    /// None: declared, but its value is amiss, which is reported already.
    pub params: BTreeMap<String, Option<Scalar>>,
    pub used: BTreeSet<String>,
}

impl Scope {
    /// A param's value. The outer None: there is no such param.
    pub fn param(&mut self, name: &str) -> Option<Option<Scalar>> {
        let value = self.params.get(name)?.clone();
        self.used.insert(name.to_owned());
        Some(value)
    }
}

/// The value of an expression. None: reported.
pub(crate) fn evaluate(value: &Value, scope: &mut Scope, reports: &mut Reports) -> Option<Scalar> {
    Some(match &value.kind {
        ValueKind::Text(text) => Scalar::Text(text.clone()),
        ValueKind::Boolean(truth) => Scalar::Boolean(*truth),
        ValueKind::Number(text) => number(text, value.place, reports)?,
        ValueKind::List(values) => {
            let values: Vec<Option<Scalar>> =
                values.iter().map(|one| evaluate(one, scope, reports)).collect();
            Scalar::List(values.into_iter().collect::<Option<_>>()?)
        }
        ValueKind::Path(names) => match names.as_slice() {
            [name] => match scope.param(name) {
                Some(param) => param?,
                None => {
                    let hint = suggest(name, "the params are", scope.params.keys().map(String::as_str));
                    reports
                        .error(Code::UnknownName, value.place, format!("there is no param `{name}`"), "")
                        .help(hint.unwrap_or_else(|| {
                            format!(
                                "declare it: `param {name}: int = …`; text stands in quotes: `\"{name}\"`"
                            )
                        }));
                    return None;
                }
            },
            _ => {
                let message = format!("`{}` is no value", names.join("."));
                reports
                    .error(Code::WrongType, value.place, message, "")
                    .help("a value is a number, a text in quotes, `true`, `false` or the name of a param");
                return None;
            }
        },
        ValueKind::Raw(raw) => match cooked(raw, value.place) {
            // A word that is no param is text: the quotes are the shell's to lose.
            Value { kind: ValueKind::Path(names), .. } if names.len() != 1 || scope.param(raw).is_none() => {
                Scalar::Text(raw.clone())
            }
            cooked => return evaluate(&cooked, scope, reports),
        },
    })
}

/// A number with its unit, if it has one.
fn number(text: &str, place: Place, reports: &mut Reports) -> Option<Scalar> {
    let digits = digits_of(text);
    let (number, unit) = text.split_at(digits);
    let wrong = |reports: &mut Reports, help: &str| {
        reports.error(Code::WrongType, place, format!("there is no unit `{unit}`"), "").help(help);
        None
    };
    const UNITS: &str = "sizes have KiB, MiB and GiB, durations have ms, s, m and h";
    let Ok(float) = number.parse::<f64>() else { return wrong(reports, UNITS) };
    let size = match unit {
        "" => {
            if let Ok(whole) = number.parse::<i64>() {
                return Some(Scalar::Integer(whole));
            }
            if !float.is_finite() || number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
                reports.error(Code::OutOfRange, place, format!("`{number}` is too large"), "");
                return None;
            }
            return Some(Scalar::Number(float));
        }
        "KiB" => Some(1_u64 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        _ => None,
    };
    if let Some(size) = size {
        let bytes = float * size as f64;
        if !(0.0..=i64::MAX as f64).contains(&bytes) {
            reports.error(Code::OutOfRange, place, format!("`{text}` is not a possible size"), "");
            return None;
        }
        return Some(Scalar::Bytes(bytes as u64));
    }
    let seconds = match unit {
        "ms" => float / 1000.0,
        "s" => float,
        "m" => float * 60.0,
        "h" => float * 3600.0,
        _ => {
            let same = ["KiB", "MiB", "GiB", "ms", "s", "m", "h"].into_iter().find(|known| {
                known.eq_ignore_ascii_case(unit) || known.replace('i', "") == unit.to_uppercase()
            });
            let same = same.or(match unit {
                "kB" | "K" | "k" | "KB" => Some("KiB"),
                "MB" | "M" => Some("MiB"),
                "GB" | "G" => Some("GiB"),
                "sec" | "secs" | "second" | "seconds" => Some("s"),
                "min" | "mins" | "minute" | "minutes" => Some("m"),
                "hour" | "hours" => Some("h"),
                _ => None,
            });
            let help = same.map(|same| format!("write `{number}{same}`"));
            return wrong(reports, help.as_deref().unwrap_or(UNITS));
        }
    };
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) => Some(Scalar::Duration(duration)),
        Err(_) => {
            reports.error(Code::OutOfRange, place, format!("`{text}` is not a possible duration"), "");
            None
        }
    }
}

/// How many bytes of the text are the number itself.
fn digits_of(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digits = |mut at: usize| {
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        at
    };
    let mut end = digits(usize::from(text.starts_with('-')));
    if bytes.get(end) == Some(&b'.') {
        end = digits(end + 1);
    }
    if bytes.get(end).is_some_and(|byte| matches!(byte, b'e' | b'E')) {
        let sign = usize::from(bytes.get(end + 1).is_some_and(|byte| matches!(byte, b'+' | b'-')));
        if bytes.get(end + 1 + sign).is_some_and(u8::is_ascii_digit) {
            end = digits(end + 1 + sign);
        }
    }
    end
}

/// The value of a setting, of the setting's type and within its range. `key` is for messages. None: reported.
pub(crate) fn typed(
    key: &str,
    kind: Kind,
    value: &Value,
    scope: &mut Scope,
    reports: &mut Reports,
) -> Option<Scalar> {
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
            if let ValueKind::Path(names) = &value.kind
                && let [name] = names.as_slice()
            {
                return Some(Scalar::Text(name.clone()));
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
            None => fitting(key, kind, evaluate(value, scope, reports)?, value.place, reports),
        },
        _ => fitting(key, kind, evaluate(value, scope, reports)?, value.place, reports),
    }
}

/// A path that came with `--set` is relative to the working folder, and no longer once it is absolute.
fn from_here(text: String, kind: Kind) -> String {
    let file = Path::new(&text).extension().is_some_and(|extension| extension == "gguf");
    let local = !text.starts_with("hf:") && (file || text.starts_with('.') || text.contains('/'));
    let is_path = kind == Kind::Path || local;
    match path::absolute(&text) {
        Ok(absolute) if is_path => absolute.to_string_lossy().into_owned(),
        _ => text,
    }
}

/// The value where it is of the kind and within its range; whole numbers are numbers, and numbers without a
/// fraction (`2e9`) are whole.
fn fitting(key: &str, kind: Kind, found: Scalar, place: Place, reports: &mut Reports) -> Option<Scalar> {
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
        ValueKind::Path(names) => match names.as_slice() {
            [name] if known(name).is_none() => match scope.param(name) {
                Some(param) => match param? {
                    Scalar::Text(text) => text,
                    other => {
                        mismatch(key, kind, &other, value.place, reports);
                        return None;
                    }
                },
                None => name.clone(),
            },
            names => names.join("."),
        },
        _ => {
            let found = evaluate(value, scope, reports)?;
            let help = match &found {
                Scalar::Text(text) if known(text).is_some() => {
                    Some(format!("write it without quotes: `{text}`"))
                }
                _ => None,
            };
            mismatch(key, kind, &found, value.place, reports).maybe_help(help);
            return None;
        }
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
    let values = elements(key, kind, value, reports)?;
    each(key, &values, reports, |one, reports| word(key, kind, one, choices, scope, reports))
}

fn texts(key: &str, value: &Value, scope: &mut Scope, reports: &mut Reports) -> Option<Scalar> {
    let values = elements(key, Kind::Texts, value, reports)?;
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
fn elements(key: &str, kind: Kind, value: &Value, reports: &mut Reports) -> Option<Vec<Value>> {
    let cooked = match &value.kind {
        ValueKind::Raw(raw) => cooked(raw, value.place),
        _ => value.clone(),
    };
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
