//! Evaluation and comparison of expressions.

use std::collections::BTreeSet;

use super::expr::{Expr, Factor};
use super::lex::Function;
use super::number::{Complex, Number, Rational};

/// Number of points at which expressions with unknowns are compared. By Schwartz (1980) and Zippel (1979) two
/// different polynomials agree at all of them with negligible probability.
const POINTS: u64 = 7;

/// Largest `n` whose `n!` fits into a float.
const MAX_FACTORIAL: i128 = 170;

/// Maximum number of cells of a matrix: more than in any answer, and still quick.
const MAX_CELLS: usize = 400;

/// A number or a matrix of them.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Number(Number),
    Matrix { columns: usize, cells: Vec<Number> },
}

impl Value {
    fn number(self) -> Option<Number> {
        match self {
            Self::Number(number) => Some(number),
            Self::Matrix { .. } => None,
        }
    }

    fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => a.equals(*b),
            (Self::Matrix { columns: a, cells: left }, Self::Matrix { columns: b, cells: right }) => {
                a == b && left.len() == right.len() && left.iter().zip(right).all(|(a, b)| a.equals(*b))
            }
            _ => false,
        }
    }

    fn add(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => a.add(b).map(Self::Number),
            (Self::Matrix { columns, cells }, Self::Matrix { columns: other, cells: right }) => {
                let fits = columns == other && cells.len() == right.len();
                let cells = cells.iter().zip(right).map(|(a, b)| a.add(b)).collect::<Option<_>>()?;
                fits.then_some(Self::Matrix { columns, cells })
            }
            _ => None,
        }
    }

    fn mul(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => a.mul(b).map(Self::Number),
            (Self::Number(scale), Self::Matrix { columns, cells })
            | (Self::Matrix { columns, cells }, Self::Number(scale)) => {
                let cells = cells.into_iter().map(|cell| cell.mul(scale)).collect::<Option<_>>()?;
                Some(Self::Matrix { columns, cells })
            }
            (Self::Matrix { columns: inner, cells: left }, Self::Matrix { columns, cells: right }) => {
                if right.len() != inner * columns {
                    return None;
                }
                let cell = |row: &[Number], column: usize| {
                    let mut products = row.iter().zip(right.iter().skip(column).step_by(columns));
                    products.try_fold(Number::integer(0), |sum, (a, b)| sum.add(a.mul(*b)?))
                };
                let mut cells = Vec::new();
                for row in left.chunks(inner) {
                    for column in 0..columns {
                        cells.push(cell(row, column)?);
                    }
                }
                Some(Self::Matrix { columns, cells })
            }
        }
    }
}

/// Values of the unknowns, and the meaning of `%`.
struct Context {
    point: u64,
    /// If true, `28%` is 0.28, else 28.
    percent_is_hundredth: bool,
}

impl Context {
    fn eval(&self, expr: &Expr) -> Option<Value> {
        let number = |expr: &Expr| self.eval(expr)?.number();
        Some(Value::Number(match expr {
            Expr::Number(value) => *value,
            Expr::Name(name) => unknown(name, self.point),
            Expr::Pi => Number::Float(Complex::real(std::f64::consts::PI)),
            Expr::E => Number::Float(Complex::real(std::f64::consts::E)),
            Expr::I => Number::Float(Complex { re: 0.0, im: 1.0 }),
            Expr::Infinity => return None,
            Expr::Sum(terms) => {
                let mut values = terms.iter().map(|term| self.eval(term));
                let first = values.next()??;
                return values.try_fold(first, |sum, value| sum.add(value?));
            }
            Expr::Product(factors) => return self.product(factors),
            Expr::Negative(inner) => return self.eval(inner)?.mul(Value::Number(Number::integer(-1))),
            Expr::Power(base, exponent) => {
                let base = self.eval(base)?;
                let exponent = number(exponent)?;
                match base {
                    Value::Number(base) => base.pow(exponent)?,
                    matrix @ Value::Matrix { .. } => return matrix_power(&matrix, exponent),
                }
            }
            Expr::Root(degree, inner) => number(inner)?.root(number(degree)?)?,
            Expr::Apply(function, inner) => apply(*function, number(inner)?)?,
            Expr::Logarithm(base, inner) => {
                let (base, inner) = (number(base)?.map(Complex::ln)?, number(inner)?.map(Complex::ln)?);
                inner.div(base)?
            }
            Expr::Percent(inner) => {
                let share = if self.percent_is_hundredth { 100 } else { 1 };
                number(inner)?.div(Number::integer(share))?
            }
            Expr::Factorial(inner) => factorial(number(inner)?.whole()?)?,
            Expr::Absolute(inner) => absolute(number(inner)?)?,
            Expr::Floor(inner) => rounded(number(inner)?, f64::floor)?,
            Expr::Ceiling(inner) => rounded(number(inner)?, f64::ceil)?,
            Expr::Binomial(n, k) => binomial(number(n)?.whole()?, number(k)?.whole()?)?,
            Expr::Matrix(rows) => {
                let cells: Vec<_> = rows.iter().flatten().map(number).collect::<Option<_>>()?;
                return (cells.len() <= MAX_CELLS)
                    .then(|| Value::Matrix { columns: rows.first().map_or(0, Vec::len), cells });
            }
        }))
    }

    fn product(&self, factors: &[Factor]) -> Option<Value> {
        let mut product = Value::Number(Number::integer(1));
        for factor in factors {
            let value = self.eval(&factor.expr)?;
            product = if factor.divides {
                product.mul(Value::Number(Number::integer(1).div(value.number()?)?))?
            } else {
                product.mul(value)?
            };
        }
        Some(product)
    }
}

/// Returns the value of an unknown: the same at each occurrence, another one for each name and point. Values
/// at later points may be negative, which distinguishes `|x|` from `x`.
fn unknown(name: &str, point: u64) -> Number {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ point.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in name.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^= hash >> 29;
    hash = hash.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let size = i128::from(17 + (hash >> 40) % 60);
    let numerator = if point > POINTS / 2 && hash & 1 == 1 { -size } else { size };
    Rational::new(numerator, 23)
        .map_or(Number::integer(numerator), |value| Number::Exact { value, decimal: false })
}

fn apply(function: Function, argument: Number) -> Option<Number> {
    // No answer has trigonometric functions of complex arguments.
    let real = |f: fn(f64) -> f64| Number::float(Complex::real(f(argument.real()?)));
    match function {
        Function::Sin => real(f64::sin),
        Function::Cos => real(f64::cos),
        Function::Tan => real(f64::tan),
        Function::Sec => real(|x| x.cos().recip()),
        Function::Csc => real(|x| x.sin().recip()),
        Function::Cot => real(|x| x.tan().recip()),
        Function::Arcsin => real(f64::asin),
        Function::Arccos => real(f64::acos),
        Function::Arctan => real(f64::atan),
        Function::Sinh => real(f64::sinh),
        Function::Cosh => real(f64::cosh),
        Function::Tanh => real(f64::tanh),
        Function::Ln => argument.map(Complex::ln),
        Function::Log => {
            argument.map(Complex::ln)?.div(Number::float(Complex::real(std::f64::consts::LN_10))?)
        }
        Function::Exp => argument.map(Complex::exp),
    }
}

fn absolute(value: Number) -> Option<Number> {
    match value {
        Number::Exact { value: exact, .. } if exact.float() < 0.0 => value.neg(),
        Number::Exact { .. } => Some(value),
        Number::Float(complex) => Number::float(Complex::real(complex.modulus())),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "only if the float is exact")]
fn rounded(value: Number, round: fn(f64) -> f64) -> Option<Number> {
    let whole = round(value.real()?);
    (whole.abs() < 9e15).then(|| Number::integer(whole as i128))
}

fn factorial(n: i128) -> Option<Number> {
    if !(0..=MAX_FACTORIAL).contains(&n) {
        return None;
    }
    (2..=n).try_fold(Number::integer(1), |product, k| product.mul(Number::integer(k)))
}

fn binomial(n: i128, k: i128) -> Option<Number> {
    if !(0..=1000).contains(&n) || !(0..=n).contains(&k) {
        return None;
    }
    let steps = 0..k.min(n - k);
    steps.into_iter().try_fold(Number::integer(1), |product, i| {
        product.mul(Number::integer(n - i))?.div(Number::integer(i + 1))
    })
}

fn matrix_power(matrix: &Value, exponent: Number) -> Option<Value> {
    let times = exponent.whole().filter(|times| (1..=16).contains(times))?;
    (1..times).try_fold(matrix.clone(), |product, _| product.mul(matrix.clone()))
}

fn names<'e>(expr: &'e Expr, names: &mut BTreeSet<&'e str>) {
    expr.walk(&mut |part| {
        if let Expr::Name(name) = part {
            names.insert(name);
        }
    });
}

/// Returns true if the expression has no unknowns.
pub fn is_constant(expr: &Expr) -> bool {
    let mut found = BTreeSet::new();
    names(expr, &mut found);
    found.is_empty()
}

fn has_percent(expr: &Expr) -> bool {
    let mut found = false;
    expr.walk(&mut |part| found |= matches!(part, Expr::Percent(_)));
    found
}

/// Returns the real value of an expression without unknowns, which may be infinite.
pub fn real(expr: &Expr) -> Option<f64> {
    match expr {
        Expr::Infinity => Some(f64::INFINITY),
        Expr::Negative(inner) => real(inner).map(|value| -value),
        _ if is_constant(expr) => {
            Context { point: 0, percent_is_hundredth: false }.eval(expr)?.number()?.real()
        }
        _ => None,
    }
}

/// Returns true if two expressions have the same value for all unknowns. `28%` equals both 28 and 0.28.
pub fn equal(a: &Expr, b: &Expr) -> bool {
    if a == b {
        return true;
    }
    let meanings: &[bool] = if has_percent(a) || has_percent(b) { &[false, true] } else { &[false] };
    meanings.iter().any(|&percent_is_hundredth| {
        if is_constant(a) && is_constant(b) {
            let context = Context { point: 0, percent_is_hundredth };
            return matches!((context.eval(a), context.eval(b)), (Some(a), Some(b)) if a.equals(&b));
        }
        let values_at = |point| {
            let context = Context { point, percent_is_hundredth };
            (context.eval(a), context.eval(b))
        };
        agree((0..POINTS).map(values_at), Value::equals)
    })
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
            let context = Context { point, percent_is_hundredth: false };
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
