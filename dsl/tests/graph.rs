//! Drawings of workflows in every format.

// clippy.toml excuses test functions, but not what they call.
#![allow(clippy::panic, clippy::unwrap_used)]

mod common;

use std::fmt::Write;
use std::path::Path;

use common::TestCatalog;
use pl_dsl::graph::{Graph, TerminalOptions};
use pl_dsl::{Source, check};
use unicode_width::UnicodeWidthStr;

const OPTIONS: TerminalOptions = TerminalOptions { width: 100, colour: false, ascii: false };

fn graph(text: String) -> Graph {
    let source = Source { name: "x.mas".to_owned(), text };
    let checked = check(&source, &[], &TestCatalog);
    let Some(workflow) = checked.workflow else { panic!("{:?}", checked.diagnostics) };
    Graph::new(&workflow, 0)
}

fn file(path: &str) -> Graph {
    graph(std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap())
}

/// Workflows with snapshots.
fn examples() -> [(&'static str, Graph); 4] {
    [
        ("math", file("../examples/math.mas")),
        ("math-mixed", file("../examples/math-mixed.mas")),
        ("math-l0", file("../examples/math-l0.mas")),
        ("review", file("tests/graph/review.mas")),
    ]
}

fn snapshots() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/graph"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings
}

#[test]
fn every_format_of_the_examples() {
    snapshots().bind(|| {
        for (name, graph) in examples() {
            insta::assert_snapshot!(format!("{name}.terminal"), graph.terminal(&OPTIONS).unwrap());
            insta::assert_snapshot!(format!("{name}.mermaid"), graph.mermaid());
            insta::assert_snapshot!(format!("{name}.dot"), graph.dot());
            insta::assert_json_snapshot!(format!("{name}.json"), graph.json().unwrap());
        }
        let [(_, math), .., (_, review)] = &examples();
        insta::assert_snapshot!("math.svg", math.svg().unwrap());
        insta::assert_snapshot!(
            "review.ascii",
            review.terminal(&TerminalOptions { ascii: true, ..OPTIONS }).unwrap()
        );
        insta::assert_snapshot!(
            "review.narrow",
            review.terminal(&TerminalOptions { width: 60, ..OPTIONS }).unwrap()
        );
    });
}

/// A workflow of many agents: a chain, or a graph in which each agent has edges to several others.
fn many_agents(count: usize, wide: bool) -> Graph {
    let mut text = String::from(
        "workflow crowd\nplugin maths = \"math.wasm\"\nmodel base = \"smollm2-135m\"\npolicy p { model = base }\n\
         environment problems = maths.problems\nreward score = maths.score\n",
    );
    let mut turns = String::from("turns {\n  start -> a0\n");
    for at in 0..count {
        writeln!(text, "agent a{at} = maths.tool {{ policy = p }}").unwrap();
        if wide {
            for (round, step) in [2, 17, 120].into_iter().enumerate() {
                let to = (at + step) % count;
                writeln!(turns, "  a{at} -> a{to} when env.round == {round}").unwrap();
            }
            writeln!(turns, "  a{at} -> end when env.agreed").unwrap();
        }
        match at + 1 == count {
            true => writeln!(turns, "  a{at} -> end").unwrap(),
            false => writeln!(turns, "  a{at} -> a{}", at + 1).unwrap(),
        }
    }
    graph(text + &turns + "}\n")
}

#[test]
fn the_terminal_drawing_fits_its_width() {
    for (name, graph) in
        examples().into_iter().chain([("crowd", many_agents(50, true)), ("row", many_agents(40, false))])
    {
        for width in [0, 40, 60, 80, 100, 200] {
            for line in graph
                .terminal(&TerminalOptions { width, ..OPTIONS })
                .unwrap()
                .lines()
                .take_while(|line| *line != "  in full")
            {
                assert!(line.width() <= width.max(40), "{name} at {width}: {} columns: {line}", line.width());
            }
        }
    }
}

#[test]
fn colours_add_nothing_to_the_text_and_ascii_is_ascii() {
    for (name, graph) in examples() {
        let coloured = graph.terminal(&TerminalOptions { colour: true, ..OPTIONS }).unwrap();
        let mut plain = String::new();
        let mut rest = coloured.as_str();
        while let Some((before, behind)) = rest.split_once("\u{1b}[") {
            plain.push_str(before);
            rest = behind.split_once('m').unwrap().1;
        }
        plain.push_str(rest);
        assert_ne!(coloured, plain);
        assert_eq!(plain, graph.terminal(&OPTIONS).unwrap(), "{name}");
        assert!(graph.terminal(&TerminalOptions { ascii: true, ..OPTIONS }).unwrap().is_ascii(), "{name}");
    }
}

/// Documents are XML and contain every policy and every condition.
#[test]
fn svgs_are_well_formed_and_complete() {
    for (name, graph) in examples() {
        let svg = graph.svg().unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let texts: Vec<&str> = document.descendants().filter_map(|node| node.text()).collect();
        for edge in graph.edges.iter().filter_map(|edge| edge.when.as_ref()) {
            assert!(texts.iter().any(|text| text.contains(edge.as_str())), "{name}: no {edge}");
        }
        for policy in &graph.policies {
            assert!(texts.iter().any(|text| text.starts_with(&policy.name)), "{name}: no {}", policy.name);
        }
        assert!(document.descendants().all(|node| node.tag_name().name() != "script"));
    }
}

/// Translation of the groups around a node.
fn offset(node: roxmltree::Node) -> (f64, f64) {
    node.ancestors().filter_map(|group| group.attribute("transform")).fold(
        (0.0, 0.0),
        |(left, top), transform| {
            let translation = transform.strip_prefix("translate(").unwrap().strip_suffix(')').unwrap();
            let (x, y) = translation.split_once(' ').unwrap();
            (left + x.parse::<f64>().unwrap(), top + y.parse::<f64>().unwrap())
        },
    )
}

#[test]
fn boxes_of_an_svg_do_not_overlap() {
    for (name, graph) in examples().into_iter().chain([("crowd", many_agents(30, true))]) {
        let svg = graph.svg().unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let boxes: Vec<[f64; 4]> = document
            .descendants()
            .filter(|node| {
                let class = node.attribute("class").unwrap_or_default();
                node.tag_name().name() == "rect"
                    && (class.starts_with("box") || matches!(class, "round" | "pill"))
            })
            .map(|node| {
                let number = |key| node.attribute(key).unwrap().parse::<f64>().unwrap();
                let (left, top) = offset(node);
                [left + number("x"), top + number("y"), number("width"), number("height")]
            })
            .collect();
        assert!(boxes.len() > 4);
        for (at, [x, y, width, height]) in boxes.iter().enumerate() {
            for [other_x, other_y, other_width, other_height] in &boxes[at + 1..] {
                let apart = x + width <= other_x + 0.2
                    || other_x + other_width <= x + 0.2
                    || y + height <= other_y + 0.2
                    || other_y + other_height <= y + 0.2;
                assert!(apart, "{name}: boxes at ({x}, {y}) and ({other_x}, {other_y})");
            }
        }
    }
}

#[test]
fn a_hundred_agents_are_drawn_in_every_format() {
    let graph = many_agents(100, true);
    for text in [
        graph.terminal(&OPTIONS).unwrap(),
        graph.mermaid(),
        graph.dot(),
        graph.svg().unwrap(),
        graph.json().unwrap().to_string(),
    ] {
        assert!(text.contains("a99"));
    }
}
