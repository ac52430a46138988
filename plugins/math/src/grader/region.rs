//! Sets of real numbers: unions of intervals, as they are given by intervals, inequalities, finite sets, and
//! operations on all of them.

use super::answer::{Answer, SetOperation};
use super::eval;
use super::expr::Expr;
use super::token::{Bracket, Relation};

/// Tolerance at which two bounds are one, relative to their size.
const TOLERANCE: f64 = 1e-9;

/// Disjoint intervals in increasing order.
#[derive(Debug, Clone, PartialEq)]
pub struct Region(Vec<Interval>);

#[derive(Debug, Clone, Copy, PartialEq)]
struct Interval {
    low: f64,
    low_closed: bool,
    high: f64,
    high_closed: bool,
}

const REALS: Interval =
    Interval { low: f64::NEG_INFINITY, low_closed: false, high: f64::INFINITY, high_closed: false };

fn same(a: f64, b: f64) -> bool {
    if a.is_infinite() || b.is_infinite() {
        return a.total_cmp(&b).is_eq();
    }
    (a - b).abs() <= TOLERANCE * a.abs().max(b.abs()).max(1.0)
}

impl Interval {
    fn point(value: f64) -> Self {
        Self { low: value, low_closed: true, high: value, high_closed: true }
    }

    fn is_empty(&self) -> bool {
        if same(self.low, self.high) { !(self.low_closed && self.high_closed) } else { self.low > self.high }
    }
}

impl Region {
    /// Returns the union of intervals, which may overlap.
    fn new(intervals: impl IntoIterator<Item = Interval>) -> Self {
        let mut intervals: Vec<_> = intervals
            .into_iter()
            .map(|interval| Interval {
                low_closed: interval.low_closed && interval.low.is_finite(),
                high_closed: interval.high_closed && interval.high.is_finite(),
                ..interval
            })
            .filter(|interval| !interval.is_empty())
            .collect();
        intervals.sort_by(|a, b| a.low.total_cmp(&b.low).then_with(|| b.low_closed.cmp(&a.low_closed)));
        let mut merged: Vec<Interval> = Vec::new();
        for interval in intervals {
            match merged.last_mut() {
                Some(last) if touches(last, &interval) => {
                    last.low_closed |= interval.low_closed && same(last.low, interval.low);
                    if same(last.high, interval.high) {
                        last.high_closed |= interval.high_closed;
                    } else if interval.high > last.high {
                        (last.high, last.high_closed) = (interval.high, interval.high_closed);
                    }
                }
                _ => merged.push(interval),
            }
        }
        Self(merged)
    }

    fn complement(&self) -> Self {
        let mut rest = Vec::new();
        let (mut low, mut low_closed) = (f64::NEG_INFINITY, false);
        for interval in &self.0 {
            rest.push(Interval { low, low_closed, high: interval.low, high_closed: !interval.low_closed });
            (low, low_closed) = (interval.high, !interval.high_closed);
        }
        rest.push(Interval { low, low_closed, high: f64::INFINITY, high_closed: false });
        Self::new(rest)
    }

    fn union(self, other: Self) -> Self {
        Self::new(self.0.into_iter().chain(other.0))
    }

    fn intersection(&self, other: &Self) -> Self {
        self.complement().union(other.complement()).complement()
    }

    /// Returns true if both have the same numbers.
    pub fn equals(&self, other: &Self) -> bool {
        self.0.len() == other.0.len()
            && self.0.iter().zip(&other.0).all(|(a, b)| {
                same(a.low, b.low)
                    && same(a.high, b.high)
                    && a.low_closed == b.low_closed
                    && a.high_closed == b.high_closed
            })
    }

    /// Returns the numbers that an answer stands for, among them the solutions of an inequality. Returns `None`
    /// if it has other unknowns or is not a set of numbers.
    pub fn from_answer(answer: &Answer) -> Option<Self> {
        match answer {
            Answer::Reals => Some(Self::new([REALS])),
            Answer::Set(points) => {
                let points = points.iter().map(|point| match point {
                    Answer::Expr(value) => eval::real(value).map(Interval::point),
                    _ => None,
                });
                points.collect::<Option<Vec<_>>>().map(Self::new)
            }
            Answer::Group { open, close, items } => match &items[..] {
                [Answer::Expr(low), Answer::Expr(high)] => {
                    let (low, high) = (eval::real(low)?, eval::real(high)?);
                    let (low_closed, high_closed) = (*open == Bracket::Square, *close == Bracket::Square);
                    Some(Self::new([Interval { low, low_closed, high, high_closed }]))
                }
                _ => None,
            },
            Answer::Combined { operation, parts } => {
                let mut parts = parts.iter().map(Self::from_answer);
                let first = parts.next()??;
                parts.try_fold(first, |region, part| {
                    let part = part?;
                    Some(match operation {
                        SetOperation::Union => region.union(part),
                        SetOperation::Intersection => region.intersection(&part),
                        SetOperation::Difference => region.intersection(&part.complement()),
                    })
                })
            }
            Answer::Chain { sides, relations } => solved(sides, relations),
            Answer::Equation { right, .. } => Self::from_answer(right),
            Answer::Expr(_) | Answer::List(_) | Answer::Ratio(_) | Answer::Words(_) => None,
        }
    }
}

/// Returns true if the union of two intervals, the first of which begins first, is an interval.
fn touches(first: &Interval, second: &Interval) -> bool {
    if same(first.high, second.low) {
        first.high_closed || second.low_closed
    } else {
        second.low < first.high
    }
}

/// Solves `a < x`, `x ≤ b`, `a < x ≤ b`, `x ≠ a`, and the same relations with `2x + 1`, `|x|` and `|2x + 1|`.
fn solved(sides: &[Expr], relations: &[Relation]) -> Option<Region> {
    let unknown = unknown(sides)?;
    let mut region = Region::new([REALS]);
    for (pair, relation) in sides.windows(2).zip(relations) {
        let [left, right] = pair else {
            return None;
        };
        // One side is the unknown, the other one its bound.
        let (bound, unknown_first) = if left == unknown { (right, true) } else { (left, false) };
        let bound = eval::real(bound)?;
        let below = |closed| Interval { high: bound, high_closed: closed, ..REALS };
        let above = |closed| Interval { low: bound, low_closed: closed, ..REALS };
        let part = match (relation, unknown_first) {
            (Relation::Less, true) | (Relation::Greater, false) => Region::new([below(false)]),
            (Relation::LessOrEqual, true) | (Relation::GreaterOrEqual, false) => Region::new([below(true)]),
            (Relation::Greater, true) | (Relation::Less, false) => Region::new([above(false)]),
            (Relation::GreaterOrEqual, true) | (Relation::LessOrEqual, false) => Region::new([above(true)]),
            (Relation::NotEqual, _) => Region::new([Interval::point(bound)]).complement(),
            (Relation::Equal | Relation::Approximately | Relation::In, _) => return None,
        };
        region = region.intersection(&part);
    }
    match unknown {
        Expr::Absolute(inner) => preimage(inner, mirrored(&region)),
        unknown => preimage(unknown, region),
    }
}

/// Returns the values of the unknown for which the value of an expression, `x` or `a x + b`, is in the region.
fn preimage(expr: &Expr, region: Region) -> Option<Region> {
    if is_unknown(expr) {
        return Some(region);
    }
    let (slope, intercept) = eval::affine(expr).filter(|(slope, _)| *slope != 0.0)?;
    let solved = |value: f64| (value - intercept) / slope;
    let intervals = region.0.into_iter().map(|interval| {
        let Interval { low, low_closed, high, high_closed } = interval;
        let (low, high) = (solved(low), solved(high));
        if slope > 0.0 {
            Interval { low, low_closed, high, high_closed }
        } else {
            Interval { low: high, low_closed: high_closed, high: low, high_closed: low_closed }
        }
    });
    Some(Region::new(intervals))
}

/// Returns the only side of a chain that has no value.
pub fn unknown(sides: &[Expr]) -> Option<&Expr> {
    sides.iter().find(|side| eval::real(side).is_none())
}

/// Returns true for names and, as the value of a function can be the unknown, for products of names.
fn is_unknown(expr: &Expr) -> bool {
    match expr {
        Expr::Name(_) => true,
        Expr::Product(factors) => {
            factors.iter().all(|factor| !factor.divides && matches!(factor.expr, Expr::Name(_)))
        }
        _ => false,
    }
}

/// Returns the values of `x` for which `|x|` is in the region.
fn mirrored(region: &Region) -> Region {
    let positive = region.intersection(&Region::new([Interval { low: 0.0, low_closed: true, ..REALS }]));
    let negative = positive.0.iter().map(|interval| Interval {
        low: -interval.high,
        low_closed: interval.high_closed,
        high: -interval.low,
        high_closed: interval.low_closed,
    });
    Region::new(negative.collect::<Vec<_>>()).union(positive)
}

#[cfg(test)]
mod tests {
    use super::super::parses;
    use super::*;

    fn region(text: &str) -> Region {
        parses(text).iter().find_map(Region::from_answer).expect(text)
    }

    #[test]
    fn regions_have_one_form() {
        for (a, b) in [
            (r"(0,2) \cup [1,3]", "(0,3]"),
            (r"(0,1) \cup \{1\} \cup (1,2)", "(0,2)"),
            (r"[0,1) \cap (0.5,2)", "(0.5,1)"),
            (r"\mathbb{R} \setminus [0,1]", r"(-\infty,0) \cup (1,\infty)"),
            (r"(0, \infty]", r"(0, \infty)"),
            (r"x \ne 2", r"(-\infty,2) \cup (2,\infty)"),
            ("|x| > 1", r"(-\infty,-1) \cup (1,\infty)"),
            ("|x| < 1", "(-1,1)"),
            ("|x-2| < 3", "(-1,5)"),
            (r"1 < 5-2x \le 7", "[-1,2)"),
            (r"|3-x| \ge 1", r"(-\infty,2] \cup [4,\infty)"),
            ("1 < x", r"(1,\infty)"),
            (r"\{3, 1, 3\}", r"\{1\} \cup \{3\}"),
        ] {
            assert!(region(a).equals(&region(b)), "{a} is {:?}, {b} is {:?}", region(a), region(b));
        }
        assert!(!region("[0,1)").equals(&region("[0,1]")));
        assert!(!region(r"(0,1) \cup (1,2)").equals(&region("(0,2)")));
    }

    #[test]
    fn the_complement_of_the_complement_is_the_region() {
        for text in ["(0,1]", r"(-\infty,3) \cup [5,6]", r"\mathbb{R}", r"\emptyset", r"\{1\}"] {
            assert_eq!(region(text).complement().complement(), region(text), "{text}");
        }
    }
}
