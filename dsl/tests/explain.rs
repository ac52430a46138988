//! Examples of `pl-host explain`: each code's wrong example causes exactly that code, and its right example none.

// clippy.toml excuses test functions, but not what they call.
#![allow(clippy::panic, clippy::unwrap_used)]

mod common;
#[path = "common/fences.rs"]
mod fences;

use std::collections::BTreeSet;

use common::TestCatalog;
use fences::fences;
use pl_dsl::explain::{blocks, explain, more, to_plain_text, topics};
use pl_dsl::functions::FUNCTIONS;
use pl_dsl::settings;
use pl_dsl::{Checked, DiagnosticCode, Source, check, render};

/// A valid workflow. An example replaces the blocks of it that it contains.
const FRAME: &str = include_str!("../src/explain/frame.mas");

/// An example as a complete file: unchanged if it begins with `workflow`, otherwise within the frame.
fn framed(example: &str) -> String {
    if example.starts_with("workflow") {
        return example.to_owned();
    }
    let head = |line: &str| line.split(['=', '{', ':']).next().unwrap().trim_end().to_owned();
    let own: BTreeSet<String> = example.lines().map(head).collect();
    let kept = FRAME.split("\n\n").filter(|block| !own.contains(&head(block)));
    kept.chain([example]).collect::<Vec<_>>().join("\n\n")
}

fn checked(example: &str) -> Checked {
    check(&Source { name: "example.mas".to_owned(), text: framed(example) }, &[], &TestCatalog)
}

#[test]
fn the_frame_is_valid() {
    assert!(checked("").diagnostics.is_empty());
}

#[test]
fn examples_cause_their_code_and_corrections_none() {
    // These depend on values from outside and on the machine.
    let not_in_files = [DiagnosticCode::BadOverride, DiagnosticCode::Memory, DiagnosticCode::NotFound];
    let mut problems = Vec::new();
    for code in DiagnosticCode::ALL {
        let examples = fences(code.page());
        let words: Vec<&str> = examples.iter().map(|one| one.word).collect();
        if not_in_files.contains(code) {
            assert!(words.is_empty(), "{code}");
            continue;
        }
        assert_eq!(words, ["wrong", "right"], "{code}");
        for example in &examples {
            let Checked { diagnostics, sources, .. } = checked(&example.text);
            let found: BTreeSet<DiagnosticCode> = diagnostics.iter().map(|one| one.code).collect();
            let wanted: BTreeSet<DiagnosticCode> =
                (example.word == "wrong").then_some(*code).into_iter().collect();
            if found != wanted {
                let shown = render::short(&diagnostics, &sources);
                problems.push(format!("{code}.md:{}: {}: {found:?}\n{shown}", example.line, example.word));
            }
        }
        let right = &examples[1].text;
        assert_eq!(pl_dsl::format(right).as_ref(), Ok(right), "{code}: not formatted");
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn every_page_ends_with_advice() {
    for code in DiagnosticCode::ALL {
        let advice = code.page().rsplit("```").next().unwrap().trim();
        assert!(advice.len() > 10, "{code} has no advice after its example");
    }
}

#[test]
fn everything_has_a_page() {
    let mut topics: Vec<String> = settings::all().map(|one| one.path()).collect();
    topics.extend(settings::all().map(|one| one.key.to_owned()));
    topics.extend(blocks().map(|one| one.keyword().to_owned()));
    topics.extend(FUNCTIONS.iter().map(|one| one.name.to_owned()));
    topics.extend(DiagnosticCode::ALL.iter().map(|one| one.as_str().to_lowercase()));
    topics.extend(settings::ALGORITHMS.iter().map(|one| one.word.to_owned()));
    topics.extend(["layout", "L2", "policy.lora.rank", "tree", "policy.train"].map(str::to_owned));
    for topic in topics {
        assert!(explain(&topic).is_ok(), "{topic}");
    }
}

/// A topic of each kind, and ambiguous topics.
#[test]
fn topics_are_rendered() {
    for topic in [
        "MAS0023",
        "agent.temperature",
        "sandbox",
        "policy",
        "max",
        "memory",
        "tree",
        "layout",
        "plugin.path",
        "dr_grpo",
        "ppo",
        "scale",
        "policy.train",
    ] {
        insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
            insta::assert_snapshot!(format!("explain-{topic}"), to_plain_text(&explain(topic).unwrap()));
        });
    }
    insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("explain", to_plain_text(&topics()));
    });
}

#[test]
fn unknown_topics_suggest_similar_names() {
    let error = |topic: &str| explain(topic).unwrap_err().to_string();
    assert_eq!(error("temprature"), "there is no topic `temprature`; did you mean `temperature`?");
    assert_eq!(error("train.step"), "there is no topic `train.step`; did you mean `train.steps`?");
    assert_eq!(error("quux"), "there is no topic `quux`; `pl-host explain` lists the topics");
}

#[test]
fn a_check_suggests_topics() {
    assert_eq!(more(&checked("").diagnostics), None);
    let text = "policy coder { modl = base; lora { rank = 0 } }\nagent tool = maths.tol { policy = coder }\nlayout = L9\ntrian {}";
    assert_eq!(
        more(&checked(text).diagnostics).as_deref(),
        Some("more: pl-host explain MAS0007 MAS0011 MAS0017")
    );
}
