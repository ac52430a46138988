//! Hover, completion, navigation, outline and formatting.

use serde_json::{Value, json};

use crate::editor::{Editor, split_mark};

const FILE: &str = "file:///work/a.mas";

const VALID: &str = include_str!("../../../../examples/math.mas");

/// Opens a valid workflow, waits for its check, and replaces it by a text with one marked position.
fn open_marked(text: &str) -> (Editor, Value) {
    let (text, position) = split_mark(text);
    let mut editor = Editor::initialized();
    editor.open(FILE, VALID);
    editor.diagnostics(FILE, 1);
    editor.replace(FILE, 2, &text);
    (editor, json!({ "textDocument": { "uri": FILE }, "position": position }))
}

fn hover(text: &str) -> String {
    let (mut editor, params) = open_marked(text);
    let hover = editor.request("textDocument/hover", params);
    hover["contents"]["value"].as_str().unwrap_or("-").to_owned()
}

fn labels(text: &str) -> Vec<String> {
    let (mut editor, params) = open_marked(text);
    let list = editor.request("textDocument/completion", params);
    list.as_array().unwrap().iter().map(|one| one["label"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn hovers_describe_words() {
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
fn completions_fit_the_context() {
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
        "template t(by: policy) = agent std.chat { policy = | }",
        "policy p { }\nmodel m = \"x\"\ntemplate t(topic: string, by: policy) = agent std.chat\nagent a = t(\"x\", by = |)",
        "policy p { }\nparam n: int\ntemplate t(topic: string, by: policy) = agent std.chat\nagent a = t(|",
        "policy p { }\nparam n: int\ntemplate t(topic: string, by: policy) = agent std.chat\nagent a = t(\"x\", |",
        "policy p { }\nparam n: int\nmodel m = \"x\"\nagent a = unknown(|",
    ]
    .iter()
    .map(|text| format!("{text}\n  {}\n", labels(text).join(" ")))
    .collect();
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn a_completion_replaces_the_typed_part() {
    let (mut editor, params) = open_marked("train { roll|");
    let list = editor.request("textDocument/completion", params);
    let rollout = list.as_array().unwrap().iter().find(|one| one["label"] == "rollout").unwrap();
    insta::assert_json_snapshot!(rollout);
}

/// Start and text of each location of a response.
fn locations(text: &str, locations: &Value) -> Vec<String> {
    let show = |location: &Value| {
        let range = &location["range"];
        let (line, from, to) =
            (&range["start"]["line"], &range["start"]["character"], &range["end"]["character"]);
        let number = |value: &Value| value.as_u64().unwrap() as usize;
        let whole: Vec<u16> = text.lines().nth(number(line)).unwrap().encode_utf16().collect();
        format!("{line}:{from} {}", String::from_utf16(&whole[number(from)..number(to)]).unwrap())
    };
    locations.as_array().unwrap().iter().map(show).collect()
}

const NAMES: &str = "param m: int\nparam n: int = 1\npolicy n { lora { rank = |n } }\n\
                     agent a = std.chat { system = \"ü ${n} n\"; policy = n }\n";

#[test]
fn a_name_has_a_definition_and_references() {
    let (mut editor, mut params) = open_marked(NAMES);
    let text = NAMES.replacen('|', "", 1);
    let declared = editor.request("textDocument/definition", params.clone());
    assert_eq!(locations(&text, &json!([declared])), ["1:6 n"]);
    params["context"] = json!({ "includeDeclaration": false });
    let used = editor.request("textDocument/references", params.clone());
    assert_eq!(locations(&text, &used), ["2:25 n", "3:35 n"]);
    let highlighted = editor.request("textDocument/documentHighlight", params.clone());
    assert_eq!(locations(&text, &highlighted), ["1:6 n", "2:25 n", "3:35 n"]);
    assert_eq!(hover(NAMES), "```mas\nparam n: int = 1\n```");
    params["position"] = json!({ "line": 3, "character": 12 });
    assert_eq!(editor.request("textDocument/definition", params), Value::Null);
}

#[test]
fn a_name_is_renamed_everywhere() {
    let (mut editor, mut params) = open_marked(NAMES);
    let text = NAMES.replacen('|', "", 1);
    assert_eq!(
        locations(&text, &json!([{ "range": editor.request("textDocument/prepareRename", params.clone()) }])),
        ["2:25 n"]
    );
    params["newName"] = json!("count");
    let edit = editor.request("textDocument/rename", params.clone());
    assert_eq!(locations(&text, &edit["changes"][FILE]), ["1:6 n", "2:25 n", "3:35 n"]);
    for (name, why) in [
        ("3", "is not a valid name"),
        ("", "is not a valid name"),
        ("a-b", "is not a valid name"),
        ("m", "already"),
    ] {
        params["newName"] = json!(name);
        let response = editor.response("textDocument/rename", params.clone());
        assert!(response["error"]["message"].as_str().unwrap().contains(why), "{response}");
    }
    // Other words can't be renamed.
    params["position"] = json!({ "line": 3, "character": 12 });
    params["newName"] = json!("other");
    assert_eq!(editor.request("textDocument/rename", params), Value::Null);
}

const EXPERTS: &str = include_str!("../../../../examples/experts.mas");

#[test]
fn a_policy_is_found_in_the_arguments_of_templates() {
    let by_name = EXPERTS.replace("by = last", "by = |last");
    let by_position = EXPERTS.replace("by = last", "|last");
    for marked in [by_name, by_position] {
        let (mut editor, mut params) = open_marked(&marked);
        let text = marked.replacen('|', "", 1);
        let declared = editor.request("textDocument/definition", params.clone());
        assert_eq!(locations(&text, &json!([declared])), ["26:7 last"]);
        assert_eq!(hover(&marked), "```mas\npolicy last   = adapter(rank / 2)\n```");
        params["newName"] = json!("strict");
        let edit = editor.request("textDocument/rename", params);
        let edited = locations(&text, &edit["changes"][FILE]);
        assert!(edited.len() == 2 && edited[0] == "26:7 last" && edited[1].starts_with("30:"), "{edited:?}");
        assert_eq!(labels(&marked.replace("|last", "|"))[..2], ["shared", "last"]);
    }
}

#[test]
fn parameters_that_have_an_argument_are_not_proposed() {
    let proposed = |arguments: &str| {
        let call = r#"expert("step by step", by = shared)"#;
        let mut labels = labels(&EXPERTS.replacen(call, &format!("expert({arguments})"), 1));
        labels.retain(|label| ["way", "by"].contains(&label.as_str()));
        labels
    };
    assert_eq!(proposed("|"), ["way", "by"]);
    assert_eq!(proposed("by = shared, |"), ["way"]);
    assert_eq!(proposed("\"so\", |"), ["by"]);
    assert_eq!(proposed("\"so\", by = shared, |"), [""; 0]);
}

#[test]
fn a_rename_to_a_name_that_the_language_refuses_says_why() {
    let refused = |marked: &str, name: &str| {
        let (mut editor, mut params) = open_marked(marked);
        params["newName"] = json!(name);
        let response = editor.response("textDocument/rename", params);
        response["error"]["message"].as_str().unwrap_or_default().to_owned()
    };
    let agent = EXPERTS.replace("agent judge", "agent |judge");
    for (name, why) in [
        ("end", "no agent may be named `end`: that is the beginning or end of the turns"),
        ("start", "no agent may be named `start`: that is the beginning or end of the turns"),
        ("team", "no agent may be named `team`: that is a part of `reward` in conditions"),
        ("true", "`true` is not a valid name: it is a keyword of the language"),
        ("when", "`when` is not a valid name: it is a keyword of the language"),
        ("final", ""),
    ] {
        assert_eq!(refused(&agent, name), why);
    }
    let policy = EXPERTS.replace("policy last", "policy |last");
    for name in ["true", "when", "or", "not"] {
        assert_eq!(
            refused(&policy, name),
            format!("`{name}` is not a valid name: it is a keyword of the language")
        );
    }
    assert_eq!(refused(&policy, "end"), "");
    // A parameter would hide the policy in its template, or the other way round.
    assert_eq!(refused(&policy, "by"), "there is already a param named `by`");
    let by = EXPERTS.replace("by: policy", "|by: policy");
    assert_eq!(refused(&by, "last"), "there is already a policy named `last`");
    assert_eq!(refused(&by, "other"), "");
    // Another template has a parameter `rank`.
    let parameter = EXPERTS.replace("expert(way", "expert(|way");
    assert_eq!(refused(&parameter, "by"), "there is already a param named `by`");
    assert_eq!(refused(&parameter, "rank"), "there is already a param named `rank`");
    assert_eq!(refused(&parameter.replace("param rank", "param ranks"), "rank"), "");
}

#[test]
fn the_outline_has_every_block() {
    let mut editor = Editor::initialized();
    editor.open(FILE, VALID);
    let symbols = editor.request("textDocument/documentSymbol", json!({ "textDocument": { "uri": FILE } }));
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
fn formatting_edits_only_the_lines_that_change() {
    let mut editor = Editor::initialized();
    editor.open(FILE, "workflow w\nparam n: int  \nparam m: int\n");
    let params =
        json!({ "textDocument": { "uri": FILE }, "options": { "tabSize": 2, "insertSpaces": true } });
    assert_eq!(
        editor.request("textDocument/formatting", params.clone()),
        json!([{
            "range": { "start": { "line": 1, "character": 0 }, "end": { "line": 2, "character": 0 } },
            "newText": "param n: int\n",
        }])
    );
    editor.replace(FILE, 2, "workflow w\n");
    assert_eq!(editor.request("textDocument/formatting", params.clone()), json!([]));
    editor.replace(FILE, 3, "broken { \n");
    assert_eq!(editor.request("textDocument/formatting", params), Value::Null);
}
