//! `+ - * / %` over numbers, sizes, durations, texts and lists, and their order.

use std::cmp::Ordering;
use std::time::Duration;

use crate::diagnostic::{Code, Place, Reports};
use crate::syntax::Operator;
use crate::values::Scalar;

/// What an operator makes of two values. None: reported.
pub(crate) fn apply(
    operator: Operator,
    left: Scalar,
    right: Scalar,
    place: Place,
    reports: &mut Reports,
) -> Option<Scalar> {
    let (one, other) = (left.what(), right.what());
    match calculate(operator, left, right) {
        Ok(value) => Some(value),
        Err(Trouble::Kinds) => {
            let message = format!("`{}` can't stand between {one} and {other}", operator.sign());
            reports.error(Code::WrongType, place, message, "").help(
                "numbers are calculated with; sizes and durations are added, and multiplied with numbers; texts and \
                 lists are put together with `+`",
            );
            None
        }
        Err(Trouble::Zero) => {
            reports.error(Code::OutOfRange, place, "this divides by zero", "");
            None
        }
        Err(Trouble::Range) => {
            reports.error(Code::OutOfRange, place, "the result is out of range", "");
            None
        }
    }
}

enum Trouble {
    Kinds,
    Zero,
    Range,
}

fn calculate(operator: Operator, left: Scalar, right: Scalar) -> Result<Scalar, Trouble> {
    use Operator::{Divided, Plus, Times};
    match (operator, left, right) {
        (_, Scalar::Integer(left), Scalar::Integer(right)) => integers(operator, left, right),
        (Plus, Scalar::Text(left), Scalar::Text(right)) => Ok(Scalar::Text(left + &right)),
        (Plus, Scalar::List(mut left), Scalar::List(right)) => {
            left.extend(right);
            Ok(Scalar::List(left))
        }
        (_, Scalar::Bytes(left), Scalar::Bytes(right)) => match operator {
            Plus => left.checked_add(right).map(Scalar::Bytes).ok_or(Trouble::Range),
            Operator::Minus => left.checked_sub(right).map(Scalar::Bytes).ok_or(Trouble::Range),
            Divided => quotient(left as f64, right as f64),
            _ => Err(Trouble::Kinds),
        },
        (_, Scalar::Duration(left), Scalar::Duration(right)) => match operator {
            Plus => left.checked_add(right).map(Scalar::Duration).ok_or(Trouble::Range),
            Operator::Minus => left.checked_sub(right).map(Scalar::Duration).ok_or(Trouble::Range),
            Divided => quotient(left.as_secs_f64(), right.as_secs_f64()),
            _ => Err(Trouble::Kinds),
        },
        (Times, Scalar::Bytes(size), by) | (Times, by, Scalar::Bytes(size)) => {
            bytes(size as f64 * by.as_number().ok_or(Trouble::Kinds)?)
        }
        (Divided, Scalar::Bytes(size), by) => bytes(size as f64 / nonzero(by)?),
        (Times, Scalar::Duration(time), by) | (Times, by, Scalar::Duration(time)) => {
            duration(time.as_secs_f64() * by.as_number().ok_or(Trouble::Kinds)?)
        }
        (Divided, Scalar::Duration(time), by) => duration(time.as_secs_f64() / nonzero(by)?),
        (_, left, right) => match (left.as_number(), right.as_number()) {
            (Some(left), Some(right)) => numbers(operator, left, right),
            _ => Err(Trouble::Kinds),
        },
    }
}

/// Whole numbers stay whole where the result is.
fn integers(operator: Operator, left: i64, right: i64) -> Result<Scalar, Trouble> {
    let whole = match operator {
        Operator::Plus => left.checked_add(right),
        Operator::Minus => left.checked_sub(right),
        Operator::Times => left.checked_mul(right),
        Operator::Divided | Operator::Remainder if right == 0 => return Err(Trouble::Zero),
        Operator::Divided if left.checked_rem(right) != Some(0) => {
            return quotient(left as f64, right as f64);
        }
        Operator::Divided => left.checked_div(right),
        Operator::Remainder => left.checked_rem_euclid(right),
    };
    whole.map(Scalar::Integer).ok_or(Trouble::Range)
}

fn numbers(operator: Operator, left: f64, right: f64) -> Result<Scalar, Trouble> {
    let number = match operator {
        Operator::Plus => left + right,
        Operator::Minus => left - right,
        Operator::Times => left * right,
        Operator::Divided => return quotient(left, right),
        Operator::Remainder if right == 0.0 => return Err(Trouble::Zero),
        Operator::Remainder => left.rem_euclid(right),
    };
    if number.is_finite() { Ok(Scalar::Number(number)) } else { Err(Trouble::Range) }
}

fn quotient(left: f64, right: f64) -> Result<Scalar, Trouble> {
    if right == 0.0 {
        return Err(Trouble::Zero);
    }
    let number = left / right;
    if number.is_finite() { Ok(Scalar::Number(number)) } else { Err(Trouble::Range) }
}

fn nonzero(by: Scalar) -> Result<f64, Trouble> {
    match by.as_number() {
        Some(0.0) => Err(Trouble::Zero),
        Some(number) => Ok(number),
        None => Err(Trouble::Kinds),
    }
}

fn bytes(size: f64) -> Result<Scalar, Trouble> {
    if (0.0..=i64::MAX as f64).contains(&size) { Ok(Scalar::Bytes(size as u64)) } else { Err(Trouble::Range) }
}

fn duration(seconds: f64) -> Result<Scalar, Trouble> {
    Duration::try_from_secs_f64(seconds).map(Scalar::Duration).map_err(|_| Trouble::Range)
}

/// How two values of one kind compare; none where they are of different kinds. Where there is no order, anything but
/// equal is less.
pub(crate) fn order(left: &Scalar, right: &Scalar) -> Option<Ordering> {
    let alike = |equal: bool| if equal { Ordering::Equal } else { Ordering::Less };
    match (left, right) {
        (Scalar::Integer(left), Scalar::Integer(right)) => Some(left.cmp(right)),
        (Scalar::Bytes(left), Scalar::Bytes(right)) => Some(left.cmp(right)),
        (Scalar::Duration(left), Scalar::Duration(right)) => Some(left.cmp(right)),
        (Scalar::Boolean(left), Scalar::Boolean(right)) => Some(alike(left == right)),
        (Scalar::Text(left), Scalar::Text(right)) => Some(alike(left == right)),
        (Scalar::List(left), Scalar::List(right)) => Some(alike(left == right)),
        (left, right) => left.as_number()?.partial_cmp(&right.as_number()?),
    }
}
