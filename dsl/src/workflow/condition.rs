//! Evaluates conditions, for the check and for the run.

use std::cmp::Ordering::{Equal, Greater, Less};

use serde_json::Value;

use super::{Comparison, Condition};

impl Condition {
    /// Returns true if the condition is true. `look_up` returns the value of a fact, of `turn` or of a part of `reward`, or
    /// null if it is not known yet. Null is not equal to any value and not true.
    pub fn holds(&self, look_up: &dyn Fn(&Condition) -> Value) -> bool {
        self.value(look_up) == Value::Bool(true)
    }

    fn value(&self, look_up: &dyn Fn(&Condition) -> Value) -> Value {
        match self {
            Condition::Literal(value) => value.clone(),
            Condition::Fact(_) | Condition::Turn | Condition::Reward(_) => look_up(self),
            Condition::Not(inner) => (!inner.holds(look_up)).into(),
            Condition::And(left, right) => (left.holds(look_up) && right.holds(look_up)).into(),
            Condition::Or(left, right) => (left.holds(look_up) || right.holds(look_up)).into(),
            Condition::Compare(how, left, right) => {
                compare(*how, &left.value(look_up), &right.value(look_up)).into()
            }
        }
    }
}

fn compare(how: Comparison, left: &Value, right: &Value) -> bool {
    let order = match (left, right) {
        (Value::Number(l), Value::Number(r)) => l.as_f64().partial_cmp(&r.as_f64()),
        (Value::String(l), Value::String(r)) => Some(l.cmp(r)),
        (Value::Bool(l), Value::Bool(r)) => Some(l.cmp(r)),
        _ => None,
    };
    match how {
        Comparison::Equal => order == Some(Equal),
        Comparison::NotEqual => order != Some(Equal),
        Comparison::Less => order == Some(Less),
        Comparison::LessOrEqual => matches!(order, Some(Less | Equal)),
        Comparison::Greater => order == Some(Greater),
        Comparison::GreaterOrEqual => matches!(order, Some(Greater | Equal)),
    }
}
