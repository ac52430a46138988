//! Tool calls in the text of completions.
//!
//! | form | written as | models |
//! |---|---|---|
//! | Hermes | `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, any number, text around them | Qwen 2.5 and 3, Hermes |
//! | Mistral | `[TOOL_CALLS]` and a list of such objects | Mistral |
//! | Llama | an object with `name` and `parameters`, after `<|python_tag|>` or alone; several separated by `;` | Llama 3.1 to 3.3 |
//! | JSON | such an object, or a list of them, alone or in a fenced block | others |

use serde_json::{Deserializer, Value};

use super::chat::ToolCall;
use super::template::ChatTemplate;

/// Form in which a model writes tool calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolCallFormat {
    /// In `<tool_call>` elements.
    Hermes,
    /// After `[TOOL_CALLS]`.
    Mistral,
    /// Objects with `parameters`, the whole text.
    Llama,
    /// Objects, the whole text.
    Json,
}

const HERMES: [&str; 2] = ["<tool_call>", "</tool_call>"];
const MISTRAL: &str = "[TOOL_CALLS]";
const LLAMA: &str = "<|python_tag|>";

impl ToolCallFormat {
    /// Returns the form that a chat template asks the model for.
    pub fn of_template(template: &ChatTemplate) -> Self {
        let source = template.source().unwrap_or_default();
        if source.contains(HERMES[0]) {
            Self::Hermes
        } else if source.contains("TOOL_CALLS") {
            Self::Mistral
        } else if source.contains("ipython") || source.contains(LLAMA) {
            Self::Llama
        } else {
            Self::Json
        }
    }

    /// Returns the tool calls in the text of a completion, in their order. Skips text that is not a valid call.
    pub fn parse(self, text: &str) -> Vec<ToolCall> {
        match self {
            Self::Hermes => hermes(text),
            Self::Mistral => text.split_once(MISTRAL).map(|(_, calls)| whole(calls)).unwrap_or_default(),
            Self::Llama => {
                let text = text.trim().trim_start_matches(LLAMA);
                objects(text).unwrap_or_default()
            }
            Self::Json => whole(unfenced(text)),
        }
    }

    /// Returns the beginning of a text that belongs to no tool call, whatever follows.
    pub fn text_before(self, text: &str) -> &str {
        let is_whole_call =
            |first: &[char]| text.trim_start().is_empty() || text.trim_start().starts_with(first);
        match self {
            Self::Hermes => before(text, HERMES[0]),
            Self::Mistral => before(text, MISTRAL),
            Self::Llama if is_whole_call(&['{', '<']) => "",
            Self::Json if is_whole_call(&['{', '[', '`']) => "",
            Self::Llama | Self::Json => text,
        }
    }
}

/// Returns a text up to `mark`, or up to what may be the beginning of it.
fn before<'t>(text: &'t str, mark: &str) -> &'t str {
    let begun = (1..mark.len()).rev().find(|length| text.ends_with(&mark[..*length]));
    match text.find(mark) {
        Some(at) => &text[..at],
        None => &text[..text.len() - begun.unwrap_or(0)],
    }
}

/// Returns the calls in `<tool_call>` elements. The last one may lack its end.
fn hermes(text: &str) -> Vec<ToolCall> {
    let [start, end] = HERMES;
    let elements = text.split(start).skip(1);
    elements
        .filter_map(|element| call(serde_json::from_str(element.split(end).next()?.trim()).ok()?))
        .collect()
}

/// Returns the calls of a text that is an object or a list of objects.
fn whole(text: &str) -> Vec<ToolCall> {
    match serde_json::from_str(text.trim()) {
        Ok(Value::Array(calls)) => calls.into_iter().map(call).collect::<Option<_>>().unwrap_or_default(),
        Ok(value) => call(value).into_iter().collect(),
        Err(_) => Vec::new(),
    }
}

/// Returns the calls of a text that is objects separated by `;`. Returns `None` if there is anything else.
fn objects(text: &str) -> Option<Vec<ToolCall>> {
    let mut calls = Vec::new();
    let mut rest = text;
    loop {
        let mut values = Deserializer::from_str(rest).into_iter::<Value>();
        calls.push(call(values.next()?.ok()?)?);
        rest = rest.get(values.byte_offset()..)?.trim();
        match rest.strip_prefix(';') {
            Some(more) if !more.trim().is_empty() => rest = more,
            _ if rest.trim_end_matches(';').is_empty() => return Some(calls),
            _ => return None,
        }
    }
}

/// Returns the inside of a text that is one fenced block, and any other text as it is.
fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let inside = text.strip_prefix("```").and_then(|text| text.strip_suffix("```"));
    inside.map_or(text, |inside| inside.strip_prefix("json").unwrap_or(inside))
}

/// Returns the call that an object describes. Arguments may be an object or the text of one.
fn call(value: Value) -> Option<ToolCall> {
    let Value::Object(mut object) = value else { return None };
    let Value::String(name) = object.remove("name")? else { return None };
    let arguments = match object.remove("arguments").or_else(|| object.remove("parameters"))? {
        Value::String(text) => serde_json::from_str(&text).ok()?,
        arguments => arguments,
    };
    let id = object.remove("id").and_then(|id| id.as_str().map(str::to_owned));
    arguments.is_object().then_some(ToolCall { id, name, arguments })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const ALL: [ToolCallFormat; 4] =
        [ToolCallFormat::Hermes, ToolCallFormat::Mistral, ToolCallFormat::Llama, ToolCallFormat::Json];

    fn names(format: ToolCallFormat, text: &str) -> Vec<String> {
        let names = |call: ToolCall| format!("{} {}", call.name, call.arguments);
        format.parse(text).into_iter().map(names).collect()
    }

    #[test]
    fn calls_are_found_in_each_form() {
        let one = r#"{"name": "add", "arguments": {"a": 1}}"#;
        let other = r#"{"name": "run", "arguments": "{\"code\": \"1;2\"}"}"#;
        let (added, ran) = (r#"add {"a":1}"#, r#"run {"code":"1;2"}"#);
        let hermes = format!("Let me see.\n<tool_call>\n{one}\n</tool_call>\n<tool_call>{other}");
        assert_eq!(names(ToolCallFormat::Hermes, &hermes), [added, ran]);
        assert_eq!(names(ToolCallFormat::Mistral, &format!("[TOOL_CALLS][{one}, {other}]")), [added, ran]);
        let parameters = one.replace("arguments", "parameters");
        assert_eq!(
            names(ToolCallFormat::Llama, &format!("<|python_tag|>{parameters}; {other}")),
            [added, ran]
        );
        assert_eq!(names(ToolCallFormat::Llama, &parameters), [added]);
        assert_eq!(names(ToolCallFormat::Json, &format!("```json\n[{one}]\n```")), [added]);
        assert_eq!(names(ToolCallFormat::Json, one), [added]);
        let with_id = r#"[TOOL_CALLS][{"name": "add", "arguments": {}, "id": "Vv9"}]"#;
        assert_eq!(ToolCallFormat::Mistral.parse(with_id)[0].id.as_deref(), Some("Vv9"));
    }

    #[test]
    fn text_that_only_looks_like_a_call_is_none() {
        for format in ALL {
            for text in [
                "",
                "The answer is {\"name\": 3}.",
                "<tool_call>add(1)</tool_call>",
                "[TOOL_CALLS]add",
                r#"{"name": "add"}"#,
                r#"{"name": "add", "arguments": [1]}"#,
                r#"{"name": 1, "arguments": {}}"#,
                r#"{"name": "add", "arguments": "{"}"#,
            ] {
                assert_eq!(names(format, text), Vec::<String>::new(), "{format:?}: {text}");
            }
        }
        // Llama's form is the whole text.
        assert!(names(ToolCallFormat::Llama, r#"{"name": "a", "parameters": {}} and more"#).is_empty());
    }

    #[test]
    fn text_before_a_call_is_told_apart_while_it_is_written() {
        let before = |format: ToolCallFormat, text: &'static str| format.text_before(text);
        assert_eq!(before(ToolCallFormat::Hermes, "Sure. <tool_call>{"), "Sure. ");
        assert_eq!(before(ToolCallFormat::Hermes, "Sure. <tool_"), "Sure. ");
        assert_eq!(before(ToolCallFormat::Hermes, "1 < 2"), "1 < 2");
        assert_eq!(before(ToolCallFormat::Mistral, "So: [TOOL_CALLS][{"), "So: ");
        assert_eq!(before(ToolCallFormat::Mistral, "[1"), "[1");
        assert_eq!(before(ToolCallFormat::Llama, "<|python_tag|>{"), "");
        for format in [ToolCallFormat::Llama, ToolCallFormat::Json] {
            assert_eq!(before(format, " {\"na"), "");
            assert_eq!(before(format, "\n"), "");
            assert_eq!(before(format, "It is {3}."), "It is {3}.");
        }
    }

    #[test]
    fn the_form_follows_from_the_template() {
        let format = |source: &str| {
            ToolCallFormat::of_template(&ChatTemplate::new("m", Some(source.to_owned()), None, None).unwrap())
        };
        assert_eq!(format("<tool_call></tool_call>"), ToolCallFormat::Hermes);
        assert_eq!(format("[TOOL_CALLS]"), ToolCallFormat::Mistral);
        assert_eq!(format("<|start_header_id|>ipython<|end_header_id|>"), ToolCallFormat::Llama);
        assert_eq!(format("plain"), ToolCallFormat::Json);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in ".{0,80}", name in "[a-z]{1,8}", number: i64) {
            for format in ALL {
                format.parse(&text);
                format.parse(&format!("{text}{}", HERMES[0]));
            }
            let call = json!({ "name": name, "arguments": { "n": number } }).to_string();
            let expected = vec![ToolCall { id: None, name, arguments: json!({ "n": number }) }];
            prop_assert_eq!(ToolCallFormat::Json.parse(&call), expected.clone());
            prop_assert_eq!(ToolCallFormat::Llama.parse(&format!("{call};")), expected.clone());
            prop_assert_eq!(ToolCallFormat::Hermes.parse(&format!("{}{call}{}", HERMES[0], HERMES[1])), expected);
        }
    }
}
