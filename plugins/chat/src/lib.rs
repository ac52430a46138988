//! The built-in agent: a system prompt, a template over the environment's view, an extraction rule. With it a
//! workflow can have agents without a plugin.

mod template;

use std::collections::BTreeMap;

use pl_sdk::prelude::*;
use regex_lite::Regex;
use serde_json::Value;

use crate::template::Template;

/// An agent whose prompt is a template and whose answer is the match of a pattern.
pub struct Chat;

/// Settings of `std.chat`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The system message. An empty one is not sent.
    pub system: String,
    /// The user message. `{name}` and `{name.inner.0}` are replaced by these parts of the environment's view.
    pub template: String,
    /// A regular expression. The answer is the first group (or all) of its last match. Without an expression,
    /// the answer is the whole completion.
    #[schemars(extend("x-regex" = true))]
    pub extract: Option<String>,
    /// Name of the answer in the action for the environment.
    pub action: String,
    /// Strings that end the completion.
    pub stop: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            system: String::new(),
            template: "{question}".to_owned(),
            extract: None,
            action: "answer".to_owned(),
            stop: Vec::new(),
        }
    }
}

impl Agent for Chat {
    const NAME: &'static str = "chat";
    const DOC: &'static str =
        "Fills a template from the environment's view and answers with the match of a pattern.";
    type Settings = Settings;
    type View = Value;
    /// `{action: text}`, or `{"none": reason}` if the pattern has no match.
    type Action = BTreeMap<String, String>;

    fn prompt(settings: &Settings, view: &Value, _turn: &Turn) -> Result<Option<Request>> {
        let text =
            Template::parse(&settings.template).fill(view).map_err(|e| Error::settings(e.to_string()))?;
        let request = Request::user(text).with_stop(settings.stop.iter().cloned());
        Ok(Some(if settings.system.is_empty() { request } else { request.with_system(&settings.system) }))
    }

    fn parse(settings: &Settings, _view: &Value, completion: &Completion) -> Result<Self::Action> {
        let answer = match &settings.extract {
            None => Some(completion.text.trim()),
            Some(pattern) => {
                let regex = Regex::new(pattern)
                    .map_err(|e| Error::settings(format!("`extract` is not a regular expression: {e}")))?;
                // The last match, because models reason before they answer.
                regex.captures_iter(&completion.text).last().map(|found| {
                    let group = found.get(1).or_else(|| found.get(0));
                    group.map_or("", |group| group.as_str().trim())
                })
            }
        };
        let (name, text) = match answer {
            Some(answer) if !answer.is_empty() => (settings.action.as_str(), answer),
            Some(_) => ("none", "the answer is empty"),
            None => ("none", "`extract` matches nothing"),
        };
        Ok(BTreeMap::from([(name.to_owned(), text.to_owned())]))
    }
}

pl_sdk::export! { agents: [Chat] }

#[cfg(test)]
mod tests {
    use pl_sdk::Finish;
    use serde_json::json;

    use super::*;

    fn settings(json: Value) -> Settings {
        serde_json::from_value(json).unwrap()
    }

    fn turn() -> Turn {
        Turn { agent: "a".to_owned(), visit: 0 }
    }

    fn completion(text: &str) -> Completion {
        Completion { text: text.to_owned(), tool_calls: Vec::new(), finish: Finish::Stop }
    }

    fn action(settings: &Settings, text: &str) -> Value {
        json!(Chat::parse(settings, &Value::Null, &completion(text)).unwrap())
    }

    #[test]
    fn by_default_the_prompt_is_the_question_and_the_answer_the_completion() {
        let settings = settings(json!({}));
        let request = Chat::prompt(&settings, &json!({"question": "2 + 2?"}), &turn()).unwrap().unwrap();
        let messages: Vec<_> =
            request.messages.iter().map(|message| (message.role, message.text())).collect();
        assert_eq!(messages, [(Role::User, "2 + 2?".to_owned())]);
        assert_eq!(action(&settings, " 4\n"), json!({"answer": "4"}));
    }

    #[test]
    fn all_settings_are_used() {
        let settings = settings(json!({
            "system": "Be short.", "template": "{tool.output}: {question}", "extract": "<a>(.*?)</a>",
            "action": "python", "stop": ["END"],
        }));
        let view = json!({"question": "q", "tool": {"output": "o"}});
        let request = Chat::prompt(&settings, &view, &turn()).unwrap().unwrap();
        assert_eq!(request.messages[0].text(), "Be short.");
        assert_eq!(request.messages[1].text(), "o: q");
        assert_eq!(request.stop, ["END"]);
        assert_eq!(action(&settings, "<a>1</a> no, <a> 2 </a>"), json!({"python": "2"}));
        assert_eq!(action(&settings, "nothing"), json!({"none": "`extract` matches nothing"}));
        assert_eq!(action(&settings, "<a> </a>"), json!({"none": "the answer is empty"}));
    }

    #[test]
    fn mistakes_in_settings_are_named() {
        let unknown = serde_json::from_value::<Settings>(json!({"systm": ""})).unwrap_err();
        assert!(unknown.to_string().contains("systm"), "{unknown}");
        // For `pl-host check`, which finds such a text before a run.
        assert_eq!(json!(schemars::schema_for!(Settings))["properties"]["extract"]["x-regex"], true);
        let broken =
            Chat::parse(&settings(json!({"extract": "("})), &Value::Null, &completion("x")).unwrap_err();
        assert!(broken.message.contains("extract"), "{}", broken.message);
        let incomplete = settings(json!({"template": "{nothing}"}));
        let error = Chat::prompt(&incomplete, &json!({"question": "q"}), &turn()).unwrap_err();
        assert_eq!(
            error.message,
            "the template has {nothing}, which is not in the environment's view: it has question"
        );
    }
}
