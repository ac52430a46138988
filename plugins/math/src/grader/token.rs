//! Tokens of answers, and the words and commands that they are written with.

use super::number::Rational;

/// One piece of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Token {
    /// A number without sign. `decimal` is true if it has a decimal point.
    Number {
        value: Rational,
        decimal: bool,
    },
    /// An unknown: a letter, with its subscript and primes.
    Name(String),
    /// Several letters that are not a product: a unit or a word.
    Word(String),
    /// A function of one argument.
    Function(Function),
    /// A function of a list: arguments in brackets follow.
    Aggregate(Aggregate),
    /// The base of the preceding logarithm or number.
    Base(String),
    /// `\frac` or `\binom`: two arguments follow.
    Fraction,
    Binomial,
    /// `\over` and `\choose`: between the two arguments.
    Over,
    Choose,
    /// `\sqrt`: a degree in brackets may follow, then an argument.
    Root,
    Pi,
    E,
    I,
    Infinity,
    EmptySet,
    /// The set of all real numbers.
    Reals,
    Plus,
    Minus,
    PlusMinus,
    MinusPlus,
    Times,
    Divide,
    Power,
    /// `\mod`, between a value and the modulus.
    Modulo,
    Factorial,
    Percent,
    Bar,
    Open(Bracket),
    Close(Bracket),
    Comma,
    Semicolon,
    Colon,
    /// `and`, `or`.
    Conjunction,
    /// `\Rightarrow`: what follows is the answer.
    Implies,
    Relation(Relation),
    Union,
    Intersection,
    /// `\setminus`
    Without,
    /// Start and end of a matrix or determinant, its columns and rows.
    BeginMatrix,
    BeginDeterminant,
    EndMatrix,
    Column,
    Row,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bracket {
    Round,
    Square,
    /// `{}` of LaTeX: grouping only.
    Group,
    /// `\{\}`
    Set,
    Floor,
    Ceiling,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    Equal,
    Approximately,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    Sin,
    Cos,
    Tan,
    Sec,
    Csc,
    Cot,
    Arcsin,
    Arccos,
    Arctan,
    Sinh,
    Cosh,
    Tanh,
    Ln,
    /// Base 10, unless there is a subscript.
    Log,
    Exp,
}

/// Functions of a list of values in any order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregate {
    Maximum,
    Minimum,
    GreatestCommonDivisor,
    LeastCommonMultiple,
}

/// Returns the function of a list that a word names.
pub fn aggregate(word: &str) -> Option<Aggregate> {
    Some(match word {
        "max" => Aggregate::Maximum,
        "min" => Aggregate::Minimum,
        "gcd" => Aggregate::GreatestCommonDivisor,
        "lcm" => Aggregate::LeastCommonMultiple,
        _ => return None,
    })
}

/// Returns the token of a word that has the same meaning with and without a backslash.
pub fn plain_word(word: &str) -> Option<Token> {
    use Function::{Arccos, Arcsin, Arctan, Cos, Cosh, Cot, Csc, Exp, Ln, Log, Sec, Sin, Sinh, Tan, Tanh};
    Some(match word {
        "sin" => Token::Function(Sin),
        "cos" => Token::Function(Cos),
        "tan" => Token::Function(Tan),
        "sec" => Token::Function(Sec),
        "csc" => Token::Function(Csc),
        "cot" => Token::Function(Cot),
        "arcsin" => Token::Function(Arcsin),
        "arccos" => Token::Function(Arccos),
        "arctan" => Token::Function(Arctan),
        "sinh" => Token::Function(Sinh),
        "cosh" => Token::Function(Cosh),
        "tanh" => Token::Function(Tanh),
        "ln" => Token::Function(Ln),
        "log" | "lg" => Token::Function(Log),
        "exp" => Token::Function(Exp),
        "sqrt" => Token::Root,
        "pi" => Token::Pi,
        "inf" | "infinity" | "oo" => Token::Infinity,
        "percent" | "percentage" | "pct" => Token::Percent,
        "mod" => Token::Modulo,
        _ => return None,
    })
}

/// Returns the token of a command.
pub fn command_token(name: &str) -> Option<Token> {
    use Relation::{Approximately, Equal, Greater, GreaterOrEqual, In, Less, LessOrEqual, NotEqual};
    Some(match name {
        "binom" | "dbinom" | "tbinom" => Token::Binomial,
        "infty" => Token::Infinity,
        "emptyset" | "varnothing" => Token::EmptySet,
        "pm" => Token::PlusMinus,
        "mp" => Token::MinusPlus,
        "cdot" | "times" | "ast" => Token::Times,
        "div" => Token::Divide,
        "lvert" | "rvert" | "vert" | "mid" => Token::Bar,
        "lfloor" => Token::Open(Bracket::Floor),
        "rfloor" => Token::Close(Bracket::Floor),
        "lceil" => Token::Open(Bracket::Ceiling),
        "rceil" => Token::Close(Bracket::Ceiling),
        "lbrace" => Token::Open(Bracket::Set),
        "rbrace" => Token::Close(Bracket::Set),
        "langle" | "lparen" => Token::Open(Bracket::Round),
        "rangle" | "rparen" => Token::Close(Bracket::Round),
        "lbrack" => Token::Open(Bracket::Square),
        "rbrack" => Token::Close(Bracket::Square),
        "cup" => Token::Union,
        "cap" => Token::Intersection,
        "setminus" | "backslash" => Token::Without,
        "over" => Token::Over,
        "choose" => Token::Choose,
        "in" => Token::Relation(In),
        "eq" | "equiv" => Token::Relation(Equal),
        "approx" | "sim" | "simeq" => Token::Relation(Approximately),
        "ne" | "neq" => Token::Relation(NotEqual),
        "lt" => Token::Relation(Less),
        "gt" => Token::Relation(Greater),
        "le" | "leq" | "leqslant" => Token::Relation(LessOrEqual),
        "ge" | "geq" | "geqslant" => Token::Relation(GreaterOrEqual),
        "land" | "lor" | "wedge" | "vee" => Token::Conjunction,
        "colon" => Token::Colon,
        "pmod" | "bmod" => Token::Modulo,
        "Rightarrow" | "Longrightarrow" | "implies" => Token::Implies,
        _ => return plain_word(name),
    })
}
