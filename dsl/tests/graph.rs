//! Pictures of workflows in every form: what a person sees, and that programs can read them.

// clippy.toml excuses test functions, but not what they call.
#![allow(clippy::panic, clippy::unwrap_used)]

mod common;

use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use common::Shelf;
use pl_dsl::graph::{Graph, Screen};
use pl_dsl::{Source, check};
use unicode_width::UnicodeWidthStr;

const SCREEN: Screen = Screen { width: 100, colour: false, ascii: false };

fn graph(text: String) -> Graph {
    let source = Source { name: "x.mas".to_owned(), text };
    let checked = check(&source, &[], &Shelf);
    let Some(workflow) = checked.workflow else { panic!("{:?}", checked.diagnostics) };
    Graph::of(&workflow)
}

fn file(path: &str) -> Graph {
    graph(std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap())
}

/// The workflows that have snapshots.
fn pictured() -> [(&'static str, Graph); 4] {
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
fn every_form_of_the_examples() {
    snapshots().bind(|| {
        for (name, graph) in pictured() {
            insta::assert_snapshot!(format!("{name}.terminal"), graph.terminal(&SCREEN));
            insta::assert_snapshot!(format!("{name}.mermaid"), graph.mermaid());
            insta::assert_snapshot!(format!("{name}.dot"), graph.dot());
            insta::assert_json_snapshot!(format!("{name}.json"), graph.json());
        }
        let [(_, math), .., (_, review)] = &pictured();
        insta::assert_snapshot!("math.svg", math.svg());
        insta::assert_snapshot!("review.ascii", review.terminal(&Screen { ascii: true, ..SCREEN }));
        insta::assert_snapshot!("review.narrow", review.terminal(&Screen { width: 60, ..SCREEN }));
    });
}

/// A workflow of many agents: a chain, or one in which each leads to several others.
fn crowd(count: usize, wide: bool) -> Graph {
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
fn the_terminal_form_keeps_within_its_width() {
    for (name, graph) in
        pictured().into_iter().chain([("crowd", crowd(200, true)), ("row", crowd(40, false))])
    {
        for width in [0, 40, 60, 80, 100, 200] {
            for line in
                graph.terminal(&Screen { width, ..SCREEN }).lines().take_while(|line| *line != "  in full")
            {
                assert!(line.width() <= width.max(40), "{name} at {width}: {} columns: {line}", line.width());
            }
        }
    }
}

#[test]
fn colours_add_nothing_to_the_text_and_ascii_is_ascii() {
    for (name, graph) in pictured() {
        let coloured = graph.terminal(&Screen { colour: true, ..SCREEN });
        let mut plain = String::new();
        let mut rest = coloured.as_str();
        while let Some((before, behind)) = rest.split_once("\u{1b}[") {
            plain.push_str(before);
            rest = behind.split_once('m').unwrap().1;
        }
        plain.push_str(rest);
        assert_ne!(coloured, plain);
        assert_eq!(plain, graph.terminal(&SCREEN), "{name}");
        assert!(graph.terminal(&Screen { ascii: true, ..SCREEN }).is_ascii(), "{name}");
    }
}

/// The documents are XML, and name every agent and every condition as they are written.
#[test]
fn svgs_are_well_formed_and_say_everything() {
    for (name, graph) in pictured() {
        let svg = graph.svg();
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

#[test]
fn boxes_of_an_svg_do_not_overlap() {
    for (name, graph) in pictured().into_iter().chain([("crowd", crowd(30, true))]) {
        let svg = graph.svg();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let boxes: Vec<[f64; 4]> = document
            .descendants()
            .filter(|node| {
                let class = node.attribute("class").unwrap_or_default();
                node.tag_name().name() == "rect"
                    && (class.starts_with("box") || matches!(class, "round" | "pill"))
            })
            .map(|node| {
                ["x", "y", "width", "height"].map(|key| node.attribute(key).unwrap().parse().unwrap())
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
fn two_hundred_agents_are_drawn_in_time() {
    let graph = crowd(200, true);
    let begin = Instant::now();
    for text in [graph.terminal(&SCREEN), graph.mermaid(), graph.dot(), graph.svg(), graph.json().to_string()]
    {
        assert!(text.contains("a199"));
    }
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}
