//! Comparison of parsed answers.

use super::answer::Answer;
use super::eval;
use super::expr::Expr;
use super::lex::{Bracket, Relation};

/// Returns true if the answers are equivalent.
pub fn equivalent(gold: &Answer, pred: &Answer) -> bool {
    use Answer::{Assigned, Chain, Group, List, Ratio, Set, Union};
    match (unwrapped(gold), unwrapped(pred)) {
        (Assigned { left, value }, other) | (other, Assigned { left, value }) => {
            same_value(value, other) || same_as_equation(left.as_ref(), value, other)
        }
        (Answer::Expr(a), Answer::Expr(b)) => eval::equal(a, b),
        (List(a) | Set(a), List(b) | Set(b)) => unordered(a, b),
        (List(list), Group { items, open: Bracket::Round, close: Bracket::Round })
        | (Group { items, open: Bracket::Round, close: Bracket::Round }, List(list)) => ordered(list, items),
        (Group { open: a, close: b, items: left }, Group { open: c, close: d, items: right }) => {
            // For pairs the brackets matter: they may be intervals.
            (left.len() != 2 || (a == c && b == d)) && ordered(left, right)
        }
        (Group { items, .. }, Answer::Expr(Expr::Matrix(rows)))
        | (Answer::Expr(Expr::Matrix(rows)), Group { items, .. }) => same_vector(items, rows),
        (Ratio(a), Ratio(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| eval::equal(a, b)),
        (Ratio(ratio), Answer::Expr(value)) | (Answer::Expr(value), Ratio(ratio)) => {
            same_quotient(ratio, value)
        }
        (a @ Chain { .. }, b @ Chain { .. }) => same_relation(a, b) || same_region(a, b),
        (a @ (Chain { .. } | Union(_)), b) | (b, a @ (Chain { .. } | Union(_))) => same_region(a, b),
        _ => false,
    }
}

/// Returns the only value of a list or set, or else the answer itself.
fn unwrapped(answer: &Answer) -> &Answer {
    match answer {
        Answer::List(items) | Answer::Set(items) if items.len() == 1 => unwrapped(&items[0]),
        other => other,
    }
}

fn same_value(value: &Answer, other: &Answer) -> bool {
    match other {
        Answer::Assigned { value: other, .. } => equivalent(value, other),
        _ => equivalent(value, other),
    }
}

/// Compares an assignment with an equation: `y = 2x + 3` and `2x - y + 3 = 0`.
fn same_as_equation(left: Option<&Expr>, value: &Answer, other: &Answer) -> bool {
    let (Some(left), Answer::Expr(value), Answer::Chain { .. }) = (left, value, other) else {
        return false;
    };
    let equation =
        Answer::Chain { sides: vec![left.clone(), value.clone()], relations: vec![Relation::Equal] };
    same_relation(&equation, other)
}

fn ordered(a: &[Answer], b: &[Answer]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equivalent(a, b))
}

/// Compares two lists as sets: each item of one has an equivalent in the other.
fn unordered(a: &[Answer], b: &[Answer]) -> bool {
    let covers = |all: &[Answer], some: &[Answer]| {
        some.iter().all(|one| all.iter().any(|other| equivalent(other, one)))
    };
    covers(a, b) && covers(b, a)
}

/// Compares a tuple with a matrix of one row or column.
fn same_vector(items: &[Answer], rows: &[Vec<Expr>]) -> bool {
    let one_column = rows.iter().all(|row| row.len() == 1);
    let cells: Vec<&Expr> = rows.iter().flatten().collect();
    (one_column || rows.len() == 1)
        && cells.len() == items.len()
        && items
            .iter()
            .zip(cells)
            .all(|(item, cell)| matches!(item, Answer::Expr(item) if eval::equal(item, cell)))
}

/// Compares a ratio with a value: `1:2` and `1/2`.
fn same_quotient(ratio: &[Expr], value: &Expr) -> bool {
    match ratio {
        [a, b] => matches!((eval::real(a), eval::real(b), eval::real(value)),
            (Some(a), Some(b), Some(value)) if b != 0.0 && (a / b - value).abs() <= 1e-9 * value.abs()),
        _ => false,
    }
}

/// Returns true if two single relations are equivalent: the differences of their sides are proportional.
fn same_relation(a: &Answer, b: &Answer) -> bool {
    let (Some((left, a)), Some((right, b))) = (zero_form(a), zero_form(b)) else {
        return false;
    };
    let directed = matches!(a, Relation::Less | Relation::LessOrEqual);
    a == b && eval::proportion(&left, &right).is_some_and(|factor| !directed || factor > 0.0)
}

/// Returns the relation as `expression relation 0` with one of `=`, `≠`, `<`, `≤`.
fn zero_form(chain: &Answer) -> Option<(Expr, Relation)> {
    let Answer::Chain { sides, relations } = chain else {
        return None;
    };
    let ([left, right], [relation]) = (&sides[..], &relations[..]) else {
        return None;
    };
    let (left, right) = (left.clone(), right.clone());
    match relation {
        Relation::Greater => Some((right.minus(left), Relation::Less)),
        Relation::GreaterOrEqual => Some((right.minus(left), Relation::LessOrEqual)),
        Relation::Equal | Relation::NotEqual | Relation::Less | Relation::LessOrEqual => {
            Some((left.minus(right), *relation))
        }
        Relation::Approximately | Relation::In => None,
    }
}

/// An interval of the number line.
#[derive(Debug, Clone)]
struct Interval {
    low: Expr,
    low_closed: bool,
    high: Expr,
    high_closed: bool,
}

impl Interval {
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        let compare = |x: &Expr, y: &Expr| {
            let position = |bound| eval::real(bound).unwrap_or(f64::NEG_INFINITY);
            position(x).total_cmp(&position(y))
        };
        compare(&self.low, &other.low).then_with(|| compare(&self.high, &other.high))
    }

    fn same(&self, other: &Self) -> bool {
        self.low_closed == other.low_closed
            && self.high_closed == other.high_closed
            && eval::equal(&self.low, &other.low)
            && eval::equal(&self.high, &other.high)
    }
}

fn same_region(a: &Answer, b: &Answer) -> bool {
    let (Some(mut a), Some(mut b)) = (intervals(a), intervals(b)) else {
        return false;
    };
    a.sort_by(Interval::order);
    b.sort_by(Interval::order);
    a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a.same(b))
}

/// Converts an answer to intervals of the number line.
fn intervals(answer: &Answer) -> Option<Vec<Interval>> {
    match answer {
        Answer::Assigned { value, .. } => intervals(value),
        Answer::Union(parts) => {
            let parts: Vec<_> = parts.iter().map(intervals).collect::<Option<_>>()?;
            Some(parts.into_iter().flatten().collect())
        }
        Answer::Set(points) => points.iter().map(point).collect(),
        Answer::Group { open, close, items } => match &items[..] {
            [Answer::Expr(low), Answer::Expr(high)] => Some(vec![Interval {
                low: low.clone(),
                low_closed: *open == Bracket::Square,
                high: high.clone(),
                high_closed: *close == Bracket::Square,
            }]),
            _ => None,
        },
        Answer::Chain { sides, relations } => solved(sides, relations),
        Answer::Expr(_) | Answer::List(_) | Answer::Ratio(_) => None,
    }
}

fn point(answer: &Answer) -> Option<Interval> {
    match answer {
        Answer::Expr(value) => {
            Some(Interval { low: value.clone(), low_closed: true, high: value.clone(), high_closed: true })
        }
        _ => None,
    }
}

/// Solves `a < x`, `x ≤ b`, `a < x ≤ b` and the same relations with `|x|`.
fn solved(sides: &[Expr], relations: &[Relation]) -> Option<Vec<Interval>> {
    let mut region = Interval {
        low: Expr::Negative(Box::new(Expr::Infinity)),
        low_closed: false,
        high: Expr::Infinity,
        high_closed: false,
    };
    let position = sides.iter().position(|side| !is_bound(side))?;
    for (pair, relation) in sides.windows(2).zip(relations) {
        let [left, right] = pair else {
            return None;
        };
        let (less, closed) = match relation {
            Relation::Less => (true, false),
            Relation::LessOrEqual => (true, true),
            Relation::Greater => (false, false),
            Relation::GreaterOrEqual => (false, true),
            _ => return None,
        };
        // One side is the unknown, the other one its bound.
        let (bound, from_below) = if *left == sides[position] { (right, !less) } else { (left, less) };
        if !is_bound(bound) {
            return None;
        }
        if from_below {
            (region.low, region.low_closed) = (bound.clone(), closed);
        } else {
            (region.high, region.high_closed) = (bound.clone(), closed);
        }
    }
    match &sides[position] {
        Expr::Absolute(_) => Some(mirrored(region)),
        // The value of a function can be the unknown, too.
        Expr::Name(_) => Some(vec![region]),
        Expr::Product(factors)
            if factors.iter().all(|factor| !factor.divides && matches!(factor.expr, Expr::Name(_))) =>
        {
            Some(vec![region])
        }
        _ => None,
    }
}

fn is_bound(expr: &Expr) -> bool {
    eval::real(expr).is_some()
}

/// Returns the values of `x` for which `|x|` is in the region: the region and its mirror image.
fn mirrored(region: Interval) -> Vec<Interval> {
    let negative = |expr: &Expr| Expr::Negative(Box::new(expr.clone()));
    let from_zero = eval::real(&region.low).is_none_or(|low| low < 0.0);
    let mirror = Interval {
        low: negative(&region.high),
        low_closed: region.high_closed,
        high: if from_zero { region.high.clone() } else { negative(&region.low) },
        high_closed: if from_zero { region.high_closed } else { region.low_closed },
    };
    if from_zero { vec![mirror] } else { vec![mirror, region] }
}
