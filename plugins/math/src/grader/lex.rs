//! Tokenizer for answers in LaTeX or plain text.

use super::number::Rational;
use super::token::{Bracket, Function, Relation, Token, aggregate, command_token, plain_word};

/// Maximum length in bytes. Longer answers are only compared as text.
pub const MAX_ANSWER: usize = 4096;

/// Units of two and three letters, which would otherwise be products of unknowns. Longer words are never
/// products.
const UNITS: [&str; 32] = [
    "cm", "mm", "km", "dm", "kg", "mg", "ml", "mL", "lb", "lbs", "oz", "ft", "in", "yd", "mi", "hr", "hrs",
    "min", "sec", "ms", "mph", "kph", "pts", "sq", "cu", "USD", "EUR", "Hz", "kW", "kJ", "am", "gal",
];

/// Number of digits of the parts of a whole number that does not fit into 128 bits.
const DIGITS: usize = 30;

/// Commands whose argument is text.
pub const TEXT_COMMANDS: [&str; 11] = [
    "text",
    "textbf",
    "textit",
    "textrm",
    "textnormal",
    "mbox",
    "mathrm",
    "mathbf",
    "mathit",
    "rm",
    "operatorname",
];

/// Returns the tokens. Returns `None` if part of the text is not mathematics.
pub fn tokens(text: &str) -> Option<Vec<Token>> {
    if text.len() > MAX_ANSWER {
        return None;
    }
    let mut lexer =
        Lexer { rest: text, tokens: Vec::new(), fractions: Vec::new(), braces: 0, environments: 0 };
    while lexer.step()? {}
    Some(lexer.tokens)
}

struct Lexer<'a> {
    rest: &'a str,
    tokens: Vec<Token>,
    /// Fractions with missing arguments, which may be single digits without braces (`\frac12`): the depth of
    /// braces of each, and the number of missing arguments.
    fractions: Vec<(usize, u8)>,
    /// Number of open braces.
    braces: usize,
    /// Number of open matrices: `\\` only ends a row within one.
    environments: usize,
}

impl<'a> Lexer<'a> {
    /// Reads one token. Returns false at the end.
    fn step(&mut self) -> Option<bool> {
        self.rest = self.rest.trim_start_matches(|c: char| {
            c.is_whitespace() || matches!(c, '$' | '~' | '£' | '€' | '¥' | '°' | '´')
        });
        let Some(first) = self.rest.chars().next() else {
            return Some(false);
        };
        match first {
            '0'..='9' | '.' => self.number()?,
            '\\' => {
                self.is_argument();
                self.command()?;
            }
            c if c.is_alphabetic() => {
                self.is_argument();
                self.letters();
            }
            _ => {
                self.rest = &self.rest[first.len_utf8()..];
                self.symbol(first)?;
            }
        }
        Some(true)
    }

    /// Returns true if the next token is an argument of a fraction at this depth, and counts it.
    fn is_argument(&mut self) -> bool {
        let Some((braces, left)) = self.fractions.pop() else {
            return false;
        };
        let here = braces == self.braces;
        if !here || left > 1 {
            self.fractions.push((braces, left - u8::from(here)));
        }
        here
    }

    fn push(&mut self, token: Token) {
        // `5 (\mod 7)` is `5 \mod (7)`.
        if token == Token::Modulo
            && let Some(open) = self.tokens.pop_if(|last| *last == Token::Open(Bracket::Round))
        {
            self.tokens.extend([token, open]);
            return;
        }
        self.tokens.push(token);
    }

    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !keep(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn take(&mut self, prefix: &str) -> bool {
        self.rest.strip_prefix(prefix).map(|rest| self.rest = rest).is_some()
    }

    fn number(&mut self) -> Option<()> {
        let text = if self.rest.starts_with(|c: char| c.is_ascii_digit()) && self.is_argument() {
            let (digit, rest) = self.rest.split_at(1);
            self.rest = rest;
            digit
        } else {
            let before = self.rest;
            let whole = self.take_while(|c| c.is_ascii_digit()).len();
            let mut length = whole;
            if self.rest.starts_with('.') && self.rest[1..].starts_with(|c: char| c.is_ascii_digit()) {
                self.rest = &self.rest[1..];
                length += 1 + self.take_while(|c| c.is_ascii_digit()).len();
            } else if self.rest.starts_with('.') {
                // The full stop of a sentence, or `5.`
                self.rest = &self.rest[1..];
            }
            &before[..length]
        };
        if text.is_empty() || text == "." {
            // A full stop is ignored at the end of the text. Elsewhere it is not mathematics.
            return self.rest.trim().is_empty().then_some(());
        }
        let decimal = text.contains('.');
        let Some(value) = Rational::parse(text) else {
            return self.long_integer(text);
        };
        let value = self.power_of_ten().map_or(Some(value), |power| value.scaled(power))?;
        self.push(Token::Number { value, decimal });
        if let Some(base) = self.subscript() {
            let digits: String = base.chars().filter(char::is_ascii_digit).collect();
            self.push(Token::Base(digits));
        }
        Some(())
    }

    /// Pushes a whole number that does not fit into 128 bits as the sum of its parts.
    fn long_integer(&mut self, digits: &str) -> Option<()> {
        if digits.contains('.') {
            return None;
        }
        self.push(Token::Open(Bracket::Group));
        let mut rest = digits;
        while !rest.is_empty() {
            let (part, after) = rest.split_at(rest.len() - (rest.len() - 1) / DIGITS * DIGITS);
            rest = after;
            let power = Rational::integer(i128::try_from(rest.len()).ok()?);
            let value = Rational::parse(part)?;
            self.tokens.extend([
                Token::Plus,
                Token::Number { value, decimal: false },
                Token::Times,
                Token::Number { value: Rational::integer(10), decimal: false },
                Token::Power,
                Token::Number { value: power, decimal: false },
            ]);
        }
        self.push(Token::Close(Bracket::Group));
        Some(())
    }

    /// Reads the `E-3` of `2.5E-3`.
    fn power_of_ten(&mut self) -> Option<i32> {
        let after = self.rest.strip_prefix(['E', 'e'])?;
        let unsigned = after.strip_prefix(['-', '+']).unwrap_or(after);
        let digits = unsigned.bytes().take_while(u8::is_ascii_digit).count();
        let length = after.len() - unsigned.len() + digits;
        let power = after[..length].parse().ok()?;
        self.rest = &after[length..];
        Some(power)
    }

    /// Reads `_x`, `_{...}`, `_\alpha` or `_\text{...}` and removes spaces and styles.
    fn subscript(&mut self) -> Option<String> {
        let after = self.rest.trim_start().strip_prefix('_')?.trim_start();
        let length = argument(after)
            .filter(|_| after.starts_with(['{', '\\']) || after.starts_with(char::is_alphanumeric))?;
        let (text, rest) = after.split_at(length);
        self.rest = rest;
        Some(unstyled(text))
    }

    fn base(&mut self) {
        if self.tokens.last() == Some(&Token::Function(Function::Log))
            && let Some(base) = self.subscript()
        {
            self.push(Token::Base(base));
        }
    }

    fn name(&mut self, base: &str) {
        // Answers don't differ only in the case of their letters.
        let mut name = base.to_lowercase();
        if let Some(subscript) = self.subscript() {
            name.push('_');
            name.push_str(&subscript.to_lowercase());
        }
        name.push_str(self.take_while(|c| matches!(c, '\'' | '′')));
        self.push(Token::Name(name));
    }

    fn letters(&mut self) {
        let run = self.take_while(char::is_alphabetic);
        let after_value = matches!(self.tokens.last(), Some(Token::Number { .. } | Token::Close(_)));
        for conjunction in ["and", "or"] {
            // `1orW(x)`: without spaces around it.
            if let Some(rest) = run.strip_prefix(conjunction)
                && (rest.is_empty() || (after_value && rest.chars().all(char::is_uppercase)))
            {
                self.push(Token::Conjunction);
                rest.chars().for_each(|letter| self.letter(letter));
                return;
            }
        }
        self.word(run, after_value);
    }

    fn word(&mut self, run: &str, after_value: bool) {
        if let Some(token) = plain_word(run) {
            self.push(token);
            self.base();
        } else if !after_value && self.aggregate(run) {
            // Pushed. After a value, `min` is a unit.
        } else if matches!(run, "degree" | "degrees") {
            // An angle is compared by its number.
        } else if run.chars().count() > 3 || run == "per" || (after_value && UNITS.contains(&run)) {
            self.push(Token::Word(run.to_owned()));
        } else {
            run.chars().for_each(|letter| self.letter(letter));
        }
    }

    /// Pushes a function of a list. Returns false if the word is none, or has no arguments in brackets.
    fn aggregate(&mut self, word: &str) -> bool {
        let after = self.rest.trim_start();
        let after = after.strip_prefix("\\left").unwrap_or(after);
        match aggregate(word) {
            Some(aggregate) if after.starts_with('(') || after.starts_with("\\{") => {
                self.push(Token::Aggregate(aggregate));
                true
            }
            _ => false,
        }
    }

    fn letter(&mut self, letter: char) {
        match letter {
            'e' if !self.rest.starts_with('_') => self.push(Token::E),
            'i' if !self.rest.starts_with('_') => self.push(Token::I),
            'π' => self.push(Token::Pi),
            _ => self.name(letter.encode_utf8(&mut [0; 4])),
        }
    }

    fn symbol(&mut self, symbol: char) -> Option<()> {
        use Relation::{Approximately, Equal, Greater, GreaterOrEqual, In, Less, LessOrEqual, NotEqual};
        let token = match symbol {
            '+' => Token::Plus,
            '-' | '−' | '–' => Token::Minus,
            '±' => Token::PlusMinus,
            '*' if self.take("*") => Token::Power,
            '*' | '×' | '·' | '⋅' => Token::Times,
            '/' | '÷' => Token::Divide,
            '^' => {
                // `^\circ` and `^{\circ}` are degrees, which are ignored.
                let degrees = [r"{\circ}", r"\circ", r"{\degree}", "o "];
                if degrees.iter().any(|degree| self.take(degree)) {
                    return Some(());
                }
                Token::Power
            }
            '!' if self.take("=") => Token::Relation(NotEqual),
            '!' => Token::Factorial,
            '%' => Token::Percent,
            '|' => Token::Bar,
            '(' => Token::Open(Bracket::Round),
            ')' => Token::Close(Bracket::Round),
            '[' => Token::Open(Bracket::Square),
            ']' => Token::Close(Bracket::Square),
            '{' => {
                self.is_argument();
                self.braces += 1;
                Token::Open(Bracket::Group)
            }
            '}' => {
                self.braces = self.braces.saturating_sub(1);
                Token::Close(Bracket::Group)
            }
            ',' => Token::Comma,
            ';' => Token::Semicolon,
            ':' => Token::Colon,
            '&' if self.environments > 0 => Token::Column,
            '=' => {
                self.take("=");
                Token::Relation(Equal)
            }
            '≈' => Token::Relation(Approximately),
            '≠' => Token::Relation(NotEqual),
            '<' if self.take("=") => Token::Relation(LessOrEqual),
            '>' if self.take("=") => Token::Relation(GreaterOrEqual),
            '<' => Token::Relation(Less),
            '>' => Token::Relation(Greater),
            '≤' | '⩽' => Token::Relation(LessOrEqual),
            '≥' | '⩾' => Token::Relation(GreaterOrEqual),
            '∈' => Token::Relation(In),
            '∪' => Token::Union,
            '∩' => Token::Intersection,
            'ℝ' => Token::Reals,
            '∅' => Token::EmptySet,
            '∞' => Token::Infinity,
            '√' => Token::Root,
            '⇒' => Token::Implies,
            _ => return None,
        };
        self.push(token);
        Some(())
    }

    fn command(&mut self) -> Option<()> {
        self.rest = &self.rest[1..];
        let name = self.take_while(|c| c.is_ascii_alphabetic());
        if name.is_empty() {
            return self.escape();
        }
        match name {
            "mathbb" => return self.number_set(),
            name if TEXT_COMMANDS.contains(&name) => return self.text(),
            "begin" | "end" => return self.environment(name),
            "frac" | "dfrac" | "tfrac" | "cfrac" => {
                self.fractions.push((self.braces, 2));
                self.push(Token::Fraction);
                return Some(());
            }
            // As in TeX, only one digit without braces is under the root.
            "sqrt" if self.rest.trim_start().starts_with(|c: char| c.is_ascii_digit()) => {
                self.fractions.push((self.braces, 1));
            }
            _ => {}
        }
        // Spaces without a separator after them: `\quadx`.
        if let Some(rest) = ["qquad", "quad"].iter().find_map(|space| name.strip_prefix(space)) {
            rest.chars().for_each(|letter| self.letter(letter));
            return Some(());
        }
        if let Some(token) = command_token(name) {
            self.push(token);
            self.base();
            return Some(());
        }
        if self.aggregate(name) {
            return Some(());
        }
        match name {
            "left" | "right" | "big" | "Big" | "bigl" | "bigr" | "Bigl" | "Bigr" | "displaystyle"
            | "textstyle" | "limits" | "circ" | "degree" | "angle" | "triangle" | "overline" | "vec"
            | "hat" | "bar" | "mathcal" | "boxed" | "fbox" | "therefore" | "space" | "ldots" | "dots"
            | "cdots" => {
                // `\left.` is an invisible bracket.
                if matches!(name, "left" | "right") {
                    self.take(".");
                }
            }
            // Greek letters and other symbols are names.
            _ => self.name(&format!(r"\{name}")),
        }
        Some(())
    }

    /// Reads a backslash followed by a symbol.
    fn escape(&mut self) -> Option<()> {
        let Some(symbol) = self.rest.chars().next() else {
            return Some(());
        };
        self.rest = &self.rest[symbol.len_utf8()..];
        match symbol {
            '{' => self.push(Token::Open(Bracket::Set)),
            '}' => self.push(Token::Close(Bracket::Set)),
            '|' => self.push(Token::Bar),
            '%' => self.push(Token::Percent),
            '\\' if self.environments > 0 => self.push(Token::Row),
            // Spaces, line breaks, dollars, and delimiters of formulas.
            '\\' | ',' | '!' | ';' | ':' | '>' | ' ' | '\n' | '$' | '(' | ')' | '[' | ']' => {}
            _ => return None,
        }
        Some(())
    }

    /// Reads `\mathbb{R}`. Other sets of numbers are names.
    fn number_set(&mut self) -> Option<()> {
        let (inside, rest) = self.rest.trim_start().strip_prefix('{')?.split_once('}')?;
        self.rest = rest;
        if inside.trim() == "R" {
            self.push(Token::Reals)
        } else {
            self.name(inside)
        }
        Some(())
    }

    /// Reads `\text{...}`: a conjunction, a unit, or upright mathematics.
    fn text(&mut self) -> Option<()> {
        let Some(inside) = self.rest.trim_start().strip_prefix('{') else {
            return Some(());
        };
        if inside.strip_prefix('\\').is_some_and(|name| name.starts_with(|c: char| c.is_alphabetic())) {
            // `\mathrm{\pi}`: the braces are grouping.
            return Some(());
        }
        let (text, rest) = inside.split_at(closing_brace(inside)?);
        self.rest = &rest[1..];
        let after_value =
            matches!(self.tokens.last(), Some(Token::Number { .. } | Token::Close(_) | Token::Pi));
        for part in text.split_whitespace() {
            self.text_part(part, after_value)?;
        }
        // `\text{ cm}^2`
        if after_value
            && self.tokens.last().is_some_and(|token| matches!(token, Token::Word(_)))
            && self.take("^")
        {
            if self.take("{") {
                self.rest = self.rest.split_once('}')?.1;
            } else {
                let digit = self.rest.chars().next()?;
                self.rest = &self.rest[digit.len_utf8()..];
            }
        }
        Some(())
    }

    /// Reads one word of `\text{...}`.
    fn text_part(&mut self, part: &str, after_value: bool) -> Option<()> {
        let mut part = part.trim_matches(|c: char| matches!(c, ',' | '.' | '(' | ')'));
        part = part.strip_prefix("\\$").unwrap_or(part);
        let digits = part.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
        if digits > 0 {
            let (number, after) = part.split_at(digits);
            self.push(Token::Number { value: Rational::parse(number)?, decimal: number.contains('.') });
            part = after;
        }
        let letter = !after_value && part.chars().count() == 1 && part.chars().all(char::is_alphabetic);
        match part {
            "" | "degree" | "degrees" => {}
            "and" | "or" | "And" | "Or" => self.push(Token::Conjunction),
            "%" | "\\%" => self.push(Token::Percent),
            _ if letter => part.chars().for_each(|letter| self.letter(letter)),
            word if !after_value && self.aggregate(word) => {}
            word => self.push(plain_word(word).unwrap_or_else(|| Token::Word(word.to_owned()))),
        }
        Some(())
    }

    fn environment(&mut self, command: &str) -> Option<()> {
        let (name, rest) = self.rest.trim_start().strip_prefix('{')?.split_once('}')?;
        self.rest = rest;
        let matrix = matches!(
            name,
            "pmatrix" | "bmatrix" | "matrix" | "vmatrix" | "Bmatrix" | "smallmatrix" | "array"
        );
        if !matrix {
            // `align*` and similar environments are only layout.
            return Some(());
        }
        if command == "begin" {
            if name == "array" && self.take("{") {
                self.rest = self.rest.split_once('}')?.1;
            }
            self.environments += 1;
            self.push(if name == "vmatrix" { Token::BeginDeterminant } else { Token::BeginMatrix });
        } else {
            self.environments = self.environments.checked_sub(1)?;
            self.push(Token::EndMatrix);
        }
        Some(())
    }
}

/// Returns the length of the argument that the text begins with: a group in braces, a command (with the group after
/// it, if it is a style), or a character.
pub fn argument(text: &str) -> Option<usize> {
    if let Some(inside) = text.strip_prefix('{') {
        return Some(closing_brace(inside)? + 2);
    }
    let Some(command) = text.strip_prefix('\\') else {
        return text.chars().next().map(char::len_utf8);
    };
    let name = command.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(command.len());
    let (name, rest) = command.split_at(name);
    match rest.strip_prefix('{') {
        Some(inside) if TEXT_COMMANDS.contains(&name) => Some(name.len() + closing_brace(inside)? + 3),
        _ => (!name.is_empty()).then_some(name.len() + 1),
    }
}

/// Returns a subscript without spaces, braces, backslashes and commands of style.
fn unstyled(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(part.len());
        plain.push_str(if TEXT_COMMANDS.contains(&&part[..end]) { &part[end..] } else { part });
    }
    plain.retain(|c| !c.is_whitespace() && !matches!(c, '{' | '}'));
    plain
}

/// Returns the position of the brace that closes the group which `inside` begins in.
fn closing_brace(inside: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (position, byte) in inside.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 0 => return Some(position),
            b'}' => depth -= 1,
            _ => {}
        }
    }
    None
}
