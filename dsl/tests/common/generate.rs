//! Generates syntactically valid files of any shape: every form of the language, with irregular spacing.
//!
//! Their names are not declared and their types don't match: they test the parser and formatter, not the check.

/// Generates a file with a number of top-level statements. The same seed gives the same file.
pub fn file(seed: u64, statements: usize) -> String {
    let mut generator = Generator { random: seed, tokens: Vec::new() };
    for _ in 0..statements {
        generator.top();
    }
    let Generator { random, tokens } = generator;
    Writer { random, out: String::new(), brackets: 0, begun: false }.write(&tokens)
}

#[derive(Clone, PartialEq)]
enum Piece {
    Token(String),
    /// The end of a statement.
    End,
}

struct Generator {
    random: u64,
    tokens: Vec<Piece>,
}

/// The next number of the sequence, by splitmix64.
fn next(random: &mut u64) -> u64 {
    *random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*random ^ (*random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn below(random: &mut u64, count: usize) -> usize {
    (next(random) % count as u64) as usize
}

const NAMES: &[&str] =
    &["a", "tool", "reason", "max_tokens", "x1", "_", "samples", "learning_rate_of_all", "Case"];
const NUMBERS: &[&str] = &["0", "4", "0.7", "5e-6", "1E+3", "64MiB", "20s", "1.5e3x"];
const TYPES: &[&str] = &["int", "float", "bool", "string", "size", "duration"];
const TEXTS: &[&str] = &[
    r#""""#,
    r#""short""#,
    r#""an \"escaped\" text # with signs ; { ( [ \n \\""#,
    r#""${a}""#,
    r#""You know ${lower("inner ${x + 1}")} and \${none}""#,
    "\"\"\"\n  Two lines,\n    one deeper # no comment\n  \"\"\"",
    "\"\"\"${if a then \"b\" else \"c\"} \" \"\" \\\"\"\"\"",
];
const COMMENTS: &[&str] = &["# a comment", "#", "#  { ( [ \" unmatched", "# ünïcode ; and more"];

impl Generator {
    fn below(&mut self, count: usize) -> usize {
        below(&mut self.random, count)
    }

    /// Returns true with probability `1 / count`.
    fn rarely(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick(&mut self, words: &[&str]) {
        let word = words[self.below(words.len())];
        self.put(word);
    }

    fn put(&mut self, token: &str) {
        self.tokens.push(Piece::Token(token.to_owned()));
    }

    /// Tokens, with blanks between them.
    fn row(&mut self, tokens: &str) {
        tokens.split(' ').for_each(|token| self.put(token));
    }

    fn end(&mut self) {
        self.tokens.push(Piece::End);
    }

    fn name(&mut self) {
        self.pick(NAMES);
    }

    fn path(&mut self) {
        self.name();
        while self.rarely(3) {
            self.put(".");
            self.name();
        }
    }

    fn top(&mut self) {
        match self.below(14) {
            0 => {
                self.put("workflow");
                self.name();
            }
            1 => self.row("include \"common.mas\""),
            2 => {
                self.row("use \"team.mas\" as");
                self.name();
            }
            3 => self.param(),
            4 => {
                self.pick(&["plugin", "model"]);
                self.name();
                self.row("= \"math.wasm\"");
                if self.rarely(2) {
                    self.body(2);
                }
            }
            5 => {
                self.put("policy");
                self.name();
                if self.rarely(3) {
                    self.put("=");
                    self.call(2);
                }
                self.body(2);
            }
            6 => self.template(),
            7..=9 => {
                self.pick(&["agent", "environment", "reward"]);
                self.name();
                self.put("=");
                if self.rarely(3) {
                    self.call(2)
                } else {
                    self.path()
                }
                if !self.rarely(4) {
                    self.body(2);
                }
            }
            10 => self.turns(),
            11 => {
                self.pick(&["sandbox", "inference", "train"]);
                self.body(2);
            }
            12 => {
                self.put("evaluate");
                self.name();
                self.body(1);
            }
            _ => self.row("layout = L2"),
        }
        self.end();
    }

    fn param(&mut self) {
        self.put("param");
        self.name();
        self.put(":");
        self.of_type();
        if self.rarely(2) {
            self.put("=");
            self.expression(2);
        }
        if self.rarely(2) {
            self.put("in");
            if self.rarely(2) {
                self.list(2);
            } else {
                self.sum(2);
                self.put("..");
                self.sum(2);
            }
        }
    }

    fn of_type(&mut self) {
        if self.rarely(5) {
            self.row("list (");
            self.pick(TYPES);
            self.put(")");
        } else {
            self.pick(TYPES);
        }
    }

    fn template(&mut self) {
        self.put("template");
        self.name();
        self.put("(");
        for index in 0..self.below(4) {
            if index > 0 {
                self.put(",");
            }
            self.name();
            self.put(":");
            self.of_type();
            if self.rarely(2) {
                self.put("=");
                self.expression(1);
            }
        }
        self.put(")");
        self.put("=");
        if self.rarely(2) {
            self.put("policy");
        } else {
            self.row("agent std . chat");
        }
        self.body(2);
    }

    fn body(&mut self, depth: usize) {
        self.put("{");
        for _ in 0..self.below(5) {
            if depth > 0 && self.rarely(5) {
                self.put("lora");
                self.body(depth - 1);
            } else {
                self.name();
                self.put("=");
                if depth > 0 && self.rarely(8) {
                    self.put("async");
                    self.body(depth - 1);
                } else {
                    self.expression(3);
                }
            }
            self.end();
        }
        self.put("}");
    }

    fn turns(&mut self) {
        self.row("turns {");
        if self.rarely(2) {
            self.row("max = 3");
            self.end();
        }
        for _ in 0..self.below(6) {
            self.stop();
            for _ in 0..=self.below(3) {
                self.put("->");
                self.stop();
            }
            if self.rarely(2) {
                self.put("when");
                self.expression(2);
            }
            self.end();
        }
        self.put("}");
    }

    fn stop(&mut self) {
        if self.rarely(4) {
            self.put("[");
            self.path();
            while self.rarely(2) {
                self.put(",");
                self.path();
            }
            if self.rarely(4) {
                self.put(",");
            }
            self.put("]");
        } else {
            self.path();
        }
    }

    fn expression(&mut self, depth: usize) {
        if depth > 0 && self.rarely(6) {
            self.put("if");
            self.either(depth - 1);
            self.put("then");
            self.either(depth - 1);
            while self.rarely(3) {
                self.row("else if");
                self.either(depth - 1);
                self.put("then");
                self.either(depth - 1);
            }
            self.put("else");
            self.either(depth - 1);
        } else {
            self.either(depth);
        }
    }

    fn either(&mut self, depth: usize) {
        self.both(depth);
        while self.rarely(8) {
            self.put("or");
            self.both(depth);
        }
    }

    fn both(&mut self, depth: usize) {
        self.negation(depth);
        while self.rarely(8) {
            self.put("and");
            self.negation(depth);
        }
    }

    fn negation(&mut self, depth: usize) {
        while self.rarely(10) {
            self.put("not");
        }
        self.sum(depth);
        if self.rarely(6) {
            self.pick(&["==", "!=", "<", "<=", ">", ">="]);
            self.sum(depth);
        }
    }

    fn sum(&mut self, depth: usize) {
        self.operand(depth);
        while self.rarely(5) {
            self.pick(&["+", "-", "*", "/", "%"]);
            self.operand(depth);
        }
    }

    fn operand(&mut self, depth: usize) {
        while self.rarely(10) {
            self.put("-");
        }
        match self.below(if depth > 0 { 9 } else { 5 }) {
            0 => self.pick(NUMBERS),
            1 => self.pick(TEXTS),
            2 => self.pick(&["true", "false"]),
            3 | 4 => self.path(),
            5 => self.list(depth - 1),
            6 => self.call(depth - 1),
            7 => {
                self.name();
                self.put("[");
                self.expression(depth - 1);
                self.put("]");
            }
            _ => {
                self.put("(");
                self.expression(depth - 1);
                self.put(")");
            }
        }
    }

    fn list(&mut self, depth: usize) {
        self.put("[");
        for index in 0..self.below(5) {
            if index > 0 {
                self.put(",");
            }
            self.expression(depth);
        }
        if self.tokens.last() != Some(&Piece::Token("[".to_owned())) && self.rarely(3) {
            self.put(",");
        }
        self.put("]");
    }

    fn call(&mut self, depth: usize) {
        self.name();
        self.put("(");
        for index in 0..self.below(4) {
            if index > 0 {
                self.put(",");
            }
            if self.rarely(3) {
                self.name();
                self.put("=");
            }
            self.expression(depth);
        }
        self.put(")");
    }
}

/// Writes tokens with all the room that the language leaves.
struct Writer {
    random: u64,
    out: String,
    /// Open `(` and `[`.
    brackets: usize,
    /// A statement has begun and not ended.
    begun: bool,
}

impl Writer {
    fn write(mut self, tokens: &[Piece]) -> String {
        for (index, piece) in tokens.iter().enumerate() {
            let Piece::Token(token) = piece else {
                self.end_statement(tokens.get(index + 1));
                continue;
            };
            self.gap(token);
            self.out.push_str(token);
            match token.as_str() {
                "(" | "[" => self.brackets += 1,
                ")" | "]" => self.brackets -= 1,
                _ => {}
            }
            self.begun = !matches!(token.as_str(), "{" | "}");
            if token == "{" {
                self.room();
            }
        }
        self.out
    }

    fn pick<'w>(&mut self, words: &[&'w str]) -> &'w str {
        words[below(&mut self.random, words.len())]
    }

    fn comment(&mut self) {
        let comment = self.pick(COMMENTS);
        self.out.push_str(comment);
        let end = self.pick(&["\n", "\r\n", "  \n"]);
        self.out.push_str(end);
    }

    /// White space and comments before a token inside its statement.
    fn gap(&mut self, token: &str) {
        if self.brackets > 0 {
            match below(&mut self.random, 24) {
                0 => self.out.push('\n'),
                1 => self.out.push_str("\n\n  \n"),
                2 => {
                    self.out.push(' ');
                    self.comment();
                }
                3 => {
                    self.out.push('\n');
                    self.comment();
                }
                _ => {}
            }
        }
        let apart = match (self.out.chars().last(), token.chars().next()) {
            (Some(before), Some(after)) => {
                let word = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
                // A dot or minus behind a number, or quotes behind quotes, would be read as one.
                let sign = |sign: char| !word(sign) && !"()[]{},:\n".contains(sign);
                (word(before) || sign(before)) && (word(after) || sign(after))
            }
            _ => false,
        };
        let gap = if apart { self.pick(&[" ", " ", "  ", "\t"]) } else { self.pick(&["", "", " "]) };
        self.out.push_str(gap);
    }

    /// Newlines, comments and `;` where statements may stand.
    fn room(&mut self) {
        match below(&mut self.random, 8) {
            0 | 1 => self.out.push('\n'),
            2 => self.out.push_str("\n\n\n"),
            3 => {
                self.out.push(' ');
                self.comment();
            }
            4 => {
                self.out.push_str("\r\n");
                self.comment();
            }
            5 => self.out.push_str(" ; "),
            _ => {}
        }
    }

    fn end_statement(&mut self, next: Option<&Piece>) {
        // A brace ends a statement by itself.
        let closes = next == Some(&Piece::Token("}".to_owned()));
        if self.begun && !(closes && self.pick(&["", "x"]).is_empty()) {
            let end = self.pick(&["\n", "\n", ";", " ; "]);
            self.out.push_str(end);
        }
        self.begun = false;
        self.room();
    }
}
