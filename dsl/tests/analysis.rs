//! Analysis for editors: the outline, and the context of the cursor. `|` marks its position.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use pl_dsl::analysis::{Cursor, CursorContext, OutlineBlock, outline};
use pl_dsl::{BlockKind, Span};
use proptest::prelude::*;

fn span_text(text: &str, span: Span) -> &str {
    text.get(span.start..span.end).unwrap()
}

/// Context of the mark: the enclosing blocks, the part of the statement, and the path before it.
fn describe_context(marked: &str) -> String {
    let position = marked.find('|').unwrap();
    let text = marked.replacen('|', "", 1);
    let cursor = Cursor::new(&text, position);
    let enclosing: Vec<String> = cursor
        .blocks
        .iter()
        .map(|block| {
            let name = block.name.map(|name| format!(" {}", span_text(&text, name))).unwrap_or_default();
            format!("{}{name}", block.kind.map_or("?", BlockKind::keyword))
        })
        .collect();
    let context = match cursor.context {
        CursorContext::StatementStart => "start".to_owned(),
        CursorContext::Value { key } => format!("value of {}", span_text(&text, key)),
        CursorContext::Head { keyword } => format!("head of {}", span_text(&text, keyword)),
        CursorContext::HeadValue { kind } => format!("made {}", kind.map_or("?", BlockKind::keyword)),
        CursorContext::Argument { template, name, position, .. } => {
            let name = name.map(|name| format!(" {}", span_text(&text, name))).unwrap_or_default();
            format!("argument {position}{name} of {}", span_text(&text, template))
        }
        other => format!("{other:?}").to_lowercase(),
    };
    format!("{}: {context}: {}", enclosing.join(" > "), span_text(&text, cursor.path))
}

#[test]
fn a_cursor_knows_its_block_and_statement() {
    for (marked, expected) in [
        ("|", ": start: "),
        ("pol|icy p {}", ": start: policy"),
        ("policy p|", ": head of policy: p"),
        ("policy p { | }", "policy p: start: "),
        ("policy p { mod|el = base }", "policy p: start: model"),
        ("policy p { model = | }", "policy p: value of model: "),
        ("policy p { model = ba|se; train = true }", "policy p: value of model: base"),
        ("policy p { model = base; | }", "policy p: start: "),
        ("policy p { model = base\n  lora { ra|nk = 3 } }", "policy p > lora: start: rank"),
        ("policy p { lora { rank = 3 } | }", "policy p: start: "),
        ("policy p { } |", ": start: "),
        ("agent a = maths.to|ol {}", ": made agent: maths.tool"),
        ("agent a = |", ": made agent: "),
        ("agent a = exp|ert(1)", ": made agent: expert"),
        ("agent a = expert(|)", ": argument 0 of expert: "),
        ("agent a = team.expert([1, 2], fi|rst)", ": argument 1 of team.expert: first"),
        ("policy p = small(max(1, 2), of = | )", ": argument 1 of of small: "),
        ("agent a = expert(\"a (\", by = x, \"${n|}\")", ": argument 2 of expert: n"),
        ("agent a = expert(1) |", ": made agent: "),
        ("agent a = expert(\n  \"a\",\n  by = |", ": argument 1 by of expert: "),
        ("param n: int = max(|", ": made param: "),
        ("turns {\n  start -> |\n}", "turns: edge: "),
        ("turns {\n  start -> a|\n}", "turns: edge: a"),
        ("turns {\n  start -> a when env.|\n}", "turns: condition: env."),
        ("turns {\n  max = |\n}", "turns: value of max: "),
        ("train { schedule = async { stale|ness = 1 } }", "train > ?: start: staleness"),
        ("policy p { train { k|l = 1 } }", "policy p > train: start: kl"),
        ("layout = |", ": value of layout: "),
        ("agent a = std.chat { system = \"x | y\" }", "agent a: text: "),
        ("agent a = std.chat { system = \"|\" }", "agent a: text: "),
        ("agent a = std.chat { system = \"x\"| }", "agent a: value of system: "),
        ("agent a = std.chat { system = \"${to|pic}\" }", "agent a: value of system: topic"),
        ("policy p # a | comment\n", ": comment: "),
        ("# a comment|", ": comment: comment"),
        ("# a comment\n|", ": start: "),
        // Incomplete statements.
        ("agent a = std.chat { temperature = |\nagent b = std.chat", "agent a: value of temperature: "),
        ("train {\n  st|\n\nevaluate test { }", "train: start: st"),
        ("param n: int = |", ": made param: "),
    ] {
        assert_eq!(describe_context(marked), expected, "{marked}");
    }
}

#[test]
fn a_block_lists_the_keys_that_are_set() {
    let text = "policy p { model = base; lora { rank = 3 }\n  x }";
    let cursor = Cursor::new(text, text.len() - 2);
    let keys: Vec<&str> = cursor.blocks[0].keys.iter().map(|key| span_text(text, *key)).collect();
    assert_eq!(keys, ["model", "lora"]);
}

#[test]
fn the_outline_names_every_block() {
    let text = "workflow w\nplugin m = \"m.wasm\"\npolicy p { model = b; lora { rank = 3 } }\n\
                agent a = m.tool { policy = p }\nturns { start -> a -> end }\nlayout = L0\npolicy q {";
    fn show(text: &str, blocks: &[OutlineBlock], depth: usize, out: &mut String) {
        for block in blocks {
            let name = block.name.map(|name| span_text(text, name)).unwrap_or("-");
            let value = block.value.map(|value| span_text(text, value)).unwrap_or("-");
            *out += &format!("{}{} {name} = {value}\n", "  ".repeat(depth), span_text(text, block.keyword));
            show(text, &block.blocks, depth + 1, out);
        }
    }
    let mut shown = String::new();
    show(text, &outline(text), 0, &mut shown);
    insta::assert_snapshot!(shown);
}

proptest! {
    /// Every position in every text has a context, with spans in the text.
    #[test]
    fn any_text_and_position_has_a_context(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "policy", "agent", "turns", "template", "use", "when", "=", "{", "}", "(", ")", "[", "\"", "\"\"\"",
                "${", "->", "#", "\n", ";", ".", "a", "ü", "\u{1F600}", " ", "\\", "1",
            ]),
            0..60,
        ),
        at in 0..120_usize,
    ) {
        let text = words.concat();
        let cursor = Cursor::new(&text, at);
        prop_assert!(text.get(cursor.path.start..cursor.path.end).is_some());
        prop_assert!(cursor.path.start <= cursor.word.start && cursor.word.end == cursor.path.end);
        for block in outline(&text) {
            prop_assert!(text.get(block.span.start..block.span.end).is_some());
        }
    }
}
