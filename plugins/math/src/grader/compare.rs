//! Comparison of parsed answers. It follows the form of the right answer: `5` is answered by `x = 5`, an inequality
//! by the interval of its solutions, a tuple by a list in the same order; not the other way round where the
//! right answer says more.

use super::answer::{Answer, SetOperation, Side};
use super::expr::Expr;
use super::region::{self, Region};
use super::token::{Bracket, Relation};
use super::{equality, eval};

/// Returns true if the answers are equivalent.
pub fn equivalent(gold: &Answer, pred: &Answer) -> bool {
    use Answer::{Chain, Combined, Equation, Group, List, Ratio, Reals, Set, Words};
    match (unwrapped(gold), unwrapped(pred)) {
        (Equation { left: a, right: gold }, Equation { left: b, right: pred }) => {
            (a.name.is_some() && a.name == b.name && equivalent(gold, pred))
                || same_equation((a, gold), (b, pred))
        }
        // `-x \in (0,1)` is not `0 < x < 1`.
        (Chain { .. }, Equation { left, right }) => left.assigns && equivalent(gold, right),
        (gold, Equation { right, .. }) => equivalent(gold, right),
        (Equation { left, right }, pred) => left.assigns && equivalent(right, pred),
        (Answer::Expr(a), Answer::Expr(b)) => equality::equal(a, b),
        (Words(a), Words(b)) => a == b,
        (Ratio(a), Ratio(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equality::equal(a, b)),
        (List(gold) | Set(gold), List(pred) | Set(pred)) => unordered(gold, pred),
        (List(gold) | Set(gold), pred @ Answer::Expr(_)) => unordered(gold, std::slice::from_ref(pred)),
        (gold @ Answer::Expr(_), List(pred) | Set(pred)) => unordered(std::slice::from_ref(gold), pred),
        (List(gold) | Set(gold), Group { open, close, items }) => {
            // A list of named values has an order.
            let named = gold.iter().all(|item| matches!(item, Equation { left, .. } if left.name.is_some()));
            is_tuple(*open, *close, items)
                && if named { ordered(gold, items) } else { unordered(gold, items) }
        }
        (Group { open, close, items }, List(pred) | Set(pred)) => {
            is_tuple(*open, *close, items) && ordered(items, pred)
        }
        (a @ Group { items: gold, .. }, b @ Group { items: pred, .. }) => {
            let intervals = is_interval(gold) && is_interval(pred);
            (ordered(gold, pred) && (!intervals || same_brackets(a, b))) || (intervals && same_region(a, b))
        }
        (gold @ Chain { .. }, pred @ Chain { .. }) => same_inequality(gold, pred),
        (
            gold @ (Chain { .. } | Combined { .. } | Reals | Group { .. } | Set(_)),
            pred @ (Combined { .. } | Reals | Group { .. } | Set(_)),
        ) => same_region(gold, pred) || same_parts(gold, pred),
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

fn ordered(gold: &[Answer], pred: &[Answer]) -> bool {
    gold.len() == pred.len() && gold.iter().zip(pred).all(|(gold, pred)| equivalent(gold, pred))
}

/// Compares two lists as sets: each item of one has an equivalent in the other.
fn unordered(gold: &[Answer], pred: &[Answer]) -> bool {
    gold.iter().all(|gold| pred.iter().any(|pred| equivalent(gold, pred)))
        && pred.iter().all(|pred| gold.iter().any(|gold| equivalent(gold, pred)))
}

fn same_brackets(a: &Answer, b: &Answer) -> bool {
    match (a, b) {
        (Answer::Group { open: a, close: b, .. }, Answer::Group { open: c, close: d, .. }) => {
            a == c && b == d
        }
        _ => false,
    }
}

/// Returns true for two values that can be the bounds of an interval: the first is not above the second.
fn is_interval(items: &[Answer]) -> bool {
    match items {
        [Answer::Expr(low), Answer::Expr(high)] => {
            !matches!((eval::real(low), eval::real(high)), (Some(low), Some(high)) if low >= high)
        }
        _ => false,
    }
}

/// Returns true if a group can be a tuple: an interval of which a bracket is square is not.
fn is_tuple(open: Bracket, close: Bracket, items: &[Answer]) -> bool {
    !is_interval(items) || (open == Bracket::Round && close == Bracket::Round)
}

fn same_region(gold: &Answer, pred: &Answer) -> bool {
    matches!((Region::from_answer(gold), Region::from_answer(pred)), (Some(a), Some(b)) if a.equals(&b))
}

/// Compares combined sets that have unknowns: the same operation on the same sets.
fn same_parts(gold: &Answer, pred: &Answer) -> bool {
    match (gold, pred) {
        (Answer::Combined { operation: a, parts: gold }, Answer::Combined { operation: b, parts: pred }) => {
            a == b && (ordered(gold, pred) || (*a != SetOperation::Difference && unordered(gold, pred)))
        }
        _ => false,
    }
}

/// Compares equations whose left sides are not the same name: the differences of their sides are proportional.
fn same_equation((a, gold): (&Side, &Answer), (b, pred): (&Side, &Answer)) -> bool {
    let (Some(a), Answer::Expr(gold), Some(b), Answer::Expr(pred)) = (&a.expr, gold, &b.expr, pred) else {
        return false;
    };
    (equality::equal(a, b) && equality::equal(gold, pred))
        || equality::proportion(&a.clone().minus(gold.clone()), &b.clone().minus(pred.clone())).is_some()
}

/// Returns true if the differences of the sides are proportional, or if the same unknown has the same values.
fn same_inequality(a: &Answer, b: &Answer) -> bool {
    let (
        Answer::Chain { sides: left, relations: a_relations },
        Answer::Chain { sides: right, relations: b_relations },
    ) = (a, b)
    else {
        return false;
    };
    let same_steps = left.len() == right.len()
        && left
            .windows(2)
            .zip(right.windows(2))
            .zip(a_relations.iter().zip(b_relations))
            .all(|((left, right), (a, b))| same_relation(left, *a, right, *b));
    let same_unknown = matches!(
        (region::unknown(left), region::unknown(right)),
        (Some(left), Some(right)) if equality::equal(left, right)
    );
    same_steps || (same_unknown && same_region(a, b))
}

/// Compares two relations by the differences of their sides.
fn same_relation(left: &[Expr], a: Relation, right: &[Expr], b: Relation) -> bool {
    let (Some((left, a)), Some((right, b))) = (zero_form(left, a), zero_form(right, b)) else {
        return false;
    };
    let directed = matches!(a, Relation::Less | Relation::LessOrEqual);
    a == b
        && (equality::equal(&left, &right)
            || equality::proportion(&left, &right).is_some_and(|factor| !directed || factor > 0.0))
}

/// Returns the relation as `expression relation 0` with one of `=`, `≠`, `<`, `≤`.
fn zero_form(sides: &[Expr], relation: Relation) -> Option<(Expr, Relation)> {
    let [left, right] = sides else {
        return None;
    };
    let (left, right) = (left.clone(), right.clone());
    match relation {
        Relation::Greater => Some((right.minus(left), Relation::Less)),
        Relation::GreaterOrEqual => Some((right.minus(left), Relation::LessOrEqual)),
        Relation::Equal | Relation::NotEqual | Relation::Less | Relation::LessOrEqual => {
            Some((left.minus(right), relation))
        }
        Relation::Approximately | Relation::In => None,
    }
}
