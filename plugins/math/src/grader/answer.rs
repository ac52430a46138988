//! Parser of answers: a value, a list, a tuple or interval, a set, a relation.

use super::eval;
use super::expr::{self, Expr};
use super::lex::{Bracket, Relation, Token};

/// Maximum nesting, which no real answer reaches.
const MAX_DEPTH: usize = 12;

/// Maximum number of items in all lists of an answer: comparing unordered lists takes quadratic time.
const MAX_PARTS: usize = 128;

/// A parsed answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Expr(Expr),
    /// Values without brackets, in any order.
    List(Vec<Answer>),
    /// A tuple, or an interval.
    Group {
        open: Bracket,
        close: Bracket,
        items: Vec<Answer>,
    },
    Set(Vec<Answer>),
    Union(Vec<Answer>),
    /// `7:32`
    Ratio(Vec<Expr>),
    /// A value with a name in front of it. The name is kept for the comparison with equations.
    Assigned {
        left: Option<Expr>,
        value: Box<Answer>,
    },
    /// The sides of (in)equalities and the relations between them.
    Chain {
        sides: Vec<Expr>,
        relations: Vec<Relation>,
    },
}

/// Parses an answer. Returns `None` if the tokens are not an answer.
pub fn parse(tokens: &[Token]) -> Option<Answer> {
    Parser { parts: 0, depth: 0 }.answer(tokens)
}

struct Parser {
    parts: usize,
    depth: usize,
}

impl Parser {
    fn answer(&mut self, tokens: &[Token]) -> Option<Answer> {
        let groups = split(tokens, |token| *token == Token::Semicolon);
        if let [only] = groups[..] {
            return Some(list(self.items(only)?));
        }
        // `p = 5, q = 2; p = 7, q = 2` are two pairs.
        let pairs = groups.into_iter().filter(|group| !group.is_empty()).map(|group| {
            let mut items = self.items(group)?;
            if items.len() == 1 { items.pop() } else { Some(tuple(items)) }
        });
        Some(list(pairs.collect::<Option<_>>()?))
    }

    fn items(&mut self, tokens: &[Token]) -> Option<Vec<Answer>> {
        let parts = split(tokens, |token| matches!(token, Token::Comma | Token::Conjunction));
        let mut items = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            self.parts += 1;
            if self.parts > MAX_PARTS {
                return None;
            }
            match self.item(part)? {
                Answer::List(several) => items.extend(several),
                one => items.push(one),
            }
        }
        (!items.is_empty()).then_some(items)
    }

    fn item(&mut self, tokens: &[Token]) -> Option<Answer> {
        self.depth += 1;
        let item = if self.depth > MAX_DEPTH { None } else { self.related(without_unit(tokens)?) };
        self.depth -= 1;
        item
    }

    fn related(&mut self, tokens: &[Token]) -> Option<Answer> {
        let sides = split(tokens, |token| matches!(token, Token::Relation(_)));
        if sides.len() < 2 {
            return self.value(tokens);
        }
        let relations: Vec<_> = top_level(tokens).filter_map(|token| match token {
            Token::Relation(relation) => Some(*relation),
            _ => None,
        });
        // `x = 1/3 ≈ 0.33`: the exact value counts.
        let exact = relations.iter().position(|relation| *relation == Relation::Approximately);
        let (sides, relations) = match exact {
            Some(0) => ([sides[0], sides[sides.len() - 1]].to_vec(), vec![Relation::Equal]),
            Some(position) => (sides[..=position].to_vec(), relations[..position].to_vec()),
            None => (sides, relations),
        };
        let (first, last) = (sides[0], sides[sides.len() - 1]);
        let names = |relation: &Relation| matches!(relation, Relation::Equal | Relation::In);
        let assigns = relations.iter().all(names)
            && (sides.len() > 2
                || is_name(first)
                || expr::parse(first).is_some_and(|left| eval::is_constant(&left)));
        if assigns {
            let value = self.item(last)?;
            return Some(Answer::Assigned { left: expr::parse(first), value: Box::new(value) });
        }
        let sides: Vec<Expr> = sides.into_iter().map(expr::parse).collect::<Option<_>>()?;
        Some(Answer::Chain { sides, relations })
    }

    fn value(&mut self, tokens: &[Token]) -> Option<Answer> {
        let pieces = split(tokens, |token| *token == Token::Union);
        if pieces.len() > 1 {
            let pieces = pieces.into_iter().map(|piece| self.item(piece));
            return pieces.collect::<Option<_>>().map(Answer::Union);
        }
        if tokens == [Token::EmptySet] {
            return Some(Answer::Set(Vec::new()));
        }
        if let Some(bracketed) = self.bracketed(tokens) {
            return Some(bracketed);
        }
        let ratio = split(tokens, |token| *token == Token::Colon);
        if ratio.len() > 1 {
            return ratio.into_iter().map(expr::parse).collect::<Option<_>>().map(Answer::Ratio);
        }
        if tokens.iter().any(|token| matches!(token, Token::PlusMinus | Token::MinusPlus)) {
            let signs = [(Token::Plus, Token::Minus), (Token::Minus, Token::Plus)];
            let both = signs.map(|(plus_minus, minus_plus)| {
                let one = tokens.iter().map(|token| match token {
                    Token::PlusMinus => plus_minus.clone(),
                    Token::MinusPlus => minus_plus.clone(),
                    other => other.clone(),
                });
                expr::parse(&one.collect::<Vec<_>>()).map(Answer::Expr)
            });
            return both.into_iter().collect::<Option<_>>().map(Answer::List);
        }
        expr::parse(tokens).map(Answer::Expr)
    }

    /// Parses tokens inside one pair of brackets, unless the brackets only express precedence.
    fn bracketed(&mut self, tokens: &[Token]) -> Option<Answer> {
        let [Token::Open(open), inside @ .., Token::Close(close)] = tokens else {
            return None;
        };
        // The first bracket must not close before the end.
        if !balanced(inside) {
            return None;
        }
        if inside.is_empty() {
            return matches!(open, Bracket::Set | Bracket::Group).then(|| Answer::Set(Vec::new()));
        }
        match open {
            Bracket::Group => self.answer(inside),
            Bracket::Set => self.items(inside).map(Answer::Set),
            Bracket::Round | Bracket::Square => {
                let items = self.items(inside)?;
                // One value in brackets is that value.
                if let [Answer::Expr(_) | Answer::Group { .. }] = items[..] {
                    return items.into_iter().next();
                }
                (items.len() > 1).then_some(Answer::Group { open: *open, close: *close, items })
            }
            Bracket::Floor | Bracket::Ceiling => None,
        }
    }
}

fn list(mut items: Vec<Answer>) -> Answer {
    match items.pop() {
        Some(only) if items.is_empty() => only,
        last => {
            items.extend(last);
            Answer::List(items)
        }
    }
}

fn tuple(items: Vec<Answer>) -> Answer {
    Answer::Group { open: Bracket::Round, close: Bracket::Round, items }
}

/// Returns the change of the bracket depth. Kinds need not match: `[0, 1)`.
fn nesting(token: &Token) -> isize {
    match token {
        Token::Open(_) | Token::BeginMatrix => 1,
        Token::Close(_) | Token::EndMatrix => -1,
        _ => 0,
    }
}

/// Returns true if every bracket is opened and closed within the tokens.
fn balanced(tokens: &[Token]) -> bool {
    let mut depth = 0;
    tokens.iter().all(|token| {
        depth += nesting(token);
        depth >= 0
    }) && depth == 0
}

/// Returns the tokens outside of all brackets.
fn top_level(tokens: &[Token]) -> TopLevel<'_> {
    TopLevel { tokens, position: 0, depth: 0 }
}

struct TopLevel<'t> {
    tokens: &'t [Token],
    position: usize,
    depth: isize,
}

impl<'t> TopLevel<'t> {
    fn next_index(&mut self) -> Option<usize> {
        while let Some(token) = self.tokens.get(self.position) {
            let index = self.position;
            self.position += 1;
            self.depth += nesting(token);
            if self.depth == 0 && nesting(token) == 0 {
                return Some(index);
            }
        }
        None
    }

    fn filter_map<T>(mut self, pick: impl Fn(&'t Token) -> Option<T>) -> Vec<T> {
        let mut picked = Vec::new();
        while let Some(index) = self.next_index() {
            picked.extend(pick(&self.tokens[index]));
        }
        picked
    }
}

/// Splits at separators outside of all brackets.
fn split(tokens: &[Token], separates: impl Fn(&Token) -> bool) -> Vec<&[Token]> {
    let mut parts = Vec::new();
    let mut from = 0;
    let mut outside = top_level(tokens);
    while let Some(index) = outside.next_index() {
        if separates(&tokens[index]) {
            parts.push(&tokens[from..index]);
            from = index + 1;
        }
    }
    parts.push(&tokens[from..]);
    parts
}

/// Removes the unit after a value: `5 miles per hour`. Returns `None` if there are words elsewhere.
fn without_unit(tokens: &[Token]) -> Option<&[Token]> {
    let words = split(tokens, |token| matches!(token, Token::Word(_)));
    let related =
        !top_level(tokens).filter_map(|token| matches!(token, Token::Relation(_)).then_some(())).is_empty();
    if words.len() < 2 || related {
        return Some(tokens);
    }
    let unit = words[0].len();
    let (value, unit) = tokens.split_at(unit);
    // `miles / hour`, `cm^2`. With another number the words are a sentence.
    let mut powers = unit.iter().zip(unit.iter().skip(1));
    let sentence =
        powers.any(|(before, token)| matches!(token, Token::Number { .. }) && *before != Token::Power);
    (!value.is_empty() && !sentence).then_some(value)
}

/// Returns true if the left side of an equation is only a name: `x_1`, `f(2)`, `(p, q)`, `|AB|`, `area`.
fn is_name(tokens: &[Token]) -> bool {
    let mut depth = 0;
    let plain = tokens.iter().all(|token| {
        depth += nesting(token);
        match token {
            Token::Name(_)
            | Token::Word(_)
            | Token::Comma
            | Token::Colon
            | Token::Bar
            | Token::E
            | Token::I => true,
            Token::Open(Bracket::Round | Bracket::Group) | Token::Close(Bracket::Round | Bracket::Group) => {
                true
            }
            Token::Number { .. } => depth > 0,
            _ => false,
        }
    });
    plain && tokens.iter().any(|token| matches!(token, Token::Name(_) | Token::Word(_) | Token::E | Token::I))
}
