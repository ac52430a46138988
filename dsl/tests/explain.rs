//! What `pl-host explain` says is true: every code's example is wrong in just that way, and right when mended.

// clippy.toml excuses test functions, but not what they call.
#![allow(clippy::panic, clippy::unwrap_used)]

mod common;
#[path = "common/fences.rs"]
mod fences;

use std::collections::BTreeSet;

use common::Shelf;
use fences::fences;
use pl_dsl::explain::{blocks, explain, more, plain, topics};
use pl_dsl::functions::FUNCTIONS;
use pl_dsl::settings::SETTINGS;
use pl_dsl::{Checked, Code, Source, check, render};

/// A workflow that is right. An example stands in it in the place of those blocks that it writes itself.
const FRAME: &str = include_str!("../src/explain/frame.mas");

/// The example as a whole file: as it is where it says `workflow` itself, else within the frame.
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
    check(&Source { name: "example.mas".to_owned(), text: framed(example) }, &[], &Shelf)
}

#[test]
fn the_frame_is_right() {
    assert!(checked("").diagnostics.is_empty());
}

#[test]
fn every_example_is_wrong_and_mended() {
    // Only what is given from outside brings the one, and only a look at the machine the other.
    let elsewhere = [Code::BadOverride, Code::Memory];
    let mut amiss = Vec::new();
    for code in Code::ALL {
        let examples = fences(code.page());
        let words: Vec<&str> = examples.iter().map(|one| one.word).collect();
        if elsewhere.contains(code) {
            assert!(words.is_empty(), "{code}");
            continue;
        }
        assert_eq!(words, ["wrong", "right"], "{code}");
        for example in &examples {
            let Checked { diagnostics, sources, .. } = checked(&example.text);
            let found: BTreeSet<Code> = diagnostics.iter().map(|one| one.code).collect();
            let wanted: BTreeSet<Code> = (example.word == "wrong").then_some(*code).into_iter().collect();
            if found != wanted {
                let said = render::short(&diagnostics, &sources);
                amiss.push(format!("{code}.md:{}: {}: {found:?}\n{said}", example.line, example.word));
            }
        }
        let right = &examples[1].text;
        assert_eq!(pl_dsl::format(right).as_ref(), Ok(right), "{code}: not as the formatter writes it");
    }
    assert!(amiss.is_empty(), "{}", amiss.join("\n"));
}

#[test]
fn every_page_says_what_to_do() {
    for code in Code::ALL {
        let behind = code.page().rsplit("```").next().unwrap().trim();
        assert!(behind.len() > 10, "{code} says nothing behind its example");
    }
}

#[test]
fn everything_has_a_page() {
    let mut topics: Vec<String> = SETTINGS.iter().map(|one| one.path()).collect();
    topics.extend(SETTINGS.iter().map(|one| one.key.to_owned()));
    topics.extend(blocks().map(|one| one.keyword().to_owned()));
    topics.extend(FUNCTIONS.iter().map(|one| one.name.to_owned()));
    topics.extend(Code::ALL.iter().map(|one| one.as_str().to_lowercase()));
    topics.extend(["layout", "L2", "policy.lora.rank", "tree"].map(str::to_owned));
    for topic in topics {
        assert!(explain(&topic).is_ok(), "{topic}");
    }
}

/// One of each kind, and what has several meanings.
#[test]
fn topics_read_well() {
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
    ] {
        insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
            insta::assert_snapshot!(format!("explain-{topic}"), plain(&explain(topic).unwrap()));
        });
    }
    insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("explain", plain(&topics()));
    });
}

#[test]
fn what_is_not_known_has_near_names() {
    let said = |topic: &str| explain(topic).unwrap_err().to_string();
    assert_eq!(said("temprature"), "nothing is called `temprature`; did you mean `temperature`?");
    assert_eq!(said("train.step"), "nothing is called `train.step`; did you mean `train.steps`?");
    assert_eq!(said("quux"), "nothing is called `quux`; `pl-host explain` lists what there is");
}

#[test]
fn a_check_names_what_to_read() {
    assert_eq!(more(&checked("").diagnostics), None);
    let text = "policy coder { modl = base; lora { rank = 0 } }\nagent tool = maths.tol { policy = coder }\nlayout = L9\ntrian {}";
    assert_eq!(
        more(&checked(text).diagnostics).as_deref(),
        Some("more: pl-host explain MAS0007 MAS0011 MAS0017")
    );
}
