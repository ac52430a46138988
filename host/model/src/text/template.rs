//! Chat templates: from messages to the text format of a model.
//!
//! The crate in `jinja` renders them, as a WebAssembly module with limits on memory and work, because they come with foreign
//! models.

use std::fmt;

use chrono::{NaiveDate, NaiveTime, Utc};
use serde::Serialize;
use serde_json::Value;

use crate::error::Error;
use crate::text::chat::{ChatMessage, RenderOptions};
use crate::text::template_instances::{Answer, TemplateInstances};
use crate::text::tokenizer::Tokenizer;

/// A model's chat template.
pub struct ChatTemplate {
    model: String,
    instances: Option<TemplateInstances>,
    bos: Option<String>,
    eos: Option<String>,
}

/// Variables of a template. Those that are left out are undefined, which templates test with `is defined`.
#[derive(Serialize)]
struct Variables<'a> {
    messages: &'a [ChatMessage],
    tools: Option<&'a [Value]>,
    documents: (),
    add_generation_prompt: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    bos_token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    eos_token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    enable_thinking: Option<bool>,
    /// For `strftime_now`, in UTC as ISO 8601. Templates can't name it.
    #[serde(rename = "the time")]
    time: String,
}

impl ChatTemplate {
    /// Compiles a template. `model` names the model in messages; `bos` and `eos` are the texts of its special
    /// tokens. Rendering is an error if the model has no template.
    ///
    /// # Errors
    /// [`Error::Template`] if the template does not parse.
    pub fn new(
        model: impl Into<String>,
        source: Option<String>,
        bos: Option<String>,
        eos: Option<String>,
    ) -> Result<Self, Error> {
        let model = model.into();
        let instances = source.map(TemplateInstances::new).transpose().map_err(|reason| Error::Template {
            model: model.clone(),
            reason: format!(
                "{reason}; put a supported template into the model's folder as chat_template.jinja"
            ),
        })?;
        Ok(Self { model, instances, bos, eos })
    }

    /// Renders a conversation. The text equals that of transformers' `apply_chat_template(tokenize=False)`.
    ///
    /// # Errors
    /// [`Error::Template`] if the model has no template, if the template rejects the messages, or if it exceeds the limits.
    pub fn render(&self, messages: &[ChatMessage], options: &RenderOptions) -> Result<String, Error> {
        let fail = |reason: String| Error::Template { model: self.model.clone(), reason };
        let Some(instances) = &self.instances else {
            return Err(fail("the model has no template; use a chat (instruct) model".into()));
        };
        let midnight = |date: NaiveDate| date.and_time(NaiveTime::MIN);
        let time = options.date.map_or_else(|| Utc::now().naive_utc(), midnight);
        let variables = Variables {
            messages,
            tools: Some(&*options.tools).filter(|tools| !tools.is_empty()),
            documents: (),
            add_generation_prompt: options.add_generation_prompt,
            bos_token: self.bos(),
            eos_token: self.eos(),
            enable_thinking: options.thinking,
            time: format!("{time:?}"),
        };
        let variables = serde_json::to_vec(&variables).map_err(|error| fail(error.to_string()))?;
        match instances.render(&variables).map_err(fail)? {
            Answer::Text(text) => Ok(text),
            Answer::Limit(reason) => Err(fail(reason)),
            Answer::Refused(reason) => Err(fail(format!(
                "it rejects these messages: {reason}; change the roles or the content that the agent's prompt sends"
            ))),
        }
    }

    /// Returns the token ids of a conversation. Control tokens in the texts of messages and tools are text there: only
    /// those of the template begin and end messages.
    ///
    /// # Errors
    /// Those of [`ChatTemplate::render`] and [`Tokenizer::encode`].
    pub fn encode(
        &self,
        tokenizer: &Tokenizer,
        messages: &[ChatMessage],
        options: &RenderOptions,
    ) -> Result<Vec<u32>, Error> {
        let control = tokenizer.control_tokens();
        let messages: Vec<ChatMessage> = messages.iter().map(|one| control.mark_message(one)).collect();
        let mut options = options.clone();
        options.tools.iter_mut().for_each(|tool| control.mark_json(tool));
        tokenizer.encode_marked(&self.render(&messages, &options)?)
    }

    /// Returns the template's source, if the model has a template.
    pub fn source(&self) -> Option<&str> {
        self.instances.as_ref().map(TemplateInstances::source)
    }

    pub(crate) fn bos(&self) -> Option<&str> {
        self.bos.as_deref()
    }

    pub(crate) fn eos(&self) -> Option<&str> {
        self.eos.as_deref()
    }
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").field("model", &self.model).field("source", &self.source()).finish()
    }
}
