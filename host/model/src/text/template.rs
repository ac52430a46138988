//! Chat templates: from messages to the text format of a model.
//!
//! Templates are Jinja, in the dialect of Hugging Face's `apply_chat_template`: trimmed blocks, Python string
//! methods, `raise_exception`, `strftime_now`, and values in Python's notation.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use chrono::{NaiveDate, NaiveTime, Utc};
use minijinja::value::ValueKind;
use minijinja::{Environment, Error as JinjaError, ErrorKind, State, Value};

use crate::error::Error;
use crate::text::chat::{ChatMessage, RenderOptions};
use crate::text::python_format;

/// Name of the variable with the date for `strftime_now`. Templates can't name it.
const DATE: &str = "the date";

/// A model's chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    model: String,
    source: Option<String>,
    bos: Option<String>,
    eos: Option<String>,
    environment: Environment<'static>,
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
        let mut environment = jinja_environment();
        if let Some(source) = &source {
            environment.add_template_owned("chat", source.clone()).map_err(|e| Error::Template {
                model: model.clone(),
                reason: format!(
                    "{}; put a supported template into the model's folder as chat_template.jinja",
                    explain(&e)
                ),
            })?;
        }
        Ok(Self { model, source, bos, eos, environment })
    }

    /// Renders a conversation. The text equals that of transformers' `apply_chat_template(tokenize=False)`.
    ///
    /// # Errors
    /// [`Error::Template`] if the model has no template, or if the template rejects the messages.
    pub fn render(&self, messages: &[ChatMessage], options: &RenderOptions) -> Result<String, Error> {
        let fail = |reason: String| Error::Template { model: self.model.clone(), reason };
        if self.source.is_none() {
            return Err(fail("the model has no template; use a chat (instruct) model".into()));
        }
        let list = |values: &[serde_json::Value]| match values {
            [] => Value::from(()),
            some => Value::from_serialize(some),
        };
        let mut context = BTreeMap::from([
            ("messages", Value::from_serialize(messages)),
            ("tools", list(&options.tools)),
            ("documents", Value::from(())),
            ("add_generation_prompt", options.add_generation_prompt.into()),
        ]);
        // Missing values stay undefined, which templates test with `is defined`.
        let optional = [
            ("bos_token", self.bos.clone().map(Value::from)),
            ("eos_token", self.eos.clone().map(Value::from)),
            ("enable_thinking", options.thinking.map(Value::from)),
            (DATE, options.date.map(|date| date.to_string().into())),
        ];
        context.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
        self.environment.get_template("chat").and_then(|template| template.render(context)).map_err(|e| {
            fail(format!(
                "it rejects these messages: {}; change the roles or the content that the agent's prompt sends",
                explain(&e)
            ))
        })
    }

    /// Returns the template's source, if the model has a template.
    pub fn source(&self) -> Option<&str> {
        self.source.as_deref()
    }

    pub(crate) fn bos(&self) -> Option<&str> {
        self.bos.as_deref()
    }

    pub(crate) fn eos(&self) -> Option<&str> {
        self.eos.as_deref()
    }
}

fn jinja_environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_formatter(python_format::print);
    environment.add_filter("tojson", python_format::tojson);
    // Python strings are iterable, and templates rely on it.
    environment.add_test("iterable", |value: &Value| {
        value.kind() == ValueKind::String || value.try_iter().is_ok_and(|_| !value.is_undefined())
    });
    environment.add_function("raise_exception", |message: String| -> Result<Value, JinjaError> {
        Err(JinjaError::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", strftime_now);
    environment
}

/// Formats the conversation's date, or the current time.
fn strftime_now(state: &State, format: String) -> Result<String, JinjaError> {
    let date = state.lookup(DATE).and_then(|date| date.as_str()?.parse::<NaiveDate>().ok());
    let time = date.map_or_else(Utc::now, |date| date.and_time(NaiveTime::MIN).and_utc());
    let mut text = String::new();
    write!(text, "{}", time.format(&format)).map_err(|_| {
        JinjaError::new(ErrorKind::InvalidOperation, format!("{format:?} is not a date format"))
    })?;
    Ok(text)
}

fn explain(error: &JinjaError) -> String {
    let message = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    match error.line() {
        Some(line) => format!("line {line}: {message}"),
        None => message,
    }
}
