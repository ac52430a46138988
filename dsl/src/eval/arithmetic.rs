//! `+ - * / %` over numbers, sizes, durations, texts and lists, and their order.

use std::cmp::Ordering;
use std::time::Duration;

use super::scalar::Scalar;
use crate::diagnostic::DiagnosticCode;
use crate::diagnostic::reports::Reports;
use crate::source::Location;
use crate::syntax::tree::Operator;

/// Applies an operator to two values. Returns `None` if an error was reported.
pub(crate) fn apply(
    operator: Operator,
    left: Scalar,
    right: Scalar,
    location: Location,
    reports: &mut Reports,
) -> Option<Scalar> {
    let (one, other) = (left.type_phrase(), right.type_phrase());
    match calculate(operator, left, right) {
        Ok(value) => Some(value),
        Err(ArithmeticError::Types) => {
            let message = format!("`{}` can't be applied to {one} and {other}", operator.sign());
            reports.error(DiagnosticCode::WrongType, location, message, "").help(
                "arithmetic works on numbers; sizes and durations can be added, and multiplied by numbers; `+` joins texts \
                 and lists",
            );
            None
        }
        Err(ArithmeticError::DivisionByZero) => {
            reports.error(DiagnosticCode::OutOfRange, location, "division by zero", "");
            None
        }
        Err(ArithmeticError::OutOfRange) => {
            reports.error(DiagnosticCode::OutOfRange, location, "the result is out of range", "");
            None
        }
    }
}

enum ArithmeticError {
    Types,
    DivisionByZero,
    OutOfRange,
}

fn calculate(operator: Operator, left: Scalar, right: Scalar) -> Result<Scalar, ArithmeticError> {
    use Operator::{Divided, Plus, Times};
    match (operator, left, right) {
        (_, Scalar::Integer(left), Scalar::Integer(right)) => integers(operator, left, right),
        (Plus, Scalar::Text(left), Scalar::Text(right)) => Ok(Scalar::Text(left + &right)),
        (Plus, Scalar::List(mut left), Scalar::List(right)) => {
            left.extend(right);
            Ok(Scalar::List(left))
        }
        (_, Scalar::Bytes(left), Scalar::Bytes(right)) => match operator {
            Plus => left.checked_add(right).map(Scalar::Bytes).ok_or(ArithmeticError::OutOfRange),
            Operator::Minus => left.checked_sub(right).map(Scalar::Bytes).ok_or(ArithmeticError::OutOfRange),
            Divided => quotient(left as f64, right as f64),
            _ => Err(ArithmeticError::Types),
        },
        (_, Scalar::Duration(left), Scalar::Duration(right)) => match operator {
            Plus => left.checked_add(right).map(Scalar::Duration).ok_or(ArithmeticError::OutOfRange),
            Operator::Minus => {
                left.checked_sub(right).map(Scalar::Duration).ok_or(ArithmeticError::OutOfRange)
            }
            Divided => quotient(left.as_secs_f64(), right.as_secs_f64()),
            _ => Err(ArithmeticError::Types),
        },
        (Times, Scalar::Bytes(size), by) | (Times, by, Scalar::Bytes(size)) => {
            bytes(size as f64 * by.as_number().ok_or(ArithmeticError::Types)?)
        }
        (Divided, Scalar::Bytes(size), by) => bytes(size as f64 / nonzero(by)?),
        (Times, Scalar::Duration(time), by) | (Times, by, Scalar::Duration(time)) => {
            duration(time.as_secs_f64() * by.as_number().ok_or(ArithmeticError::Types)?)
        }
        (Divided, Scalar::Duration(time), by) => duration(time.as_secs_f64() / nonzero(by)?),
        (_, left, right) => match (left.as_number(), right.as_number()) {
            (Some(left), Some(right)) => numbers(operator, left, right),
            _ => Err(ArithmeticError::Types),
        },
    }
}

/// The result of whole numbers is whole if it has no fraction.
fn integers(operator: Operator, left: i64, right: i64) -> Result<Scalar, ArithmeticError> {
    let whole = match operator {
        Operator::Plus => left.checked_add(right),
        Operator::Minus => left.checked_sub(right),
        Operator::Times => left.checked_mul(right),
        Operator::Divided | Operator::Remainder if right == 0 => return Err(ArithmeticError::DivisionByZero),
        Operator::Divided if left.checked_rem(right) != Some(0) => {
            return quotient(left as f64, right as f64);
        }
        Operator::Divided => left.checked_div(right),
        Operator::Remainder => left.checked_rem_euclid(right),
    };
    whole.map(Scalar::Integer).ok_or(ArithmeticError::OutOfRange)
}

fn numbers(operator: Operator, left: f64, right: f64) -> Result<Scalar, ArithmeticError> {
    let number = match operator {
        Operator::Plus => left + right,
        Operator::Minus => left - right,
        Operator::Times => left * right,
        Operator::Divided => return quotient(left, right),
        Operator::Remainder if right == 0.0 => return Err(ArithmeticError::DivisionByZero),
        Operator::Remainder => left.rem_euclid(right),
    };
    if number.is_finite() { Ok(Scalar::Number(number)) } else { Err(ArithmeticError::OutOfRange) }
}

fn quotient(left: f64, right: f64) -> Result<Scalar, ArithmeticError> {
    if right == 0.0 {
        return Err(ArithmeticError::DivisionByZero);
    }
    let number = left / right;
    if number.is_finite() { Ok(Scalar::Number(number)) } else { Err(ArithmeticError::OutOfRange) }
}

fn nonzero(by: Scalar) -> Result<f64, ArithmeticError> {
    match by.as_number() {
        Some(0.0) => Err(ArithmeticError::DivisionByZero),
        Some(number) => Ok(number),
        None => Err(ArithmeticError::Types),
    }
}

fn bytes(size: f64) -> Result<Scalar, ArithmeticError> {
    if (0.0..=i64::MAX as f64).contains(&size) {
        Ok(Scalar::Bytes(size as u64))
    } else {
        Err(ArithmeticError::OutOfRange)
    }
}

fn duration(seconds: f64) -> Result<Scalar, ArithmeticError> {
    Duration::try_from_secs_f64(seconds).map(Scalar::Duration).map_err(|_| ArithmeticError::OutOfRange)
}

/// Compares two values. Returns `None` if their types differ. For types without an order, unequal values compare as
/// less.
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
