//! Hover, completion, outline and formatting.

use serde_json::{Value, json};

use crate::editor::{Editor, marked};

const FILE: &str = "file:///work/a.mas";

const RIGHT: &str = include_str!("../../../../examples/math.mas");

/// A server that has checked a whole workflow and then sees a text with one place marked.
fn at(text: &str) -> (Editor, Value) {
    let (text, position) = marked(text);
    let mut editor = Editor::ready();
    editor.open(FILE, RIGHT);
    editor.diagnostics(FILE, 1);
    editor.replace(FILE, 2, &text);
    (editor, json!({ "textDocument": { "uri": FILE }, "position": position }))
}

fn hover(text: &str) -> String {
    let (mut editor, params) = at(text);
    let answer = editor.ask("textDocument/hover", params);
    answer["contents"]["value"].as_str().unwrap_or("-").to_owned()
}

fn labels(text: &str) -> Vec<String> {
    let (mut editor, params) = at(text);
    let list = editor.ask("textDocument/completion", params);
    list.as_array().unwrap().iter().map(|one| one["label"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn hovers_say_what_a_word_means() {
    let shown: Vec<String> = [
        "train { sam|ples = 4 }",
        "train { rollout = tr|ee }",
        "train { roll|out = tree }",
        "po|licy p { }",
        "policy p { lo|ra { } }",
        "environment e = maths.pro|blems { }",
        "agent a = maths.reasoner { ta|gs = [\"a\"] }",
        "lay|out = L2",
        "environment e = maths.problems { }\nturns { a -> end when env.agr|eed }",
        "# a com|ment",
        "agent a = std.chat { system = \"sam|ples\" }",
    ]
    .iter()
    .map(|text| format!("{text}\n{}\n", hover(text)))
    .collect();
    insta::assert_snapshot!(shown.join("\n--------\n"));
}

#[test]
fn completions_are_what_may_stand_there() {
    let shown: Vec<String> = [
        "|",
        "param n: |",
        "policy p { | }",
        "policy p { model = base; tr| }",
        "model base = \"x\"\npolicy p { model = | }",
        "train { schedule = | }",
        "param n: int = 3\ntrain { samples = | }",
        "agent a = maths.reasoner { policy = p; | }",
        "agent a = |",
        "agent a = maths.|",
        "agent a = std.chat { }\nturns { start -> | }",
        "environment e = maths.problems { }\nturns { a -> end when env.| }",
        "turns { a -> end when | }",
        "agent a = std.chat { thinking = | }",
        "# |",
        "agent a = std.chat { system = \"|\" }",
        "template t(topic: string) = agent std.chat { system = | }",
    ]
    .iter()
    .map(|text| format!("{text}\n  {}\n", labels(text).join(" ")))
    .collect();
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn a_completion_takes_the_place_of_what_is_typed() {
    let (mut editor, params) = at("train { roll|");
    let list = editor.ask("textDocument/completion", params);
    let rollout = list.as_array().unwrap().iter().find(|one| one["label"] == "rollout").unwrap();
    insta::assert_json_snapshot!(rollout);
}

/// The places of an answer, with the text of each.
fn places(text: &str, places: &Value) -> Vec<String> {
    let place = |place: &Value| {
        let range = &place["range"];
        let (line, from, to) =
            (&range["start"]["line"], &range["start"]["character"], &range["end"]["character"]);
        let number = |value: &Value| value.as_u64().unwrap() as usize;
        let whole: Vec<u16> = text.lines().nth(number(line)).unwrap().encode_utf16().collect();
        format!("{line}:{from} {}", String::from_utf16(&whole[number(from)..number(to)]).unwrap())
    };
    places.as_array().unwrap().iter().map(place).collect()
}

const NAMES: &str = "param m: int\nparam n: int = 1\npolicy n { lora { rank = |n } }\n\
                     agent a = std.chat { system = \"ü ${n} n\"; policy = n }\n";

#[test]
fn a_name_leads_to_its_declaration_and_its_uses() {
    let (mut editor, mut params) = at(NAMES);
    let text = NAMES.replacen('|', "", 1);
    let declared = editor.ask("textDocument/definition", params.clone());
    assert_eq!(places(&text, &json!([declared])), ["1:6 n"]);
    params["context"] = json!({ "includeDeclaration": false });
    let used = editor.ask("textDocument/references", params.clone());
    assert_eq!(places(&text, &used), ["2:25 n", "3:35 n"]);
    let marked = editor.ask("textDocument/documentHighlight", params.clone());
    assert_eq!(places(&text, &marked), ["1:6 n", "2:25 n", "3:35 n"]);
    assert_eq!(hover(NAMES), "```mas\nparam n: int = 1\n```");
    params["position"] = json!({ "line": 3, "character": 12 });
    assert_eq!(editor.ask("textDocument/definition", params), Value::Null);
}

#[test]
fn a_name_is_changed_everywhere() {
    let (mut editor, mut params) = at(NAMES);
    let text = NAMES.replacen('|', "", 1);
    assert_eq!(
        places(&text, &json!([{ "range": editor.ask("textDocument/prepareRename", params.clone()) }])),
        ["2:25 n"]
    );
    params["newName"] = json!("count");
    let edit = editor.ask("textDocument/rename", params.clone());
    assert_eq!(places(&text, &edit["changes"][FILE]), ["1:6 n", "2:25 n", "3:35 n"]);
    for (name, why) in [("3", "is no name"), ("", "is no name"), ("a-b", "is no name"), ("m", "already")] {
        params["newName"] = json!(name);
        let answer = editor.answer("textDocument/rename", params.clone());
        assert!(answer["error"]["message"].as_str().unwrap().contains(why), "{answer}");
    }
    // What is no name of the file stays as it is.
    params["position"] = json!({ "line": 3, "character": 12 });
    params["newName"] = json!("other");
    assert_eq!(editor.ask("textDocument/rename", params), Value::Null);
}

#[test]
fn the_outline_has_every_block() {
    let mut editor = Editor::ready();
    editor.open(FILE, RIGHT);
    let symbols = editor.ask("textDocument/documentSymbol", json!({ "textDocument": { "uri": FILE } }));
    let show = |symbol: &Value| {
        format!("{} ({})", symbol["name"].as_str().unwrap(), symbol["detail"].as_str().unwrap_or("-"))
    };
    let mut shown = String::new();
    for symbol in symbols.as_array().unwrap() {
        shown += &format!("{}\n", show(symbol));
        for inner in symbol["children"].as_array().into_iter().flatten() {
            shown += &format!("  {}\n", show(inner));
        }
    }
    insta::assert_snapshot!(shown);
}

#[test]
fn formatting_touches_the_lines_that_change() {
    let mut editor = Editor::ready();
    editor.open(FILE, "workflow w\nparam n: int  \nparam m: int\n");
    let params =
        json!({ "textDocument": { "uri": FILE }, "options": { "tabSize": 2, "insertSpaces": true } });
    assert_eq!(
        editor.ask("textDocument/formatting", params.clone()),
        json!([{
            "range": { "start": { "line": 1, "character": 0 }, "end": { "line": 2, "character": 0 } },
            "newText": "param n: int\n",
        }])
    );
    editor.replace(FILE, 2, "workflow w\n");
    assert_eq!(editor.ask("textDocument/formatting", params.clone()), json!([]));
    editor.replace(FILE, 3, "broken { \n");
    assert_eq!(editor.ask("textDocument/formatting", params), Value::Null);
}
