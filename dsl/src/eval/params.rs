//! Params: their types, ranges and values.

use std::cmp::Ordering;
use std::time::Duration;

use super::arithmetic::order;
use super::evaluate::{check_other_branches, evaluate, resolve_choice};
use super::raw::parse_raw;
use super::scalar::Scalar;
use super::scope::{Param, Scope};
use super::typed::{convert, evaluate_as};
use crate::diagnostic::DiagnosticCode;
use crate::diagnostic::reports::Reports;
use crate::diagnostic::spelling::suggest;
use crate::settings::SettingKind;
use crate::source::Location;
use crate::syntax::block_kind::BlockKind;
use crate::syntax::tree::{Block, HeadExtra, ParamRange, TypeName, Value, ValueKind};

/// Type of a param or of a template's parameter.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ParamType {
    One(SettingKind),
    List(SettingKind),
}

/// Types by name.
const TYPES: &[(&str, SettingKind)] = &[
    ("int", SettingKind::Integer { min: i64::MIN, max: i64::MAX }),
    ("float", SettingKind::Number { min: f64::MIN, max: f64::MAX, above: false }),
    ("bool", SettingKind::Boolean),
    ("string", SettingKind::Text),
    ("size", SettingKind::Bytes { min: 0, max: u64::MAX }),
    ("duration", SettingKind::Duration { min: Duration::ZERO, max: Duration::MAX }),
];

/// Types that only a template's parameters may have: names of blocks.
const NAMES: &[(&str, SettingKind)] = &[("policy", SettingKind::Policy), ("model", SettingKind::Model)];

const LIST: &str = "list";

/// Names of all types.
pub(crate) fn type_names() -> impl Iterator<Item = &'static str> {
    TYPES.iter().map(|(name, _)| *name).chain([LIST])
}

/// Kinds of the blocks that a name in an argument of a template may stand for, if the parameter's type is unknown.
pub const NAMED_BY_ANY_ARGUMENT: &[BlockKind] = &[BlockKind::Param, BlockKind::Policy, BlockKind::Model];

/// Returns the kinds of the blocks that a name in an argument of a template may stand for, by the parameter's type.
pub(crate) fn named_by_argument(written: &TypeName) -> &'static [BlockKind] {
    match resolve_type(written, true, &mut Reports::new(&[])) {
        Some(ParamType::One(kind) | ParamType::List(kind)) => kind.named_blocks(),
        None => NAMED_BY_ANY_ARGUMENT,
    }
}

/// Resolves the name of a type. Returns `None` if an error was reported.
pub(crate) fn resolve_type(
    written: &TypeName,
    in_template: bool,
    reports: &mut Reports,
) -> Option<ParamType> {
    let one = |name: &str| {
        let names = if in_template { NAMES } else { &[] };
        TYPES.iter().chain(names).find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    };
    let TypeName { name, element: of } = written;
    let (wrong, message) = match (name.text.as_str(), of) {
        (LIST, None) => {
            reports
                .error(
                    DiagnosticCode::UnknownName,
                    name.location,
                    "`list` needs the type of its elements",
                    "",
                )
                .help("write `list(string)`, or another type in the parentheses");
            return None;
        }
        (LIST, Some(of)) => match one(&of.text) {
            Some(kind) => return Some(ParamType::List(kind)),
            None => (of, format!("there is no type `{}`", of.text)),
        },
        (other, Some(of)) => {
            reports
                .error(DiagnosticCode::WrongType, of.location, format!("`{other}` has no element type"), "")
                .help("write `list(…)`");
            return None;
        }
        (other, None) => match one(other) {
            Some(kind) => return Some(ParamType::One(kind)),
            None => (name, format!("there is no type `{other}`")),
        },
    };
    let hint = suggest(&wrong.text, "the types are", type_names());
    reports.error(DiagnosticCode::UnknownName, wrong.location, message, "").maybe_help(hint);
    None
}

/// Evaluates a value of a param's type. Returns `None` if an error was reported.
pub(crate) fn param_value(
    name: &str,
    wanted: ParamType,
    value: &Value,
    scope: &mut Scope,
    reports: &mut Reports,
) -> Option<Scalar> {
    let kind = match wanted {
        ParamType::One(kind) => return evaluate_as(name, kind, value, scope, reports),
        ParamType::List(kind) => kind,
    };
    let chosen = resolve_choice(value, scope, reports)?;
    check_other_branches(value, chosen, scope, reports, |other, scope, aside| {
        param_value(name, wanted, other, scope, aside);
    });
    let value = chosen;
    let outside = matches!(value.kind, ValueKind::Raw(_));
    let value = match &value.kind {
        ValueKind::Raw(raw) => parse_raw(raw, value.location),
        _ => value.clone(),
    };
    if let ValueKind::List(values) = &value.kind {
        let each: Vec<Option<Scalar>> = values
            .iter()
            .map(|one| match &one.kind {
                // A word that is not a param is text, because shells remove quotes.
                ValueKind::Path(names) if outside && !scope.contains_name(names) => {
                    Some(Scalar::Text(names.join(".")))
                }
                _ => evaluate_as(name, kind, one, scope, reports),
            })
            .collect();
        return Some(Scalar::List(each.into_iter().collect::<Option<_>>()?));
    }
    match evaluate(&value, scope, reports)? {
        Scalar::List(values) => {
            let each: Vec<Option<Scalar>> =
                values.into_iter().map(|one| convert(name, kind, one, value.location, reports)).collect();
            Some(Scalar::List(each.into_iter().collect::<Option<_>>()?))
        }
        other => {
            let message = format!("`{name}` must be a list, not {}", other.type_phrase());
            reports.error(DiagnosticCode::WrongType, value.location, message, "expected a list");
            None
        }
    }
}

/// Evaluates the params in order. A param may refer to those above it.
pub(crate) fn params(blocks: &[&Block], scope: &mut Scope, reports: &mut Reports) {
    // Register all names first, so that a use before the declaration is reported as such.
    for name in blocks.iter().filter_map(|block| block.name.as_ref()) {
        scope.params.insert(name.text.clone(), Param::Pending);
    }
    for block in blocks {
        let Some(name) = &block.name else { continue };
        scope.evaluating = Some(name.text.clone());
        let value =
            scope.in_namespace(block.namespace, reports, |scope, reports| param(block, scope, reports));
        scope.params.insert(name.text.clone(), Param::Evaluated(value));
    }
    scope.evaluating = None;
}

fn param(block: &Block, scope: &mut Scope, reports: &mut Reports) -> Option<Scalar> {
    let name = block.name.as_ref()?;
    let Some(HeadExtra::Param { ty: written, range }) = block.extra.as_deref() else { return None };
    let wanted = resolve_type(written, false, reports)?;
    if !block.sound {
        return None;
    }
    let Some(value) = &block.value else {
        let message = format!("param `{}` has no value", name.text);
        let help = format!("set it with `--set {}=…`, or give it a default in the file", name.text);
        reports.error(DiagnosticCode::MissingSetting, name.location, message, "").help(help);
        return None;
    };
    let found = param_value(&name.text, wanted, value, scope, reports)?;
    match range {
        Some(range) => in_range(&name.text, wanted, range, found, value.location, scope, reports),
        None => Some(found),
    }
}

fn in_range(
    name: &str,
    wanted: ParamType,
    range: &ParamRange,
    found: Scalar,
    location: Location,
    scope: &mut Scope,
    reports: &mut Reports,
) -> Option<Scalar> {
    let (fits, allowed_words, at) = match (range, wanted) {
        (ParamRange::Between(least, most), ParamType::One(kind)) => {
            let ends = (
                evaluate_as(name, kind, least, scope, reports),
                evaluate_as(name, kind, most, scope, reports),
            );
            let (low, high) = (ends.0?, ends.1?);
            if !low.has_order() {
                let message = format!("{} has no range", low.type_phrase());
                reports
                    .error(DiagnosticCode::WrongType, least.location, message, "")
                    .help("write a list of the allowed values");
                return None;
            }
            if order(&low, &high) == Some(Ordering::Greater) {
                let message = format!(
                    "the range of `{name}` is empty: {} is more than {}",
                    low.display(),
                    high.display()
                );
                reports
                    .error(DiagnosticCode::OutOfRange, least.location, message, "")
                    .help("write the smaller end first");
                return None;
            }
            let below = order(&found, &low) == Some(Ordering::Less);
            let above = order(&found, &high) == Some(Ordering::Greater);
            (!below && !above, format!("between {} and {}", low.display(), high.display()), least.location)
        }
        (ParamRange::OneOf(list), ParamType::One(kind)) => {
            let Scalar::List(allowed) = param_value(name, ParamType::List(kind), list, scope, reports)?
            else {
                return None;
            };
            if allowed.is_empty() {
                let message = format!("the list of values that `{name}` may have is empty");
                reports.error(DiagnosticCode::OutOfRange, list.location, message, "").help("add a value");
                return None;
            }
            let words: Vec<String> = allowed.iter().map(|one| format!("`{}`", one.display())).collect();
            (allowed.contains(&found), format!("one of {}", words.join(", ")), list.location)
        }
        (ParamRange::Between(one, _) | ParamRange::OneOf(one), ParamType::List(_)) => {
            reports
                .error(DiagnosticCode::WrongType, one.location, "a list has no range", "")
                .help("remove `in …`");
            return None;
        }
    };
    if fits {
        return Some(found);
    }
    let message = format!("param `{name}` is {}, but must be {allowed_words}", found.display());
    reports
        .error(DiagnosticCode::OutOfRange, location, message, format!("must be {allowed_words}"))
        .also(at, "allowed values");
    None
}
