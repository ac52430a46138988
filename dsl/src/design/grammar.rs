//! The grammar of designs, in the dialect of Lark that llguidance reads.
//!
//! It is made from the settings table, the palette and what its items declare, and generates one form of designs: agents
//! whose names are given by their number, each with its settings in a fixed order, then the turns, whose last line leads
//! from `start` through all agents to `end` and whose lines before it leave that path under a condition. All that it
//! generates parses, reaches every agent and can end. The spacing is that of the formatter or any other; there are no
//! comments. What an item declares beyond types and ranges is left to the check.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use pl_types::{Fact, FactKind, Grammar, Item};
use serde_json::Value as Json;

use super::palette_checker::KEYS;
use crate::settings::{self, SettingKind};
use crate::syntax::block_kind::BlockKind;
use crate::workflow::Palette;

/// Names of the agents of a design, in their order. A grammar of more agents would have many times the rules.
pub(super) const NAMES: [&str; 8] =
    ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"];

/// Depth of parentheses in conditions. Deeper ones are never needed, and the parser has a limit.
const DEPTH: usize = 3;

/// Depth to which references and alternatives of a schema are followed.
const SCHEMA_DEPTH: usize = 8;

/// Spacing, numbers and texts.
const TERMINALS: &str = r#"
gap: (WS | SEP)?
WS: /[ \t]{1,64}/
SEP: /[ \t]{0,64}[;\n][ \t\n;]{0,64}/
LIST_GAP: /[ \t\n]{1,24}/
EQUALS: /[ \t]{0,64}=[ \t]{0,4}/
ARROW: /[ \t]{0,64}->[ \t]{0,4}/
COMPARISON: /[ \t]{0,4}(==|!=|<=|>=|<|>)[ \t]{0,4}/
EQUALITY: /[ \t]{0,4}(==|!=)[ \t]{0,4}/
NUMBER: /[0-9]{1,9}(\.[0-9]{1,6})?([eE][+\-]?[0-9]{1,2})?/
TEXT: /"([^"\\$\n\r\x00]|\\["\\nt]|\$+([^"\\${\n\r\x00]|\\["\\nt]))*\$*"/
LINES: /"""([^"\\$\r\x00]|\\["\\nt]|\$+([^"\\${\r\x00]|\\["\\nt]))*\$*"""/
"#;

/// Returns the grammar of the designs of a palette, of at most eight agents. `items` are the items of its agents, in the
/// order of the palette, and `facts` those that its environment reports.
pub fn design_grammar(palette: &Palette, items: &[Item], facts: &[Fact]) -> Grammar {
    // A completion is led to its end by the words that the grammar spells out, the first ones first: those that end a
    // design stand before those that go on with it.
    let mut out = String::from("start: gap agent_1 rest_1 gap\n");
    let most = palette.max_agents.clamp(1, NAMES.len());
    turns(palette, most, &mut out);
    agents(palette, items, most, &mut out);
    conditions(facts, &mut out);
    out.push_str(TERMINALS);
    Grammar::Lark(out)
}

fn agents(palette: &Palette, items: &[Item], most: usize, out: &mut String) {
    for (number, name) in (1..=most).zip(NAMES) {
        let _ = writeln!(out, "agent_{number}: \"agent\" WS {} EQUALS made SEP", quoted(name));
    }
    let forms: Vec<String> = (0..palette.agents.len()).map(|at| format!("made_of_{at}")).collect();
    let _ = writeln!(out, "made: {}", forms.join(" | "));
    for (at, name) in palette.agents.iter().enumerate() {
        let schema = items.get(at).map(|item| &item.settings_schema);
        let settings: String = agent_settings(palette, schema).concat();
        let _ = writeln!(out, "made_of_{at}: {} WS? \"{{\" gap policy{settings} gap \"}}\"", quoted(name));
    }
}

/// Settings of an agent after its policy: those that its item declares, in the order of the schema, then those of the
/// language. Only those that the item requires must be there.
fn agent_settings(palette: &Palette, schema: Option<&Json>) -> Vec<String> {
    let declared = schema.and_then(|schema| schema.get("properties")).and_then(Json::as_object);
    let required = schema.and_then(|schema| schema.get("required")).and_then(Json::as_array);
    let mut all = Vec::new();
    for (key, node) in declared.into_iter().flatten() {
        let own = settings::find(BlockKind::Agent, key).is_some();
        let must = required.is_some_and(|keys| keys.iter().any(|required| required == key.as_str()));
        if let (false, Some(root)) = (own, schema)
            && let Some(value) = value_of(node, root, SCHEMA_DEPTH)
        {
            all.push(setting(key, &value, must));
        }
    }
    for own in settings::in_block(BlockKind::Agent).filter(|own| KEYS.contains(&own.key)) {
        let value = match own.kind {
            SettingKind::Integer { min, .. } if own.key == "max_tokens" => {
                whole_within(min.unsigned_abs()..=palette.max_tokens)
            }
            SettingKind::Integer { min, max } => whole_within(min.unsigned_abs()..=max.unsigned_abs()),
            SettingKind::Number { min, max, above } => number_within(min, max, above),
            _ => continue,
        };
        all.push(setting(own.key, &value, false));
    }
    all
}

fn setting(key: &str, value: &str, must: bool) -> String {
    let optional = if must { "" } else { "?" };
    format!(" (SEP {} EQUALS ({value})){optional}", quoted(key))
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
            let largest = bound("maximum").filter(|most| *most >= 0.0).unwrap_or(1e9) as u64;
            let least = bound("minimum").filter(|least| *least >= 0.0).unwrap_or(0.0) as u64;
            Some(format!("{sign}{}", whole_within(least.min(largest)..=largest)))
        }
        "number" => Some(format!("{sign}NUMBER")),
        "array" => {
            let item = match node.get("items") {
                Some(item) => value_of(item, root, depth)?,
                None => "TEXT".to_owned(),
            };
            let more = match node.get("maxItems").and_then(Json::as_u64) {
                Some(most) => format!("{{0,{}}}", most.clamp(1, 64) - 1),
                None => "*".to_owned(),
            };
            Some(format!(
                "\"[\" LIST_GAP? ({item}) (LIST_GAP? \",\" LIST_GAP? ({item})){more} LIST_GAP? (\",\" LIST_GAP?)? \"]\""
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

/// Whole numbers of a range, without leading zeros, of at most nine digits.
fn whole_within(range: RangeInclusive<u64>) -> String {
    let (least, most) = (*range.start(), (*range.end()).min(999_999_999));
    // Ranges of numbers with equally many digits.
    let mut parts = Vec::new();
    let mut from = least;
    while from <= most {
        let digits = from.to_string().len() as u32;
        let to = most.min(10u64.pow(digits) - 1);
        parts.push(equally_long(&from.to_string(), &to.to_string()));
        from = to + 1;
    }
    format!("/{}/", parts.join("|"))
}

/// Returns a regular expression of the numbers between two that have equally many digits.
fn equally_long(from: &str, to: &str) -> String {
    let (Some(low), Some(high)) = (from.chars().next(), to.chars().next()) else { return String::new() };
    let (from, to) = (&from[1..], &to[1..]);
    if low == high {
        return format!("{low}{}", equally_long(from, to));
    }
    let count = from.len();
    let any = if count == 0 { String::new() } else { format!("[0-9]{{{count}}}") };
    let (mut low, mut high) = (low as u8, high as u8);
    let mut parts = Vec::new();
    if from.bytes().any(|digit| digit != b'0') {
        parts.push(format!("{}{}", low as char, equally_long(from, &"9".repeat(count))));
        low += 1;
    }
    let to_last = to.bytes().any(|digit| digit != b'9');
    let mut last = None;
    if to_last {
        last = Some(format!("{}{}", high as char, equally_long(&"0".repeat(count), to)));
        high -= 1;
    }
    if low <= high {
        parts.push(format!("[{}-{}]{any}", low as char, high as char));
    }
    parts.extend(last);
    format!("({})", parts.join("|"))
}

/// Numbers of a range whose ends are whole, with up to four digits after the point.
fn number_within(min: f64, max: f64, above: bool) -> String {
    let (least, most) = (min.max(0.0) as u64, max.min(1e9) as u64);
    let whole = |range| whole_within(range).trim_matches('/').to_owned();
    let mut parts = Vec::new();
    if above {
        parts.push(format!("{least}\\.0{{0,3}}[1-9][0-9]{{0,3}}"));
    }
    let first = if above { least + 1 } else { least };
    if first < most {
        parts.push(format!("({})(\\.[0-9]{{1,4}})?", whole(first..=most - 1)));
    }
    parts.push(format!("{most}(\\.0{{1,4}})?"));
    format!("/{}/", parts.join("|"))
}

/// The turns of teams of up to `most` agents.
fn turns(palette: &Palette, most: usize, out: &mut String) {
    let max = whole_within(1..=u64::from(palette.max_visits));
    let default = settings::find(BlockKind::Turns, "max").map(|own| own.default);
    let fits = matches!(default, Some(settings::DefaultValue::Integer(visits)) if visits <= i64::from(palette.max_visits));
    // Without `max`, the default of the language holds, which may be too large.
    let optional = if fits { "?" } else { "" };
    let policies: Vec<String> = palette.policies.iter().map(|name| quoted(name)).collect();
    let _ =
        writeln!(out, "policy: \"policy\" EQUALS ({})\nmax: \"max\" EQUALS ({max})", policies.join(" | "));
    for count in 1..=most {
        let more = match count < most {
            true => format!(" | agent_{} rest_{}", count + 1, count + 1),
            false => String::new(),
        };
        let paths = paths(count);
        let bodies: Vec<String> = (0..paths.len()).map(|at| format!("path_{count}_{at}")).collect();
        let _ = writeln!(
            out,
            "rest_{count}: turns_{count}{more}\n\
             turns_{count}: \"turns\" WS? \"{{\" gap (max SEP){optional} ({}) gap \"}}\"",
            bodies.join(" | ")
        );
        for (at, nodes) in paths.iter().enumerate() {
            let nodes: Vec<String> = nodes.iter().map(node).collect();
            let _ = writeln!(
                out,
                "path_{count}_{at}: (leave_{count}_{at} SEP)* \"start\" ARROW {} ARROW \"end\"\n\
                 leave_{count}_{at}: ({any}) ARROW (\"end\" | {any}) WS \"when\" WS condition_0",
                nodes.join(" ARROW "),
                any = nodes.join(" | "),
            );
        }
    }
}

/// Returns the paths through agents in their order: one after the other, or with one group that acts side by side. Each node
/// is a range of agents, from 0.
fn paths(agents: usize) -> Vec<Vec<RangeInclusive<usize>>> {
    let single = |at: usize| at..=at;
    let mut all = vec![(0..agents).map(single).collect()];
    for from in 0..agents {
        for to in from + 1..agents {
            let before = (0..from).map(single);
            all.push(before.chain([from..=to]).chain((to + 1..agents).map(single)).collect());
        }
    }
    all
}

/// A node of a path.
fn node(agents: &RangeInclusive<usize>) -> String {
    let names: Vec<String> = NAMES[agents.clone()].iter().map(|name| quoted(name)).collect();
    match names.as_slice() {
        [only] => only.clone(),
        several => format!(
            "(\"[\" LIST_GAP? {} LIST_GAP? (\",\" LIST_GAP?)? \"]\")",
            several.join(" LIST_GAP? \",\" LIST_GAP? ")
        ),
    }
}

/// Conditions over the episode, each with the type that its facts have.
fn conditions(facts: &[Fact], out: &mut String) {
    let of_kind = |kind: FactKind| {
        let own = facts.iter().filter(move |fact| fact.kind == kind);
        own.map(|fact| quoted(&format!("env.{}", fact.name)))
    };
    let mut numbers: Vec<String> = of_kind(FactKind::Number).collect();
    numbers.push(quoted("turn"));
    let (booleans, texts): (Vec<_>, Vec<_>) =
        (of_kind(FactKind::Boolean).collect(), of_kind(FactKind::Text).collect());
    let mut compared = vec!["number COMPARISON (\"-\"? NUMBER | number)".to_owned()];
    if !texts.is_empty() {
        compared.push(format!("({}) EQUALITY TEXT", texts.join(" | ")));
    }
    let _ = writeln!(out, "number: {}\ncompared: {}", numbers.join(" | "), compared.join(" | "));
    for depth in 0..=DEPTH {
        let mut truths = booleans.clone();
        if depth < DEPTH {
            truths.push(format!("\"(\" WS? condition_{} WS? \")\"", depth + 1));
        }
        let truths = match truths.is_empty() {
            true => String::new(),
            false => format!(" | (\"not\" WS)? ({})", truths.join(" | ")),
        };
        let _ = writeln!(
            out,
            "condition_{depth}: part_{depth} (WS (\"and\" | \"or\") WS part_{depth})*\n\
             part_{depth}: compared{truths}"
        );
    }
}

/// A text in double quotes.
fn quoted(text: &str) -> String {
    Json::from(text).to_string()
}
