//! Intervals of proportions.

/// 97.5 % quantile of the normal distribution: both sides of a 95 % interval.
const Z: f64 = 1.959_963_984_540_054;

/// Difference of two shares or means with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    pub value: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

/// Successes among independent tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proportion {
    pub successes: u64,
    pub count: u64,
}

impl Proportion {
    /// Successes and tries of several proportions together. `None` without a try.
    pub fn pooled(all: impl IntoIterator<Item = Proportion>) -> Option<Proportion> {
        let zero = Proportion { successes: 0, count: 0 };
        let sum = all.into_iter().fold(zero, |sum, own| Proportion {
            successes: sum.successes + own.successes,
            count: sum.count + own.count,
        });
        (sum.count > 0).then_some(sum)
    }

    /// Share of successes.
    pub fn share(self) -> f64 {
        self.successes as f64 / self.count as f64
    }

    /// 95 % score interval of the share (Wilson 1927).
    fn interval(self) -> (f64, f64) {
        let (n, p) = (self.count as f64, self.share());
        let centre = p + Z * Z / (2.0 * n);
        let margin = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
        let divisor = 1.0 + Z * Z / n;
        ((centre - margin) / divisor, (centre + margin) / divisor)
    }
}

/// Difference of two shares of independent tries (Newcombe 1998, method 10, from the score intervals of both).
pub fn difference(own: Proportion, control: Proportion) -> Difference {
    let (p, q) = (own.share(), control.share());
    let ((p_low, p_high), (q_low, q_high)) = (own.interval(), control.interval());
    let value = p - q;
    Difference {
        value,
        low: value - (p - p_low).hypot(q_high - q),
        high: value + (p_high - p).hypot(q - q_low),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first example of Newcombe's table II: 56 of 70 and 48 of 80.
    #[test]
    fn the_published_example() {
        let own = Proportion { successes: 56, count: 70 };
        let control = Proportion { successes: 48, count: 80 };
        let Difference { value, low, high } = difference(own, control);
        assert!((value - 0.2).abs() < 1e-12);
        assert!((low - 0.0524).abs() < 1e-4 && (high - 0.3339).abs() < 1e-4, "{low} {high}");
    }
}
