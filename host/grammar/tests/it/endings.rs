//! Endings: every completion is a whole text, whatever its limit.

use super::*;

fn is_statement(text: &str) -> bool {
    let lines: Vec<&str> = text.lines().collect();
    let Some((turns, agents)) = lines.split_last() else { return false };
    let agent = |line: &&str| line.starts_with("agent ") && line.ends_with('}');
    text.ends_with('\n')
        && !agents.is_empty()
        && agents.iter().all(agent)
        && turns.starts_with("start -> ")
        && turns.ends_with(" -> end")
}

fn is_verdict(text: &str) -> bool {
    let reason = text.strip_prefix("because ").and_then(|rest| rest.rsplit_once('\n'));
    reason.is_some_and(|(reason, verdict)| !reason.contains('\n') && ["right", "wrong"].contains(&verdict))
}

fn fits_schema(value: &serde_json::Value) -> bool {
    let Some(object) = value.as_object() else { return false };
    object.keys().all(|key| ["name", "kind", "children", "score"].contains(&key.as_str()))
        && object["name"].as_str().is_some_and(|name| name.chars().count() >= 3)
        && ["plan", "work"].contains(&object["kind"].as_str().unwrap_or_default())
        && object["children"].as_array().is_some_and(|children| children.iter().all(fits_schema))
}

#[test]
fn completions_end_as_whole_texts_within_every_limit() {
    let grammars = grammars();
    let compiled: Vec<_> = grammars
        .iter()
        .map(|grammar| Arc::new(CompiledGrammar::new(&vocabulary(), grammar).unwrap()))
        .collect();
    for seed in 0..60 {
        for (at, grammar) in compiled.iter().enumerate() {
            for limit in [grammar.needed_tokens(), 60, 100, 200] {
                let (text, ended) = complete(grammar, limit.max(grammar.needed_tokens()), seed);
                let text = String::from_utf8(text).unwrap();
                let whole = match at {
                    0 => text.bytes().filter(|byte| *byte == b'(').count() * 2 == text.len(),
                    1 => is_statement(&text),
                    2 => is_verdict(&text),
                    _ => serde_json::from_str(&text).is_ok_and(|value| fits_schema(&value)),
                };
                assert!(ended && whole, "limit {limit}, seed {seed}: {text}");
            }
        }
    }
}

#[test]
fn the_same_tokens_give_the_same_text() {
    let grammar = Arc::new(CompiledGrammar::new(&vocabulary(), &lark(STATEMENTS)).unwrap());
    let first: Vec<_> = (0..20).map(|seed| complete(&grammar, 80, seed)).collect();
    let fresh = Arc::new(CompiledGrammar::new(&vocabulary(), &lark(STATEMENTS)).unwrap());
    let again: Vec<_> = (0..20).rev().map(|seed| complete(&fresh, 80, seed)).collect();
    assert_eq!(first, again.into_iter().rev().collect::<Vec<_>>());
}

/// Each token of the model opens more than the slack has room for.
#[test]
fn a_token_that_opens_more_than_fits_is_replaced_by_the_ending() {
    let grammar =
        lark("start: \"x\" | \"(\" start \")))))))))))))))))))))))))))))))))))))))))))))))))))))))))\"\n");
    let grammar = Arc::new(CompiledGrammar::new(&vocabulary(), &grammar).unwrap());
    for seed in 0..50 {
        let (text, ended) = complete(&grammar, 60, seed);
        assert!(ended && text.contains(&b'x'), "{:?}", String::from_utf8_lossy(&text));
    }
}
