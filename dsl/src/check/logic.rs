//! Decides if the conditions of a node's edges can be true, and if earlier conditions cover later ones.
//!
//! A condition reads finitely many variables and compares them with finitely many constants. Trying all combinations of
//! the following values is exact: both booleans; each text constant and one other text; each number constant and, in every
//! gap between two constants, as many points as there are number variables, since these may be compared with each other.
//! If there are too many combinations, no finding is reported.

use std::collections::BTreeMap;

use pl_types::{Fact, FactKind};
use serde_json::Value as Json;

use crate::workflow::Condition;

/// Maximum number of evaluated condition nodes over all assignments.
const MAX_WORK: usize = 20_000;

/// Finding about the condition of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The edge can be taken, or the answer is unknown.
    Fine,
    /// Its condition is never true.
    Never,
    /// Its condition is always true.
    Always,
    /// Whenever its condition is true, so is that of the earlier edge at this index.
    CoveredBy(usize),
    /// Whenever its condition is true, so is that of some earlier edge.
    Covered,
}

/// Analyses the conditions of edges that are tried in order. `facts` are the facts that the environment reports;
/// `max_turns` is the maximum number of visits of an agent.
pub(crate) fn findings(conditions: &[&Condition], facts: &[Fact], max_turns: u32) -> Vec<Finding> {
    let mut variables = Variables::default();
    for condition in conditions {
        variables.collect(condition, facts);
    }
    let Some(assignments) = variables.assignments(max_turns, conditions.iter().map(|one| size(one)).sum())
    else {
        return vec![Finding::Fine; conditions.len()];
    };
    // Truth value of each condition under each assignment.
    let truths: Vec<Vec<bool>> = conditions
        .iter()
        .map(|one| assignments.iter().map(|assignment| holds(one, assignment)).collect())
        .collect();
    let mut out = Vec::with_capacity(conditions.len());
    for (at, own) in truths.iter().enumerate() {
        let implies = |other: &Vec<bool>| own.iter().zip(other).all(|(own, other)| !own || *other);
        let before = &truths[..at];
        out.push(if !own.contains(&true) {
            Finding::Never
        } else if let Some(first) = before.iter().position(implies) {
            Finding::CoveredBy(first)
        } else if implies(
            &(0..assignments.len()).map(|assignment| before.iter().any(|one| one[assignment])).collect(),
        ) {
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

/// Variables of conditions by name, and the constants that they are compared with.
#[derive(Default)]
struct Variables {
    kinds: BTreeMap<String, FactKind>,
    numbers: Vec<f64>,
    texts: Vec<String>,
}

/// Returns the name of a variable.
fn variable_name(condition: &Condition) -> Option<String> {
    match condition {
        Condition::Fact(name) => Some(format!("env.{name}")),
        Condition::Turn => Some("turn".to_owned()),
        Condition::Reward(part) => Some(format!("reward.{part}")),
        _ => None,
    }
}

impl Variables {
    fn collect(&mut self, condition: &Condition, facts: &[Fact]) {
        match condition {
            Condition::Literal(Json::Number(number)) => self.numbers.extend(number.as_f64()),
            Condition::Literal(Json::String(text)) => self.texts.push(text.clone()),
            Condition::Literal(_) => {}
            Condition::Fact(name) => {
                let kind = facts.iter().find(|fact| fact.name == *name).map(|fact| fact.kind);
                // The type of an unknown fact doesn't matter: its condition was already reported.
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

    /// Returns all assignments of values to the variables. Returns `None` if there are too many.
    fn assignments(mut self, max_turns: u32, size: usize) -> Option<Vec<BTreeMap<String, Json>>> {
        self.numbers.sort_by(f64::total_cmp);
        self.numbers.dedup();
        self.texts.sort();
        self.texts.dedup();
        let several = self.kinds.values().filter(|kind| **kind == FactKind::Number).count();
        let points = points(&self.numbers, several);
        let turns: Vec<Json> = (1..=max_turns.min(MAX_WORK as u32)).map(Json::from).collect();
        let mut texts: Vec<Json> = self.texts.iter().map(|text| Json::from(text.as_str())).collect();
        texts.push(Json::from(format!("another than {}", self.texts.concat())));
        let mut assignments = vec![BTreeMap::new()];
        for (name, kind) in &self.kinds {
            let values = match kind {
                FactKind::Boolean => &[Json::from(false), Json::from(true)],
                FactKind::Text => texts.as_slice(),
                FactKind::Number if name == "turn" => turns.as_slice(),
                FactKind::Number => points.as_slice(),
            };
            if assignments.len() * values.len() * size > MAX_WORK {
                return None;
            }
            assignments = assignments
                .iter()
                .flat_map(|assignment: &BTreeMap<String, Json>| {
                    values.iter().map(|value| {
                        let mut assignment = assignment.clone();
                        assignment.insert(name.clone(), value.clone());
                        assignment
                    })
                })
                .collect();
        }
        Some(assignments)
    }
}

/// Returns the number constants, and points below, between and above them. `variables` is the number of variables.
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

fn holds(condition: &Condition, assignment: &BTreeMap<String, Json>) -> bool {
    condition.holds(&|one| {
        variable_name(one).and_then(|name| assignment.get(&name).cloned()).unwrap_or(Json::Null)
    })
}
