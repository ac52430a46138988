//! Checks `when` conditions: resolves names and checks types.

use pl_types::{Fact, FactKind};
use serde_json::Value as Json;

use crate::diagnostic::DiagnosticCode;
use crate::diagnostic::reports::Reports;
use crate::diagnostic::spelling::suggest;
use crate::eval::evaluate::evaluate;
use crate::eval::scalar::Scalar;
use crate::eval::scope::Scope;
use crate::source::Location;
use crate::syntax::tree::{Value, ValueKind};
use crate::workflow::{Comparison, Condition};

/// Maximum depth of a checked condition. Run folders store it as JSON, where each level is two deep, and JSON readers
/// stop at 128.
const MAX_DEPTH: usize = 32;

/// Names that a condition may refer to.
pub(crate) struct ConditionContext<'a> {
    /// `None` if the environment is unknown; the error was already reported.
    pub facts: Option<&'a [Fact]>,
    pub environment: &'a str,
    pub agents: &'a [&'a str],
    /// False if the names of some agents could not be parsed.
    pub all_agents: bool,
    /// True if the edge leaves from `start`, before the first turn.
    pub at_start: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Boolean,
    Number,
    Text,
    /// Type of an unknown fact, which fits everywhere.
    Any,
}

impl Type {
    fn type_phrase(self) -> &'static str {
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

/// Checks a condition. Returns `None` if an error was reported.
pub(crate) fn condition(
    expression: &Value,
    context: &ConditionContext,
    scope: &mut Scope,
    reports: &mut Reports,
) -> Option<Condition> {
    let span = match expression.location {
        Location::Span(span) => span,
        Location::Override(_) => return None,
    };
    let mut checker = Checker { context, scope, reports };
    let condition = checker.boolean(expression)?;
    if depth(&condition) > MAX_DEPTH {
        let message = format!("this condition is nested more than {MAX_DEPTH} deep");
        checker
            .reports
            .error(DiagnosticCode::TooDeep, span, message, "")
            .help("let the environment compute it and report it as a fact");
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

const KNOWN: &str = "conditions may use `env.FACT`, `turn`, `reward.team` and params";

/// True if a value depends on the state of a run.
fn depends_on_run(value: &Value) -> bool {
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
    context: &'c ConditionContext<'a>,
    scope: &'c mut Scope<'s>,
    reports: &'c mut Reports<'o>,
}

impl Checker<'_, '_, '_, '_> {
    fn boolean(&mut self, value: &Value) -> Option<Condition> {
        let (condition, found) = self.any(value)?;
        if found.fits(Type::Boolean) {
            return Some(condition);
        }
        let message = format!("a condition must be true or false, not {}", found.type_phrase());
        let help = match found {
            Type::Number => "compare it, as in `turn < 2`",
            _ => "compare it, as in `env.state == \"open\"`",
        };
        self.reports.error(DiagnosticCode::ConditionType, value.location, message, "").help(help);
        None
    }

    fn any(&mut self, value: &Value) -> Option<(Condition, Type)> {
        if !depends_on_run(value) {
            return self.constant_condition(value);
        }
        match &value.kind {
            ValueKind::Path(names) => self.path(names, value.location),
            ValueKind::Not(inner) => Some((Condition::Not(Box::new(self.boolean(inner)?)), Type::Boolean)),
            ValueKind::All(parts) => self.joined(parts, Condition::And),
            ValueKind::Any(parts) => self.joined(parts, Condition::Or),
            ValueKind::Compare(how, sides) => self.compare(*how, &sides.0, &sides.1, value.location),
            other => {
                let (message, help) = match other {
                    ValueKind::Choice(_) => (
                        "values of the run can be compared, but not chosen by `if`",
                        "write `and`, `or` and `not`: `deep and env.done or not deep and turn > 2`",
                    ),
                    _ => (
                        "values of the run can be compared, but not used in arithmetic",
                        "use arithmetic on params only: `turn < samples - 1`",
                    ),
                };
                self.reports.error(DiagnosticCode::ConditionType, value.location, message, "").help(help);
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
        // Combine in pairs, so that a long chain doesn't make a deep tree.
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
        location: Location,
    ) -> Option<(Condition, Type)> {
        let (left, right) = (self.any(left), self.any(right));
        let ((left, one), (right, other)) = (left?, right?);
        let ordered = !matches!(how, Comparison::Equal | Comparison::NotEqual);
        if !one.fits(other) {
            let message = format!("{} can't be compared with {}", one.type_phrase(), other.type_phrase());
            self.reports.error(DiagnosticCode::ConditionType, location, message, "these can never be equal");
            return None;
        }
        if ordered && !(one.fits(Type::Number) && other.fits(Type::Number)) {
            let message = format!("only numbers have an order, not {}", one.type_phrase());
            self.reports
                .error(DiagnosticCode::ConditionType, location, message, "")
                .help("compare with `==` or `!=`");
            return None;
        }
        Some((Condition::Compare(how, Box::new(left), Box::new(right)), Type::Boolean))
    }

    fn path(&mut self, names: &[String], location: Location) -> Option<(Condition, Type)> {
        match names {
            [turn] if turn == "turn" => self.after_start(location).map(|()| (Condition::Turn, Type::Number)),
            [env, fact] if env == "env" => self.fact(fact, location),
            [reward, part @ ..] if reward == "reward" && !part.is_empty() => {
                self.reward(&part.join("."), location)
            }
            names => {
                let message = format!("unknown name `{}` in a condition", names.join("."));
                self.reports.error(DiagnosticCode::UnknownName, location, message, "").help(KNOWN);
                None
            }
        }
    }

    /// Checks a value that is known before the run.
    fn constant_condition(&mut self, value: &Value) -> Option<(Condition, Type)> {
        if let ValueKind::Path(names) = &value.kind
            && !self.scope.contains_name(names)
        {
            let facts = self.context.facts.unwrap_or_default();
            let name = names.join(".");
            let help = match facts.iter().any(|fact| fact.name == name) {
                true => format!("the environment's fact is `env.{name}`"),
                false => KNOWN.to_owned(),
            };
            let message = format!("unknown name `{name}` in a condition");
            self.reports.error(DiagnosticCode::UnknownName, value.location, message, "").help(help);
            return None;
        }
        let scalar = evaluate(value, self.scope, self.reports)?;
        let found = match &scalar {
            Scalar::Boolean(_) => Type::Boolean,
            Scalar::Integer(_) | Scalar::Number(_) => Type::Number,
            Scalar::Text(_) => Type::Text,
            other => {
                let message = format!("{} can't be used in a condition", other.type_phrase());
                self.reports.error(DiagnosticCode::ConditionType, value.location, message, "");
                return None;
            }
        };
        Some((Condition::Literal(scalar.to_json()), found))
    }

    /// Reports an error if the edge leaves from `start`, where there is no turn or outcome yet.
    fn after_start(&mut self, location: Location) -> Option<()> {
        if !self.context.at_start {
            return Some(());
        }
        let message = "facts, `turn` and `reward` are not known before the first turn";
        self.reports
            .error(DiagnosticCode::BadEdge, location, message, "not known at `start`")
            .help("branch after the first agent instead");
        None
    }

    fn fact(&mut self, name: &str, location: Location) -> Option<(Condition, Type)> {
        let found = match self.context.facts {
            None => Type::Any,
            Some(facts) => match facts.iter().find(|fact| fact.name == name) {
                Some(fact) => match fact.kind {
                    FactKind::Boolean => Type::Boolean,
                    FactKind::Number => Type::Number,
                    FactKind::Text => Type::Text,
                },
                None => {
                    let message =
                        format!("environment `{}` reports no fact `{name}`", self.context.environment);
                    let hint = suggest(name, "its facts are", facts.iter().map(|fact| fact.name.as_str()));
                    let hint = hint.unwrap_or_else(|| "it reports no facts".to_owned());
                    self.reports.error(DiagnosticCode::UnknownFact, location, message, "").help(hint);
                    return None;
                }
            },
        };
        self.after_start(location)?;
        Some((Condition::Fact(name.to_owned()), found))
    }

    fn reward(&mut self, part: &str, location: Location) -> Option<(Condition, Type)> {
        let found = match part {
            "success" => Type::Boolean,
            "team" => Type::Number,
            agent if self.context.agents.contains(&agent) => Type::Number,
            _ if !self.context.all_agents => return None,
            _ => {
                let names = ["team", "success"].into_iter().chain(self.context.agents.iter().copied());
                let hint = suggest(part, "the parts of `reward` are", names);
                let message = format!("there is no `reward.{part}`");
                self.reports.error(DiagnosticCode::UnknownName, location, message, "").maybe_help(hint);
                return None;
            }
        };
        self.after_start(location)?;
        Some((Condition::Reward(part.to_owned()), found))
    }
}

/// Returns the value of a condition that is a literal.
pub(crate) fn constant_value(condition: &Condition) -> Option<bool> {
    match condition {
        Condition::Literal(Json::Bool(truth)) => Some(*truth),
        _ => None,
    }
}

/// True if a part of the condition is decided before the run, such as a param.
pub(crate) fn has_switch(condition: &Condition) -> bool {
    match condition {
        Condition::Literal(value) => value.is_boolean(),
        Condition::Fact(_) | Condition::Turn | Condition::Reward(_) => false,
        Condition::Not(inner) => has_switch(inner),
        Condition::And(left, right) | Condition::Or(left, right) => has_switch(left) || has_switch(right),
        // `env.done == true` depends on the run.
        Condition::Compare(..) => false,
    }
}
