//! `when` conditions: names resolved, types checked.

use serde_json::Value as Json;

use crate::catalog::{Fact, FactKind};
use crate::diagnostic::{Code, Place, Reports, suggest};
use crate::evaluate::evaluate;
use crate::scope::Scope;
use crate::syntax::{Value, ValueKind};
use crate::values::Scalar;
use crate::workflow::{Comparison, Condition};

/// Levels of a checked condition. A run folder keeps it as JSON, where each level is two deep, and readers of
/// JSON stop at 128.
const DEEPEST: usize = 32;

/// What a condition can refer to.
pub(crate) struct Surroundings<'a> {
    /// None: the environment is not known, which is reported already.
    pub facts: Option<&'a [Fact]>,
    pub environment: &'a str,
    pub agents: &'a [&'a str],
    /// False: there are agents whose names could not be read.
    pub all_agents: bool,
    /// The edge leaves from `start`, where nothing has happened yet.
    pub at_start: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Boolean,
    Number,
    Text,
    /// Of a fact that nobody knows: it fits everywhere.
    Any,
}

impl Type {
    fn what(self) -> &'static str {
        match self {
            Type::Boolean => "true or false",
            Type::Number => "a number",
            Type::Text => "text",
            Type::Any => "unknown",
        }
    }

    fn fits(self, wanted: Type) -> bool {
        self == wanted || self == Type::Any || wanted == Type::Any
    }
}

/// The checked condition. None: reported.
pub(crate) fn condition(
    expression: &Value,
    around: &Surroundings,
    scope: &mut Scope,
    reports: &mut Reports,
) -> Option<Condition> {
    let span = match expression.place {
        Place::At(span) => span,
        Place::Set(_) => return None,
    };
    let mut checker = Checker { around, scope, reports };
    let condition = checker.boolean(expression)?;
    if depth(&condition) > DEEPEST {
        let message = format!("this condition is nested more than {DEEPEST} deep");
        checker
            .reports
            .error(Code::TooDeep, span, message, "")
            .help("let the environment work it out and report it as a fact");
        return None;
    }
    Some(condition)
}

fn depth(condition: &Condition) -> usize {
    1 + match condition {
        Condition::Literal(_) | Condition::Fact(_) | Condition::Turn | Condition::Reward(_) => 0,
        Condition::Not(inner) => depth(inner),
        Condition::And(left, right) | Condition::Or(left, right) | Condition::Compare(_, left, right) => {
            depth(left).max(depth(right))
        }
    }
}

const KNOWN: &str = "known are `env.FACT`, `turn`, `reward.team` and params";

/// Whether a value speaks of what only the run knows.
fn is_of_the_run(value: &Value) -> bool {
    let mut found = false;
    value.paths(&mut |names, _| {
        let first = names.first().map(String::as_str);
        found |= match names.len() {
            1 => first == Some("turn"),
            _ => matches!(first, Some("env" | "reward")),
        };
    });
    found
}

struct Checker<'a, 's, 'c, 'o> {
    around: &'c Surroundings<'a>,
    scope: &'c mut Scope<'s>,
    reports: &'c mut Reports<'o>,
}

impl Checker<'_, '_, '_, '_> {
    fn boolean(&mut self, value: &Value) -> Option<Condition> {
        let (condition, found) = self.any(value)?;
        if found.fits(Type::Boolean) {
            return Some(condition);
        }
        let message = format!("a condition is true or false, and this is {}", found.what());
        let help = match found {
            Type::Number => "compare it, as in `turn < 2`",
            _ => "compare it, as in `env.state == \"open\"`",
        };
        self.reports.error(Code::ConditionType, value.place, message, "").help(help);
        None
    }

    fn any(&mut self, value: &Value) -> Option<(Condition, Type)> {
        if !is_of_the_run(value) {
            return self.known(value);
        }
        match &value.kind {
            ValueKind::Path(names) => self.path(names, value.place),
            ValueKind::Not(inner) => Some((Condition::Not(Box::new(self.boolean(inner)?)), Type::Boolean)),
            ValueKind::All(parts) => self.joined(parts, Condition::And),
            ValueKind::Any(parts) => self.joined(parts, Condition::Or),
            ValueKind::Compare(how, sides) => self.compare(*how, &sides.0, &sides.1, value.place),
            _ => {
                let message = "what only the run knows can be compared, but not calculated with";
                self.reports
                    .error(Code::ConditionType, value.place, message, "")
                    .help("calculate with params, and compare with the result: `turn < samples - 1`");
                None
            }
        }
    }

    fn joined(
        &mut self,
        parts: &[Value],
        join: fn(Box<Condition>, Box<Condition>) -> Condition,
    ) -> Option<(Condition, Type)> {
        let parts: Vec<Option<Condition>> = parts.iter().map(|part| self.boolean(part)).collect();
        let mut parts = parts.into_iter().collect::<Option<Vec<_>>>()?;
        // In pairs, so that a long row makes no deep tree.
        while parts.len() > 1 {
            let mut rest = parts.into_iter();
            parts = Vec::new();
            while let Some(left) = rest.next() {
                parts.push(match rest.next() {
                    Some(right) => join(Box::new(left), Box::new(right)),
                    None => left,
                });
            }
        }
        parts.pop().map(|joined| (joined, Type::Boolean))
    }

    fn compare(
        &mut self,
        how: Comparison,
        left: &Value,
        right: &Value,
        place: Place,
    ) -> Option<(Condition, Type)> {
        let (left, right) = (self.any(left), self.any(right));
        let ((left, one), (right, other)) = (left?, right?);
        let ordered = !matches!(how, Comparison::Equal | Comparison::NotEqual);
        if !one.fits(other) {
            let message = format!("{} is compared with {}", one.what(), other.what());
            self.reports.error(Code::ConditionType, place, message, "these can never be equal");
            return None;
        }
        if ordered && !(one.fits(Type::Number) && other.fits(Type::Number)) {
            let message = format!("only numbers have an order, and this is {}", one.what());
            self.reports.error(Code::ConditionType, place, message, "").help("compare with `==` or `!=`");
            return None;
        }
        Some((Condition::Compare(how, Box::new(left), Box::new(right)), Type::Boolean))
    }

    fn path(&mut self, names: &[String], place: Place) -> Option<(Condition, Type)> {
        match names {
            [turn] if turn == "turn" => self.after_start(place).map(|()| (Condition::Turn, Type::Number)),
            [env, fact] if env == "env" => self.fact(fact, place),
            [reward, part @ ..] if reward == "reward" && !part.is_empty() => {
                self.reward(&part.join("."), place)
            }
            names => {
                let message = format!("`{}` means nothing in a condition", names.join("."));
                self.reports.error(Code::UnknownName, place, message, "").help(KNOWN);
                None
            }
        }
    }

    /// What is known before the run.
    fn known(&mut self, value: &Value) -> Option<(Condition, Type)> {
        if let ValueKind::Path(names) = &value.kind
            && !self.scope.knows(names)
        {
            let facts = self.around.facts.unwrap_or_default();
            let name = names.join(".");
            let help = match facts.iter().any(|fact| fact.name == name) {
                true => format!("the environment's fact is `env.{name}`"),
                false => KNOWN.to_owned(),
            };
            let message = format!("`{name}` means nothing in a condition");
            self.reports.error(Code::UnknownName, value.place, message, "").help(help);
            return None;
        }
        let scalar = evaluate(value, self.scope, self.reports)?;
        let found = match &scalar {
            Scalar::Boolean(_) => Type::Boolean,
            Scalar::Integer(_) | Scalar::Number(_) => Type::Number,
            Scalar::Text(_) => Type::Text,
            other => {
                let message = format!("{} can't stand in a condition", other.what());
                self.reports.error(Code::ConditionType, value.place, message, "");
                return None;
            }
        };
        Some((Condition::Literal(scalar.json()), found))
    }

    /// At `start` there is neither a turn nor an outcome yet.
    fn after_start(&mut self, place: Place) -> Option<()> {
        if !self.around.at_start {
            return Some(());
        }
        let name = "before the first turn nothing has been reported that a condition could look at";
        self.reports
            .error(Code::BadEdge, place, name, "not known at `start`")
            .help("branch behind the first agent instead");
        None
    }

    fn fact(&mut self, name: &str, place: Place) -> Option<(Condition, Type)> {
        let found = match self.around.facts {
            None => Type::Any,
            Some(facts) => match facts.iter().find(|fact| fact.name == name) {
                Some(fact) => match fact.kind {
                    FactKind::Boolean => Type::Boolean,
                    FactKind::Number => Type::Number,
                    FactKind::Text => Type::Text,
                },
                None => {
                    let message =
                        format!("environment `{}` reports no fact `{name}`", self.around.environment);
                    let hint = suggest(name, "its facts are", facts.iter().map(|fact| fact.name.as_str()));
                    let hint = hint.unwrap_or_else(|| "it reports no facts at all".to_owned());
                    self.reports.error(Code::UnknownFact, place, message, "").help(hint);
                    return None;
                }
            },
        };
        self.after_start(place)?;
        Some((Condition::Fact(name.to_owned()), found))
    }

    fn reward(&mut self, part: &str, place: Place) -> Option<(Condition, Type)> {
        let found = match part {
            "success" => Type::Boolean,
            "team" => Type::Number,
            agent if self.around.agents.contains(&agent) => Type::Number,
            _ if !self.around.all_agents => return None,
            _ => {
                let names = ["team", "success"].into_iter().chain(self.around.agents.iter().copied());
                let hint = suggest(part, "known are", names);
                let message = format!("there is no `reward.{part}`");
                self.reports.error(Code::UnknownName, place, message, "").maybe_help(hint);
                return None;
            }
        };
        self.after_start(place)?;
        Some((Condition::Reward(part.to_owned()), found))
    }
}

/// Whether the condition can never change: a literal alone.
pub(crate) fn is_constant(condition: &Condition) -> Option<bool> {
    match condition {
        Condition::Literal(Json::Bool(truth)) => Some(*truth),
        _ => None,
    }
}

/// Whether a part of the condition is decided before the run: by a param, or by nothing at all.
pub(crate) fn has_switch(condition: &Condition) -> bool {
    match condition {
        Condition::Literal(value) => value.is_boolean(),
        Condition::Fact(_) | Condition::Turn | Condition::Reward(_) => false,
        Condition::Not(inner) => has_switch(inner),
        Condition::And(left, right) | Condition::Or(left, right) => has_switch(left) || has_switch(right),
        // `env.done == true` is no switch.
        Condition::Compare(..) => false,
    }
}
