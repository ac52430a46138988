//! Expressions: from the grammar's flat chains to the tree, what binds tighter deeper within.
//!
//! One function for each level, from `or` down to `-`: depth grows with brackets alone, never with the length of a row.

use std::iter::Peekable;

use pest::iterators::{Pair, Pairs};

use super::Reader;
use super::grammar::Rule;
use crate::diagnostic::{Code, Place};
use crate::source::Span;
use crate::syntax::{Argument, Call, Choice, Name, Operator, Value, ValueKind};
use crate::text::{dedent, unescape};
use crate::workflow::Comparison;

type Chain<'t> = Peekable<Pairs<'t, Rule>>;

impl<'t> Reader<'t, '_, '_> {
    /// What a `value` or `part` of the grammar says. None: something in it means nothing, and is reported.
    pub(super) fn value(&mut self, pair: Pair<'t, Rule>) -> Option<Value> {
        let mut parts = pair.into_inner();
        // The simple case, which is nearly every one, without the walk down the levels.
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
        let place = self.place(&pair);
        let parts = pair.into_inner().filter(|part| part.as_rule() == Rule::part);
        // All of them, so that every wrong one is reported.
        let parts: Vec<Option<Value>> = parts.map(|part| self.value(part)).collect();
        let mut parts = parts.into_iter().collect::<Option<Vec<_>>>()?;
        let otherwise = parts.pop()?;
        let mut branches = Vec::with_capacity(parts.len() / 2);
        let mut parts = parts.into_iter();
        while let (Some(when), Some(then)) = (parts.next(), parts.next()) {
            branches.push((when, then));
        }
        Some(Value { kind: ValueKind::Choice(Box::new(Choice { branches, otherwise })), place })
    }

    fn any(&mut self, chain: &mut Chain<'t>) -> Option<Value> {
        self.joined(chain, Rule::or, Self::all, ValueKind::Any)
    }

    fn all(&mut self, chain: &mut Chain<'t>) -> Option<Value> {
        self.joined(chain, Rule::and, Self::negation, ValueKind::All)
    }

    fn joined(
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
        let place = around(parts.first()?.place, parts.last()?.place);
        Some(Value { kind: kind(parts), place })
    }

    fn negation(&mut self, chain: &mut Chain<'t>) -> Option<Value> {
        let mut start = None;
        let mut negated = false;
        while let Some(word) = chain.next_if(|next| next.as_rule() == Rule::not) {
            // Twice negated is not negated.
            negated = !negated;
            start = start.or(Some(self.place(&word)));
        }
        let inner = self.comparison(chain)?;
        match start {
            Some(start) if negated => {
                let place = around(start, inner.place);
                Some(Value { kind: ValueKind::Not(Box::new(inner)), place })
            }
            _ => Some(inner),
        }
    }

    fn comparison(&mut self, chain: &mut Chain<'t>) -> Option<Value> {
        let left = self.sum(chain);
        let is_sign = |next: &Pair<Rule>| next.as_rule() == Rule::comparison;
        let Some(sign) = chain.next_if(is_sign) else { return left };
        let how = comparison(sign.as_str());
        let right = self.sum(chain);
        if let Some(second) = chain.next_if(is_sign) {
            let place = self.place(&second);
            let message = "comparisons can't be chained";
            self.reports
                .error(Code::Syntax, place, message, "a second comparison")
                .help("write `a < b and b < c`");
            // What follows belongs to it, and is not looked at.
            while chain.next_if(|next| !matches!(next.as_rule(), Rule::and | Rule::or)).is_some() {}
            return None;
        }
        let (left, right) = (left?, right?);
        let place = around(left.place, right.place);
        Some(Value { kind: ValueKind::Compare(how?, Box::new((left, right))), place })
    }

    fn sum(&mut self, chain: &mut Chain<'t>) -> Option<Value> {
        self.row(chain, Rule::sign, Self::product)
    }

    fn product(&mut self, chain: &mut Chain<'t>) -> Option<Value> {
        self.row(chain, Rule::factor, Self::negative)
    }

    fn row(
        &mut self,
        chain: &mut Chain<'t>,
        rule: Rule,
        inner: fn(&mut Self, &mut Chain<'t>) -> Option<Value>,
    ) -> Option<Value> {
        let first = inner(self, chain);
        let mut rest = Vec::new();
        while let Some(sign) = chain.next_if(|next| next.as_rule() == rule) {
            rest.push((operator(sign.as_str()), inner(self, chain)));
        }
        if rest.is_empty() {
            return first;
        }
        let first = first?;
        let rest = rest.into_iter().map(|(sign, value)| Some((sign?, value?))).collect::<Option<Vec<_>>>()?;
        let place = around(first.place, rest.last()?.1.place);
        Some(Value { kind: ValueKind::Row(Box::new(first), rest), place })
    }

    fn negative(&mut self, chain: &mut Chain<'t>) -> Option<Value> {
        let mut start = None;
        let mut negated = false;
        while let Some(sign) = chain.next_if(|next| matches!(next.as_rule(), Rule::minus | Rule::not)) {
            let place = self.place(&sign);
            if sign.as_rule() == Rule::not {
                self.reports
                    .error(Code::Syntax, place, "`not` stands in the middle of a calculation", "")
                    .help("put it and what it is about in parentheses");
                while chain.next_if(|next| matches!(next.as_rule(), Rule::minus | Rule::not)).is_some() {}
                let _ = self.postfix(chain);
                return None;
            }
            negated = !negated;
            start = start.or(Some(place));
        }
        let inner = self.postfix(chain)?;
        match start {
            Some(start) if negated => {
                let place = around(start, inner.place);
                Some(Value { kind: ValueKind::Negative(Box::new(inner)), place })
            }
            _ => Some(inner),
        }
    }

    /// A value with the calls and positions behind it.
    fn postfix(&mut self, chain: &mut Chain<'t>) -> Option<Value> {
        let mut value = self.primary(chain.next()?);
        while let Some(next) = chain.next_if(|next| matches!(next.as_rule(), Rule::arguments | Rule::index)) {
            let place = self.place(&next);
            if next.as_rule() == Rule::index {
                let at = next.into_inner().find(|inner| inner.as_rule() == Rule::value);
                let at = at.and_then(|at| self.value(at));
                value = value.zip(at).map(|(value, at)| {
                    let place = around(value.place, place);
                    Value { kind: ValueKind::Index(Box::new((value, at))), place }
                });
                continue;
            }
            let arguments = self.arguments(next);
            value = value.zip(arguments).and_then(|(value, arguments)| {
                let ValueKind::Path(names) = value.kind else {
                    self.reports
                        .error(Code::Syntax, value.place, "only functions and templates are called", "")
                        .help("remove the parentheses behind it");
                    return None;
                };
                let name = Name { text: names.join("."), place: value.place };
                let place = around(value.place, place);
                Some(Value { kind: ValueKind::Call(Box::new(Call { name, arguments })), place })
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
        let place = self.place(&pair);
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
        Some(Value { kind, place })
    }

    /// A text, or its parts where values are inserted into it.
    pub(super) fn text(&mut self, pair: Pair<'t, Rule>, over_lines: bool) -> Option<ValueKind> {
        // Texts and values take turns, a text first and last, so that lines can be told from what is inserted.
        let mut pieces = vec![("", self.place(&pair))];
        let mut inserted = Vec::new();
        let mut sound = true;
        for part in pair.into_inner() {
            let place = self.place(&part);
            if part.as_rule() == Rule::inserted {
                let value = part.into_inner().find(|inner| inner.as_rule() == Rule::value);
                inserted.push(value.and_then(|value| self.value(value)));
                pieces.push(("", place));
            } else if let Some(last) = pieces.last_mut() {
                *last = (part.as_str(), place);
            }
        }
        let mut texts = Vec::with_capacity(pieces.len());
        for (piece, place) in &pieces {
            texts.push(unescape(piece, |start, end| {
                self.wrong_escape(piece, *place, start, end);
                sound = false;
            }));
        }
        if over_lines {
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
        for (text, (_, place)) in texts.by_ref().zip(pieces) {
            if !text.is_empty() {
                out.push(Value { kind: ValueKind::Text(text), place });
            }
            out.extend(values.next());
        }
        Some(ValueKind::Joined(out))
    }

    fn wrong_escape(&mut self, piece: &str, place: Place, start: usize, end: usize) {
        let written = piece.get(start..end).unwrap_or_default();
        let place = match place {
            Place::At(span) => Place::At(Span::new(span.start + start, span.start + end)),
            outside => outside,
        };
        self.reports
            .error(Code::Syntax, place, format!("`{written}` means nothing in a text"), "")
            .help("known are `\\n`, `\\t`, `\\r`, `\\\"`, `\\$` and `\\\\`; write a backslash as `\\\\`");
    }
}

/// From the beginning of one place to the end of another.
fn around(first: Place, last: Place) -> Place {
    match (first, last) {
        (Place::At(first), Place::At(last)) => Place::At(Span::new(first.start, last.end)),
        (first, _) => first,
    }
}

fn comparison(sign: &str) -> Option<Comparison> {
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

fn operator(sign: &str) -> Option<Operator> {
    Some(match sign {
        "+" => Operator::Plus,
        "-" => Operator::Minus,
        "*" => Operator::Times,
        "/" => Operator::Divided,
        "%" => Operator::Remainder,
        _ => return None,
    })
}
