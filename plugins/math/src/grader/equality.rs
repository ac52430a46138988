//! Equality and proportionality of expressions.

use super::eval::{Context, POINTS, STEP_POINTS, Value, constant, has_steps, is_constant};
use super::expr::Expr;
use super::number::{Number, Rational};
use super::residue;

/// Returns true if two expressions have the same value for all unknowns.
pub fn equal(a: &Expr, b: &Expr) -> bool {
    match (a, b) {
        _ if a == b => return true,
        (Expr::Matrix(left), Expr::Matrix(right)) => return same_cells(left, right),
        (Expr::InBase(_, a), Expr::InBase(_, b)) if a != b => return false,
        _ => {}
    }
    let literals = (Literal::read(a), Literal::read(b));
    // A whole number of percent may be written without the sign: `28%` is 28, but 0.28 as well.
    if let (Some(a), Some(b)) = literals
        && a.percent != b.percent
        && let (Some(a), Some(b)) = (a.whole(), b.whole())
    {
        return a == b;
    }
    if is_constant(a) && is_constant(b) {
        // Large numbers are not exact as floats.
        if !matches!((constant(a), constant(b)), (Some(Number::Exact { .. }), Some(Number::Exact { .. })))
            && let Some(equal) = residue::equal(a, b)
        {
            return equal;
        }
        let context = Context { point: 0 };
        let (Some(left), Some(right)) = (context.eval(a), context.eval(b)) else { return false };
        let rounded = |literal: Option<Literal>| literal.is_some_and(|literal| literal.decimal);
        return match (left, right) {
            (Value::Number(a), Value::Number(b)) if rounded(literals.0) || rounded(literals.1) => {
                a.equals_rounded(b)
            }
            (a, b) => a.equals(&b),
        };
    }
    let values_at = |point| {
        let context = Context { point };
        (context.eval(a), context.eval(b))
    };
    let points = if has_steps(a) || has_steps(b) { STEP_POINTS } else { POINTS };
    agree((0..points).map(values_at), Value::equals)
}

fn same_cells(a: &[Vec<Expr>], b: &[Vec<Expr>]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)))
}

/// A number that is written out: digits, with or without sign and percent sign.
#[derive(Clone, Copy)]
struct Literal {
    value: Rational,
    negative: bool,
    decimal: bool,
    percent: bool,
}

impl Literal {
    fn read(expr: &Expr) -> Option<Self> {
        match expr {
            Expr::Number(Number::Exact { value, decimal }) => {
                Some(Self { value: *value, negative: false, decimal: *decimal, percent: false })
            }
            Expr::Negative(inner) => {
                Self::read(inner).map(|literal| Self { negative: !literal.negative, ..literal })
            }
            Expr::Percent(inner) => Self::read(inner).map(|literal| Self { percent: true, ..literal }),
            Expr::InBase(inner, _) => Self::read(inner),
            _ => None,
        }
    }

    fn whole(self) -> Option<i128> {
        let value = self.value.whole().filter(|_| !self.decimal)?;
        Some(if self.negative { -value } else { value })
    }
}

/// Returns true if two functions have equal values at all points, or both none. At least half of the points
/// must have one.
fn agree<T>(points: impl Iterator<Item = (Option<T>, Option<T>)>, equals: impl Fn(&T, &T) -> bool) -> bool {
    let mut compared = 0;
    for point in points {
        match point {
            (Some(a), Some(b)) if equals(&a, &b) => compared += 1,
            (None, None) => {}
            _ => return false,
        }
    }
    compared >= POINTS / 2
}

/// Returns the constant `c` with `a = c b`. If it exists, `a = 0` and `b = 0` are equivalent, and if it is
/// positive, so are `a < 0` and `b < 0`.
pub fn proportion(a: &Expr, b: &Expr) -> Option<f64> {
    let values: Vec<(Option<Number>, Option<Number>)> = (0..POINTS)
        .map(|point| {
            let context = Context { point };
            let number = |expr| context.eval(expr)?.number();
            (number(a), number(b))
        })
        .collect();
    let factor = values.iter().find_map(|(a, b)| {
        let (a, b) = ((*a)?, (*b)?);
        if b.complex().modulus() == 0.0 || a.complex().modulus() == 0.0 { None } else { a.div(b) }
    })?;
    let scaled = values.iter().map(|(a, b)| (*a, b.and_then(|b| b.mul(factor))));
    if agree(scaled, |a, b| a.equals(*b)) { factor.real() } else { None }
}
