//! The grammar of designs both ways: what it generates parses, and what parses and fits the palette it accepts.

// clippy.toml excuses test functions, but not what they call.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::{Arc, LazyLock};

use common::TestCatalog;
use pl_dsl::workflow::{Palette, Plugin};
use pl_dsl::{
    Catalog, DesignMistake, Source, WorkflowSkeleton, check_design, design_grammar, pattern, settings,
    syntax_errors,
};
use pl_grammar::{CompiledGrammar, Constraint, Vocabulary};
use pl_types::{Fact, Item, ItemKind};
use proptest::prelude::*;

const SKELETON: &str = r#"workflow team
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
    let skeleton =
        WorkflowSkeleton::from(Source { name: "skeleton.mas".to_owned(), text: SKELETON.to_owned() });
    check_design(&skeleton, &palette(), fragment, &TestCatalog).map(drop)
}

#[test]
fn what_it_generates_passes_its_check() {
    let grammar = grammar();
    for seed in 0..32 {
        // Most of these limits cut a design off, which is led to its end.
        let limit = grammar.needed_tokens() + [0, 40, 140, 340][seed as usize % 4];
        let text = sample(&grammar, limit, seed);
        let errors = syntax_errors(&text);
        assert!(errors.is_empty(), "{text}\n{errors:?}");
        check(&text).unwrap_or_else(|mistakes| panic!("{text}\n{mistakes:?}"));
    }
}

/// The reference takes the bytes of each longer token one by one.
#[test]
fn masks_of_designs_equal_those_of_single_bytes() {
    let (grammar, words) = (grammar(), words());
    let after = |text: &str| {
        let mut constraint = Constraint::new(&grammar, 1_000_000);
        let token = |byte: u8| u32::from(byte) + 1;
        text.bytes()
            .all(|byte| {
                constraint.mask().unwrap().allows(token(byte)) && constraint.advance(token(byte)).is_ok()
            })
            .then_some(constraint)
    };
    let mut compared = [0; 2];
    for seed in 0..4 {
        let text = sample(&grammar, 120, seed);
        for at in (0..text.len()).step_by(7) {
            let (before, mask) = (&text[..at], after(&text[..at]).unwrap().mask().unwrap());
            for (token, word) in words.iter().enumerate().skip(257) {
                let word = std::str::from_utf8(word).unwrap();
                // The first byte decides for most.
                let begins = mask.allows(u32::from(word.as_bytes()[0]) + 1);
                let expected = begins && after(&format!("{before}{word}")).is_some();
                assert_eq!(mask.allows(token as u32), expected, "{word:?} after {before}");
                compared[usize::from(expected)] += 1;
            }
        }
    }
    assert!(compared.iter().all(|count| *count > 50), "{compared:?}");
}

#[test]
fn numbers_keep_to_their_range() {
    let (items, facts) = items();
    let words = words();
    let vocabulary = Arc::new(Vocabulary::new(words.clone(), words.len(), &[END]).unwrap());
    for most in [1, 7, 28, 99, 100, 951] {
        let palette = Palette { max_visits: most, max_tokens: u64::from(most) * 3, ..palette() };
        let compiled = CompiledGrammar::new(&vocabulary, &design_grammar(&palette, &items, &facts)).unwrap();
        let compiled = Arc::new(compiled);
        let accepts = |setting: &str, max: u32| {
            let agent = format!("agent first = maths.tool {{ policy = coder{setting} }}");
            accepts(&compiled, &format!("{agent}\nturns {{ max = {max}; start -> first -> end }}\n"))
        };
        for max in [0, 1, most / 2, most - 1, most, most + 1, 10 * most] {
            assert_eq!(accepts("", max), (1..=most).contains(&max), "max = {max} of {most}");
            let tokens = 3 * max;
            assert_eq!(
                accepts(&format!("; max_tokens = {tokens}"), 1),
                (1..=most).contains(&max),
                "{tokens}"
            );
        }
        for (setting, fits) in [
            ("temperature = 0", true),
            ("temperature = 9.9999", true),
            ("temperature = 10.0", true),
            ("temperature = 10.5", false),
            ("temperature = 28", false),
            ("top_p = 0.05", true),
            ("top_p = 1", true),
            ("top_p = 0.0", false),
            ("top_p = 1.1", false),
            ("max_tokens = 1; temperature = 1", false),
            ("temperature = 1; temperature = 1", false),
        ] {
            assert_eq!(accepts(&format!("; {setting}"), 1), fits, "{setting}");
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

/// Settings of an agent, whichever its item, in several spellings.
fn settings_of_the_language() -> impl Strategy<Value = Vec<String>> {
    (
        prop::option::of((0u32..20).prop_map(|tenths| format!("temperature = {}", f64::from(tenths) / 10.0))),
        prop::option::of((0u32..200).prop_map(|count| format!("top_k = {count}"))),
        prop::option::of((1u32..10).prop_map(|tenths| format!("top_p = 0.{tenths}"))),
        prop::option::of(Just("min_p = 0.05".to_owned())),
        prop::option::of((1u32..4000).prop_map(|tokens| format!("max_tokens={tokens}"))),
    )
        .prop_map(|(one, two, three, four, five)| {
            [one, two, three, four, five].into_iter().flatten().collect()
        })
}

fn an_agent() -> impl Strategy<Value = String> {
    let of_item = prop_oneof![
        "[ -!#-#%-Z^-~]{0,40}".prop_map(|text| ("std.chat", format!("template = \"{text}\""))),
        "[a-z ,.\n]{1,40}".prop_map(|text| ("std.chat", format!("template = \"\"\"\n{text}\n\"\"\""))),
        Just(("maths.reasoner", "examples = 3".to_owned())),
        Just(("maths.reasoner", "tags = [\"a\", \"b\\n\"]".to_owned())),
        Just(("maths.reasoner", "style = \"short\"".to_owned())),
        Just(("maths.reasoner", "shots = 8; style = \"long\"".to_owned())),
    ];
    let policy = prop::sample::select(vec!["coder", "reasoner"]);
    let separator = prop::sample::select(vec!["; ", "\n  ", " ;\n", "\n\n"]);
    (of_item, policy, settings_of_the_language(), separator).prop_map(
        |((item, own), policy, more, separator)| {
            let mut settings = vec![format!("policy = {policy}"), own];
            settings.extend(more);
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
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn what_parses_and_fits_it_accepts(
        agents in prop::collection::vec(an_agent(), 1..4),
        conditions in prop::collection::vec(a_condition(), 0..3),
        group in any::<bool>(),
        max in 1u32..=6,
    ) {
        let names = &["first", "second", "third"][..agents.len()];
        let mut text = String::new();
        for (name, agent) in names.iter().zip(&agents) {
            text.push_str(&format!("agent {name} = {agent}\n"));
        }
        let (mut nodes, last): (Vec<String>, _) =
            (names.iter().map(|name| (*name).to_owned()).collect(), names[names.len() - 1]);
        if group && names.len() > 2 {
            nodes.splice(..2, ["[first, second]".to_owned()]);
        }
        text.push_str(&format!("turns {{\n  max = {max}\n"));
        for (at, when) in conditions.iter().enumerate() {
            text.push_str(&format!("  {last}->{} when {when}\n", ["end", &nodes[0]][at % 2]));
        }
        text.push_str(&format!("  start -> {} -> end\n}}\n", nodes.join(" -> ")));
        let formatted = pl_dsl::format(&text).unwrap();
        let grammar = grammar();
        for text in [text, formatted] {
            if let Err(mistakes) = check(&text) {
                prop_assert!(false, "{text}\n{mistakes:?}");
            }
            prop_assert!(accepts(&grammar, &text), "{text}");
        }
    }
}
