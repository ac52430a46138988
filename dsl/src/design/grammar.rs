//! The grammar of designs, in the dialect of Lark that llguidance reads.
//!
//! It is made from the settings table, the palette and what its items declare. It generates the agents first, then the
//! turns, with the spacing of the formatter or any other, but without comments; everything that it generates parses. Names
//! that are not declared, keys that are set twice and numbers out of range are left to the check.

use std::fmt::Write as _;

use pl_types::{Fact, Grammar, Item};
use serde_json::Value as Json;

use super::fence::KEYS;
use crate::settings::{self, SettingKind};
use crate::syntax::block_kind::BlockKind;
use crate::workflow::Palette;

/// Words that no agent may be named: those of the language, and the reserved names of agents.
const NO_NAMES: [&str; 14] = [
    "and", "or", "not", "when", "true", "false", "if", "then", "else", "in", "start", "end", "team",
    "success",
];

/// Depth of parentheses in conditions. Deeper ones are never needed, and the parser has a limit.
const DEPTH: usize = 3;

/// Largest `max_visits` whose numbers are listed one by one.
const LISTED: u32 = 64;

/// Depth to which references and alternatives of a schema are followed.
const SCHEMA_DEPTH: usize = 8;

/// Spacing, names, numbers and texts.
const TERMINALS: &str = r#"
gap: (WS | SEP)?
WS: /[ \t]{1,64}/
SEP: /[ \t]{0,64}[;\n][ \t\n;]{0,64}/
LIST_GAP: /[ \t\n]{1,24}/
EQUALS: /[ \t]{0,64}=[ \t]{0,4}/
ARROW: /[ \t]{0,64}->[ \t]{0,4}/
COMPARISON: /[ \t]{0,4}(==|!=|<=|>=|<|>)[ \t]{0,4}/
NUMBER: /[0-9]{1,9}(\.[0-9]{1,6})?([eE][+\-]?[0-9]{1,2})?/
TEXT: /"([^"\\$\n\r\x00]|\\["\\nt]|\$+([^"\\${\n\r\x00]|\\["\\nt]))*\$*"/
LINES: /"""([^"\\$\r\x00]|\\["\\nt]|\$+([^"\\${\r\x00]|\\["\\nt]))*\$*"""/
"#;

/// Returns the grammar of the designs of a palette. `items` are the items of its agents, in the order of the palette, and
/// `facts` those that its environment reports.
pub fn design_grammar(palette: &Palette, items: &[Item], facts: &[Fact]) -> Grammar {
    // A completion is led to its end by the words that the grammar spells out, the first ones first: those that end a
    // design stand before those that go on with it.
    let mut out = format!("start: gap agent{{1,{}}} turns gap\n", palette.max_agents);
    turns(palette, &mut out);
    agents(palette, items, &mut out);
    conditions(facts, &mut out);
    out.push_str(TERMINALS);
    let _ = writeln!(out, "NAME: /{}/", names_except(&NO_NAMES));
    Grammar::Lark(out)
}

fn agents(palette: &Palette, items: &[Item], out: &mut String) {
    let forms: Vec<String> = (0..palette.agents.len()).map(|at| format!("made_of_{at}")).collect();
    let _ = writeln!(out, "agent: \"agent\" WS NAME EQUALS ({}) SEP", forms.join(" | "));
    for (at, name) in palette.agents.iter().enumerate() {
        let schema = items.get(at).map(|item| &item.settings_schema);
        let settings = agent_settings(palette, schema);
        let _ = writeln!(
            out,
            "made_of_{at}: {} WS? \"{{\" gap (setting_{at} SEP)* policy (SEP setting_{at})* gap \"}}\"",
            quoted(name)
        );
        let _ = writeln!(out, "setting_{at}: {}", settings.join("\n  | "));
    }
}

/// Alternatives of the settings of an agent, without its policy.
fn agent_settings(palette: &Palette, schema: Option<&Json>) -> Vec<String> {
    let of_language = settings::in_block(BlockKind::Agent).filter(|own| KEYS.contains(&own.key));
    let mut all: Vec<String> = of_language
        .filter_map(|own| {
            let value = match own.kind {
                SettingKind::Integer { .. } if own.key == "max_tokens" => whole_up_to(palette.max_tokens),
                SettingKind::Integer { max, .. } => whole_up_to(max.unsigned_abs()),
                SettingKind::Number { max, .. } => number_up_to(max),
                _ => return None,
            };
            Some(setting(own.key, &value))
        })
        .collect();
    let declared = schema.and_then(|schema| schema.get("properties")).and_then(Json::as_object);
    for (key, node) in declared.into_iter().flatten() {
        let own = settings::find(BlockKind::Agent, key).is_some();
        if let (false, Some(root)) = (own, schema)
            && let Some(value) = value_of(node, root, SCHEMA_DEPTH)
        {
            all.push(setting(key, &value));
        }
    }
    all
}

fn setting(key: &str, value: &str) -> String {
    format!("{} EQUALS ({value})", quoted(key))
}

/// Alternatives of the values that a schema describes, as far as designs can write them. Returns `None` for objects.
fn value_of(node: &Json, root: &Json, depth: usize) -> Option<String> {
    let depth = depth.checked_sub(1)?;
    if let Some(target) = node.get("$ref").and_then(Json::as_str).and_then(|path| path.strip_prefix('#')) {
        return value_of(root.pointer(target)?, root, depth);
    }
    if let Some(word) = node.get("const") {
        return literal(word);
    }
    if let Some(words) = node.get("enum").and_then(Json::as_array) {
        return joined(words.iter().map(literal));
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        if let Some(nodes) = node.get(key).and_then(Json::as_array) {
            return joined(nodes.iter().map(|node| value_of(node, root, depth)));
        }
    }
    match node.get("type") {
        Some(Json::String(kind)) => of_type(kind, node, root, depth),
        Some(Json::Array(kinds)) => {
            joined(kinds.iter().map(|kind| of_type(kind.as_str().unwrap_or_default(), node, root, depth)))
        }
        _ => Some("TEXT | LINES | \"-\"? NUMBER | \"true\" | \"false\"".to_owned()),
    }
}

fn of_type(kind: &str, node: &Json, root: &Json, depth: usize) -> Option<String> {
    let bound = |key: &str| node.get(key).and_then(Json::as_f64);
    let sign = if bound("minimum").is_some_and(|least| least >= 0.0) { "" } else { "\"-\"? " };
    match kind {
        "string" => Some("TEXT | LINES".to_owned()),
        "boolean" => Some("\"true\" | \"false\"".to_owned()),
        "integer" => {
            let largest = bound("maximum").filter(|most| *most >= 0.0).unwrap_or(1e9);
            Some(format!("{sign}{}", whole_up_to(largest as u64)))
        }
        "number" => Some(format!("{sign}NUMBER")),
        "array" => {
            let item = match node.get("items") {
                Some(item) => value_of(item, root, depth)?,
                None => "TEXT".to_owned(),
            };
            Some(format!(
                "\"[\" LIST_GAP? ({item}) (LIST_GAP? \",\" LIST_GAP? ({item}))* LIST_GAP? (\",\" LIST_GAP?)? \"]\""
            ))
        }
        _ => None,
    }
}

/// A word of a schema as designs write it.
fn literal(word: &Json) -> Option<String> {
    match word {
        Json::String(text) if !text.contains("${") => Some(quoted(&quoted(text))),
        Json::Bool(_) | Json::Number(_) => Some(quoted(&word.to_string())),
        _ => None,
    }
}

/// Joins the alternatives that exist. Returns `None` if there are none.
fn joined(alternatives: impl Iterator<Item = Option<String>>) -> Option<String> {
    let all: Vec<String> = alternatives.flatten().collect();
    (!all.is_empty()).then(|| all.join(" | "))
}

/// Whole numbers with no more digits than `largest`.
fn whole_up_to(largest: u64) -> String {
    format!("/[0-9]{{1,{}}}/", largest.to_string().len().min(9))
}

/// Numbers with no more digits before the point than `largest`; up to 1, no number above it.
fn number_up_to(largest: f64) -> String {
    if largest == 1.0 {
        return "/0(\\.[0-9]{1,4})?|1(\\.0{1,4})?/".to_owned();
    }
    let digits = format!("{largest:.0}").len().min(9);
    format!("/[0-9]{{1,{digits}}}(\\.[0-9]{{1,4}})?/")
}

fn turns(palette: &Palette, out: &mut String) {
    let max = match palette.max_visits {
        visits @ ..=LISTED => {
            (1..=visits).map(|visits| quoted(&visits.to_string())).collect::<Vec<_>>().join(" | ")
        }
        visits => whole_up_to(u64::from(visits)),
    };
    let default = settings::find(BlockKind::Turns, "max").map(|own| own.default);
    let fits = matches!(default, Some(settings::DefaultValue::Integer(visits)) if visits <= i64::from(palette.max_visits));
    // Without `max`, the default of the language holds. Where that is too large, `max` comes first.
    let body = match fits {
        true => "edges | max SEP edges | edges SEP max | edges SEP max SEP later",
        false => "max SEP edges",
    };
    let policies: Vec<String> = palette.policies.iter().map(|name| quoted(name)).collect();
    let _ = write!(
        out,
        "first: \"start\" (ARROW node)+ (ARROW \"end\")? (WS \"when\" WS condition_0)?\n\
         policy: \"policy\" EQUALS ({policies})\n\
         turns: \"turns\" WS? \"{{\" gap ({body}) gap \"}}\"\n\
         max: \"max\" EQUALS ({max})\n\
         edges: (edge SEP)* first (SEP (edge | first))*\n\
         later: (edge | first) (SEP (edge | first))*\n\
         edge: node (ARROW node)* ARROW (\"end\" | node) (WS \"when\" WS condition_0)?\n\
         node: NAME | \"[\" LIST_GAP? NAME (LIST_GAP? \",\" LIST_GAP? NAME)* LIST_GAP? (\",\" LIST_GAP?)? \"]\"\n",
        policies = policies.join(" | "),
    );
}

/// Conditions over the episode.
fn conditions(facts: &[Fact], out: &mut String) {
    for depth in 0..=DEPTH {
        let group = match depth {
            DEPTH => String::new(),
            _ => format!(" | \"(\" WS? condition_{} WS? \")\"", depth + 1),
        };
        let _ = write!(
            out,
            "condition_{depth}: not_{depth} (WS (\"and\" | \"or\") WS not_{depth})*\n\
             not_{depth}: (\"not\" WS)? compared_{depth} (COMPARISON compared_{depth})?\n\
             compared_{depth}: operand{group}\n"
        );
    }
    let mut operands: Vec<String> = facts.iter().map(|fact| quoted(&format!("env.{}", fact.name))).collect();
    for word in ["turn", "true", "false"] {
        operands.push(quoted(word));
    }
    let _ = writeln!(out, "operand: {} | TEXT | \"-\"? NUMBER", operands.join(" | "));
}

/// A text in double quotes.
fn quoted(text: &str) -> String {
    Json::from(text).to_string()
}

/// Returns a regular expression of names that leaves out some words, which have letters alone.
fn names_except(words: &[&str]) -> String {
    let mut prefixes: Vec<&str> =
        words.iter().flat_map(|word| (0..=word.len()).map(|length| &word[..length])).collect();
    prefixes.sort_unstable();
    prefixes.dedup();
    let mut alternatives = Vec::new();
    for prefix in prefixes {
        let continues = |letter: char| {
            words.iter().any(|word| word.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(letter)))
        };
        let letters: String = ('a'..='z').filter(|letter| !continues(*letter)).collect();
        let digits = if prefix.is_empty() { "" } else { "0-9" };
        alternatives.push(format!("{prefix}[{letters}A-Z_{digits}][a-zA-Z0-9_]{{0,30}}"));
        if !prefix.is_empty() && !words.contains(&prefix) {
            alternatives.push(prefix.to_owned());
        }
    }
    alternatives.join("|")
}
