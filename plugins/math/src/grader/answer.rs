//! Parser of answers: a value, a list, a tuple or interval, a set, a relation.

use super::expr::{self, Expr, Factor};
use super::token::{Bracket, Relation, Token};
use super::{eval, normalize};

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
    /// All real numbers.
    Reals,
    /// Sets that are combined from left to right.
    Combined {
        operation: SetOperation,
        parts: Vec<Answer>,
    },
    /// `2:3:5`
    Ratio(Vec<Expr>),
    /// An equation, or the first and the last side of a chain of them. `x \in A` is one, too.
    Equation {
        left: Side,
        right: Box<Answer>,
    },
    /// The sides of a chain with inequalities, and the relations between them.
    Chain {
        sides: Vec<Expr>,
        relations: Vec<Relation>,
    },
    /// Words, in the form in which they are compared.
    Words(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetOperation {
    Union,
    Intersection,
    Difference,
}

/// The left side of an equation.
#[derive(Debug, Clone, PartialEq)]
pub struct Side {
    /// The tokens, without spaces and styles, if the side only names what is on the right side.
    pub name: Option<String>,
    /// True if the right side alone can stand for the equation.
    pub assigns: bool,
    /// The side as an expression, if it is one: `(x, y)` is not.
    pub expr: Option<Expr>,
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
        let conclusion = *split(tokens, |token| *token == Token::Implies).last()?;
        if let Some(word) = word(conclusion) {
            return Some(word);
        }
        let groups = split(conclusion, |token| *token == Token::Semicolon);
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
        let ([first, .., last], [first_relation, ..]) = (&sides[..], &relations(tokens)[..]) else {
            return self.value(tokens);
        };
        let (first, last) = (*first, *last);
        // `= 5`, `\approx 5`
        if first.is_empty() {
            return self.item(last);
        }
        let fraction = first.contains(&Token::Fraction) && first.iter().any(is_number);
        if *first_relation == Relation::Approximately && (fraction || !is_name(first)) {
            return self.value(first);
        }
        let mut relations = relations(tokens);
        let mut sides = sides;
        // `x = 1/3 ≈ 0.33`: the exact value counts.
        match relations.iter().position(|relation| *relation == Relation::Approximately) {
            Some(0) => (sides, relations) = (vec![first, last], vec![Relation::Equal]),
            Some(position) => {
                sides.truncate(position + 1);
                relations.truncate(position);
            }
            None => {}
        }
        let equations = relations.iter().all(|relation| matches!(relation, Relation::Equal | Relation::In));
        if let (true, Some(last)) = (equations, sides.last()) {
            let expr = expr::parse(first);
            let name = is_name(first).then(|| name(first));
            let constant = expr.as_ref().is_some_and(eval::is_constant);
            let assigns = name.is_some() || constant || sides.len() > 2;
            let right = word(last).map_or_else(|| self.item(last), Some)?;
            return Some(Answer::Equation { left: Side { name, assigns, expr }, right: Box::new(right) });
        }
        let sides = sides.into_iter().map(|side| expr::parse(without_unit(side)?));
        Some(Answer::Chain { sides: sides.collect::<Option<_>>()?, relations })
    }

    fn value(&mut self, tokens: &[Token]) -> Option<Answer> {
        let operations = [
            (Token::Without, SetOperation::Difference),
            (Token::Union, SetOperation::Union),
            (Token::Intersection, SetOperation::Intersection),
        ];
        for (operator, operation) in operations {
            let parts = split(tokens, |token| *token == operator);
            if parts.len() > 1 {
                let parts = parts.into_iter().map(|part| self.item(part)).collect::<Option<_>>()?;
                return Some(Answer::Combined { operation, parts });
            }
        }
        match tokens {
            [Token::EmptySet] => return Some(Answer::Set(Vec::new())),
            [Token::Reals] => return Some(Answer::Reals),
            _ => {}
        }
        if let Some(bracketed) = self.bracketed(tokens) {
            return Some(bracketed);
        }
        if let Some(ratio) = ratio(tokens) {
            return Some(ratio);
        }
        if tokens.iter().any(|token| matches!(token, Token::PlusMinus | Token::MinusPlus)) {
            return both_signs(tokens);
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
                // `(1; 2)` is a tuple, too.
                let mut items = Vec::new();
                for part in split(inside, |token| *token == Token::Semicolon) {
                    items.extend(self.items(part)?);
                }
                // One value in brackets is that value.
                if items.len() == 1 {
                    return items.pop();
                }
                Some(Answer::Group { open: *open, close: *close, items })
            }
            Bracket::Floor | Bracket::Ceiling => None,
        }
    }
}

/// Parses a word alone. In a list a word is more likely part of a sentence.
fn word(tokens: &[Token]) -> Option<Answer> {
    match tokens {
        [Token::Word(word)] => Some(Answer::Words(normalize::plain(word))),
        _ => None,
    }
}

/// Parses `2:3`, which is a quotient, or a ratio of more numbers.
fn ratio(tokens: &[Token]) -> Option<Answer> {
    let parts = split(tokens, |token| *token == Token::Colon);
    if parts.len() < 2 {
        return None;
    }
    let mut parts: Vec<Expr> = parts.into_iter().map(expr::parse).collect::<Option<_>>()?;
    if let [_, _] = parts[..] {
        let divisor = Factor { divides: true, expr: parts.pop()? };
        return Some(Answer::Expr(Expr::Product(vec![
            Factor { divides: false, expr: parts.pop()? },
            divisor,
        ])));
    }
    Some(Answer::Ratio(parts))
}

/// Parses `1 ± x` as the list of both values.
fn both_signs(tokens: &[Token]) -> Option<Answer> {
    let signs = [(Token::Plus, Token::Minus), (Token::Minus, Token::Plus)];
    let both = signs.map(|(plus_minus, minus_plus)| {
        let one = tokens.iter().map(|token| match token {
            Token::PlusMinus => plus_minus.clone(),
            Token::MinusPlus => minus_plus.clone(),
            other => other.clone(),
        });
        expr::parse(&one.collect::<Vec<_>>()).map(Answer::Expr)
    });
    both.into_iter().collect::<Option<_>>().map(Answer::List)
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
        Token::Open(_) | Token::BeginMatrix | Token::BeginDeterminant => 1,
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

fn is_number(token: &Token) -> bool {
    matches!(token, Token::Number { .. })
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
    let sentence = powers.any(|(before, token)| is_number(token) && *before != Token::Power);
    (!value.is_empty() && !sentence).then_some(value)
}

/// Returns the relations outside of all brackets.
fn relations(tokens: &[Token]) -> Vec<Relation> {
    top_level(tokens).filter_map(|token| match token {
        Token::Relation(relation) => Some(*relation),
        _ => None,
    })
}

/// Returns a name in the form in which names are compared. The variable of a function plays no part.
fn name(tokens: &[Token]) -> String {
    let tokens = match tokens {
        [
            function @ Token::Name(_),
            Token::Open(Bracket::Round),
            Token::Name(_),
            Token::Close(Bracket::Round),
        ] => std::slice::from_ref(function),
        other => other,
    };
    let spelled = tokens.iter().map(|token| match token {
        Token::Name(name) | Token::Word(name) => name.to_lowercase(),
        Token::Open(Bracket::Group) | Token::Close(Bracket::Group) => String::new(),
        Token::Number { value, .. } => value.float().to_string(),
        other => format!("{other:?}"),
    });
    spelled.collect()
}

/// Returns true if the left side of an equation only names what is on the right side, without numbers: `x_1`, `f(2)`,
/// `(p, q)`, `|AB|`, `area`, `\tan \alpha`, `x + y`.
fn is_name(tokens: &[Token]) -> bool {
    let mut depth = 0;
    let plain = tokens.iter().all(|token| {
        depth += nesting(token);
        match token {
            Token::Name(_)
            | Token::Word(_)
            | Token::Function(_)
            | Token::Aggregate(_)
            | Token::Fraction
            | Token::Plus
            | Token::Times
            | Token::Divide
            | Token::Comma
            | Token::Colon
            | Token::Bar
            | Token::E
            | Token::I => true,
            Token::Open(bracket) | Token::Close(bracket) => {
                matches!(bracket, Bracket::Round | Bracket::Group)
            }
            Token::Number { .. } => depth > 0,
            _ => false,
        }
    });
    plain && tokens.iter().any(|token| matches!(token, Token::Name(_) | Token::Word(_) | Token::E | Token::I))
}
