//! Token masks against slow references, and endings within every limit.

#![allow(clippy::unwrap_used, reason = "a failing helper fails the test")]

mod endings;
mod masks;
mod refusals;
mod schemas;

use std::sync::Arc;

use pl_grammar::{CompiledGrammar, Constraint, Vocabulary};
use pl_types::Grammar;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Index of the token that ends a text.
const END: u32 = 0;

/// A vocabulary of all bytes, one special token and some longer tokens, which begin and end within and across what
/// grammars here treat as one word.
fn words() -> Vec<Vec<u8>> {
    let longer = [
        "true", "tru", "null", "\": ", "\", \"", "{\"", "\"}", "\"]}", "}}", "]]", "[[", "()", "))", "((",
        "12", "3.5", " =", "agent", "ag", "a -> b", "->", "start", " {", "\n\n", "é", "\"name", "name\":",
        "ab", "bc", "abc", "🙂", "\\n", "  ",
    ];
    let special = [b"\xFF<|end|>".to_vec(), b"\xFF<|other|>".to_vec()];
    let bytes = (0..=255u8).map(|byte| vec![byte]);
    special.into_iter().chain(bytes).chain(longer.iter().map(|word| word.as_bytes().to_vec())).collect()
}

/// The words, and a few logits that have no token.
fn vocabulary() -> Arc<Vocabulary> {
    let words = words();
    let size = words.len() + 5;
    Arc::new(Vocabulary::new(words, size, &[END]).unwrap())
}

fn lark(text: &str) -> Grammar {
    Grammar::Lark(text.to_owned())
}

const BRACKETS: &str = "start: pair*\npair: \"(\" pair* \")\"\n";

const STATEMENTS: &str = r#"start: agent+ turns
agent: "agent " NAME " {" setting* "}\n"
setting: " " NAME " = " (NUMBER | TEXT) ";"
turns: "start" (" -> " NAME)+ " -> end\n"
NAME: /[a-z][a-z0-9_]{0,7}/
NUMBER: /[0-9]{1,4}(\.[0-9]{1,2})?/
TEXT: /"([^"\\\n]|\\["\\n])*"/
"#;

const SCHEMA: &str = r##"{
  "type": "object",
  "properties": {
    "name": { "type": "string", "minLength": 3 },
    "kind": { "enum": ["plan", "work"] },
    "children": { "type": "array", "items": { "$ref": "#" } },
    "score": { "type": "number" }
  },
  "required": ["name", "kind", "children"],
  "additionalProperties": false
}"##;

fn grammars() -> Vec<Grammar> {
    vec![lark(BRACKETS), lark(STATEMENTS), lark(VERDICT), Grammar::JsonSchema(SCHEMA.to_owned())]
}

const VERDICT: &str = r#"start: "because " REASON "\n" VERDICT
REASON: /[^\n]{1,200}/
VERDICT: "right" | "wrong"
"#;

/// Samples a completion uniformly from the masks. Returns its text, and whether it came to its end.
fn complete(grammar: &Arc<CompiledGrammar>, max_tokens: usize, seed: u64) -> (Vec<u8>, bool) {
    let words = words();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut constraint = Constraint::new(grammar, max_tokens);
    let mut text = Vec::new();
    for _ in 0..max_tokens {
        let mask = constraint.mask().unwrap();
        let allowed: Vec<u32> = (0..words.len() as u32).filter(|token| mask.allows(*token)).collect();
        // Openers are likelier, so that texts nest as deeply as they can.
        let opens = |token: &&u32| words[**token as usize].iter().any(|byte| b"([{".contains(byte));
        let openers: Vec<u32> = allowed.iter().filter(opens).copied().collect();
        let from = if openers.is_empty() || rng.next_u32() % 3 == 0 { &allowed } else { &openers };
        let token = constraint.advance(from[rng.next_u32() as usize % from.len()]).unwrap();
        assert!(mask.allows(token));
        if token == END {
            return (text, true);
        }
        text.extend_from_slice(&words[token as usize]);
    }
    (text, false)
}
