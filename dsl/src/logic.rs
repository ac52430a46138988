//! What conditions can and can't be: whether one can hold at all, and whether one before it always holds when it does.
//!
//! A condition looks at finitely many things, and compares each with finitely many values. Trying every way in which these
//! can lie is exact: booleans both ways; texts as each of the values that occur and one that does not; numbers as each
//! value that occurs and, in every gap between two, as many points as there are numbers that may be compared with each
//! other. Where that would take too long nothing is said.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::catalog::{Fact, FactKind};
use crate::workflow::Condition;

/// Ways to try, at most, and steps in all.
const MOST: usize = 20_000;

/// What can be said about the conditions of a node's edges, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    /// There is a way to take this edge, or it is not known.
    Fine,
    /// Its condition never holds.
    Never,
    /// Its condition always holds.
    Always,
    /// Whenever it holds, the edge at this position, before it, holds too.
    CoveredBy(usize),
    /// Whenever it holds, one of those before it holds too.
    Covered,
}

/// Looks at the conditions of edges that are tried in order. `facts` are what the environment reports, where that is
/// known; `most_turns` is how often an agent speaks at most.
pub(crate) fn findings(conditions: &[&Condition], facts: &[Fact], most_turns: u32) -> Vec<Finding> {
    let mut subjects = Subjects::default();
    for condition in conditions {
        subjects.collect(condition, facts);
    }
    let Some(ways) = subjects.ways(most_turns, conditions.iter().map(|one| size(one)).sum()) else {
        return vec![Finding::Fine; conditions.len()];
    };
    // For each condition, the ways under which it holds.
    let truths: Vec<Vec<bool>> =
        conditions.iter().map(|one| ways.iter().map(|way| holds(one, way)).collect()).collect();
    let mut out = Vec::with_capacity(conditions.len());
    for (at, own) in truths.iter().enumerate() {
        let implies = |other: &Vec<bool>| own.iter().zip(other).all(|(own, other)| !own || *other);
        let before = &truths[..at];
        out.push(if !own.contains(&true) {
            Finding::Never
        } else if let Some(first) = before.iter().position(implies) {
            Finding::CoveredBy(first)
        } else if implies(&(0..ways.len()).map(|way| before.iter().any(|one| one[way])).collect()) {
            Finding::Covered
        } else if !own.contains(&false) {
            Finding::Always
        } else {
            Finding::Fine
        });
    }
    out
}

fn size(condition: &Condition) -> usize {
    1 + match condition {
        Condition::Not(inner) => size(inner),
        Condition::And(left, right) | Condition::Or(left, right) | Condition::Compare(_, left, right) => {
            size(left) + size(right)
        }
        _ => 0,
    }
}

/// What conditions look at, by name, and the values that occur.
#[derive(Default)]
struct Subjects {
    kinds: BTreeMap<String, FactKind>,
    numbers: Vec<f64>,
    texts: Vec<String>,
}

/// The name under which a subject is known.
fn subject(condition: &Condition) -> Option<String> {
    match condition {
        Condition::Fact(name) => Some(format!("env.{name}")),
        Condition::Turn => Some("turn".to_owned()),
        Condition::Reward(part) => Some(format!("reward.{part}")),
        _ => None,
    }
}

impl Subjects {
    fn collect(&mut self, condition: &Condition, facts: &[Fact]) {
        match condition {
            Condition::Literal(Json::Number(number)) => self.numbers.extend(number.as_f64()),
            Condition::Literal(Json::String(text)) => self.texts.push(text.clone()),
            Condition::Literal(_) => {}
            Condition::Fact(name) => {
                let kind = facts.iter().find(|fact| fact.name == *name).map(|fact| fact.kind);
                // Of an unknown fact nothing is known: it is left out, and then nothing is said.
                self.kinds.insert(format!("env.{name}"), kind.unwrap_or(FactKind::Boolean));
            }
            Condition::Turn => {
                self.kinds.insert("turn".to_owned(), FactKind::Number);
            }
            Condition::Reward(part) => {
                let kind = if part == "success" { FactKind::Boolean } else { FactKind::Number };
                self.kinds.insert(format!("reward.{part}"), kind);
            }
            Condition::Not(inner) => self.collect(inner, facts),
            Condition::And(left, right) | Condition::Or(left, right) | Condition::Compare(_, left, right) => {
                self.collect(left, facts);
                self.collect(right, facts);
            }
        }
    }

    /// Every way in which the subjects can lie. None: too many.
    fn ways(mut self, most_turns: u32, size: usize) -> Option<Vec<BTreeMap<String, Json>>> {
        self.numbers.sort_by(f64::total_cmp);
        self.numbers.dedup();
        self.texts.sort();
        self.texts.dedup();
        let several = self.kinds.values().filter(|kind| **kind == FactKind::Number).count();
        let points = points(&self.numbers, several);
        let turns: Vec<Json> = (1..=most_turns.min(MOST as u32)).map(Json::from).collect();
        let mut texts: Vec<Json> = self.texts.iter().map(|text| Json::from(text.as_str())).collect();
        texts.push(Json::from(format!("another than {}", self.texts.concat())));
        let mut ways = vec![BTreeMap::new()];
        for (name, kind) in &self.kinds {
            let values = match kind {
                FactKind::Boolean => &[Json::from(false), Json::from(true)],
                FactKind::Text => texts.as_slice(),
                FactKind::Number if name == "turn" => turns.as_slice(),
                FactKind::Number => points.as_slice(),
            };
            if ways.len() * values.len() * size > MOST {
                return None;
            }
            ways = ways
                .iter()
                .flat_map(|way: &BTreeMap<String, Json>| {
                    values.iter().map(|value| {
                        let mut way = way.clone();
                        way.insert(name.clone(), value.clone());
                        way
                    })
                })
                .collect();
        }
        Some(ways)
    }
}

/// The numbers that occur, and points below, between and above them.
fn points(numbers: &[f64], several: usize) -> Vec<Json> {
    let mut out: Vec<f64> = numbers.to_vec();
    let within = several.max(1);
    match (numbers.first(), numbers.last()) {
        (Some(first), Some(last)) => {
            out.extend((1..=within).flat_map(|step| [first - step as f64, last + step as f64]));
        }
        _ => out.extend((0..within).map(|step| step as f64)),
    }
    for pair in numbers.windows(2) {
        let step = (pair[1] - pair[0]) / (within + 1) as f64;
        out.extend((1..=within).map(|at| pair[0] + step * at as f64));
    }
    out.into_iter().map(Json::from).collect()
}

fn holds(condition: &Condition, way: &BTreeMap<String, Json>) -> bool {
    condition.holds(&|one| subject(one).and_then(|name| way.get(&name).cloned()).unwrap_or(Json::Null))
}
