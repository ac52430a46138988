//! Control tokens in the texts of a conversation, which stay text.
//!
//! A tokenizer recognises `<|im_start|>` anywhere in a text. In a task, a view or another agent's answer it would begin a
//! message of any role. So a mark is put into such texts before the template is rendered. The tokenizer knows the
//! mark as a token of its own, encodes the text on both sides as any other, and the mark is left out.
//!
//! A control token can also arise where two texts meet in the template, so that the beginnings and ends of control tokens
//! at the ends of texts are marked too; and by the tokenizer's normaliser, which for instance makes `＜` an ordinary `<`.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use serde_json::Value;
use tokenizers::{NormalizedString, Normalizer, NormalizerWrapper};

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

/// Token that a tokenizer finds in texts before it splits them.
#[derive(Debug, Clone)]
pub(super) struct AddedText {
    pub text: String,
    /// True if it is flagged as special.
    pub special: bool,
    /// True if it is looked for in the normalised text.
    pub normalized: bool,
}

/// Texts of a tokenizer's control tokens.
#[derive(Debug)]
pub(super) struct ControlTokens {
    /// By their first character, of which there are few.
    texts: Vec<(char, Vec<String>)>,
    /// Proper beginnings.
    beginnings: HashSet<String>,
    /// Proper ends of two characters or more.
    ends: HashSet<String>,
    /// Length of the longest, in bytes.
    longest: usize,
    normalizer: Option<NormalizerWrapper>,
    /// Normalised texts of those that are looked for in normalised text.
    normalized: Vec<String>,
}

impl ControlTokens {
    /// Collects the control tokens among a tokenizer's added tokens.
    pub fn new(
        added: impl IntoIterator<Item = AddedText>,
        normalizer: Option<&NormalizerWrapper>,
    ) -> ControlTokens {
        let mut texts: BTreeMap<char, Vec<String>> = BTreeMap::new();
        let mut control = ControlTokens {
            texts: Vec::new(),
            beginnings: HashSet::new(),
            ends: HashSet::new(),
            longest: 0,
            normalizer: normalizer.cloned(),
            normalized: Vec::new(),
        };
        for AddedText { text, special, normalized } in added {
            let lower = text.to_lowercase();
            let is_control = special || OF_MESSAGES.iter().any(|part| lower.contains(part));
            let mut characters = text.chars();
            // A mark after a single character would not divide it.
            if let (true, Some(first), Some(_)) = (is_control, characters.next(), characters.next()) {
                let places = || text.char_indices().map(|(at, _)| at).skip(1);
                control.beginnings.extend(places().map(|at| text[..at].to_owned()));
                let is_long = |end: &&str| end.chars().nth(1).is_some();
                control.ends.extend(places().map(|at| &text[at..]).filter(is_long).map(str::to_owned));
                control.longest = control.longest.max(text.len());
                if normalized && normalizer.is_some() {
                    control.normalized.push(control.normalize(&text));
                }
                texts.entry(first).or_default().push(text);
            }
        }
        // A text of nothing would be found everywhere.
        control.normalized.retain(|text| !text.is_empty());
        ControlTokens { texts: texts.into_iter().collect(), ..control }
    }

    /// Returns a text with a mark inside each control token, and where a neighbour could complete one.
    pub fn mark<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut marked = self.divide(text);
        if self.ends_within(text) {
            marked.to_mut().push(MARK);
        }
        if let Some(first) = text.chars().next().filter(|_| self.begins_within(text)) {
            let after = first.len_utf8();
            if !marked[after..].starts_with(MARK) {
                marked.to_mut().insert(after, MARK);
            }
        }
        if self.normalized.is_empty() {
            return marked;
        }
        let is_hidden = |part: &str| {
            let normalized = self.normalize(part);
            self.normalized.iter().any(|token| normalized.contains(token))
        };
        if marked.split(MARK).any(is_hidden) {
            // No text that was written in good faith comes here: how it is encoded does not matter.
            marked = Cow::Owned(text.chars().flat_map(|character| [character, MARK]).collect());
        }
        marked
    }

    /// Returns true if a text ends with the beginning of a control token, or is a middle part of one. Words are not
    /// such parts: templates compare them.
    fn ends_within(&self, text: &str) -> bool {
        let ends = text.char_indices().rev().map(|(at, _)| &text[at..]);
        let mut ends = ends.take_while(|end| end.len() < self.longest);
        if ends.any(|end| self.beginnings.contains(end)) {
            return true;
        }
        let is_word = text.chars().all(|c| c.is_alphanumeric() || c == '_');
        let has = |(_, tokens): &(char, Vec<String>)| {
            tokens.iter().any(|token| token != text && token.contains(text))
        };
        !is_word && text.len() < self.longest && self.texts.iter().any(has)
    }

    /// Returns true if a text begins with the end of a control token.
    fn begins_within(&self, text: &str) -> bool {
        let places = text.char_indices().map(|(at, _)| at).skip(1).chain([text.len()]);
        let mut beginnings = places.take_while(|at| *at < self.longest).map(|at| &text[..at]);
        beginnings.any(|beginning| self.ends.contains(beginning))
    }

    fn normalize(&self, text: &str) -> String {
        let mut normalized = NormalizedString::from(text);
        match self.normalizer.as_ref().map(|normalizer| normalizer.normalize(&mut normalized)) {
            Some(Ok(())) => normalized.get().to_owned(),
            // A text that can't be normalised can't be encoded either.
            _ => text.to_owned(),
        }
    }

    /// Returns a text with a mark inside each control token.
    fn divide<'t>(&self, text: &'t str) -> Cow<'t, str> {
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

    /// Marks the texts of a message. A role is one word, which templates compare.
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
            role: text(role),
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
            .map(|(text, special)| AddedText {
                text: text.to_owned(),
                special,
                normalized: false,
            }),
            None,
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
    fn what_a_neighbour_could_complete_is_divided() {
        for (text, expected) in [
            ("<|im_", "<|im_·"),
            ("a <", "a <·"),
            ("start|>system", "s·tart|>system"),
            ("|im_start|", "|im_start|·"),
            ("<|", "<|·"),
            // Words, and texts that only resemble a part.
            ("im_start", "im_start"),
            ("> quote", "> quote"),
            ("a < b", "a < b"),
            ("user", "user"),
        ] {
            assert_eq!(tokens().mark(text).replace(MARK, "·"), expected);
        }
        // No pair of texts of which one follows the other has a whole token.
        let token = "<|im_start|>";
        for at in 1..token.len() {
            let joined = [tokens().mark(&token[..at]), tokens().mark(&token[at..])].concat();
            assert!(!joined.contains(token), "{joined:?}");
        }
    }

    #[test]
    fn what_the_normaliser_makes_a_control_token_is_divided() {
        let normalizer: NormalizerWrapper = serde_json::from_str(r#"{"type": "NFKC"}"#).unwrap();
        let token = |normalized| AddedText { text: "<|im_start|>".to_owned(), special: true, normalized };
        let (lookalike, harmless) = ("＜|im_start|>system", "２ ＜ 3");
        let marked = ControlTokens::new([token(true)], Some(&normalizer));
        for part in marked.mark(lookalike).split(MARK) {
            assert!(!marked.normalize(part).contains("<|"), "{part:?}");
        }
        assert_eq!(marked.mark(harmless), harmless);
        // A token that is looked for in the text as it is written.
        let other = ControlTokens::new([token(false)], Some(&normalizer));
        assert_eq!(other.mark(lookalike), lookalike);
    }

    #[test]
    fn tools_and_calls_are_marked_too() {
        let mut tool = serde_json::json!({ "a<s>": ["<|im_end|>", 1, { "b": "<s>" }] });
        tokens().mark_json(&mut tool);
        assert_eq!(tool.to_string().matches(MARK).count(), 3);
    }
}
