//! Numbers: exact rationals as long as they fit into 128 bits, complex floating point otherwise.

/// A reduced fraction with a positive denominator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rational {
    numerator: i128,
    denominator: i128,
}

impl Rational {
    /// Returns the reduced fraction. Returns `None` if the denominator is zero or the fraction does not fit
    /// into 128 bits.
    pub fn new(numerator: i128, denominator: i128) -> Option<Self> {
        if denominator == 0 || numerator == i128::MIN || denominator == i128::MIN {
            return None;
        }
        let common = gcd(numerator.unsigned_abs(), denominator.unsigned_abs());
        let common = i128::try_from(common).ok()? * denominator.signum();
        Some(Self { numerator: numerator / common, denominator: denominator / common })
    }

    /// Returns a whole number.
    pub const fn integer(value: i128) -> Self {
        Self { numerator: value, denominator: 1 }
    }

    /// Parses `12`, `.5` or `12.50`. Returns `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        if whole.is_empty() && part.is_empty() {
            return None;
        }
        // Zeros at the end are redundant and would use up bits.
        let part = part.trim_end_matches('0');
        let mut numerator: i128 = 0;
        for digit in whole.chars().chain(part.chars()) {
            let digit = i128::from(digit.to_digit(10)?);
            numerator = numerator.checked_mul(10)?.checked_add(digit)?;
        }
        Self::new(numerator, 10_i128.checked_pow(u32::try_from(part.len()).ok()?)?)
    }

    /// Returns the product with a power of ten. Returns `None` if it does not fit into 128 bits.
    pub fn scaled(self, power: i32) -> Option<Self> {
        self.mul(Self::integer(10).pow(i128::from(power))?)
    }

    fn add(self, other: Self) -> Option<Self> {
        let left = self.numerator.checked_mul(other.denominator)?;
        let right = other.numerator.checked_mul(self.denominator)?;
        Self::new(left.checked_add(right)?, self.denominator.checked_mul(other.denominator)?)
    }

    fn mul(self, other: Self) -> Option<Self> {
        let numerator = self.numerator.checked_mul(other.numerator)?;
        Self::new(numerator, self.denominator.checked_mul(other.denominator)?)
    }

    fn inverse(self) -> Option<Self> {
        Self::new(self.denominator, self.numerator)
    }

    /// Returns the value if it is whole.
    pub fn whole(self) -> Option<i128> {
        (self.denominator == 1).then_some(self.numerator)
    }

    /// Returns the numerator and the positive denominator.
    pub fn parts(self) -> (i128, i128) {
        (self.numerator, self.denominator)
    }

    /// Returns the nearest float.
    #[expect(clippy::cast_precision_loss, reason = "a float is not exact")]
    pub fn float(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }

    fn pow(self, exponent: i128) -> Option<Self> {
        let base = if exponent < 0 { self.inverse()? } else { self };
        let exponent = u32::try_from(exponent.unsigned_abs()).ok()?;
        Self::new(base.numerator.checked_pow(exponent)?, base.denominator.checked_pow(exponent)?)
    }

    /// Returns the root if it is rational.
    fn root(self, degree: u32) -> Option<Self> {
        let negative = self.numerator < 0;
        if degree == 0 || (negative && degree.is_multiple_of(2)) {
            return None;
        }
        let numerator = integer_root(self.numerator.unsigned_abs(), degree)?;
        let numerator = i128::try_from(numerator).ok()?;
        let denominator = i128::try_from(integer_root(self.denominator.unsigned_abs(), degree)?).ok()?;
        Self::new(if negative { -numerator } else { numerator }, denominator)
    }
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

/// Returns the root if it is whole.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "only a first estimate"
)]
fn integer_root(value: u128, degree: u32) -> Option<u128> {
    let guess = (value as f64).powf(1.0 / f64::from(degree)).round() as u128;
    // The error of the float is below one if the root has less than 53 bits.
    (guess.saturating_sub(1)..=guess.saturating_add(1)).find(|root| root.checked_pow(degree) == Some(value))
}

/// A complex number in floating point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Complex {
    /// Real part.
    pub re: f64,
    /// Imaginary part.
    pub im: f64,
}

impl Complex {
    /// Returns a real number.
    pub const fn real(re: f64) -> Self {
        Self { re, im: 0.0 }
    }

    /// Returns the distance from zero.
    pub fn modulus(self) -> f64 {
        self.re.hypot(self.im)
    }

    fn add(self, other: Self) -> Self {
        Self { re: self.re + other.re, im: self.im + other.im }
    }

    fn mul(self, other: Self) -> Self {
        Self { re: self.re * other.re - self.im * other.im, im: self.re * other.im + self.im * other.re }
    }

    fn inverse(self) -> Self {
        let square = self.re * self.re + self.im * self.im;
        Self { re: self.re / square, im: -self.im / square }
    }

    /// Returns the principal logarithm.
    pub fn ln(self) -> Self {
        Self { re: self.modulus().ln(), im: self.im.atan2(self.re) }
    }

    /// Returns e to the power of this.
    pub fn exp(self) -> Self {
        let size = self.re.exp();
        if self.im == 0.0 {
            return Self::real(size);
        }
        Self { re: size * self.im.cos(), im: size * self.im.sin() }
    }

    fn pow(self, exponent: Self) -> Self {
        if self.modulus() == 0.0 {
            return Self::real(if exponent.re > 0.0 { 0.0 } else { f64::NAN });
        }
        if self.im == 0.0 && exponent.im == 0.0 && (self.re > 0.0 || exponent.re.fract() == 0.0) {
            return Self::real(self.re.powf(exponent.re));
        }
        self.ln().mul(exponent).exp()
    }

    fn is_finite(self) -> bool {
        self.re.is_finite() && self.im.is_finite()
    }
}

/// The value of an expression without unknowns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// A rational. `decimal` is true if it was written with decimals, so it may be rounded.
    Exact { value: Rational, decimal: bool },
    /// Any other number. Always finite.
    Float(Complex),
}

impl Number {
    /// Returns a whole number.
    pub const fn integer(value: i128) -> Self {
        Self::Exact { value: Rational::integer(value), decimal: false }
    }

    /// Returns the float. Returns `None` if it is infinite or NaN.
    pub fn float(value: Complex) -> Option<Self> {
        value.is_finite().then_some(Self::Float(value))
    }

    /// Converts the number to a complex one.
    pub fn complex(self) -> Complex {
        match self {
            Self::Exact { value, .. } => Complex::real(value.float()),
            Self::Float(value) => value,
        }
    }

    /// Returns the number if it is real.
    pub fn real(self) -> Option<f64> {
        let value = self.complex();
        (value.im.abs() <= 1e-9 * value.re.abs().max(1.0)).then_some(value.re)
    }

    /// Returns the value if it is an exact whole number.
    pub fn whole(self) -> Option<i128> {
        match self {
            Self::Exact { value, .. } => value.whole(),
            Self::Float(_) => None,
        }
    }

    fn combine(
        self,
        other: Self,
        exact: impl Fn(Rational, Rational) -> Option<Rational>,
        float: impl Fn(Complex, Complex) -> Complex,
    ) -> Option<Self> {
        if let (Self::Exact { value: a, decimal: rounded_a }, Self::Exact { value: b, decimal: rounded_b }) =
            (self, other)
            && let Some(value) = exact(a, b)
        {
            return Some(Self::Exact { value, decimal: rounded_a || rounded_b });
        }
        Self::float(float(self.complex(), other.complex()))
    }

    /// Sum.
    pub fn add(self, other: Self) -> Option<Self> {
        self.combine(other, Rational::add, Complex::add)
    }

    /// Product.
    pub fn mul(self, other: Self) -> Option<Self> {
        self.combine(other, Rational::mul, Complex::mul)
    }

    /// Quotient. Returns `None` for a division by zero.
    pub fn div(self, other: Self) -> Option<Self> {
        self.combine(other, |a, b| a.mul(b.inverse()?), |a, b| a.mul(b.inverse()))
    }

    /// Negative.
    pub fn neg(self) -> Option<Self> {
        self.mul(Self::integer(-1))
    }

    /// Power: exact for whole exponents and for rational roots.
    pub fn pow(self, exponent: Self) -> Option<Self> {
        let exact = |base: Rational, exponent: Rational| {
            let root = u32::try_from(exponent.denominator).ok().filter(|degree| *degree <= 64)?;
            // The principal root of a negative number is not real.
            if root > 1 && base.numerator < 0 {
                return None;
            }
            (if root == 1 { base } else { base.root(root)? }).pow(exponent.numerator)
        };
        self.combine(exponent, exact, Complex::pow)
    }

    /// Root. As taught in school, the root of odd degree of a negative number is real.
    pub fn root(self, degree: Self) -> Option<Self> {
        if let (Self::Exact { value, decimal }, Some(degree)) = (self, degree.whole())
            && let Ok(degree) = u32::try_from(degree)
        {
            if let Some(value) = value.root(degree) {
                return Some(Self::Exact { value, decimal });
            }
            if value.float() < 0.0 && !degree.is_multiple_of(2) {
                return Self::float(Complex::real(-(-value.float()).powf(1.0 / f64::from(degree))));
            }
        }
        self.pow(Self::integer(1).div(degree)?)
    }

    /// Applies a function on floats.
    pub fn map(self, function: impl Fn(Complex) -> Complex) -> Option<Self> {
        Self::float(function(self.complex()))
    }

    /// Returns true if two numbers are the same: exact ones are equal, others agree to the precision of floats.
    pub fn equals(self, other: Self) -> bool {
        match (self, other) {
            (Self::Exact { value: a, decimal: false }, Self::Exact { value: b, decimal: false }) => a == b,
            (Self::Exact { value: a, .. }, Self::Exact { value: b, .. }) => {
                // Floats hide the decimals of large numbers.
                let difference = b.mul(Rational::integer(-1)).and_then(|minus| a.add(minus));
                let distance = difference.map_or_else(|| self.distance(other), |exact| exact.float().abs());
                distance <= (1e-12 * self.size(other)).min(1e-9)
            }
            _ => self.distance(other) <= (1e-9 * self.size(other)).max(1e-12),
        }
    }

    /// Returns true if two numbers, one of which is written with decimals, are the same after both were rounded to
    /// six decimals. Numbers that are too small for this must agree to a thousandth.
    pub fn equals_rounded(self, other: Self) -> bool {
        let round = |x: f64| (x * 1e6).round();
        let (a, b) = (self.complex(), other.complex());
        let size = self.size(other);
        let same = size < 1e9 && round(a.re) == round(b.re) && round(a.im) == round(b.im);
        self.equals(other) || (same && self.distance(other) <= 1e-3 * size)
    }

    fn distance(self, other: Self) -> f64 {
        let (a, b) = (self.complex(), other.complex());
        Complex { re: a.re - b.re, im: a.im - b.im }.modulus()
    }

    fn size(self, other: Self) -> f64 {
        self.complex().modulus().max(other.complex().modulus())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Number {
        Number::Exact { value: Rational::parse(text).unwrap(), decimal: text.contains('.') }
    }

    #[test]
    fn fractions_are_exact() {
        let third = number("1").div(number("3")).unwrap();
        let sum = third.add(third).and_then(|sum| sum.add(third)).unwrap();
        assert_eq!(sum, Number::integer(1));
        assert_eq!(number("0.1").add(number("0.2")).unwrap(), number("0.3"));
        assert_eq!(number("4").pow(number("0.5")).unwrap().whole(), Some(2));
        assert_eq!(Number::integer(-8).root(Number::integer(3)).unwrap().whole(), Some(-2));
        assert!(Number::integer(1).div(Number::integer(0)).is_none());
    }

    #[test]
    fn large_numbers_become_floats_and_infinite_ones_none() {
        let huge = Number::integer(10).pow(Number::integer(100)).unwrap();
        assert!(matches!(huge, Number::Float(_)));
        assert!(huge.pow(Number::integer(100)).is_none());
        assert_eq!(Rational::parse("1".repeat(50).as_str()), None);
    }

    #[test]
    fn decimals_of_large_numbers_count() {
        for (a, b) in [
            ("1000000000000.5", "1000000000000"),
            ("1000000000000.25", "1000000000000.5"),
            ("123456789.123456", "123456789.123457"),
            ("10000000000000000.5", "10000000000000000"),
        ] {
            assert!(!number(a).equals_rounded(number(b)), "{a} {b}");
        }
        assert!(number("1000000000000.50").equals_rounded(number("1000000000000.5")));
    }

    #[test]
    fn decimals_are_compared_after_rounding() {
        let third = number("1").div(number("3")).unwrap();
        assert!(number("0.333333").equals_rounded(third));
        assert!(!number("0.333333").equals(third));
        assert!(!number("0.333").equals_rounded(third));
        assert!(!number("5866608").equals(number("5866609")));
        assert!(!number("16386.16").equals_rounded(number("16386.17")));
        assert!(!number("0.0000001").equals_rounded(number("0.0000002")));
        let root = number("2").pow(number("0.5")).unwrap();
        assert!(number("1.4142136").equals_rounded(root));
        assert!(!number("1.4142").equals_rounded(root));
        assert!(!number("1.4142136").equals(root));
    }
}
