//! Expressions: turns the grammar's flat operator chains into a tree.
//!
//! Has one function per precedence level, from `or` down to unary `-`. Unlike a Pratt parser it neither recurses over
//! repeated prefixes nor nests the operands of a long chain: the depth of the tree grows with brackets alone.

use std::iter::Peekable;

use pest::iterators::{Pair, Pairs};

use super::grammar::Rule;
use super::reader::Reader;
use super::text::{dedent, unescape};
use super::tree::{Argument, Call, Choice, Name, Operator, Value, ValueKind};
use crate::diagnostic::DiagnosticCode;
use crate::source::Location;
use crate::source::Span;
use crate::workflow::Comparison;

type Chain<'t> = Peekable<Pairs<'t, Rule>>;

impl<'t> Reader<'t, '_, '_> {
    /// Converts a `value` or `part` of the grammar. Returns `None` if an error in it was reported.
    pub(super) fn value(&mut self, pair: Pair<'t, Rule>) -> Option<Value> {
        let mut parts = pair.into_inner();
        // A single operand, which is the usual case, needs no walk down the levels.
        if parts.len() == 1 {
            let only = parts.next()?;
            return match only.as_rule() {
                Rule::choice => self.choice(only),
                _ => self.primary(only),
            };
        }
        self.any(&mut parts.peekable())
    }

    fn choice(&mut self, pair: Pair<'t, Rule>) -> Option<Value> {
        let location = self.location(&pair);
        let parts = pair.into_inner().filter(|part| part.as_rule() == Rule::part);
        // Convert all of them, so that every error is reported.
        let parts: Vec<Option<Value>> = parts.map(|part| self.value(part)).collect();
        let mut parts = parts.into_iter().collect::<Option<Vec<_>>>()?;
        let otherwise = parts.pop()?;
        let mut branches = Vec::with_capacity(parts.len() / 2);
        let mut parts = parts.into_iter();
        while let (Some(when), Some(then)) = (parts.next(), parts.next()) {
            branches.push((when, then));
        }
        Some(Value { kind: ValueKind::Choice(Box::new(Choice { branches, otherwise })), location })
    }

    fn any(&mut self, chain: &mut Chain<'t>) -> Option<Value> {
        self.chain(chain, Rule::or, Self::all, ValueKind::Any)
    }

    fn all(&mut self, chain: &mut Chain<'t>) -> Option<Value> {
        self.chain(chain, Rule::and, Self::negation, ValueKind::All)
    }

    fn chain(
        &mut self,
        chain: &mut Chain<'t>,
        word: Rule,
        inner: fn(&mut Self, &mut Chain<'t>) -> Option<Value>,
        kind: fn(Vec<Value>) -> ValueKind,
    ) -> Option<Value> {
        let first = inner(self, chain);
        if chain.peek().is_none_or(|next| next.as_rule() != word) {
            return first;
        }
        let mut parts = vec![first];
        while chain.next_if(|next| next.as_rule() == word).is_some() {
            parts.push(inner(self, chain));
        }
        let parts = parts.into_iter().collect::<Option<Vec<_>>>()?;
        let location = join(parts.first()?.location, parts.last()?.location);
        Some(Value { kind: kind(parts), location })
    }

    fn negation(&mut self, chain: &mut Chain<'t>) -> Option<Value> {
        let mut start = None;
        let mut negated = false;
        while let Some(word) = chain.next_if(|next| next.as_rule() == Rule::not) {
            // Double negation cancels out.
            negated = !negated;
            start = start.or(Some(self.location(&word)));
        }
        let inner = self.comparison(chain)?;
        match start {
            Some(start) if negated => {
                let location = join(start, inner.location);
                Some(Value { kind: ValueKind::Not(Box::new(inner)), location })
            }
            _ => Some(inner),
        }
    }

    fn comparison(&mut self, chain: &mut Chain<'t>) -> Option<Value> {
        let left = self.sum(chain);
        let is_sign = |next: &Pair<Rule>| next.as_rule() == Rule::comparison;
        let Some(sign) = chain.next_if(is_sign) else { return left };
        let how = comparison_operator(sign.as_str());
        let right = self.sum(chain);
        if let Some(second) = chain.next_if(is_sign) {
            let location = self.location(&second);
            let message = "comparisons can't be chained";
            self.reports
                .error(DiagnosticCode::Syntax, location, message, "a second comparison")
                .help("write `a < b and b < c`");
            // Skip the rest of the chained comparison.
            while chain.next_if(|next| !matches!(next.as_rule(), Rule::and | Rule::or)).is_some() {}
            return None;
        }
        let (left, right) = (left?, right?);
        let location = join(left.location, right.location);
        Some(Value { kind: ValueKind::Compare(how?, Box::new((left, right))), location })
    }

    fn sum(&mut self, chain: &mut Chain<'t>) -> Option<Value> {
        self.arithmetic(chain, Rule::sign, Self::product)
    }

    fn product(&mut self, chain: &mut Chain<'t>) -> Option<Value> {
        self.arithmetic(chain, Rule::factor, Self::negative)
    }

    fn arithmetic(
        &mut self,
        chain: &mut Chain<'t>,
        rule: Rule,
        inner: fn(&mut Self, &mut Chain<'t>) -> Option<Value>,
    ) -> Option<Value> {
        let first = inner(self, chain);
        let mut rest = Vec::new();
        while let Some(sign) = chain.next_if(|next| next.as_rule() == rule) {
            rest.push((arithmetic_operator(sign.as_str()), inner(self, chain)));
        }
        if rest.is_empty() {
            return first;
        }
        let first = first?;
        let rest = rest.into_iter().map(|(sign, value)| Some((sign?, value?))).collect::<Option<Vec<_>>>()?;
        let location = join(first.location, rest.last()?.1.location);
        Some(Value { kind: ValueKind::Arithmetic(Box::new(first), rest), location })
    }

    fn negative(&mut self, chain: &mut Chain<'t>) -> Option<Value> {
        let mut start = None;
        let mut negated = false;
        while let Some(sign) = chain.next_if(|next| matches!(next.as_rule(), Rule::minus | Rule::not)) {
            let location = self.location(&sign);
            if sign.as_rule() == Rule::not {
                self.reports
                    .error(DiagnosticCode::Syntax, location, "`not` is in the middle of a calculation", "")
                    .help("put `not` and its operand in parentheses");
                while chain.next_if(|next| matches!(next.as_rule(), Rule::minus | Rule::not)).is_some() {}
                let _ = self.postfix(chain);
                return None;
            }
            negated = !negated;
            start = start.or(Some(location));
        }
        let inner = self.postfix(chain)?;
        match start {
            Some(start) if negated => {
                let location = join(start, inner.location);
                Some(Value { kind: ValueKind::Negative(Box::new(inner)), location })
            }
            _ => Some(inner),
        }
    }

    /// Converts an operand with the calls and indices after it.
    fn postfix(&mut self, chain: &mut Chain<'t>) -> Option<Value> {
        let mut value = self.primary(chain.next()?);
        while let Some(next) = chain.next_if(|next| matches!(next.as_rule(), Rule::arguments | Rule::index)) {
            let location = self.location(&next);
            if next.as_rule() == Rule::index {
                let at = next.into_inner().find(|inner| inner.as_rule() == Rule::value);
                let at = at.and_then(|at| self.value(at));
                value = value.zip(at).map(|(value, at)| {
                    let location = join(value.location, location);
                    Value { kind: ValueKind::Index(Box::new((value, at))), location }
                });
                continue;
            }
            let arguments = self.arguments(next);
            value = value.zip(arguments).and_then(|(value, arguments)| {
                let ValueKind::Path(names) = value.kind else {
                    self.reports
                        .error(
                            DiagnosticCode::Syntax,
                            value.location,
                            "only functions and templates can be called",
                            "",
                        )
                        .help("remove the parentheses after it");
                    return None;
                };
                let name = Name { text: names.join("."), location: value.location };
                let location = join(value.location, location);
                Some(Value { kind: ValueKind::Call(Box::new(Call { name, arguments })), location })
            });
        }
        value
    }

    fn arguments(&mut self, pair: Pair<'t, Rule>) -> Option<Vec<Argument>> {
        let arguments = pair.into_inner().filter(|part| part.as_rule() == Rule::argument);
        let arguments: Vec<Option<Argument>> = arguments
            .map(|argument| {
                let (mut name, mut value) = (None, None);
                for part in argument.into_inner() {
                    match part.as_rule() {
                        Rule::name => name = Some(self.name(&part)),
                        Rule::value => value = self.value(part),
                        _ => {}
                    }
                }
                Some(Argument { name, value: value? })
            })
            .collect();
        arguments.into_iter().collect()
    }

    fn primary(&mut self, pair: Pair<'t, Rule>) -> Option<Value> {
        let location = self.location(&pair);
        let kind = match pair.as_rule() {
            Rule::string => self.text(pair, false)?,
            Rule::block => self.text(pair, true)?,
            Rule::boolean => ValueKind::Boolean(pair.as_str() == "true"),
            Rule::number => ValueKind::Number(pair.as_str().to_owned()),
            Rule::path => ValueKind::Path(pair.into_inner().map(|part| part.as_str().to_owned()).collect()),
            Rule::list => {
                let values = pair.into_inner().filter(|part| part.as_rule() == Rule::value);
                let values: Vec<Option<Value>> = values.map(|part| self.value(part)).collect();
                ValueKind::List(values.into_iter().collect::<Option<_>>()?)
            }
            Rule::group => {
                let inner = pair.into_inner().find(|part| part.as_rule() == Rule::value)?;
                return self.value(inner);
            }
            _ => return None,
        };
        Some(Value { kind, location })
    }

    /// Converts a text literal: plain text, or parts if values are inserted into it.
    pub(super) fn text(&mut self, pair: Pair<'t, Rule>, multi_line: bool) -> Option<ValueKind> {
        // Texts and inserted values alternate, with a text first and last, possibly empty.
        let mut pieces = vec![("", self.location(&pair))];
        let mut inserted = Vec::new();
        let mut sound = true;
        for part in pair.into_inner() {
            let location = self.location(&part);
            if part.as_rule() == Rule::inserted {
                let value = part.into_inner().find(|inner| inner.as_rule() == Rule::value);
                inserted.push(value.and_then(|value| self.value(value)));
                pieces.push(("", location));
            } else if let Some(last) = pieces.last_mut() {
                *last = (part.as_str(), location);
            }
        }
        let mut texts = Vec::with_capacity(pieces.len());
        for (piece, location) in &pieces {
            texts.push(unescape(piece, |start, end| {
                self.report_escape(piece, *location, start, end);
                sound = false;
            }));
        }
        if multi_line {
            let raw: Vec<&str> = pieces.iter().map(|(piece, _)| *piece).collect();
            texts = dedent(&raw).iter().map(|piece| unescape(piece, |_, _| {})).collect();
        }
        let inserted = inserted.into_iter().collect::<Option<Vec<_>>>().filter(|_| sound)?;
        let mut texts = texts.into_iter();
        if inserted.is_empty() {
            return Some(ValueKind::Text(texts.next().unwrap_or_default()));
        }
        let mut out = Vec::with_capacity(2 * inserted.len() + 1);
        let mut values = inserted.into_iter();
        for (text, (_, location)) in texts.by_ref().zip(pieces) {
            if !text.is_empty() {
                out.push(Value { kind: ValueKind::Text(text), location });
            }
            out.extend(values.next());
        }
        Some(ValueKind::Joined(out))
    }

    fn report_escape(&mut self, piece: &str, location: Location, start: usize, end: usize) {
        let written = piece.get(start..end).unwrap_or_default();
        let location = match location {
            Location::Span(span) => Location::Span(Span::new(span.start + start, span.start + end)),
            outside => outside,
        };
        self.reports
            .error(DiagnosticCode::Syntax, location, format!("invalid escape `{written}` in a text"), "")
            .help("valid escapes are `\\n`, `\\t`, `\\r`, `\\\"`, `\\$` and `\\\\`; write a backslash as `\\\\`");
    }
}

/// Joins two locations and the text between them.
fn join(first: Location, last: Location) -> Location {
    match (first, last) {
        (Location::Span(first), Location::Span(last)) => Location::Span(Span::new(first.start, last.end)),
        (first, _) => first,
    }
}

fn comparison_operator(sign: &str) -> Option<Comparison> {
    Some(match sign {
        "==" => Comparison::Equal,
        "!=" => Comparison::NotEqual,
        "<" => Comparison::Less,
        "<=" => Comparison::LessOrEqual,
        ">" => Comparison::Greater,
        ">=" => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

fn arithmetic_operator(sign: &str) -> Option<Operator> {
    Some(match sign {
        "+" => Operator::Plus,
        "-" => Operator::Minus,
        "*" => Operator::Times,
        "/" => Operator::Divided,
        "%" => Operator::Remainder,
        _ => return None,
    })
}
