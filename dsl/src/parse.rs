//! Pieces of text to the syntax tree, through the pest grammar in `grammar.pest`.

use pest::Parser;
use pest::error::{ErrorVariant, InputLocation};
use pest::iterators::Pair;

use crate::diagnostic::{Code, Place, Reports, nearest, suggest};
use crate::scan::{Piece, PieceBody, scan, split_word};
use crate::source::Span;
use crate::syntax::{
    Block, BlockKind, Body, EdgeLine, Entry, Expression, ExpressionKind, File, Name, Setting, Stop, Value,
    ValueKind,
};
use crate::workflow::Comparison;

mod grammar {
    #[derive(pest_derive::Parser)]
    #[grammar = "grammar.pest"]
    pub struct Grammar;
}
use grammar::{Grammar, Rule};

/// Reads a whole file. What can't be read is reported and left out, or kept as a block that is not `sound`,
/// so that its name is still known.
pub(crate) fn parse(text: &str, reports: &mut Reports) -> File {
    let pieces = scan(text, reports);
    let mut reader = Reader { text, reports };
    let mut file = File { blocks: Vec::new(), layouts: Vec::new() };
    for piece in &pieces {
        reader.top(piece, &mut file);
    }
    file
}

/// Reads one value out of a text of its own, as `--set` brings it. None where it is none.
pub(crate) fn lone_value(text: &str, place: Place) -> Option<Value> {
    let pair = Grammar::parse(Rule::lone_value, text).ok()?.next()?;
    let value = pair.into_inner().find(|inner| inner.as_rule() == Rule::value)?;
    let mut nothing = Reports::new(&[]);
    let value = Reader { text, reports: &mut nothing }.value(value, 0)?;
    (!nothing.failed()).then(|| at(value, place))
}

/// The value with every place in it replaced.
fn at(value: Value, place: Place) -> Value {
    let kind = match value.kind {
        ValueKind::List(values) => ValueKind::List(values.into_iter().map(|one| at(one, place)).collect()),
        other => other,
    };
    Value { kind, place }
}

struct Reader<'t, 'r, 'o> {
    text: &'t str,
    reports: &'r mut Reports<'o>,
}

impl<'t> Reader<'t, '_, '_> {
    fn top(&mut self, piece: &Piece, file: &mut File) {
        let head = piece.head.of(self.text);
        let (word, rest) = split_word(head);
        let keyword = Span::new(piece.head.start, piece.head.start + word.len());
        if word == "layout" && rest.trim_start().starts_with('=') {
            return self.layout(piece, file);
        }
        let kind = BlockKind::from_keyword(word).or_else(|| self.not_a_block(piece, word, rest, keyword));
        let Some(kind) = kind else { return };
        let mut block = self.head(piece, kind, keyword);
        if let Some(body) = &piece.body {
            if kind.has_body() {
                block.body = self.body(body, kind == BlockKind::Turns);
                // What seems to be missing may well be what could not be read in the head.
                block.body.complete &= block.sound;
            } else {
                self.reports
                    .error(Code::Syntax, body.span, format!("`{word}` takes no settings"), "")
                    .help(format!("write `{}`", kind.form()));
            }
        } else if block.sound && !kind.is_named() {
            self.reports
                .error(Code::Syntax, keyword, format!("`{word}` is a block and has no `{{ … }}`"), "")
                .help(format!("write `{}`, its `{{` on the same line", kind.form()));
            block.sound = false;
            block.body.complete = false;
        }
        file.blocks.push(block);
    }

    fn layout(&mut self, piece: &Piece, file: &mut File) {
        if let Some(body) = &piece.body {
            self.reports.error(Code::Syntax, body.span, "`layout` is a setting and has no `{ … }`", "");
        } else if piece.sound
            && let Some(pair) = self.read(piece.head, Rule::assignment)
        {
            file.layouts.extend(self.assignment(pair, piece.head.start));
        }
    }

    /// Reports what is no block; says which block was probably meant, to go on as if it stood there.
    fn not_a_block(&mut self, piece: &Piece, word: &str, rest: &str, keyword: Span) -> Option<BlockKind> {
        if word.is_empty() {
            // An empty head has been reported with its brace.
            if piece.head.start < piece.head.end {
                self.reports
                    .error(Code::Syntax, piece.head, "no block begins like this", "expected a block")
                    .help(format!("a block begins with a word, such as `{}`", BlockKind::Agent.form()));
            }
            return None;
        }
        if rest.trim_start().starts_with('=') {
            let message = format!("the setting `{word}` stands outside of any block");
            self.reports
                .error(Code::UnknownBlock, keyword, message, "")
                .help("settings stand inside the braces of a block; only `layout` stands alone");
            return None;
        }
        if word == BlockKind::Lora.keyword() {
            self.reports
                .error(Code::UnknownBlock, keyword, "`lora` stands outside of a policy", "")
                .help("write it inside: `policy NAME { model = …; lora { … } }`");
            return None;
        }
        let words = || BlockKind::TOP.iter().map(|kind| kind.keyword());
        self.reports
            .error(Code::UnknownBlock, keyword, format!("there is no block `{word}`"), "")
            .maybe_help(suggest(word, "the blocks are", words()));
        nearest(word, words()).and_then(BlockKind::from_keyword)
    }

    /// The head of a block behind its keyword.
    fn head(&mut self, piece: &Piece, kind: BlockKind, keyword: Span) -> Block {
        let rest = Span::new(keyword.end, piece.head.end);
        let mut block = Block {
            kind,
            keyword,
            name: None,
            of_type: None,
            value: None,
            body: Body { entries: Vec::new(), complete: true },
            sound: true,
        };
        let rule = match kind {
            BlockKind::Turns
            | BlockKind::Sandbox
            | BlockKind::Inference
            | BlockKind::Train
            | BlockKind::Lora => Rule::bare_head,
            BlockKind::Workflow | BlockKind::Policy | BlockKind::Evaluate => Rule::named_head,
            BlockKind::Param => Rule::param_head,
            BlockKind::Plugin
            | BlockKind::Model
            | BlockKind::Environment
            | BlockKind::Agent
            | BlockKind::Reward => Rule::assignment,
        };
        let help = format!("write `{}`", kind.form());
        let read = if piece.sound { self.read_or(rest, rule, Some(help)) } else { None };
        let Some(pair) = read else {
            block.sound = false;
            block.body.complete = false;
            // The name is still worth knowing: whoever uses it makes no mistake.
            let behind = rest.of(self.text);
            let skipped = behind.len() - behind.trim_start().len();
            let (name, _) = split_word(behind.trim_start());
            if kind.is_named() && !name.is_empty() {
                let start = rest.start + skipped;
                let span = Span::new(start, start + name.len());
                block.name = Some(Name { text: name.to_owned(), place: span.into() });
            }
            return block;
        };
        for inner in pair.into_inner() {
            match inner.as_rule() {
                Rule::name if block.name.is_none() => block.name = Some(name(&inner, rest.start)),
                Rule::name => block.of_type = Some(name(&inner, rest.start)),
                Rule::value => {
                    block.value = self.value(inner, rest.start);
                    block.sound = block.value.is_some();
                }
                _ => {}
            }
        }
        block
    }

    fn body(&mut self, body: &PieceBody, edges: bool) -> Body {
        let mut out = Body { entries: Vec::new(), complete: body.closed };
        for piece in &body.pieces {
            match self.entry(piece, edges) {
                Some(entry) => out.entries.push(entry),
                None => out.complete = false,
            }
        }
        out
    }

    fn entry(&mut self, piece: &Piece, edges: bool) -> Option<Entry> {
        let head = piece.head.of(self.text);
        let (word, rest) = split_word(head);
        let rest = rest.trim_start();
        let is_setting = rest.starts_with('=') && !rest.starts_with("==");
        if let Some(body) = &piece.body {
            // The inside is read even where the head is not: its mistakes are worth knowing.
            let inside = (!is_setting).then(|| self.body(body, false));
            if !piece.sound {
                return None;
            }
            if is_setting {
                let pair = self.read(piece.head, Rule::assignment)?;
                let (key, value) = self.assignment(pair, piece.head.start)?;
                return Some(Entry::Setting(Setting { key, value, body: Some(body.span) }));
            }
            let pair = self.read(piece.head, Rule::named_head)?;
            let word = pair.into_inner().find(|inner| inner.as_rule() == Rule::name)?;
            return Some(Entry::Nested { name: name(&word, piece.head.start), body: inside? });
        }
        if !piece.sound {
            return None;
        }
        if edges && !is_setting {
            return Some(Entry::Edge(self.edge(piece.head)?));
        }
        if !word.is_empty() && rest.starts_with("->") {
            self.reports
                .error(Code::Syntax, piece.head, "an edge stands outside of `turns`", "")
                .help("edges stand inside `turns { … }`");
            return None;
        }
        let pair = self.read(piece.head, Rule::assignment)?;
        let (key, value) = self.assignment(pair, piece.head.start)?;
        Some(Entry::Setting(Setting { key, value, body: None }))
    }

    fn assignment(&mut self, pair: Pair<'t, Rule>, from: usize) -> Option<(Name, Value)> {
        let (mut key, mut value) = (None, None);
        for inner in pair.into_inner() {
            match inner.as_rule() {
                Rule::name => key = Some(name(&inner, from)),
                Rule::value => value = self.value(inner, from),
                _ => {}
            }
        }
        Some((key?, value?))
    }

    fn edge(&mut self, head: Span) -> Option<EdgeLine> {
        let mut line = EdgeLine { stops: Vec::new(), when: None };
        for inner in self.read(head, Rule::edge)?.into_inner() {
            match inner.as_rule() {
                Rule::stop => {
                    let span = span(&inner, head.start);
                    let names = inner
                        .into_inner()
                        .filter(|part| part.as_rule() == Rule::name)
                        .map(|part| name(&part, head.start))
                        .collect();
                    line.stops.push(Stop { names, span });
                }
                Rule::condition => line.when = Some(self.condition(inner, head.start)?),
                _ => {}
            }
        }
        Some(line)
    }

    fn value(&mut self, pair: Pair<'t, Rule>, from: usize) -> Option<Value> {
        // `value` wraps exactly one of the others.
        let inner = match pair.as_rule() {
            Rule::value => pair.into_inner().next()?,
            _ => pair,
        };
        let place = span(&inner, from).into();
        let kind = match inner.as_rule() {
            Rule::string => ValueKind::Text(self.unescape(&inner, from)?),
            Rule::boolean => ValueKind::Boolean(inner.as_str() == "true"),
            Rule::number => ValueKind::Number(inner.as_str().to_owned()),
            Rule::path => ValueKind::Path(inner.into_inner().map(|part| part.as_str().to_owned()).collect()),
            Rule::list => {
                let values = inner.into_inner().filter(|part| part.as_rule() == Rule::value);
                // All of them, so that every wrong one is reported.
                let values: Vec<Option<Value>> = values.map(|part| self.value(part, from)).collect();
                ValueKind::List(values.into_iter().collect::<Option<_>>()?)
            }
            _ => return None,
        };
        Some(Value { kind, place })
    }

    fn unescape(&mut self, pair: &Pair<'t, Rule>, from: usize) -> Option<String> {
        let quoted = pair.as_str();
        let inside = quoted.strip_prefix('"')?.strip_suffix('"')?;
        let start = span(pair, from).start + 1;
        let mut out = String::with_capacity(inside.len());
        let mut sound = true;
        let mut chars = inside.char_indices();
        while let Some((index, char)) = chars.next() {
            if char != '\\' {
                out.push(char);
                continue;
            }
            match chars.next() {
                Some((_, 'n')) => out.push('\n'),
                Some((_, 't')) => out.push('\t'),
                Some((_, 'r')) => out.push('\r'),
                Some((_, same @ ('"' | '\\'))) => out.push(same),
                other => {
                    let width = other.map_or(0, |(_, char)| char.len_utf8());
                    let span = Span::new(start + index, start + index + 1 + width);
                    let message = format!("`{}` means nothing in a text", span.of(self.text));
                    self.reports.error(Code::Syntax, span, message, "").help(
                        "known are `\\n`, `\\t`, `\\r`, `\\\"` and `\\\\`; write a backslash as `\\\\`",
                    );
                    sound = false;
                }
            }
        }
        sound.then_some(out)
    }

    fn condition(&mut self, pair: Pair<'t, Rule>, from: usize) -> Option<Expression> {
        let span = span(&pair, from);
        let rule = pair.as_rule();
        let parts = pair.into_inner();
        match rule {
            Rule::condition | Rule::conjunction => {
                let parts = parts.filter(|part| matches!(part.as_rule(), Rule::conjunction | Rule::negation));
                let parts: Vec<Option<Expression>> = parts.map(|part| self.condition(part, from)).collect();
                let mut parts = parts.into_iter().collect::<Option<Vec<_>>>()?;
                if parts.len() == 1 {
                    return parts.pop();
                }
                let kind = if rule == Rule::condition {
                    ExpressionKind::Any(parts)
                } else {
                    ExpressionKind::All(parts)
                };
                Some(Expression { kind, span })
            }
            Rule::negation => {
                let mut negated = false;
                for part in parts {
                    if part.as_rule() == Rule::not {
                        // Twice negated is not negated.
                        negated = !negated;
                        continue;
                    }
                    let inner = self.condition(part, from)?;
                    if !negated {
                        return Some(inner);
                    }
                    return Some(Expression { kind: ExpressionKind::Not(Box::new(inner)), span });
                }
                None
            }
            Rule::comparison => {
                let (mut sides, mut how) = (Vec::with_capacity(2), None);
                for part in parts {
                    match part.as_rule() {
                        Rule::operator => how = comparison(part.as_str()),
                        _ => sides.push(self.condition(part, from)),
                    }
                }
                let mut sides = sides.into_iter();
                match (how, sides.next(), sides.next()) {
                    (Some(how), Some(left), Some(right)) => {
                        let kind = ExpressionKind::Compare(how, Box::new((left?, right?)));
                        Some(Expression { kind, span })
                    }
                    (_, only, _) => only.flatten(),
                }
            }
            Rule::operand => {
                let inner =
                    parts.into_iter().find(|part| !matches!(part.as_rule(), Rule::open | Rule::close))?;
                if inner.as_rule() == Rule::condition {
                    return self.condition(inner, from);
                }
                let value = self.value(inner, from)?;
                Some(Expression { kind: ExpressionKind::Value(value), span })
            }
            _ => None,
        }
    }

    /// Applies a rule to a piece of the text. What does not fit is reported in words.
    fn read(&mut self, piece: Span, rule: Rule) -> Option<Pair<'t, Rule>> {
        self.read_or(piece, rule, None)
    }

    fn read_or(&mut self, piece: Span, rule: Rule, help: Option<String>) -> Option<Pair<'t, Rule>> {
        let error = match Grammar::parse(rule, piece.of(self.text)) {
            Ok(mut pairs) => return pairs.next(),
            Err(error) => error,
        };
        let at = match error.location {
            InputLocation::Pos(at) | InputLocation::Span((at, _)) => at,
        };
        let place = self.token_at(piece, piece.start + at);
        let found = place.of(self.text);
        let expected = match &error.variant {
            ErrorVariant::ParsingError { positives, .. } => expected(positives),
            ErrorVariant::CustomError { message } => message.clone(),
        };
        let message = if found.is_empty() {
            format!("expected {expected}, but nothing follows")
        } else {
            format!("expected {expected}, found `{found}`")
        };
        self.reports.error(Code::Syntax, place, message, format!("expected {expected}")).maybe_help(help);
        None
    }

    /// The word or sign at a place; empty at the end of the piece.
    fn token_at(&self, piece: Span, at: usize) -> Span {
        let rest = Span::new(at, piece.end).of(self.text);
        let trimmed = rest.trim_start();
        let start = piece.end - trimmed.len();
        let (word, _) = split_word(trimmed);
        let length = match word.len() {
            0 if trimmed.starts_with("->") => 2,
            0 => trimmed.chars().next().map_or(0, char::len_utf8),
            length => length,
        };
        if length == 0 { Span::new(piece.end, piece.end) } else { Span::new(start, start + length) }
    }
}

fn span(pair: &Pair<Rule>, from: usize) -> Span {
    let span = pair.as_span();
    Span::new(span.start(), span.end()).shifted(from)
}

fn name(pair: &Pair<Rule>, from: usize) -> Name {
    Name { text: pair.as_str().to_owned(), place: span(pair, from).into() }
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

/// What could have stood at a place, in words and each thing once.
fn expected(rules: &[Rule]) -> String {
    let mut words: Vec<&'static str> = Vec::new();
    // Where one of these could begin, so could all that they begin with; naming the whole is enough.
    let has = |several: &[Rule]| several.iter().any(|one| rules.contains(one));
    let condition = has(&[Rule::not, Rule::condition, Rule::conjunction, Rule::negation]);
    let value = has(&[Rule::string, Rule::value]);
    for rule in rules {
        let word = match rule {
            Rule::not | Rule::condition | Rule::conjunction | Rule::negation => {
                "a condition such as `env.done` or `turn < 2`"
            }
            Rule::string
            | Rule::boolean
            | Rule::number
            | Rule::path
            | Rule::value
            | Rule::list
            | Rule::open
            | Rule::operand
            | Rule::comparison
                if condition =>
            {
                continue;
            }
            Rule::list | Rule::open_bracket | Rule::open if value => continue,
            Rule::string | Rule::boolean | Rule::number | Rule::path | Rule::value | Rule::operand => {
                "a value such as `4`, `\"text\"` or a name"
            }
            Rule::name => "a name",
            Rule::stop => "an agent",
            Rule::equals => "`=`",
            Rule::colon => "`:` and a type",
            Rule::comma => "`,`",
            Rule::arrow => "`->`",
            Rule::when => "`when`",
            Rule::and => "`and`",
            Rule::or => "`or`",
            Rule::operator => "a comparison such as `==`",
            Rule::open => "`(`",
            Rule::close => "`)`",
            Rule::open_bracket => "`[`",
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
