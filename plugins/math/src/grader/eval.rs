//! Evaluation of expressions.

use std::collections::BTreeSet;

use super::expr::{Expr, Factor};
use super::number::{Complex, Number, Rational};
use super::token::{Aggregate, Function};

/// Number of points at which expressions with unknowns are compared. By Schwartz (1980) and Zippel (1979) two
/// different polynomials agree at all of them with negligible probability.
pub const POINTS: u64 = 7;

/// Number of points at which expressions are compared that have steps or corners, such as `\lfloor x/9 \rfloor`: two
/// different ones agree at many points.
pub const STEP_POINTS: u64 = 128;

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
    pub fn number(self) -> Option<Number> {
        match self {
            Self::Number(number) => Some(number),
            Self::Matrix { .. } => None,
        }
    }

    pub fn equals(&self, other: &Self) -> bool {
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

/// Values of the unknowns.
#[derive(Clone, Copy)]
pub struct Context {
    pub point: u64,
}

impl Context {
    /// Returns the value of an expression. Returns `None` if it has none.
    pub fn eval(&self, expr: &Expr) -> Option<Value> {
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
            Expr::Power(base, exponent) => match (self.eval(base)?, &**exponent) {
                (Value::Matrix { columns, cells }, Expr::Name(name)) if ["t", r"\top"].contains(&&**name) => {
                    return Some(transposed(columns, &cells));
                }
                (Value::Number(base), exponent) => base.pow(number(exponent)?)?,
                (matrix, exponent) => return matrix_power(&matrix, number(exponent)?),
            },
            Expr::Root(degree, inner) => number(inner)?.root(number(degree)?)?,
            Expr::Apply(function, inner) => apply(*function, number(inner)?)?,
            Expr::Logarithm(base, inner) => {
                let (base, inner) = (number(base)?.map(Complex::ln)?, number(inner)?.map(Complex::ln)?);
                inner.div(base)?
            }
            Expr::Percent(inner) => number(inner)?.div(Number::integer(100))?,
            Expr::InBase(inner, _) => number(inner)?,
            Expr::Determinant(rows) => {
                let rows: Vec<Vec<_>> =
                    rows.iter().map(|row| row.iter().map(number).collect()).collect::<Option<_>>()?;
                determinant(rows)?
            }
            Expr::Factorial(inner) => factorial(number(inner)?)?,
            Expr::Absolute(inner) => absolute(number(inner)?)?,
            Expr::Floor(inner) => rounded(number(inner)?, f64::floor)?,
            Expr::Ceiling(inner) => rounded(number(inner)?, f64::ceil)?,
            Expr::Binomial(n, k) => binomial(number(n)?, number(k)?)?,
            Expr::Modulo(value, modulus) => remainder(number(value)?, number(modulus)?)?,
            Expr::Aggregate(aggregate, items) => {
                let mut values = items.iter().map(number);
                let first = values.next()??;
                values.try_fold(first, |result, value| combined(*aggregate, result, value?))?
            }
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
/// at later points may be negative, which distinguishes `|x|` from `x`. Those of points for steps are larger.
fn unknown(name: &str, point: u64) -> Number {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ point.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in name.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^= hash >> 29;
    hash = hash.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let range = 60 * point.saturating_sub(POINTS - 1).max(1);
    let size = i128::from(17 + (hash >> 40) % range);
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

/// Returns the remainder of a division, with the sign of the modulus.
fn remainder(value: Number, modulus: Number) -> Option<Number> {
    let quotient = rounded(value.div(modulus)?, f64::floor)?;
    value.add(quotient.mul(modulus)?.neg()?)
}

fn combined(aggregate: Aggregate, a: Number, b: Number) -> Option<Number> {
    let a_is_larger = || Some(a.real()? > b.real()?);
    match aggregate {
        Aggregate::Maximum => Some(if a_is_larger()? { a } else { b }),
        Aggregate::Minimum => Some(if a_is_larger()? { b } else { a }),
        Aggregate::GreatestCommonDivisor => gcd(a, b),
        Aggregate::LeastCommonMultiple => a.mul(b)?.div(gcd(a, b)?).and_then(absolute),
    }
}

/// Returns the greatest common divisor of two whole numbers.
fn gcd(a: Number, b: Number) -> Option<Number> {
    let (mut a, mut b) = (a.whole()?, b.whole()?);
    while b != 0 {
        (a, b) = (b, a.checked_rem(b)?);
    }
    a.checked_abs().map(Number::integer)
}

/// Returns `n!`, which is `Γ(n + 1)` for the fractions that unknowns stand for.
fn factorial(n: Number) -> Option<Number> {
    match n.whole() {
        Some(n) if !(0..=MAX_FACTORIAL).contains(&n) => None,
        Some(n) => (2..=n).try_fold(Number::integer(1), |product, k| product.mul(Number::integer(k))),
        None => Number::float(Complex::real(gamma(n.real()? + 1.0))),
    }
}

fn binomial(n: Number, k: Number) -> Option<Number> {
    let (Some(n), Some(k)) = (n.whole(), k.whole()) else {
        let below = factorial(k)?.mul(factorial(n.add(k.neg()?)?)?)?;
        return factorial(n)?.div(below);
    };
    if !(0..=1000).contains(&n) || !(0..=n).contains(&k) {
        return None;
    }
    let steps = 0..k.min(n - k);
    steps.into_iter().try_fold(Number::integer(1), |product, i| {
        product.mul(Number::integer(n - i))?.div(Number::integer(i + 1))
    })
}

/// Returns the gamma function by Lanczos's approximation (g = 7, nine terms), which has 15 digits.
fn gamma(x: f64) -> f64 {
    const TERMS: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    use std::f64::consts::PI;
    if x < 0.5 {
        // Euler's reflection formula.
        return PI / ((PI * x).sin() * gamma(1.0 - x));
    }
    let x = x - 1.0;
    let mut sum = 0.999_999_999_999_809_9;
    let mut place = 0.0;
    for term in TERMS {
        place += 1.0;
        sum += term / (x + place);
    }
    let t = x + 7.5;
    (2.0 * PI).sqrt() * t.powf(x + 0.5) * (-t).exp() * sum
}

/// Returns the determinant by Gaussian elimination. Returns `None` if the matrix is not square.
fn determinant(mut rows: Vec<Vec<Number>>) -> Option<Number> {
    let size = rows.len();
    if size * size > MAX_CELLS || rows.iter().any(|row| row.len() != size) {
        return None;
    }
    let mut product = Number::integer(1);
    for column in 0..size {
        let is_pivot = |row: &Vec<Number>| row[column].complex().modulus() > 1e-12;
        let Some(pivot) = rows.iter().skip(column).position(is_pivot) else {
            return Some(Number::integer(0));
        };
        if pivot > 0 {
            rows.swap(column, column + pivot);
            product = product.neg()?;
        }
        let (above, below) = rows.split_at_mut(column + 1);
        let pivot_row = above.last()?;
        product = product.mul(pivot_row[column])?;
        for row in below {
            let factor = row[column].div(pivot_row[column])?.neg()?;
            for (cell, pivot) in row.iter_mut().zip(pivot_row) {
                *cell = cell.add(factor.mul(*pivot)?)?;
            }
        }
    }
    Some(product)
}

fn transposed(columns: usize, cells: &[Number]) -> Value {
    let column = |column| cells.iter().skip(column).step_by(columns.max(1)).copied();
    Value::Matrix { columns: cells.len() / columns.max(1), cells: (0..columns).flat_map(column).collect() }
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

/// Returns true if the expression has functions with steps or corners.
pub fn has_steps(expr: &Expr) -> bool {
    let mut found = false;
    expr.walk(&mut |part| {
        found |= matches!(part, Expr::Floor(_) | Expr::Ceiling(_) | Expr::Modulo(..) | Expr::Aggregate(..));
    });
    found
}

/// Returns `a` and `b` of an expression whose value is `a x + b` for its only unknown `x`.
pub fn affine(expr: &Expr) -> Option<(f64, f64)> {
    let mut found = BTreeSet::new();
    names(expr, &mut found);
    let [name] = *Vec::from_iter(found) else { return None };
    let value_at = |point| Context { point }.eval(expr)?.number();
    let (x, y) = (unknown(name, 0), value_at(0)?);
    let slope = value_at(1)?.add(y.neg()?)?.div(unknown(name, 1).add(x.neg()?)?)?;
    let intercept = y.add(slope.mul(x)?.neg()?)?;
    let is_on_line = |point| {
        let expected = slope.mul(unknown(name, point))?.add(intercept)?;
        Some(value_at(point)?.equals(expected))
    };
    (0..POINTS).all(|point| is_on_line(point) == Some(true)).then_some(())?;
    Some((slope.real()?, intercept.real()?))
}

/// Returns the real value of an expression without unknowns, which may be infinite.
pub fn real(expr: &Expr) -> Option<f64> {
    match expr {
        Expr::Infinity => Some(f64::INFINITY),
        Expr::Negative(inner) => real(inner).map(|value| -value),
        _ => constant(expr)?.real(),
    }
}

/// Returns the value of an expression without unknowns.
pub fn constant(expr: &Expr) -> Option<Number> {
    if is_constant(expr) { Context { point: 0 }.eval(expr)?.number() } else { None }
}
