//! The value of an expression, worked out before anything runs.

use std::cmp::Ordering;

use crate::arithmetic;
use crate::diagnostic::{Code, Place, Reports, suggest};
use crate::functions;
use crate::numbers::number;
use crate::overrides::cooked;
use crate::scope::{Found, Scope};
use crate::syntax::{Choice, Operator, Value, ValueKind};
use crate::values::Scalar;
use crate::workflow::Comparison;

/// The value of an expression. None: reported.
pub(crate) fn evaluate(value: &Value, scope: &mut Scope, reports: &mut Reports) -> Option<Scalar> {
    let place = value.place;
    match &value.kind {
        ValueKind::Text(text) => Some(Scalar::Text(text.clone())),
        ValueKind::Boolean(truth) => Some(Scalar::Boolean(*truth)),
        ValueKind::Number(text) => number(text, place, reports),
        ValueKind::Joined(parts) => joined(parts, place, scope, reports),
        ValueKind::List(values) => {
            let values: Vec<Option<Scalar>> =
                values.iter().map(|one| evaluate(one, scope, reports)).collect();
            Some(Scalar::List(values.into_iter().collect::<Option<_>>()?))
        }
        ValueKind::Path(names) => named(names, place, scope, reports),
        ValueKind::Call(call) => functions::call(call, place, scope, reports),
        ValueKind::Index(two) => {
            let (list, at) = (evaluate(&two.0, scope, reports), evaluate(&two.1, scope, reports));
            element(list?, at?, two.1.place, reports)
        }
        ValueKind::Negative(inner) => match evaluate(inner, scope, reports)? {
            found @ (Scalar::Integer(_) | Scalar::Number(_)) => {
                arithmetic::apply(Operator::Minus, Scalar::Integer(0), found, place, reports)
            }
            other => {
                let message = format!("`-` stands before {}", other.what());
                reports.error(Code::WrongType, place, message, "").help("only numbers can be negative");
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
            compare(*how, &left?, &right?, place, reports)
        }
        ValueKind::Row(first, rest) => {
            let mut so_far = evaluate(first, scope, reports);
            for (operator, value) in rest {
                let right = evaluate(value, scope, reports);
                so_far = so_far.zip(right).and_then(|(left, right)| {
                    let size = left.size().saturating_add(right.size());
                    scope.spend(size, place, reports)?;
                    arithmetic::apply(*operator, left, right, place, reports)
                });
            }
            so_far
        }
        ValueKind::Choice(choice) => {
            let chosen = branch(choice, scope, reports)?;
            evaluate(chosen, scope, reports)
        }
        ValueKind::Raw(raw) => match cooked(raw, place) {
            // A word that is no param is text: the quotes are the shell's to lose.
            Value { kind: ValueKind::Path(names), .. } if !scope.knows(&names) => {
                Some(Scalar::Text(raw.clone()))
            }
            cooked => evaluate(&cooked, scope, reports),
        },
    }
}

/// What an expression says once its `if`s are decided: a word or a name may stand in a branch, and only the setting
/// knows what it means. None: reported.
pub(crate) fn decided<'v>(value: &'v Value, scope: &mut Scope, reports: &mut Reports) -> Option<&'v Value> {
    let mut value = value;
    while let ValueKind::Choice(choice) = &value.kind {
        value = branch(choice, scope, reports)?;
    }
    Some(value)
}

/// The branch that holds.
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
            let message = format!("this must be true or false, and is {}", other.what());
            reports.error(Code::WrongType, value.place, message, "").help("compare it, as in `samples > 1`");
            None
        }
    }
}

fn truths(parts: &[Value], scope: &mut Scope, reports: &mut Reports) -> Option<Vec<bool>> {
    let parts: Vec<Option<bool>> = parts.iter().map(|part| truth(part, scope, reports)).collect();
    parts.into_iter().collect()
}

fn joined(parts: &[Value], place: Place, scope: &mut Scope, reports: &mut Reports) -> Option<Scalar> {
    let mut out = String::new();
    let mut sound = true;
    for part in parts {
        match evaluate(part, scope, reports) {
            Some(Scalar::List(_)) => {
                let message = "a list can't be inserted into a text";
                reports.error(Code::WrongType, part.place, message, "").help("write `join(list, \", \")`");
                sound = false;
            }
            Some(scalar) => out.push_str(&scalar.as_inserted()),
            None => sound = false,
        }
    }
    scope.spend(out.len(), place, reports)?;
    sound.then_some(Scalar::Text(out))
}

fn named(names: &[String], place: Place, scope: &mut Scope, reports: &mut Reports) -> Option<Scalar> {
    match scope.look_up(names) {
        Found::Value(value) => value,
        Found::Later => {
            let name = names.join(".");
            let message = format!("param `{name}` is declared further down");
            reports.error(Code::UnknownName, place, message, "").help("declare it above what uses it");
            None
        }
        Found::Nothing => {
            let name = names.join(".");
            let known = scope.names();
            if names.len() > 1 && !known.iter().any(|known| known.contains('.')) {
                let message = format!("`{name}` is no value");
                reports
                    .error(Code::WrongType, place, message, "")
                    .help("a value is a number, a text in quotes, `true`, `false` or the name of a param");
                return None;
            }
            let hint = suggest(&name, "the params are", known.iter().map(String::as_str));
            reports.error(Code::UnknownName, place, format!("there is no param `{name}`"), "").help(
                hint.unwrap_or_else(|| {
                    format!("declare it: `param {name}: int = …`; text stands in quotes: `\"{name}\"`")
                }),
            );
            None
        }
    }
}

fn element(list: Scalar, at: Scalar, place: Place, reports: &mut Reports) -> Option<Scalar> {
    let (values, at) = match (list, at) {
        (Scalar::List(values), Scalar::Integer(at)) => (values, at),
        (Scalar::List(_), other) => {
            let message = format!("a position in a list is a whole number, and this is {}", other.what());
            reports.error(Code::WrongType, place, message, "");
            return None;
        }
        (other, _) => {
            let message = format!("only lists have positions, and this is {}", other.what());
            reports.error(Code::WrongType, place, message, "");
            return None;
        }
    };
    let length = values.len();
    let found = usize::try_from(at).ok().and_then(|at| values.into_iter().nth(at));
    if found.is_none() {
        let message = format!("the list has {length} elements, and this is position {at}");
        reports.error(Code::OutOfRange, place, message, "").help("the first position is 0");
    }
    found
}

/// Whether a comparison holds. Numbers, sizes and durations have an order; everything can be equal to its like.
fn compare(
    how: Comparison,
    left: &Scalar,
    right: &Scalar,
    place: Place,
    reports: &mut Reports,
) -> Option<Scalar> {
    let ordered = !matches!(how, Comparison::Equal | Comparison::NotEqual);
    let Some(order) = arithmetic::order(left, right) else {
        let message = format!("{} is compared with {}", left.what(), right.what());
        reports.error(Code::WrongType, place, message, "these can never be equal");
        return None;
    };
    if ordered && !left.has_order() {
        let message = format!("only numbers, sizes and durations have an order, and this is {}", left.what());
        reports.error(Code::WrongType, place, message, "").help("compare with `==` or `!=`");
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
