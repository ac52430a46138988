//! Params: their types, their ranges, and the values that they have in this run.

use std::cmp::Ordering;
use std::time::Duration;

use crate::arithmetic::order;
use crate::diagnostic::{Code, Place, Reports, suggest};
use crate::evaluate::{decided, evaluate};
use crate::overrides::cooked;
use crate::scope::{Param, Scope};
use crate::settings::Kind;
use crate::syntax::{Block, More, Range, Type, Value, ValueKind};
use crate::values::{Scalar, fitting, typed};

/// What a param or a template's parameter can be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ParamType {
    One(Kind),
    List(Kind),
}

/// The types by name.
const TYPES: &[(&str, Kind)] = &[
    ("int", Kind::Integer { min: i64::MIN, max: i64::MAX }),
    ("float", Kind::Number { min: f64::MIN, max: f64::MAX, above: false }),
    ("bool", Kind::Boolean),
    ("string", Kind::Text),
    ("size", Kind::Bytes { min: 0, max: u64::MAX }),
    ("duration", Kind::Duration { min: Duration::ZERO, max: Duration::MAX }),
];

/// What only a template's parameters can be: the names of blocks.
const NAMES: &[(&str, Kind)] = &[("policy", Kind::Policy), ("model", Kind::Model)];

const LIST: &str = "list";

/// The words that types are written with.
pub(crate) fn type_names() -> impl Iterator<Item = &'static str> {
    TYPES.iter().map(|(name, _)| *name).chain([LIST])
}

/// The type that is meant. None: reported.
pub(crate) fn of_type(written: &Type, in_template: bool, reports: &mut Reports) -> Option<ParamType> {
    let one = |name: &str| {
        let names = if in_template { NAMES } else { &[] };
        TYPES.iter().chain(names).find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    };
    let Type { name, of } = written;
    let (wrong, message) = match (name.text.as_str(), of) {
        (LIST, None) => {
            reports
                .error(Code::UnknownName, name.place, "a list of what?", "")
                .help("write `list(string)`, or another type in the parentheses");
            return None;
        }
        (LIST, Some(of)) => match one(&of.text) {
            Some(kind) => return Some(ParamType::List(kind)),
            None => (of, format!("there is no type `{}`", of.text)),
        },
        (other, Some(of)) => {
            reports
                .error(Code::WrongType, of.place, format!("`{other}` holds nothing"), "")
                .help("write `list(…)`");
            return None;
        }
        (other, None) => match one(other) {
            Some(kind) => return Some(ParamType::One(kind)),
            None => (name, format!("there is no type `{other}`")),
        },
    };
    let hint = suggest(&wrong.text, "the types are", type_names());
    reports.error(Code::UnknownName, wrong.place, message, "").maybe_help(hint);
    None
}

/// A value of a param's type. None: reported.
pub(crate) fn of_param(
    name: &str,
    wanted: ParamType,
    value: &Value,
    scope: &mut Scope,
    reports: &mut Reports,
) -> Option<Scalar> {
    let kind = match wanted {
        ParamType::One(kind) => return typed(name, kind, value, scope, reports),
        ParamType::List(kind) => kind,
    };
    let value = decided(value, scope, reports)?;
    let outside = matches!(value.kind, ValueKind::Raw(_));
    let value = match &value.kind {
        ValueKind::Raw(raw) => cooked(raw, value.place),
        _ => value.clone(),
    };
    if let ValueKind::List(values) = &value.kind {
        let each: Vec<Option<Scalar>> = values
            .iter()
            .map(|one| match &one.kind {
                // The quotes are the shell's to lose.
                ValueKind::Path(names) if outside && !scope.knows(names) => {
                    Some(Scalar::Text(names.join(".")))
                }
                _ => typed(name, kind, one, scope, reports),
            })
            .collect();
        return Some(Scalar::List(each.into_iter().collect::<Option<_>>()?));
    }
    match evaluate(&value, scope, reports)? {
        Scalar::List(values) => {
            let each: Vec<Option<Scalar>> =
                values.into_iter().map(|one| fitting(name, kind, one, value.place, reports)).collect();
            Some(Scalar::List(each.into_iter().collect::<Option<_>>()?))
        }
        other => {
            let message = format!("`{name}` wants a list, and this is {}", other.what());
            reports.error(Code::WrongType, value.place, message, "expected a list");
            None
        }
    }
}

/// Works out the params, each from those above it.
pub(crate) fn params(blocks: &[&Block], scope: &mut Scope, reports: &mut Reports) {
    // Known from the start, so that a use before the declaration is reported as what it is.
    for name in blocks.iter().filter_map(|block| block.name.as_ref()) {
        scope.params.insert(name.text.clone(), Param::Later);
    }
    for block in blocks {
        let Some(name) = &block.name else { continue };
        let value = scope.within(block.space, reports, |scope, reports| param(block, scope, reports));
        scope.params.insert(name.text.clone(), Param::Known(value));
    }
}

fn param(block: &Block, scope: &mut Scope, reports: &mut Reports) -> Option<Scalar> {
    let name = block.name.as_ref()?;
    let Some(More::Param { of_type: written, range }) = block.more.as_deref() else { return None };
    let wanted = of_type(written, false, reports)?;
    if !block.sound {
        return None;
    }
    let Some(value) = &block.value else {
        let message = format!("param `{}` has no value", name.text);
        let help = format!("give it one with `--set {}=…`, or a default in the file", name.text);
        reports.error(Code::MissingSetting, name.place, message, "").help(help);
        return None;
    };
    let found = of_param(&name.text, wanted, value, scope, reports)?;
    match range {
        Some(range) => in_range(&name.text, wanted, range, found, value.place, scope, reports),
        None => Some(found),
    }
}

fn in_range(
    name: &str,
    wanted: ParamType,
    range: &Range,
    found: Scalar,
    place: Place,
    scope: &mut Scope,
    reports: &mut Reports,
) -> Option<Scalar> {
    let (fits, words, at) = match (range, wanted) {
        (Range::Between(least, most), ParamType::One(kind)) => {
            let ends = (typed(name, kind, least, scope, reports), typed(name, kind, most, scope, reports));
            let (low, high) = (ends.0?, ends.1?);
            if !low.has_order() {
                let message = format!("{} has no range", low.what());
                reports
                    .error(Code::WrongType, least.place, message, "")
                    .help("write a list of what is allowed");
                return None;
            }
            if order(&low, &high) == Some(Ordering::Greater) {
                let message =
                    format!("the range of `{name}` is empty: {} is more than {}", low.shown(), high.shown());
                reports.error(Code::OutOfRange, least.place, message, "").help("the smaller end comes first");
                return None;
            }
            let below = order(&found, &low) == Some(Ordering::Less);
            let above = order(&found, &high) == Some(Ordering::Greater);
            (!below && !above, format!("between {} and {}", low.shown(), high.shown()), least.place)
        }
        (Range::Among(list), ParamType::One(kind)) => {
            let Scalar::List(allowed) = of_param(name, ParamType::List(kind), list, scope, reports)? else {
                return None;
            };
            let words: Vec<String> = allowed.iter().map(|one| format!("`{}`", one.shown())).collect();
            (allowed.contains(&found), format!("one of {}", words.join(", ")), list.place)
        }
        (Range::Between(one, _) | Range::Among(one), ParamType::List(_)) => {
            reports.error(Code::WrongType, one.place, "a list has no range", "").help("leave `in …` out");
            return None;
        }
    };
    if fits {
        return Some(found);
    }
    let message = format!("param `{name}` is {}, but must be {words}", found.shown());
    reports.error(Code::OutOfRange, place, message, format!("must be {words}")).also(at, "allowed are these");
    None
}
