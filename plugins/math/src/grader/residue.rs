//! Exact comparison of numbers that are too large for 128 bits, such as `2^{2021}` or `100!`: by their residues modulo
//! two primes. Two different numbers of a size that an answer can write have equal residues with a probability
//! of about 10⁻³⁶ (Freivalds 1977).

use super::eval::constant;
use super::expr::{Expr, Factor};
use super::number::{Number, Rational};

/// 2⁶¹ - 1 and the largest prime below it.
const PRIMES: [u128; 2] = [2_305_843_009_213_693_951, 2_305_843_009_213_693_921];

/// Maximum number of factors of all factorials of an expression, which are multiplied one by one.
const MAX_FACTORS: u128 = 5000;

/// Returns true if both expressions have exact values that are equal, false if the values differ, and `None` if an
/// expression has no exact value: it has unknowns, roots, functions or decimals.
pub fn equal(a: &Expr, b: &Expr) -> Option<bool> {
    for prime in PRIMES {
        if (Field { prime, factors: 0 }).value(a)? != (Field { prime, factors: 0 }).value(b)? {
            return Some(false);
        }
    }
    Some(true)
}

/// Arithmetic modulo a prime.
struct Field {
    prime: u128,
    /// Number of factors that were multiplied for factorials.
    factors: u128,
}

impl Field {
    fn value(&mut self, expr: &Expr) -> Option<u128> {
        match expr {
            Expr::Number(Number::Exact { value, decimal: false }) => {
                let (numerator, denominator) = value.parts();
                self.quotient(self.reduced(numerator), self.reduced(denominator))
            }
            Expr::Sum(terms) => {
                terms.iter().try_fold(0, |sum, term| Some((sum + self.value(term)?) % self.prime))
            }
            Expr::Product(factors) => factors.iter().try_fold(1, |product, Factor { divides, expr }| {
                let factor = self.value(expr)?;
                if *divides { self.quotient(product, factor) } else { Some(product * factor % self.prime) }
            }),
            Expr::Negative(inner) => Some((self.prime - self.value(inner)?) % self.prime),
            Expr::InBase(inner, _) => self.value(inner),
            Expr::Power(base, exponent) => {
                let exponent = whole(exponent)?;
                let base = self.value(base)?;
                let power = self.power(base, exponent.unsigned_abs());
                if exponent < 0 { self.quotient(1, power) } else { Some(power) }
            }
            Expr::Factorial(inner) => self.factorial(whole(inner)?),
            Expr::Binomial(n, k) => {
                let (n, k) = (whole(n)?, whole(k)?);
                let below = self.factorial(k)? * self.factorial(n.checked_sub(k)?)? % self.prime;
                let above = self.factorial(n)?;
                self.quotient(above, below)
            }
            _ => None,
        }
    }

    fn reduced(&self, value: i128) -> u128 {
        let residue = value.unsigned_abs() % self.prime;
        if value < 0 { (self.prime - residue) % self.prime } else { residue }
    }

    /// Returns `a / b`. Returns `None` for a division by zero.
    fn quotient(&self, a: u128, b: u128) -> Option<u128> {
        // By Fermat's little theorem, b^(p - 2) is the inverse of b.
        match b {
            0 => None,
            1 => Some(a),
            b => Some(a * self.power(b, self.prime - 2) % self.prime),
        }
    }

    fn power(&self, mut base: u128, mut exponent: u128) -> u128 {
        let mut product = 1;
        while exponent > 0 {
            if exponent & 1 == 1 {
                product = product * base % self.prime;
            }
            base = base * base % self.prime;
            exponent >>= 1;
        }
        product
    }

    fn factorial(&mut self, n: i128) -> Option<u128> {
        let n = u128::try_from(n).ok()?;
        self.factors = self.factors.checked_add(n).filter(|factors| *factors <= MAX_FACTORS)?;
        Some((2..=n).fold(1, |product, factor| product * factor % self.prime))
    }
}

/// Returns the value of an exponent or of the argument of a factorial, which must fit into 128 bits.
fn whole(expr: &Expr) -> Option<i128> {
    exact(expr)?.whole()
}

fn exact(expr: &Expr) -> Option<Rational> {
    match constant(expr)? {
        Number::Exact { value, decimal: false } => Some(value),
        Number::Exact { .. } | Number::Float(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::grade;

    #[test]
    fn huge_numbers_are_compared_exactly() {
        for (a, b) in [
            ("2^{2021}", r"2^{2020} \cdot 2"),
            ("3^{2020}-1", "9^{1010}-1"),
            (r"\frac{2018!}{2}", r"\frac{1}{2} \cdot 2018!"),
            (r"\binom{1000}{500}", r"\frac{1000!}{500!500!}"),
            ("2^{-3000}", r"\frac{1}{4^{1500}}"),
        ] {
            assert!(grade(a, b), "{a} should equal {b}");
        }
        for (a, b) in [
            ("2^{2021}", "2^{2022}"),
            ("2^{200}+1", "2^{200}+2"),
            ("100!", "100!+1"),
            ("2^{2021}", "2^{2021}x"),
        ] {
            assert!(!grade(a, b), "{a} should not equal {b}");
        }
    }
}
