//! Display of conditions in the syntax of the language, with only the necessary parentheses.

use std::fmt::{self, Display, Formatter, Write};

use serde_json::Value;

use crate::workflow::{Comparison, Condition};

/// Precedence of an operator, from the loosest to the tightest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Precedence {
    Or,
    And,
    Not,
    Compare,
    Primary,
}

impl Display for Condition {
    /// Writes the condition as it follows `when`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Condition::Literal(value) => literal(value, f),
            Condition::Fact(name) => write!(f, "env.{name}"),
            Condition::Turn => f.write_str("turn"),
            Condition::Reward(part) => write!(f, "reward.{part}"),
            Condition::Not(inner) => {
                f.write_str("not ")?;
                operand(inner, Precedence::Not, f)
            }
            // `and` and `or` are associative: a chain needs no parentheses on either side.
            Condition::And(left, right) => infix(left, "and", right, Precedence::And, f),
            Condition::Or(left, right) => infix(left, "or", right, Precedence::Or, f),
            // Comparisons can't be chained: any operand except a name or a value needs parentheses.
            Condition::Compare(how, left, right) => infix(left, symbol(*how), right, Precedence::Primary, f),
        }
    }
}

fn precedence(condition: &Condition) -> Precedence {
    match condition {
        Condition::Literal(_) | Condition::Fact(_) | Condition::Turn | Condition::Reward(_) => {
            Precedence::Primary
        }
        Condition::Not(_) => Precedence::Not,
        Condition::And(..) => Precedence::And,
        Condition::Or(..) => Precedence::Or,
        Condition::Compare(..) => Precedence::Compare,
    }
}

/// Writes an operand, in parentheses if its precedence is lower than `least`.
fn operand(condition: &Condition, least: Precedence, f: &mut Formatter<'_>) -> fmt::Result {
    if precedence(condition) < least { write!(f, "({condition})") } else { write!(f, "{condition}") }
}

fn infix(
    left: &Condition,
    word: &str,
    right: &Condition,
    least: Precedence,
    f: &mut Formatter<'_>,
) -> fmt::Result {
    operand(left, least, f)?;
    write!(f, " {word} ")?;
    operand(right, least, f)
}

fn symbol(how: Comparison) -> &'static str {
    match how {
        Comparison::Equal => "==",
        Comparison::NotEqual => "!=",
        Comparison::Less => "<",
        Comparison::LessOrEqual => "<=",
        Comparison::Greater => ">",
        Comparison::GreaterOrEqual => ">=",
    }
}

fn literal(value: &Value, f: &mut Formatter<'_>) -> fmt::Result {
    let Value::String(text) = value else { return write!(f, "{value}") };
    f.write_char('"')?;
    for letter in text.chars() {
        match letter {
            '\n' => f.write_str("\\n")?,
            '\t' => f.write_str("\\t")?,
            '\r' => f.write_str("\\r")?,
            '"' | '\\' | '$' => write!(f, "\\{letter}")?,
            letter => f.write_char(sanitize_char(letter))?,
        }
    }
    f.write_char('"')
}

/// Replaces the characters of a text that could break a drawing.
pub(super) fn sanitize(text: &str) -> String {
    text.chars().map(sanitize_char).collect()
}

/// Replaces control characters, which could move the cursor, characters that change the direction of text, and characters
/// that XML forbids.
fn sanitize_char(letter: char) -> char {
    let changes_direction =
        matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let invalid = matches!(letter, '\u{feff}' | '\u{fffe}' | '\u{ffff}');
    if letter.is_control() || changes_direction || invalid { '\u{fffd}' } else { letter }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fact(name: &str) -> Box<Condition> {
        Box::new(Condition::Fact(name.into()))
    }

    fn literal(value: Value) -> Box<Condition> {
        Box::new(Condition::Literal(value))
    }

    #[test]
    fn only_necessary_parentheses_are_written() {
        use Condition::{And, Compare, Not, Or};
        let both = || Box::new(And(fact("a"), fact("b")));
        let either = || Box::new(Or(fact("a"), fact("b")));
        let less = || Box::new(Compare(Comparison::Less, Box::new(Condition::Turn), literal(json!(2))));
        let cases = [
            (And(both(), fact("c")), "env.a and env.b and env.c"),
            (And(fact("c"), both()), "env.c and env.a and env.b"),
            (Or(both(), less()), "env.a and env.b or turn < 2"),
            (And(either(), less()), "(env.a or env.b) and turn < 2"),
            (Not(less()), "not turn < 2"),
            (Not(either()), "not (env.a or env.b)"),
            (Not(Box::new(Not(fact("a")))), "not not env.a"),
            (And(Box::new(Not(fact("a"))), fact("b")), "not env.a and env.b"),
            (Compare(Comparison::Equal, both(), literal(json!(true))), "(env.a and env.b) == true"),
            (Compare(Comparison::NotEqual, Box::new(Not(fact("a"))), less()), "(not env.a) != (turn < 2)"),
            (
                Compare(
                    Comparison::GreaterOrEqual,
                    Box::new(Condition::Reward("tool".into())),
                    literal(json!(0.5)),
                ),
                "reward.tool >= 0.5",
            ),
        ];
        for (condition, text) in cases {
            assert_eq!(condition.to_string(), text);
        }
    }

    #[test]
    fn texts_are_escaped_and_sanitized() {
        let shown = |text: &str| Condition::Literal(json!(text)).to_string();
        assert_eq!(shown("a \"b\"\\\n\t${c}"), r#""a \"b\"\\\n\t\${c}""#);
        assert_eq!(shown("red\u{1b}[31m \u{202e}left"), "\"red\u{fffd}[31m \u{fffd}left\"");
        assert_eq!(shown("größer 大"), "\"größer 大\"");
    }
}
