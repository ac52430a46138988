//! Encoding of messages as token ids, through a model's chat template and tokenizer.

use std::sync::Arc;

use pl_model::{ChatMessage, ChatTemplate, NaiveDate, RenderOptions, Tokenizer, ToolCallFormat};
use pl_plugin::{Message, Part, Role, Tool, ToolCall};
use pl_rollout::{Fault, PromptEncoder};
use serde_json::{Value, json};

/// The tokenizer and the chat template of a model.
#[derive(Clone)]
pub struct ChatFormat {
    pub tokenizer: Arc<Tokenizer>,
    pub template: Arc<ChatTemplate>,
    /// Largest number of tokens of a prompt with its completion.
    pub max_positions: usize,
}

/// Chat format of each policy's model, and the date that templates see as today.
#[derive(Clone)]
pub struct ChatFormats {
    policies: Arc<[ChatFormat]>,
    date: NaiveDate,
}

impl ChatFormats {
    /// Joins the formats of the policies. A resumed or replayed run has the date of its start.
    pub fn new(policies: impl Into<Arc<[ChatFormat]>>, date: NaiveDate) -> ChatFormats {
        ChatFormats { policies: policies.into(), date }
    }

    pub fn get(&self, policy: usize) -> Option<&ChatFormat> {
        self.policies.get(policy)
    }

    /// Returns the encoder of an agent that may think, or not, before it answers. `None` leaves the choice to the template.
    pub fn encoder(&self, thinking: Option<bool>) -> ChatEncoder {
        ChatEncoder { formats: self.clone(), thinking }
    }
}

/// Returns the current date in UTC.
pub(crate) fn today() -> NaiveDate {
    chrono::Utc::now().date_naive()
}

/// Prompt encoder of an agent.
pub struct ChatEncoder {
    formats: ChatFormats,
    thinking: Option<bool>,
}

impl PromptEncoder for ChatEncoder {
    fn encode(&self, policy: usize, messages: &[Message], tools: &[Tool]) -> Result<Vec<u32>, Fault> {
        let Some(format) = self.formats.get(policy) else {
            return Err(Fault::new("prompt", format!("there is no policy {policy}")));
        };
        let messages = messages.iter().map(chat_message).collect::<Result<Vec<_>, _>>()?;
        let tools = tools.iter().map(tool_schema).collect::<Result<Vec<_>, _>>()?;
        let encode = |tools: Vec<Value>| {
            let options = RenderOptions {
                tools,
                thinking: self.thinking,
                add_generation_prompt: true,
                date: Some(self.formats.date),
            };
            let encoded = format.template.encode(&format.tokenizer, &messages, &options);
            encoded.map_err(|error| Fault::new("chat template", error))
        };
        let offers = !tools.is_empty();
        let tokens = encode(tools)?;
        if offers && tokens == encode(Vec::new())? {
            let cause = "the agent offers tools, but this model's chat template ignores tools: use a model that can call \
                         tools";
            return Err(Fault::new("chat template", cause));
        }
        Ok(tokens)
    }

    fn tool_calls(&self, policy: usize, text: &str) -> Vec<ToolCall> {
        let Some(format) = self.formats.get(policy) else { return Vec::new() };
        let calls = ToolCallFormat::of_template(&format.template).parse(text).into_iter();
        calls.map(|call| ToolCall { name: call.name, arguments: call.arguments.to_string() }).collect()
    }

    fn context(&self, policy: usize) -> Option<usize> {
        self.formats.get(policy).map(|format| format.max_positions)
    }
}

fn chat_message(message: &Message) -> Result<ChatMessage, Fault> {
    let role = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let mut content = String::new();
    for part in &message.parts {
        match part {
            Part::Text(text) => content.push_str(text),
            Part::Image { .. } | Part::Data { .. } => {
                return Err(Fault::new(
                    "prompt",
                    "this model reads only text, but a message has an image or data part",
                ));
            }
        }
    }
    Ok(ChatMessage::new(role, content))
}

/// Returns a tool in the form that chat templates expect: an OpenAI function description.
fn tool_schema(tool: &Tool) -> Result<Value, Fault> {
    let parameters: Value = serde_json::from_str(&tool.parameters).map_err(|e| {
        Fault::new("prompt", format!("the parameters of tool `{}` are not a JSON Schema: {e}", tool.name))
    })?;
    Ok(json!({
        "type": "function",
        "function": { "name": tool.name, "description": tool.description, "parameters": parameters },
    }))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Returns an encoder whose tokens are the bytes of the rendered template.
    fn encoder(template: &str, thinking: Option<bool>) -> ChatEncoder {
        let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/tiny/tokenizer.json");
        let tokenizer = Tokenizer::from_json("tiny", &std::fs::read(tiny).unwrap(), &[]).unwrap();
        let template = ChatTemplate::new("tiny", Some(template.to_owned()), None, None).unwrap();
        let format =
            ChatFormat { tokenizer: Arc::new(tokenizer), template: Arc::new(template), max_positions: 100 };
        ChatFormats::new([format], "2024-02-29".parse().unwrap()).encoder(thinking)
    }

    fn tool(parameters: &str) -> Tool {
        let (name, description) = ("look".to_owned(), "Looks it up.".to_owned());
        Tool { name, description, parameters: parameters.to_owned() }
    }

    const TEMPLATE: &str = "{% for tool in tools or [] %}{{ tool.function.name }}:{{ tool.function.parameters.type }}\
                            {% endfor %}{% if enable_thinking is defined %}{{ enable_thinking }}{% endif %}";

    #[test]
    fn tools_and_the_thinking_switch_reach_the_template() {
        let messages = [Message { role: Role::User, parts: vec![Part::Text("q".to_owned())] }];
        let written = |thinking, tools: &[Tool]| {
            let encoder = encoder(TEMPLATE, thinking);
            let ids = encoder.encode(0, &messages, tools).unwrap();
            encoder.formats.policies[0].tokenizer.decode(&ids, false)
        };
        assert_eq!(written(None, &[tool(r#"{"type": "object"}"#)]), "look:object");
        assert_eq!(written(Some(false), &[]), "False");
        assert_eq!(written(Some(true), &[]), "True");
    }

    #[test]
    fn a_prompt_has_the_form_of_the_model_that_answers() {
        let formats = ["a", "b"].map(|text| encoder(text, None).formats.policies[0].clone());
        let formats = ChatFormats::new(formats, NaiveDate::default());
        let encoder = formats.encoder(None);
        let text = |policy: usize| {
            formats.get(policy).unwrap().tokenizer.decode(&encoder.encode(policy, &[], &[]).unwrap(), false)
        };
        assert_eq!([text(0), text(1)], ["a", "b"]);
        assert!(encoder.encode(2, &[], &[]).is_err());
    }

    #[test]
    fn the_template_sees_the_date_of_the_run() {
        let encoder = encoder("{{ strftime_now('%d %b %Y') }}", None);
        let ids = encoder.encode(0, &[], &[]).unwrap();
        assert_eq!(encoder.formats.policies[0].tokenizer.decode(&ids, false), "29 Feb 2024");
    }

    #[test]
    fn tools_that_the_template_ignores_are_an_error() {
        let ignoring = encoder("{{ messages[0].content }}", None);
        let messages = [Message { role: Role::User, parts: vec![Part::Text("q".to_owned())] }];
        let fault = ignoring.encode(0, &messages, &[tool("{}")]).unwrap_err();
        assert!(fault.cause.contains("ignores tools"), "{}", fault.cause);
        assert!(ignoring.encode(0, &messages, &[]).is_ok());
        let fault = encoder(TEMPLATE, None).encode(0, &messages, &[tool("{")]).unwrap_err();
        assert!(fault.cause.contains("tool `look`"), "{}", fault.cause);
    }
}
