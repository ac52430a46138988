//! Descriptions of the syntax that was expected at a position. Names of grammar rules are never shown.

use super::grammar::Rule;

/// Describes the expected syntax, each alternative once. In an edge the only value is a condition.
pub(super) fn expected(rules: &[Rule], in_edge: bool) -> String {
    let mut words: Vec<&'static str> = Vec::new();
    // If a value is expected, so are all tokens that a value may begin with: name the value alone.
    let value =
        rules.iter().any(|rule| matches!(rule, Rule::value | Rule::string | Rule::part | Rule::choice));
    // After a complete value, an operator or the end of the statement may follow: name the end alone.
    let end = rules.iter().any(|rule| {
        matches!(
            rule,
            Rule::EOI
                | Rule::comma
                | Rule::close
                | Rule::close_bracket
                | Rule::then
                | Rule::else_
                | Rule::dots
        )
    });
    for rule in rules {
        let word = match rule {
            Rule::list
            | Rule::open_bracket
            | Rule::open
            | Rule::group
            | Rule::not
            | Rule::minus
            | Rule::if_
            | Rule::choice
                if value =>
            {
                continue;
            }
            Rule::and
            | Rule::or
            | Rule::comparison
            | Rule::sign
            | Rule::factor
            | Rule::arguments
            | Rule::index
            | Rule::open
            | Rule::open_bracket
                if end =>
            {
                continue;
            }
            Rule::path if in_edge && !value => "an agent",
            Rule::string
            | Rule::block
            | Rule::boolean
            | Rule::number
            | Rule::path
            | Rule::value
            | Rule::part
            | Rule::argument
            | Rule::range => match in_edge && value {
                true => "a condition such as `env.done` or `turn < 2`",
                false => "a value such as `4`, `\"text\"` or a name",
            },
            Rule::name if value => continue,
            Rule::name => "a name",
            Rule::type_ => "a type such as `int`",
            Rule::parameter => "a parameter such as `topic: string`",
            Rule::node_ref => "an agent",
            Rule::equals => "`=`",
            Rule::colon => "`:` and a type",
            Rule::comma => "`,`",
            Rule::dots => "`..`",
            Rule::arrow => "`->`",
            Rule::when => "`when`",
            Rule::and | Rule::or | Rule::comparison | Rule::sign | Rule::factor => {
                "an operator such as `==` or `+`"
            }
            Rule::then => "`then`",
            Rule::else_ => "`else`",
            Rule::in_ => "`in`",
            Rule::as_ => "`as` and a name",
            Rule::if_ => "`if`",
            Rule::not => "`not`",
            Rule::open | Rule::arguments | Rule::parameters => "`(`",
            Rule::close => "`)`",
            Rule::open_bracket | Rule::index => "`[`",
            Rule::close_bracket => "`]`",
            Rule::EOI => "the end of the statement",
            _ => continue,
        };
        if !words.contains(&word) {
            words.push(word);
        }
    }
    match words.as_slice() {
        [] => "something else".to_owned(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}
