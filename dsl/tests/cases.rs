//! Every file in `tests/cases` against the snapshot of its messages, and the examples, which have none.

// clippy.toml excuses test functions, but not what they call.
#![allow(clippy::panic, clippy::unwrap_used)]

mod common;
#[path = "common/files.rs"]
mod files;

use std::collections::BTreeSet;

use common::TestCatalog;
use files::{folder, workflows};
use pl_dsl::names::names;
use pl_dsl::workflow::Layout;
use pl_dsl::{Checked, DiagnosticCode, Source, Span, check, render};
use serde_json::json;

fn snapshots() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(folder("tests/cases"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings
}

#[test]
fn every_case_has_its_messages() {
    let cases = workflows(&folder("tests/cases"));
    assert!(cases.len() >= 30, "only {} cases were found", cases.len());
    let mut seen = BTreeSet::new();
    snapshots().bind(|| {
        for source in cases {
            let Checked { workflow, diagnostics, sources, .. } = check(&source, &[], &TestCatalog);
            let shown = if diagnostics.is_empty() {
                "no diagnostics\n".to_owned()
            } else {
                render::human(&diagnostics, &sources, false)
            };
            let failed = diagnostics.iter().any(|one| one.severity == pl_dsl::Severity::Error);
            assert_eq!(workflow.is_none(), failed, "{}", source.name);
            seen.extend(diagnostics.iter().map(|one| one.code));
            insta::assert_snapshot!(source.name.trim_end_matches(".mas"), shown);
        }
    });
    // Overrides cause the first, and the machine the others.
    let elsewhere = [DiagnosticCode::BadOverride, DiagnosticCode::Memory, DiagnosticCode::NotFound];
    let missing: Vec<&DiagnosticCode> =
        DiagnosticCode::ALL.iter().filter(|code| !seen.contains(code) && !elsewhere.contains(code)).collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
}

/// The first edge that a param switches on is taken, and no later one, as if these were switched off.
#[test]
fn a_param_switches_edges_on_and_off() {
    let source =
        workflows(&folder("tests/cases")).into_iter().find(|one| one.name == "switched_edges.mas").unwrap();
    let conditions = |given: &str| -> Vec<serde_json::Value> {
        let workflow = check(&source, &[given.parse().unwrap()], &TestCatalog).workflow.unwrap();
        let nodes = &workflow.scenarios[0].turns.nodes;
        let edges = &nodes.iter().find(|node| node.edges.len() == 3).unwrap().edges;
        edges.iter().map(|edge| json!(edge.when)).collect()
    };
    let off = json!({"literal": false});
    assert_eq!(conditions("deep=true"), [json!(null), off.clone(), off.clone()]);
    assert_eq!(conditions("deep=false")[..1], [off]);
    assert_eq!(conditions("deep=false")[2], json!(null));
}

/// A second edge to one target is a mistake after one that is always taken, whatever the value of its param.
#[test]
fn edges_beside_a_switched_one_have_the_same_mistakes_with_each_value() {
    let mut source =
        workflows(&folder("tests/cases")).into_iter().find(|one| one.name == "switched_edges.mas").unwrap();
    let text = source.text.clone();
    for edges in ["a -> b when deep\n  a -> b\n  a -> end", "a -> b\n  a -> b when deep"] {
        source.text = text.replace("a -> b   when deep\n  a -> end when env.agreed\n  a -> a", edges);
        for given in ["deep=true", "deep=false"] {
            let checked = check(&source, &[given.parse().unwrap()], &TestCatalog);
            let codes: Vec<DiagnosticCode> = checked.diagnostics.iter().map(|one| one.code).collect();
            assert_eq!(codes, [DiagnosticCode::NeverTaken], "{edges} with {given}");
        }
    }
}

/// A workflow in which all uses of a name are replaced has the same meaning.
#[test]
fn every_name_can_be_renamed() {
    let valid = ["tests/cases", "../examples", "../examples/algorithms"]
        .into_iter()
        .flat_map(|name| workflows(&folder(name)));
    let mut renamed = 0;
    for source in valid {
        let before = check(&source, &[], &TestCatalog);
        if before.workflow.is_none() {
            continue;
        }
        let names = names(&source, &TestCatalog);
        for definition in &names.definitions {
            let find = |span: &Span| names.sources.find(*span).unwrap();
            let mut spans: Vec<Span> =
                [&definition.span].into_iter().chain(&definition.uses).map(|span| find(span).1).collect();
            if find(&definition.span).0.name != source.name {
                continue;
            }
            spans.sort_by_key(|span| std::cmp::Reverse(span.start));
            let mut text = source.text.clone();
            for span in spans {
                text.replace_range(span.start..span.end, "renamed");
            }
            let after = check(&Source { name: source.name.clone(), text }, &[], &TestCatalog);
            let place = format!("{}: {}", source.name, definition.full_name);
            assert_eq!(
                render::short(&after.diagnostics, &after.sources).lines().count(),
                before.diagnostics.len(),
                "{place}"
            );
            assert!(after.workflow.is_some(), "{place}");
            renamed += 1;
        }
    }
    assert!(renamed > 300, "only {renamed} names were renamed");
}

#[test]
fn examples_are_clean_and_have_their_layout() {
    let layouts = [
        ("chat.mas", Layout::L2),
        ("experts.mas", Layout::L2),
        ("math-l0.mas", Layout::L0),
        ("math-l1.mas", Layout::L1),
        ("math-l3.mas", Layout::L3),
        ("math-mixed.mas", Layout::Mixed),
        ("math.mas", Layout::L2),
    ];
    let examples = workflows(&folder("../examples"));
    for (name, layout) in layouts {
        let source = examples.iter().find(|source| source.name == name).unwrap();
        let Checked { workflow, diagnostics, sources, .. } = check(source, &[], &TestCatalog);
        assert_eq!(render::short(&diagnostics, &sources), "");
        assert_eq!(workflow.unwrap().layout, layout, "{name}");
    }
}

/// Each example of an algorithm is clean, formatted, and trains every policy with it.
#[test]
fn examples_of_algorithms_are_clean() {
    let examples = workflows(&folder("../examples/algorithms"));
    assert!(examples.len() >= 5, "only {} examples were found", examples.len());
    for source in examples {
        let Checked { workflow, diagnostics, sources, .. } = check(&source, &[], &TestCatalog);
        assert_eq!(render::short(&diagnostics, &sources), "");
        let workflow = workflow.unwrap();
        assert_eq!(format!("{}.mas", workflow.name), source.name);
        for training in workflow.policies.iter().map(|policy| policy.training.as_ref().unwrap()) {
            assert_eq!(json!(training.objective.algorithm), workflow.name);
        }
        assert_eq!(pl_dsl::format(&source.text).unwrap(), source.text, "{}", source.name);
    }
}

/// Each of these files is a workflow with one mistake, which is reported once, without further messages.
#[test]
fn every_mistake_is_one_message() {
    let mistakes = workflows(&folder("tests/mistakes"));
    assert!(mistakes.len() >= 60, "only {} were found", mistakes.len());
    let mut settings = snapshots();
    settings.set_snapshot_path(folder("tests/mistakes"));
    let mut several = Vec::new();
    settings.bind(|| {
        for source in mistakes {
            let Checked { diagnostics, sources, .. } = check(&source, &[], &TestCatalog);
            if diagnostics.len() != 1 {
                several.push(format!("{}: {}", source.name, render::short(&diagnostics, &sources)));
            }
            let shown = render::human(&diagnostics, &sources, false);
            insta::assert_snapshot!(source.name.trim_end_matches(".mas"), shown);
        }
    });
    assert!(several.is_empty(), "{}", several.join("\n"));
}

/// The example of the language's design, resolved: names to positions, defaults filled in.
#[test]
fn design_resolves() {
    let sources = workflows(&folder("tests/cases"));
    let source = sources.iter().find(|source| source.name == "design.mas").unwrap();
    let workflow = check(source, &[], &TestCatalog).workflow.unwrap();
    snapshots().bind(|| insta::assert_json_snapshot!("design.workflow", workflow));
    let text = serde_json::to_string(&workflow).unwrap();
    assert_eq!(serde_json::from_str::<pl_dsl::workflow::Workflow>(&text).unwrap(), workflow);
}

/// Samplers, stop strings, number formats and the engine's settings.
#[test]
fn samplers_resolve() {
    let sources = workflows(&folder("tests/cases"));
    let source = sources.iter().find(|source| source.name == "samplers.mas").unwrap();
    let workflow = check(source, &[], &TestCatalog).workflow.unwrap();
    let shown = (&workflow.models, &workflow.agents, &workflow.inference, &workflow.evaluations);
    snapshots().bind(|| insta::assert_json_snapshot!("samplers.workflow", shown));
    let text = serde_json::to_string(&workflow).unwrap();
    assert_eq!(serde_json::from_str::<pl_dsl::workflow::Workflow>(&text).unwrap(), workflow);
}

/// `[a, b]` and `[b, a]` are one node, and conditions become trees.
#[test]
fn side_by_side_resolves() {
    let sources = workflows(&folder("tests/cases"));
    let source = sources.iter().find(|source| source.name == "side_by_side.mas").unwrap();
    let workflow = check(source, &[], &TestCatalog).workflow.unwrap();
    snapshots().bind(|| insta::assert_json_snapshot!("side_by_side.turns", workflow.scenarios[0].turns));
}

/// Renderings for editors and programs.
#[test]
fn short_and_json_forms() {
    let sources = workflows(&folder("tests/cases"));
    let source = sources.iter().find(|source| source.name == "duplicates.mas").unwrap();
    let Checked { diagnostics, sources, .. } = check(source, &[], &TestCatalog);
    snapshots().bind(|| {
        insta::assert_snapshot!("forms.short", render::short(&diagnostics, &sources));
        insta::assert_json_snapshot!("forms.json", render::json(&diagnostics[..1], &sources));
    });
}

#[test]
fn human_form_ends_after_a_hundred() {
    let text = "nonsense\n".repeat(150);
    let source = Source { name: "x.mas".to_owned(), text };
    let Checked { diagnostics, sources, .. } = check(&source, &[], &TestCatalog);
    let shown = render::human(&diagnostics, &sources, false);
    assert!(shown.ends_with(&format!("… and {} more\n", diagnostics.len() - 100)));
    assert_eq!(shown.matches("there is no block `nonsense`").count(), 93);
}

/// Blocks that seem to be missing may be in the text that was left out.
#[test]
fn a_file_that_can_not_be_parsed_lacks_no_blocks() {
    let codes = |text: &str| {
        let source = Source { name: "x.mas".to_owned(), text: text.to_owned() };
        let found = check(&source, &[], &TestCatalog).diagnostics;
        found.iter().map(|one| one.code.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(codes("workflow x {\n"), ["MAS0002"]);
    assert_eq!(codes("workflow x\nmodel base == 1\n"), ["MAS0001"]);
    assert_eq!(codes("workflow x {}\n"), ["MAS0001"]);
    assert_eq!(codes("workflow x\n"), ["MAS0006"; 6]);
}

/// Params, templates, included and used files, and all forms of expressions.
#[test]
fn building_blocks_resolve() {
    let sources = workflows(&folder("tests/cases"));
    let source = sources.iter().find(|source| source.name == "building_blocks.mas").unwrap();
    let checked = check(source, &[], &TestCatalog);
    let workflow = checked
        .workflow
        .unwrap_or_else(|| panic!("{}", render::short(&checked.diagnostics, &checked.sources)));
    snapshots().bind(|| insta::assert_json_snapshot!("building_blocks.workflow", workflow));
}

/// A bare name would be that of a shipped plugin and of a model of the hub.
#[test]
fn paths_above_an_included_file_stay_paths() {
    let text = "workflow w\ninclude \"parts/above.mas\"\npolicy p { model = base }\nenvironment e = maths.problems\n\
                agent a = maths.tool { policy = p }\nreward r = maths.score\nturns { start -> a -> end }\n";
    let source = Source { name: "x.mas".to_owned(), text: text.to_owned() };
    let checked = check(&source, &[], &TestCatalog);
    let workflow = checked
        .workflow
        .unwrap_or_else(|| panic!("{}", render::short(&checked.diagnostics, &checked.sources)));
    assert_eq!(workflow.models[0].source, "./tiny");
    assert_eq!(workflow.plugins[0].path.as_deref(), Some("./math.wasm"));
}
