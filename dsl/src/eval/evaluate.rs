//! Evaluates expressions before anything runs.

use std::cmp::Ordering;

use super::arithmetic;
use super::functions::{ExpectedArguments, FILE, FUNCTIONS};
use super::numbers::number;
use super::raw::parse_raw;
use super::scalar::Scalar;
use super::scope::{Lookup, Scope};
use crate::diagnostic::DiagnosticCode;
use crate::diagnostic::reports::Reports;
use crate::diagnostic::spelling::suggest;
use crate::source::Location;
use crate::syntax::tree::{Call, Choice, Operator, Value, ValueKind};
use crate::workflow::Comparison;

/// Evaluates an expression. Returns `None` if an error was reported.
pub(crate) fn evaluate(value: &Value, scope: &mut Scope, reports: &mut Reports) -> Option<Scalar> {
    let location = value.location;
    match &value.kind {
        ValueKind::Text(text) => Some(Scalar::Text(text.clone())),
        ValueKind::Boolean(truth) => Some(Scalar::Boolean(*truth)),
        ValueKind::Number(text) => number(text, location, reports),
        ValueKind::Joined(parts) => joined(parts, location, scope, reports),
        ValueKind::List(values) => {
            let values: Vec<Option<Scalar>> =
                values.iter().map(|one| evaluate(one, scope, reports)).collect();
            Some(Scalar::List(values.into_iter().collect::<Option<_>>()?))
        }
        ValueKind::Path(names) => named(names, location, scope, reports),
        ValueKind::Call(inner) => call(inner, location, scope, reports),
        ValueKind::Index(two) => {
            let (list, at) = (evaluate(&two.0, scope, reports), evaluate(&two.1, scope, reports));
            element(list?, at?, two.1.location, reports)
        }
        ValueKind::Negative(inner) => match evaluate(inner, scope, reports)? {
            found @ (Scalar::Integer(_) | Scalar::Number(_)) => {
                arithmetic::apply(Operator::Minus, Scalar::Integer(0), found, location, reports)
            }
            other => {
                let message = format!("`-` can't be applied to {}", other.type_phrase());
                reports
                    .error(DiagnosticCode::WrongType, location, message, "")
                    .help("only numbers can be negative");
                None
            }
        },
        ValueKind::Not(inner) => Some(Scalar::Boolean(!truth(inner, scope, reports)?)),
        ValueKind::All(parts) => {
            truths(parts, scope, reports).map(|all| Scalar::Boolean(all.into_iter().all(|one| one)))
        }
        ValueKind::Any(parts) => {
            truths(parts, scope, reports).map(|any| Scalar::Boolean(any.into_iter().any(|one| one)))
        }
        ValueKind::Compare(how, two) => {
            let (left, right) = (evaluate(&two.0, scope, reports), evaluate(&two.1, scope, reports));
            compare(*how, &left?, &right?, location, reports)
        }
        ValueKind::Arithmetic(first, rest) => {
            let mut so_far = evaluate(first, scope, reports);
            for (operator, value) in rest {
                let right = evaluate(value, scope, reports);
                so_far = so_far.zip(right).and_then(|(left, right)| {
                    let size = left.size().saturating_add(right.size());
                    scope.spend(size, location, reports)?;
                    arithmetic::apply(*operator, left, right, location, reports)
                });
            }
            so_far
        }
        ValueKind::Choice(choice) => {
            let chosen = branch(choice, scope, reports)?;
            evaluate(chosen, scope, reports)
        }
        ValueKind::Raw(raw) => match parse_raw(raw, location) {
            // A word that is not a param is text, because shells remove quotes.
            Value { kind: ValueKind::Path(names), .. } if !scope.contains_name(&names) => {
                Some(Scalar::Text(raw.clone()))
            }
            parsed => evaluate(&parsed, scope, reports),
        },
    }
}

/// Selects the branch of an expression's `if`s without evaluating it: a branch may hold a word or a name that only the
/// setting understands. Returns `None` if an error was reported.
pub(crate) fn resolve_choice<'v>(
    value: &'v Value,
    scope: &mut Scope,
    reports: &mut Reports,
) -> Option<&'v Value> {
    let mut value = value;
    while let ValueKind::Choice(choice) = &value.kind {
        value = branch(choice, scope, reports)?;
    }
    Some(value)
}

/// Checks the names and types in what [`resolve_choice`] did not take, with `check` for each other branch. Values are not
/// reported, because a condition may exclude them, and neither are types of what is made of params.
pub(crate) fn check_other_branches<'v>(
    value: &'v Value,
    chosen: &Value,
    scope: &mut Scope,
    reports: &mut Reports,
    mut check: impl FnMut(&'v Value, &mut Scope, &mut Reports),
) {
    let mut waiting = vec![value];
    while let Some(value) = waiting.pop() {
        if let ValueKind::Choice(choice) = &value.kind {
            for (when, then) in &choice.branches {
                reports.names_and_types(is_written_out(when, scope), |aside| {
                    truth(when, scope, aside);
                });
                waiting.push(then);
            }
            waiting.push(&choice.otherwise);
        } else if !std::ptr::eq(value, chosen) {
            reports.names_and_types(is_written_out(value, scope), |aside| check(value, scope, aside));
        }
    }
}

/// Returns true for a value that is not made of params, whose values may be others where it is taken.
pub(crate) fn is_written_out(value: &Value, scope: &Scope) -> bool {
    let mut is_so = true;
    value.visit_all(&mut |one| {
        is_so &= match &one.kind {
            ValueKind::Path(names) => !scope.contains_name(names),
            ValueKind::Call(_) | ValueKind::Arithmetic(..) | ValueKind::Joined(_) | ValueKind::Index(_) => {
                false
            }
            _ => true,
        };
    });
    is_so
}

/// Returns the first branch whose condition is true.
fn branch<'v>(choice: &'v Choice, scope: &mut Scope, reports: &mut Reports) -> Option<&'v Value> {
    for (when, then) in &choice.branches {
        if truth(when, scope, reports)? {
            return Some(then);
        }
    }
    Some(&choice.otherwise)
}

fn truth(value: &Value, scope: &mut Scope, reports: &mut Reports) -> Option<bool> {
    match evaluate(value, scope, reports)? {
        Scalar::Boolean(truth) => Some(truth),
        other => {
            let message = format!("expected true or false, found {}", other.type_phrase());
            reports
                .error(DiagnosticCode::WrongType, value.location, message, "")
                .help("compare it, as in `samples > 1`");
            None
        }
    }
}

fn truths(parts: &[Value], scope: &mut Scope, reports: &mut Reports) -> Option<Vec<bool>> {
    let parts: Vec<Option<bool>> = parts.iter().map(|part| truth(part, scope, reports)).collect();
    parts.into_iter().collect()
}

fn joined(parts: &[Value], location: Location, scope: &mut Scope, reports: &mut Reports) -> Option<Scalar> {
    let mut out = String::new();
    let mut sound = true;
    for part in parts {
        match evaluate(part, scope, reports) {
            Some(Scalar::List(_)) => {
                let message = "a list can't be inserted into a text";
                reports
                    .error(DiagnosticCode::WrongType, part.location, message, "")
                    .help("write `join(list, \", \")`");
                sound = false;
            }
            Some(scalar) => out.push_str(&scalar.to_text()),
            None => sound = false,
        }
    }
    scope.spend(out.len(), location, reports)?;
    sound.then_some(Scalar::Text(out))
}

fn named(names: &[String], location: Location, scope: &mut Scope, reports: &mut Reports) -> Option<Scalar> {
    match scope.look_up(names) {
        Lookup::Value(value) => value,
        Lookup::Pending => {
            let name = names.join(".");
            let (message, help) = match scope.evaluating.as_ref() == Some(&scope.full_name(names)) {
                true => (
                    format!("param `{name}` refers to itself"),
                    "use a value, or a param that is declared above it",
                ),
                false => (format!("param `{name}` is declared below"), "declare it above its first use"),
            };
            reports.error(DiagnosticCode::UnknownName, location, message, "").help(help);
            None
        }
        Lookup::Unknown => {
            let name = names.join(".");
            let known = scope.names();
            if names.len() > 1 && !known.iter().any(|known| known.contains('.')) {
                let message = format!("`{name}` is not a value");
                reports
                    .error(DiagnosticCode::WrongType, location, message, "")
                    .help("values are numbers, texts in quotes, `true`, `false` and names of params");
                return None;
            }
            let hint = suggest(&name, "the params are", known.iter().map(String::as_str));
            reports
                .error(DiagnosticCode::UnknownName, location, format!("there is no param `{name}`"), "")
                .help(hint.unwrap_or_else(|| {
                    format!("text needs quotes: `\"{name}\"`; a param is declared: `param {name}: TYPE = …`")
                }));
            None
        }
    }
}

fn element(list: Scalar, at: Scalar, location: Location, reports: &mut Reports) -> Option<Scalar> {
    let (values, at) = match (list, at) {
        (Scalar::List(values), Scalar::Integer(at)) => (values, at),
        (Scalar::List(_), other) => {
            let message = format!("an index must be a whole number, not {}", other.type_phrase());
            reports.error(DiagnosticCode::WrongType, location, message, "");
            return None;
        }
        (other, _) => {
            let message = format!("only lists can be indexed, not {}", other.type_phrase());
            reports.error(DiagnosticCode::WrongType, location, message, "");
            return None;
        }
    };
    let length = values.len();
    let found = usize::try_from(at).ok().and_then(|at| values.into_iter().nth(at));
    if found.is_none() {
        let message = format!("index {at} is out of range: the list has {length} elements");
        reports.error(DiagnosticCode::OutOfRange, location, message, "").help("the first index is 0");
    }
    found
}

/// Compares two values. Numbers, sizes and durations have an order; other types can only be equal or not.
fn compare(
    how: Comparison,
    left: &Scalar,
    right: &Scalar,
    location: Location,
    reports: &mut Reports,
) -> Option<Scalar> {
    let ordered = !matches!(how, Comparison::Equal | Comparison::NotEqual);
    let Some(order) = arithmetic::order(left, right) else {
        let message = format!("{} can't be compared with {}", left.type_phrase(), right.type_phrase());
        reports.error(DiagnosticCode::WrongType, location, message, "these can never be equal");
        return None;
    };
    if ordered && !left.has_order() {
        let message = format!("only numbers, sizes and durations have an order, not {}", left.type_phrase());
        reports.error(DiagnosticCode::WrongType, location, message, "").help("compare with `==` or `!=`");
        return None;
    }
    Some(Scalar::Boolean(match how {
        Comparison::Equal => order == Ordering::Equal,
        Comparison::NotEqual => order != Ordering::Equal,
        Comparison::Less => order == Ordering::Less,
        Comparison::LessOrEqual => order != Ordering::Greater,
        Comparison::Greater => order == Ordering::Greater,
        Comparison::GreaterOrEqual => order != Ordering::Less,
    }))
}

/// Calls a function. Returns `None` if an error was reported.
fn call(call: &Call, location: Location, scope: &mut Scope, reports: &mut Reports) -> Option<Scalar> {
    let name = &call.name;
    let Some(function) = FUNCTIONS.iter().find(|function| function.name == name.text) else {
        let known = FUNCTIONS.iter().map(|function| function.name);
        let hint = suggest(&name.text, "the functions are", known);
        let message = format!("there is no function `{}`", name.text);
        reports.error(DiagnosticCode::UnknownName, name.location, message, "").maybe_help(hint);
        return None;
    };
    if let Some(named) = call.arguments.iter().find_map(|argument| argument.name.as_ref()) {
        let message = format!("`{}` takes no named arguments", function.name);
        reports
            .error(DiagnosticCode::WrongType, named.location, message, "")
            .help(format!("write `{}`", function.form));
        return None;
    }
    let given: Vec<Option<Scalar>> =
        call.arguments.iter().map(|argument| evaluate(&argument.value, scope, reports)).collect();
    let given = given.into_iter().collect::<Option<Vec<_>>>()?;
    let result = match given.as_slice() {
        [Scalar::Text(path)] if function.name == FILE => return file(path, location, scope, reports),
        _ => (function.apply)(given),
    };
    match result {
        Ok(value) => {
            scope.spend(value.size(), location, reports)?;
            Some(value)
        }
        Err(ExpectedArguments(expected)) => {
            let message = format!("`{}` expects {expected}", function.name);
            reports
                .error(DiagnosticCode::WrongType, location, message, "")
                .help(format!("write `{}`", function.form));
            None
        }
    }
}

fn file(path: &str, location: Location, scope: &mut Scope, reports: &mut Reports) -> Option<Scalar> {
    let full = scope.path_from(location, path);
    match scope.catalog.text(&full) {
        Ok(mut text) => {
            scope.spend(text.len(), location, reports)?;
            let kept = text.trim_end_matches(['\n', '\r']).len();
            if text.len() - kept <= 2 {
                text.truncate(kept);
            }
            Some(Scalar::Text(text.replace("\r\n", "\n")))
        }
        Err(why) => {
            let message = format!("`{path}` can't be read: {why}");
            reports.error(DiagnosticCode::FileFailed, location, message, "");
            None
        }
    }
}
