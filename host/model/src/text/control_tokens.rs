//! Control tokens in the texts of a conversation, which stay text.
//!
//! A tokenizer recognises `<|im_start|>` anywhere in a text. In a task, a view or another agent's answer it would begin a
//! message of any role. So a mark is put into such texts before the template is rendered. The tokenizer knows the
//! mark as a token of its own, encodes the text on both sides as any other, and the mark is left out.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use crate::text::chat::ChatMessage;

/// Mark inside a control token: a noncharacter, which no text has.
pub(super) const MARK: char = '\u{FDD0}';

/// Parts of the names of tokens that begin or end messages, which some tokenizers don't flag as special.
const OF_MESSAGES: [&str; 10] = [
    "user",
    "assistant",
    "system",
    "start_of_turn",
    "end_of_turn",
    "im_start",
    "im_end",
    "header_id",
    "eot_id",
    "eom_id",
];

/// Texts of a tokenizer's control tokens.
#[derive(Debug)]
pub(super) struct ControlTokens {
    /// By their first character, of which there are few.
    texts: Vec<(char, Vec<String>)>,
}

impl ControlTokens {
    /// Collects the control tokens among a tokenizer's added tokens, each with whether it is flagged as special.
    pub fn new(added: impl IntoIterator<Item = (String, bool)>) -> ControlTokens {
        let mut texts: BTreeMap<char, Vec<String>> = BTreeMap::new();
        for (text, special) in added {
            let lower = text.to_lowercase();
            let is_control = special || OF_MESSAGES.iter().any(|part| lower.contains(part));
            let mut characters = text.chars();
            // A mark after a single character would not divide it.
            if let (true, Some(first), Some(_)) = (is_control, characters.next(), characters.next()) {
                texts.entry(first).or_default().push(text);
            }
        }
        ControlTokens { texts: texts.into_iter().collect() }
    }

    /// Returns a text with a mark inside each control token.
    pub fn mark<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let begins = |rest: &str, first: char| {
            let known = self.texts.iter().find(|(character, _)| *character == first);
            known.is_some_and(|(_, known)| known.iter().any(|token| rest.starts_with(token)))
        };
        let mut marked = String::new();
        let mut copied = 0;
        for (at, first) in text.char_indices() {
            if begins(&text[at..], first) {
                let after = at + first.len_utf8();
                marked.push_str(&text[copied..after]);
                marked.push(MARK);
                copied = after;
            }
        }
        if copied == 0 {
            return Cow::Borrowed(text);
        }
        marked.push_str(&text[copied..]);
        Cow::Owned(marked)
    }

    /// Marks the texts of a message. Its role is a name that the program chooses.
    pub fn mark_message(&self, message: &ChatMessage) -> ChatMessage {
        let text = |text: &String| self.mark(text).into_owned();
        let ChatMessage { role, content, reasoning_content, tool_calls, tool_call_id, name } = message;
        let mut tool_calls = tool_calls.clone();
        for call in &mut tool_calls {
            call.id = call.id.as_ref().map(text);
            call.name = text(&call.name);
            self.mark_json(&mut call.arguments);
        }
        ChatMessage {
            role: role.clone(),
            content: text(content),
            reasoning_content: reasoning_content.as_ref().map(text),
            tool_calls,
            tool_call_id: tool_call_id.as_ref().map(text),
            name: name.as_ref().map(text),
        }
    }

    /// Marks the texts of a JSON value, keys included.
    pub fn mark_json(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(marked) = self.mark(text) {
                    *text = marked;
                }
            }
            Value::Array(values) => values.iter_mut().for_each(|value| self.mark_json(value)),
            Value::Object(map) => {
                let marked = std::mem::take(map).into_iter().map(|(key, mut value)| {
                    self.mark_json(&mut value);
                    (self.mark(&key).into_owned(), value)
                });
                *map = marked.collect();
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens() -> ControlTokens {
        ControlTokens::new(
            [
                ("<|im_start|>", true),
                ("<|im_end|>", true),
                ("<s>", true),
                ("\n", true),
                ("<think>", false),
                ("<｜User｜>", false),
            ]
            .map(|(text, special)| (text.to_owned(), special)),
        )
    }

    #[test]
    fn every_control_token_is_divided_and_no_other_text() {
        for (text, expected) in [
            ("2 < 3\n<think>a</think>", "2 < 3\n<think>a</think>"),
            ("<|im_start|>system\n<|im_end|>", "<·|im_start|>system\n<·|im_end|>"),
            ("<<|im_end|>", "<<·|im_end|>"),
            ("<|im_<s>start|>", "<|im_<·s>start|>"),
            ("é<｜User｜>", "é<·｜User｜>"),
            ("", ""),
        ] {
            assert_eq!(tokens().mark(text).replace(MARK, "·"), expected);
        }
    }

    #[test]
    fn tools_and_calls_are_marked_too() {
        let mut tool = serde_json::json!({ "a<s>": ["<|im_end|>", 1, { "b": "<s>" }] });
        tokens().mark_json(&mut tool);
        assert_eq!(tool.to_string().matches(MARK).count(), 3);
    }
}
