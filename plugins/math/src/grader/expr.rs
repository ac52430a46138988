//! Expressions: the syntax tree and its parser.

use super::number::{Number, Rational};
use super::token::{Aggregate, Bracket, Function, Token};

/// Maximum nesting: more than in any real answer, and safe for every stack.
const MAX_DEPTH: usize = 48;

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    Number(Number),
    Name(String),
    Pi,
    E,
    I,
    Infinity,
    Sum(Vec<Expr>),
    Product(Vec<Factor>),
    Negative(Box<Expr>),
    Power(Box<Expr>, Box<Expr>),
    /// Degree, radicand.
    Root(Box<Expr>, Box<Expr>),
    Apply(Function, Box<Expr>),
    /// Base, argument.
    Logarithm(Box<Expr>, Box<Expr>),
    Percent(Box<Expr>),
    Factorial(Box<Expr>),
    Absolute(Box<Expr>),
    Floor(Box<Expr>),
    Ceiling(Box<Expr>),
    Binomial(Box<Expr>, Box<Expr>),
    /// Value, modulus.
    Modulo(Box<Expr>, Box<Expr>),
    Aggregate(Aggregate, Vec<Expr>),
    /// Rows of equal length.
    Matrix(Vec<Vec<Expr>>),
    Determinant(Vec<Vec<Expr>>),
    /// Digits and their base. The value is that of the digits: a question that has such an answer names the
    /// base, so that most answers leave it out.
    InBase(Box<Expr>, String),
}

/// One factor of a product, or a divisor.
#[derive(Debug, Clone, PartialEq)]
pub struct Factor {
    pub divides: bool,
    pub expr: Expr,
}

impl Expr {
    /// Returns a whole number.
    pub const fn integer(value: i128) -> Self {
        Self::Number(Number::integer(value))
    }

    /// Returns the difference of this and `other`.
    pub fn minus(self, other: Self) -> Self {
        Self::Sum(vec![self, Self::Negative(Box::new(other))])
    }

    /// Calls `visit` for this expression and all of its parts.
    pub fn walk<'e>(&'e self, visit: &mut impl FnMut(&'e Self)) {
        visit(self);
        match self {
            Self::Number(_) | Self::Name(_) | Self::Pi | Self::E | Self::I | Self::Infinity => {}
            Self::Sum(terms) | Self::Aggregate(_, terms) => terms.iter().for_each(|term| term.walk(visit)),
            Self::Product(factors) => factors.iter().for_each(|factor| factor.expr.walk(visit)),
            Self::Matrix(rows) | Self::Determinant(rows) => {
                rows.iter().flatten().for_each(|cell| cell.walk(visit))
            }
            Self::Power(a, b)
            | Self::Root(a, b)
            | Self::Logarithm(a, b)
            | Self::Binomial(a, b)
            | Self::Modulo(a, b) => {
                a.walk(visit);
                b.walk(visit);
            }
            Self::Negative(inner)
            | Self::Apply(_, inner)
            | Self::Percent(inner)
            | Self::Factorial(inner)
            | Self::Absolute(inner)
            | Self::Floor(inner)
            | Self::InBase(inner, _)
            | Self::Ceiling(inner) => inner.walk(visit),
        }
    }
}

/// Parses all tokens as one expression.
pub fn parse(tokens: &[Token]) -> Option<Expr> {
    let mut parser = Parser { tokens, position: 0, depth: 0, bars: 0 };
    let expr = parser.stacked()?;
    (parser.position == tokens.len()).then_some(expr)
}

struct Parser<'t> {
    tokens: &'t [Token],
    position: usize,
    depth: usize,
    /// Number of open absolute values. If it is not zero, a bar closes one instead of opening another.
    bars: usize,
}

impl<'t> Parser<'t> {
    fn peek(&self) -> Option<&'t Token> {
        self.tokens.get(self.position)
    }

    fn take(&mut self, token: &Token) -> bool {
        let found = self.peek() == Some(token);
        self.position += usize::from(found);
        found
    }

    /// Parses `a \over b`, `n \choose k`, `a \mod m`, or a sum.
    fn stacked(&mut self) -> Option<Expr> {
        let top = self.sum()?;
        if self.take(&Token::Over) {
            let bottom = self.sum()?;
            let factors = [(false, top), (true, bottom)];
            return Some(Expr::Product(factors.map(|(divides, expr)| Factor { divides, expr }).into()));
        }
        if self.take(&Token::Choose) {
            return Some(Expr::Binomial(Box::new(top), Box::new(self.sum()?)));
        }
        if self.take(&Token::Modulo) {
            return Some(Expr::Modulo(Box::new(top), Box::new(self.sum()?)));
        }
        Some(top)
    }

    fn sum(&mut self) -> Option<Expr> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let mut terms = Vec::new();
        loop {
            let start = self.position;
            let mut negative = false;
            while matches!(self.peek(), Some(Token::Plus | Token::Minus)) {
                negative ^= self.peek() == Some(&Token::Minus);
                self.position += 1;
            }
            if self.position == start && !terms.is_empty() {
                break;
            }
            let term = self.product()?;
            terms.push(if negative { Expr::Negative(Box::new(term)) } else { term });
        }
        self.depth -= 1;
        if terms.len() == 1 { terms.pop() } else { Some(Expr::Sum(terms)) }
    }

    fn product(&mut self) -> Option<Expr> {
        let start = self.position;
        let first = match self.mixed_number() {
            Some(mixed) => mixed,
            None => {
                self.position = start;
                self.factor()?
            }
        };
        let mut factors = vec![Factor { divides: false, expr: first }];
        loop {
            let divides = self.take(&Token::Divide);
            let expr = if divides || self.take(&Token::Times) {
                // A sign may only follow an explicit operator.
                let negative = self.take(&Token::Minus);
                let factor = self.factor()?;
                if negative { Expr::Negative(Box::new(factor)) } else { factor }
            } else if self.begins_factor() {
                self.factor()?
            } else {
                break;
            };
            factors.push(Factor { divides, expr });
        }
        if factors.len() == 1 {
            factors.pop().map(|factor| factor.expr)
        } else {
            Some(Expr::Product(factors))
        }
    }

    /// Parses `2\frac{1}{3}` or `2 1/3`, which is a sum in any context.
    fn mixed_number(&mut self) -> Option<Expr> {
        let whole = self.literal_integer()?;
        let (top, bottom) = if self.take(&Token::Fraction) {
            (self.braced_integer()?, self.braced_integer()?)
        } else {
            let top = self.literal_integer()?;
            (top, self.take(&Token::Divide).then(|| self.literal_integer())??)
        };
        let part = Rational::new(top, bottom)?;
        let sum = Number::integer(whole).add(Number::Exact { value: part, decimal: false })?;
        Some(Expr::Number(sum))
    }

    fn literal_integer(&mut self) -> Option<i128> {
        let Some(Token::Number { value, decimal: false }) = self.peek() else {
            return None;
        };
        self.position += 1;
        value.whole()
    }

    fn braced_integer(&mut self) -> Option<i128> {
        let braced = self.take(&Token::Open(Bracket::Group));
        let value = self.literal_integer()?;
        (!braced || self.take(&Token::Close(Bracket::Group))).then_some(value)
    }

    /// Returns true if the next token is a factor without a multiplication sign. A number after another
    /// number is not: `2 3` is not a product.
    fn begins_factor(&self) -> bool {
        match self.peek() {
            Some(
                Token::Name(_)
                | Token::Function(_)
                | Token::Aggregate(_)
                | Token::Fraction
                | Token::Binomial
                | Token::Root
                | Token::Pi
                | Token::E
                | Token::I
                | Token::BeginMatrix
                | Token::BeginDeterminant
                | Token::Open(
                    Bracket::Round | Bracket::Square | Bracket::Group | Bracket::Floor | Bracket::Ceiling,
                ),
            ) => true,
            Some(Token::Bar) => self.bars == 0,
            Some(Token::Number { .. }) => !matches!(
                self.position.checked_sub(1).and_then(|before| self.tokens.get(before)),
                Some(Token::Number { .. } | Token::Base(_) | Token::Percent)
            ),
            _ => false,
        }
    }

    fn factor(&mut self) -> Option<Expr> {
        let base = self.atom()?;
        self.postfix(base)
    }

    fn postfix(&mut self, mut base: Expr) -> Option<Expr> {
        for _ in 0..MAX_DEPTH {
            base = match self.peek() {
                Some(Token::Power) => {
                    self.position += 1;
                    Expr::Power(Box::new(base), Box::new(self.exponent()?))
                }
                Some(Token::Base(digits)) => {
                    self.position += 1;
                    Expr::InBase(Box::new(base), digits.clone())
                }
                Some(Token::Factorial) => {
                    self.position += 1;
                    Expr::Factorial(Box::new(base))
                }
                Some(Token::Percent) => {
                    self.position += 1;
                    Expr::Percent(Box::new(base))
                }
                _ => return Some(base),
            };
        }
        None
    }

    fn exponent(&mut self) -> Option<Expr> {
        let negative = self.take(&Token::Minus);
        let exponent = self.atom()?;
        // Powers are right-associative: `2^3^2` is `2^9`.
        let exponent =
            if self.peek() == Some(&Token::Power) { self.nested(|p| p.postfix(exponent))? } else { exponent };
        Some(if negative { Expr::Negative(Box::new(exponent)) } else { exponent })
    }

    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn atom(&mut self) -> Option<Expr> {
        let token = self.peek()?;
        self.position += 1;
        Some(match token {
            Token::Number { value, decimal } => {
                Expr::Number(Number::Exact { value: *value, decimal: *decimal })
            }
            Token::Name(name) => Expr::Name(name.clone()),
            Token::Pi => Expr::Pi,
            Token::E => Expr::E,
            Token::I => Expr::I,
            Token::Infinity => Expr::Infinity,
            Token::Open(bracket) => {
                let bars = std::mem::take(&mut self.bars);
                let inner = self.stacked()?;
                self.bars = bars;
                if !self.take(&Token::Close(*bracket)) {
                    return None;
                }
                match bracket {
                    Bracket::Round | Bracket::Square | Bracket::Group => inner,
                    Bracket::Floor => Expr::Floor(Box::new(inner)),
                    Bracket::Ceiling => Expr::Ceiling(Box::new(inner)),
                    Bracket::Set => return None,
                }
            }
            Token::Bar => {
                self.bars += 1;
                let inner = self.sum()?;
                self.bars -= 1;
                if !self.take(&Token::Bar) {
                    return None;
                }
                Expr::Absolute(Box::new(inner))
            }
            Token::Fraction => {
                let factors = [false, true].map(|divides| Some(Factor { divides, expr: self.argument()? }));
                Expr::Product(factors.into_iter().collect::<Option<_>>()?)
            }
            Token::Binomial => Expr::Binomial(Box::new(self.argument()?), Box::new(self.argument()?)),
            Token::Root => self.root()?,
            Token::Function(function) => self.function(*function)?,
            Token::Aggregate(aggregate) => Expr::Aggregate(*aggregate, self.nested(Self::arguments)?),
            Token::BeginMatrix => Expr::Matrix(self.matrix()?),
            Token::BeginDeterminant => Expr::Determinant(self.matrix()?),
            _ => return None,
        })
    }

    /// Parses an argument of `\frac` or `\sqrt`.
    fn argument(&mut self) -> Option<Expr> {
        self.nested(Self::atom)
    }

    /// Parses `(a, b, c)` or `\{a, b, c\}`.
    fn arguments(&mut self) -> Option<Vec<Expr>> {
        let Some(Token::Open(bracket)) = self.peek() else {
            return None;
        };
        self.position += 1;
        let mut arguments = vec![self.sum()?];
        while self.take(&Token::Comma) {
            arguments.push(self.sum()?);
        }
        self.take(&Token::Close(*bracket)).then_some(arguments)
    }

    fn root(&mut self) -> Option<Expr> {
        let degree = if self.take(&Token::Open(Bracket::Square)) {
            let degree = self.sum()?;
            self.take(&Token::Close(Bracket::Square)).then_some(degree)?
        } else {
            Expr::integer(2)
        };
        Some(Expr::Root(Box::new(degree), Box::new(self.argument()?)))
    }

    fn function(&mut self, function: Function) -> Option<Expr> {
        let base = match self.peek() {
            Some(Token::Base(text)) => {
                self.position += 1;
                Some(Rational::parse(text).map_or_else(
                    || Expr::Name(text.clone()),
                    |value| Expr::Number(Number::Exact { value, decimal: false }),
                ))
            }
            _ => None,
        };
        let exponent = if self.take(&Token::Power) { Some(self.exponent()?) } else { None };
        let argument = Box::new(self.nested(Self::function_argument)?);
        if let (Some(inverse), true) =
            (inverse(function), exponent == Some(Expr::Negative(Box::new(Expr::integer(1)))))
        {
            return Some(Expr::Apply(inverse, argument));
        }
        let applied = match (function, base) {
            (Function::Log, base) => {
                Expr::Logarithm(Box::new(base.unwrap_or_else(|| Expr::integer(10))), argument)
            }
            (function, _) => Expr::Apply(function, argument),
        };
        Some(match exponent {
            Some(exponent) => Expr::Power(Box::new(applied), Box::new(exponent)),
            None => applied,
        })
    }

    /// Parses the argument of `\sin(x)`, or of `\sin 2x`: adjacent factors.
    fn function_argument(&mut self) -> Option<Expr> {
        if matches!(self.peek(), Some(Token::Open(_) | Token::Bar | Token::Function(_))) {
            return self.atom();
        }
        let mut factors = vec![Factor { divides: false, expr: self.factor()? }];
        while matches!(self.peek(), Some(Token::Name(_) | Token::Pi | Token::Fraction | Token::Root)) {
            factors.push(Factor { divides: false, expr: self.factor()? });
        }
        if factors.len() == 1 {
            factors.pop().map(|factor| factor.expr)
        } else {
            Some(Expr::Product(factors))
        }
    }

    fn matrix(&mut self) -> Option<Vec<Vec<Expr>>> {
        let mut rows = vec![Vec::new()];
        loop {
            if self.take(&Token::EndMatrix) {
                break;
            }
            if self.take(&Token::Row) {
                rows.push(Vec::new());
                continue;
            }
            self.take(&Token::Column);
            let cell = self.sum()?;
            rows.last_mut()?.push(cell);
        }
        rows.retain(|row| !row.is_empty());
        let columns = rows.first()?.len();
        rows.iter().all(|row| row.len() == columns).then_some(rows)
    }
}

fn inverse(function: Function) -> Option<Function> {
    match function {
        Function::Sin => Some(Function::Arcsin),
        Function::Cos => Some(Function::Arccos),
        Function::Tan => Some(Function::Arctan),
        _ => None,
    }
}
