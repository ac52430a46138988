//! The grammar of designs both ways: what it generates parses, and what parses and fits the palette it accepts.

// clippy.toml excuses test functions, but not what they call.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::{Arc, LazyLock};

use common::TestCatalog;
use pl_dsl::workflow::{Palette, Plugin};
use pl_dsl::{
    Catalog, DesignMistake, Frame, Source, check_design, design_grammar, pattern, settings, syntax_errors,
};
use pl_grammar::{CompiledGrammar, Constraint, Vocabulary};
use pl_types::{Fact, Item, ItemKind};
use proptest::prelude::*;

const FRAME: &str = r#"workflow team
plugin maths = "math.wasm"
model base = "smollm2-135m"
policy coder    { model = base; train = false }
policy reasoner { model = base; train = false }
environment problems = maths.problems
reward score = maths.score
"#;

/// Index of the token that ends a text.
const END: u32 = 0;

fn palette() -> Palette {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Palette {
        agents: names(&["std.chat", "maths.tool", "maths.reasoner"]),
        policies: names(&["coder", "reasoner"]),
        max_agents: 4,
        max_visits: 6,
        max_tokens: 4096,
    }
}

fn items() -> (Vec<Item>, Vec<Fact>) {
    let block = |path: Option<&str>| -> Plugin {
        serde_json::from_value(serde_json::json!({
            "name": "p", "path": path, "memory": 1, "fuel": 1, "timeout": { "secs": 1, "nanos": 0 },
        }))
        .unwrap()
    };
    let chat = TestCatalog.items(&block(None)).unwrap().remove(0);
    let maths = TestCatalog.items(&block(Some("math.wasm"))).unwrap();
    let agent = |name: &str| maths.iter().find(|one| one.name == name).unwrap().clone();
    let facts = maths.iter().find(|one| one.kind == ItemKind::Environment).unwrap().facts.clone();
    (vec![chat, agent("tool"), agent("reasoner")], facts)
}

/// All bytes, and longer tokens that begin and end within what the language treats as one word.
fn words() -> Vec<Vec<u8>> {
    let longer = [
        "agent ",
        "ag",
        "turns {",
        " = ",
        "std",
        ".chat",
        "maths.",
        "policy",
        " policy = coder",
        "; ",
        "\n  ",
        "start ->",
        " -> ",
        "end",
        " when ",
        "env.",
        "\"}",
        "\" }",
        "\\n",
        "${",
        "max = 3\n",
        "}\n",
        "true",
        "\"\"\"",
        "0.7",
    ];
    let bytes = (0..=255u8).map(|byte| vec![byte]);
    let end = [b"\xFF<|end|>".to_vec()];
    end.into_iter().chain(bytes).chain(longer.iter().map(|word| word.as_bytes().to_vec())).collect()
}

fn grammar() -> Arc<CompiledGrammar> {
    static GRAMMAR: LazyLock<Arc<CompiledGrammar>> = LazyLock::new(|| {
        let (items, facts) = items();
        let words = words();
        let size = words.len();
        let vocabulary = Arc::new(Vocabulary::new(words, size, &[END]).unwrap());
        Arc::new(CompiledGrammar::new(&vocabulary, &design_grammar(&palette(), &items, &facts)).unwrap())
    });
    Arc::clone(&GRAMMAR)
}

/// Samples a design uniformly from the masks, at most `max_tokens` long.
fn sample(grammar: &Arc<CompiledGrammar>, max_tokens: usize, seed: u64) -> String {
    let words = words();
    let mut random = seed;
    let mut constraint = Constraint::new(grammar, max_tokens);
    let mut text = Vec::new();
    for _ in 0..max_tokens {
        let mask = constraint.mask().unwrap();
        let allowed: Vec<u32> = (0..words.len() as u32).filter(|token| mask.allows(*token)).collect();
        // Longer tokens are likelier, so that texts get on.
        let long: Vec<u32> = allowed.iter().copied().filter(|token| *token > 256).collect();
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let drawn = (random >> 33) as usize;
        let from = if long.is_empty() || drawn.is_multiple_of(3) { &allowed } else { &long };
        let token = constraint.advance(from[(drawn / 3) % from.len()]).unwrap();
        if token == END {
            break;
        }
        text.extend_from_slice(&words[token as usize]);
    }
    String::from_utf8(text).unwrap()
}

/// True if the grammar has a text.
fn accepts(grammar: &Arc<CompiledGrammar>, text: &str) -> bool {
    let mut constraint = Constraint::new(grammar, 1_000_000);
    for byte in text.bytes() {
        let token = u32::from(byte) + 1;
        if !constraint.mask().unwrap().allows(token) {
            return false;
        }
        constraint.advance(token).unwrap();
    }
    constraint.mask().unwrap().allows(END)
}

fn check(fragment: &str) -> Result<(), Vec<DesignMistake>> {
    let frame = Frame::from(Source { name: "frame.mas".to_owned(), text: FRAME.to_owned() });
    check_design(&frame, &palette(), fragment, &TestCatalog).map(drop)
}

#[test]
fn what_it_generates_parses_and_keeps_to_the_palette() {
    let grammar = grammar();
    for seed in 0..60 {
        // Most of these limits cut a design off, which is led to its end.
        let limit = [60, 100, 200, 400][seed as usize % 4];
        let text = sample(&grammar, limit, seed);
        let errors = syntax_errors(&text);
        assert!(errors.is_empty(), "{text}\n{errors:?}");
        let beyond = |mistake: &DesignMistake| !matches!(mistake, DesignMistake::Checked { .. });
        if let Err(mistakes) = check(&text) {
            assert!(!mistakes.iter().any(beyond), "{text}\n{mistakes:?}");
        }
    }
}

#[test]
fn patterns_are_designs_that_check_and_that_the_grammar_accepts() {
    let (_, facts) = items();
    let grammar = grammar();
    for one in settings::PATTERNS {
        let design = pattern(one.word, &palette(), &["question", "answers"], &facts).unwrap();
        check(&design).unwrap_or_else(|mistakes| panic!("{}: {mistakes:?}\n{design}", one.word));
        assert!(accepts(&grammar, &design), "{design}");
        let small = Palette { max_agents: 1, max_visits: 1, ..palette() };
        assert_eq!(pattern(one.word, &small, &[], &facts).is_some(), one.word == "single");
    }
    assert_eq!(pattern("router", &palette(), &[], &[]), None);
}

/// A setting of an agent, whichever its item, in several spellings.
fn a_setting() -> impl Strategy<Value = String> {
    prop_oneof![
        (0u32..20).prop_map(|tenths| format!("temperature = {}", f64::from(tenths) / 10.0)),
        (0u32..200).prop_map(|count| format!("top_k = {count}")),
        (1u32..10).prop_map(|tenths| format!("top_p = 0.{tenths}")),
        (1u32..4000).prop_map(|tokens| format!("max_tokens={tokens}")),
    ]
}

fn an_agent() -> impl Strategy<Value = String> {
    let of_item = prop_oneof![
        "[ -!#-#%-Z^-~]{0,40}".prop_map(|text| ("std.chat", format!("template = \"{text}\""))),
        "[a-z ,.\n]{1,40}".prop_map(|text| ("std.chat", format!("template = \"\"\"\n{text}\n\"\"\""))),
        Just(("maths.reasoner", "examples = 3".to_owned())),
        Just(("maths.reasoner", "tags = [\"a\", \"b\\n\"]".to_owned())),
        Just(("maths.reasoner", "style = \"short\"".to_owned())),
        Just(("maths.tool", "min_p = 0.05".to_owned())),
    ];
    let policy = prop::sample::select(vec!["coder", "reasoner"]);
    let separator = prop::sample::select(vec!["; ", "\n  ", " ;\n", "\n\n"]);
    (of_item, policy, prop::option::of(a_setting()), any::<bool>(), separator).prop_map(
        |((item, own), policy, more, first, separator)| {
            let mut settings = vec![own, format!("policy = {policy}")];
            settings.extend(more);
            if first {
                settings.swap(0, 1);
            }
            format!("{item} {{ {} }}", settings.join(separator))
        },
    )
}

fn a_condition() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("env.agreed".to_owned()),
        Just("not env.agreed".to_owned()),
        (1u32..6).prop_map(|turn| format!("turn >= {turn}")),
        (0u32..9).prop_map(|round| format!("env.round<{round}.5")),
        Just("env.state == \"done\"".to_owned()),
    ];
    leaf.prop_recursive(2, 6, 2, |inner| {
        (inner.clone(), prop::sample::select(vec!["and", "or"]), inner)
            .prop_map(|(one, word, other)| format!("({one}) {word} {other}"))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_parses_and_fits_it_accepts(
        agents in prop::collection::vec(an_agent(), 1..4),
        when in a_condition(),
        max in 1u32..=6,
    ) {
        let names: Vec<String> = (0..agents.len()).map(|at| format!("member_{at}")).collect();
        let mut text = String::new();
        for (name, agent) in names.iter().zip(&agents) {
            text.push_str(&format!("agent {name} = {agent}\n"));
        }
        let (first, last) = (&names[0], &names[names.len() - 1]);
        text.push_str(&format!(
            "turns {{\n  max = {max}\n  start -> {}\n  {last} -> end when {when}\n  {last}->{first}\n}}\n",
            names.join(" -> "),
        ));
        let formatted = pl_dsl::format(&text).unwrap();
        let grammar = grammar();
        for text in [text, formatted] {
            let syntax = |mistakes: &[DesignMistake]| {
                mistakes.iter().all(|one| matches!(one, DesignMistake::Checked { code, .. } if code.as_str() > "MAS0003"))
            };
            if let Err(mistakes) = check(&text) {
                // A loop of one agent has two edges without a condition.
                prop_assert!(syntax(&mistakes), "{text}\n{mistakes:?}");
            }
            prop_assert!(accepts(&grammar, &text), "{text}");
        }
    }
}
