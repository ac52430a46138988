//! Conditions in the language's own words, with no more parentheses than they need.

use std::fmt::{self, Display, Formatter, Write};

use serde_json::Value;

use crate::workflow::{Comparison, Condition};

/// How tightly an operator holds its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Bond {
    Or,
    And,
    Not,
    Compare,
    Primary,
}

impl Display for Condition {
    /// As it would be written behind `when`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Condition::Literal(value) => literal(value, f),
            Condition::Fact(name) => write!(f, "env.{name}"),
            Condition::Turn => f.write_str("turn"),
            Condition::Reward(part) => write!(f, "reward.{part}"),
            Condition::Not(inner) => {
                f.write_str("not ")?;
                within(inner, Bond::Not, f)
            }
            // A row of the same word needs no parentheses on either side.
            Condition::And(left, right) => infix(left, "and", right, Bond::And, f),
            Condition::Or(left, right) => infix(left, "or", right, Bond::Or, f),
            // Comparisons make no chains: whatever is not a name or a value stands in parentheses.
            Condition::Compare(how, left, right) => infix(left, sign(*how), right, Bond::Primary, f),
        }
    }
}

fn bond(condition: &Condition) -> Bond {
    match condition {
        Condition::Literal(_) | Condition::Fact(_) | Condition::Turn | Condition::Reward(_) => Bond::Primary,
        Condition::Not(_) => Bond::Not,
        Condition::And(..) => Bond::And,
        Condition::Or(..) => Bond::Or,
        Condition::Compare(..) => Bond::Compare,
    }
}

/// An operand that has to hold together at least as tightly as `least`.
fn within(condition: &Condition, least: Bond, f: &mut Formatter<'_>) -> fmt::Result {
    if bond(condition) < least { write!(f, "({condition})") } else { write!(f, "{condition}") }
}

fn infix(left: &Condition, word: &str, right: &Condition, least: Bond, f: &mut Formatter<'_>) -> fmt::Result {
    within(left, least, f)?;
    write!(f, " {word} ")?;
    within(right, least, f)
}

fn sign(how: Comparison) -> &'static str {
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
            letter => f.write_char(harmless(letter))?,
        }
    }
    f.write_char('"')
}

/// Text of the file as a picture may show it.
pub(super) fn harmless_text(text: &str) -> String {
    text.chars().map(harmless).collect()
}

/// Nothing reaches a picture that would move the cursor, turn the text around, or be no character of XML.
fn harmless(letter: char) -> char {
    let turns = matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let nothing = matches!(letter, '\u{feff}' | '\u{fffe}' | '\u{ffff}');
    if letter.is_control() || turns || nothing { '\u{fffd}' } else { letter }
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
    fn parentheses_stand_only_where_the_meaning_needs_them() {
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
    fn texts_are_written_so_that_they_are_read_again_and_harm_no_screen() {
        let shown = |text: &str| Condition::Literal(json!(text)).to_string();
        assert_eq!(shown("a \"b\"\\\n\t${c}"), r#""a \"b\"\\\n\t\${c}""#);
        assert_eq!(shown("red\u{1b}[31m \u{202e}left"), "\"red\u{fffd}[31m \u{fffd}left\"");
        assert_eq!(shown("größer 大"), "\"größer 大\"");
    }
}
