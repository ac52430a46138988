//! Uses of names wherever they may stand, and names that the language refuses.

use super::*;
use crate::CatalogError;
use crate::workflow::Plugin;
use pl_types::Item;

struct Files;

impl Catalog for Files {
    fn items(&self, _: &Plugin) -> Result<Vec<Item>, CatalogError> {
        Err(CatalogError::Unavailable("not asked for"))
    }

    fn text(&self, path: &std::path::Path) -> Result<String, CatalogError> {
        match path.to_str() {
            Some("team.mas") => Ok("policy judge { model = own }\nmodel own = \"x\"\n".to_owned()),
            _ => Err(CatalogError::Unavailable("there is no such file")),
        }
    }
}

#[test]
fn uses_are_found_wherever_a_name_stands() {
    let text = "use \"team.mas\" as team\n\
                param n: int = 4 in 1..n\n\
                plugin maths = \"m.wasm\"\n\
                template small(n: int) = policy { lora { rank = n } }\n\
                policy p = small(n = n * 2)\n\
                agent a = maths.tool { policy = p; x = max(n, 1); y = \"${n}\" }\n\
                agent b = maths.tool { policy = team.judge }\n\
                turns { start -> [a, b]; a -> end when reward.a > n }\n\
                train { samples = n }\n";
    let source = Source { name: "x.mas".to_owned(), text: text.to_owned() };
    let names = names(&source, &Files);
    let shown: Vec<String> = names
        .definitions
        .iter()
        .map(|one| {
            let uses = one.uses.iter().map(|span| {
                let (file, span) = names.sources.find(*span).unwrap();
                assert_eq!(span.slice(names.sources.text_of(file)), one.name);
                let line = names.sources.text_of(file)[..span.start].matches('\n').count() + 1;
                line.to_string()
            });
            format!("{} {}: {}", one.kind.keyword(), one.full_name, uses.collect::<Vec<_>>().join(" "))
        })
        .collect();
    assert_eq!(
        shown,
        [
            "policy team.judge: 7",
            "model team.own: 1",
            "use team: 7",
            "param n: 2 5 6 6 8 9",
            "plugin maths: 6 7",
            "template small: 5",
            "param n: 4 5",
            "policy p: 6",
            "agent a: 8 8 8",
            "agent b: 8",
        ]
    );
    let judge = names.definition_at(text.find("judge").unwrap() + 2).unwrap();
    assert_eq!(judge.full_name, "team.judge");
    assert!(names.definition_at(0).is_none());
}

/// Numbers of the lines on which what a line declares is used.
fn lines_of_uses(text: &str, declaration: &str) -> Vec<usize> {
    let source = Source { name: "x.mas".to_owned(), text: text.to_owned() };
    let names = names(&source, &Files);
    let definition = names.definitions.iter().find(|definition| {
        let (file, head) = names.sources.find(definition.head).unwrap();
        head.slice(names.sources.text_of(file)).starts_with(declaration) && !definition.is_parameter
    });
    let line = |span: &Span| {
        let (file, span) = names.sources.find(*span).unwrap();
        names.sources.text_of(file)[..span.start].matches('\n').count() + 1
    };
    let mut lines: Vec<usize> = definition.unwrap().uses.iter().map(line).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn arguments_name_what_their_parameters_stand_for() {
    let text = "use \"team.mas\" as team\n\
                policy p { model = p }\n\
                model p = \"x\"\n\
                param p: int = 1\n\
                template t(n: int = p, by: policy = p, of: list(model) = [p]) = agent std.chat { policy = by }\n\
                agent a = t(p)\n\
                agent b = t(1, p)\n\
                agent c = t(1, of = [p, team.own])\n\
                agent d = t(by = if p > 1 then p else team.judge)\n\
                agent e = t(n = max(p, 1))\n\
                agent f = t(nothing = p)\n\
                agent g = unknown(p)\n";
    assert_eq!(lines_of_uses(text, "policy p"), [5, 7, 9]);
    assert_eq!(lines_of_uses(text, "model p"), [2, 5, 8]);
    // An unknown parameter or template gives no hint: params come first.
    assert_eq!(lines_of_uses(text, "param p"), [5, 6, 9, 10, 11, 12]);
    assert_eq!(lines_of_uses(text, "policy judge"), [9]);
    assert_eq!(lines_of_uses(text, "model own"), [1, 8]);
    let unknown = "policy p { }\nmodel m = \"x\"\nagent a = unknown(p, of = m)\n";
    assert_eq!((lines_of_uses(unknown, "policy p"), lines_of_uses(unknown, "model m")), (vec![3], vec![3]));
}

#[test]
fn a_name_is_used_only_where_the_check_looks_it_up() {
    // Names of functions, words of settings, and parts of `reward`.
    let text = "policy max { }\n\
                param max: int = 1\n\
                param flat: bool = true\n\
                param team: int = 1\n\
                template round() = agent std.chat { policy = max }\n\
                agent a = round()\n\
                agent b = std.chat { policy = max; max_tokens = max(max, 1) }\n\
                train { rollout = if flat then flat else tree }\n\
                turns { start -> a -> end when reward.team > 1 }\n";
    assert_eq!(lines_of_uses(text, "policy max"), [5, 7]);
    assert_eq!(lines_of_uses(text, "param max"), [7]);
    assert_eq!(lines_of_uses(text, "template round"), [6]);
    assert_eq!(lines_of_uses(text, "param flat"), [8]);
    assert_eq!(lines_of_uses(text, "param team"), [0_usize; 0]);
}

#[test]
fn names_of_the_language_are_refused() {
    let text = "agent a = std.chat\nparam n: int\ntemplate t(n: int) = policy { }\npolicy p { }\n";
    let source = Source { name: "x.mas".to_owned(), text: text.to_owned() };
    let names = names(&source, &Files);
    let [agent, param, _, parameter, policy] = names.definitions.as_slice() else {
        panic!("{:?}", names.definitions)
    };
    for (definition, name, is_accepted) in [
        (agent, "end", false),
        (agent, "turn", true),
        (param, "turn", false),
        (parameter, "turn", true),
        (policy, "end", true),
        (policy, "when", false),
        (parameter, "when", false),
        (policy, "a.b", false),
    ] {
        assert_eq!(definition.check_name(name).is_ok(), is_accepted, "{} {name}", definition.name);
    }
}
