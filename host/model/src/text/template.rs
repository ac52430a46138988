//! Chat templates: from messages to the text format of a model.
//!
//! Templates are Jinja, in the dialect of Hugging Face's `apply_chat_template`: trimmed blocks, Python string
//! methods, `raise_exception`, `strftime_now`, and values in Python's notation.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;

use chrono::{NaiveDate, NaiveTime, Utc};
use minijinja::value::ValueKind;
use minijinja::{Environment, Error as JinjaError, ErrorKind, Output, State, Value};

use crate::error::Error;
use crate::text::chat::{ChatMessage, RenderOptions};
use crate::text::python_format;
use crate::text::tokenizer::Tokenizer;

/// Name of the variable with the date for `strftime_now`. Templates can't name it.
const DATE: &str = "the date";

/// Instructions of one rendering, about half a second. A conversation of a thousand messages takes some ten thousands.
const FUEL: u64 = 5_000_000;

/// Largest size of a rendered conversation and of a printed value, in bytes. The longest contexts have a few megabytes.
const MOST_BYTES: usize = 16 << 20;

/// Deepest recursion of macros. Those of templates describe the nested types of tools.
const MOST_RECURSION: usize = 100;

/// Longest format of a date, in bytes.
const LONGEST_DATE_FORMAT: usize = 256;

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
        let mut text = BoundedText::default();
        let rendered = self.environment.get_template("chat");
        let rendered = rendered.and_then(|chat| chat.render_captured_to(context, &mut text).map(drop));
        match rendered {
            Ok(()) => Ok(String::from_utf8_lossy(&text.bytes).into_owned()),
            Err(error) if text.is_full || error.kind() == ErrorKind::OutOfFuel => {
                let limit = if text.is_full { "writes too much" } else { "does not end" };
                Err(fail(format!("it {limit} (line {})", error.line().unwrap_or_default())))
            }
            Err(error) => Err(fail(format!(
                "it rejects these messages: {}; change the roles or the content that the agent's prompt sends",
                explain(&error)
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
        self.source.as_deref()
    }

    pub(crate) fn bos(&self) -> Option<&str> {
        self.bos.as_deref()
    }

    pub(crate) fn eos(&self) -> Option<&str> {
        self.eos.as_deref()
    }
}

/// Rendered text, up to [`MOST_BYTES`].
#[derive(Default)]
struct BoundedText {
    bytes: Vec<u8>,
    is_full: bool,
}

impl io::Write for BoundedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > MOST_BYTES {
            self.is_full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn jinja_environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(MOST_RECURSION);
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_formatter(print_bounded);
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

/// Prints a value in Python's notation, unless it is too long: blocks that are kept as texts must not double each other.
fn print_bounded(out: &mut Output, state: &State, value: &Value) -> Result<(), JinjaError> {
    if value.as_str().is_some_and(|text| text.len() > MOST_BYTES) {
        return Err(JinjaError::new(ErrorKind::InvalidOperation, "a text is too long"));
    }
    python_format::print(out, state, value)
}

/// Formats the conversation's date, or the current time.
fn strftime_now(state: &State, format: String) -> Result<String, JinjaError> {
    if format.len() > LONGEST_DATE_FORMAT {
        return Err(JinjaError::new(ErrorKind::InvalidOperation, "the format of the date is too long"));
    }
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// The control of `hostile_templates_end_soon_with_an_error`.
    #[test]
    fn without_a_limit_a_hostile_template_goes_on() {
        let many = "{% for a in range(10000) %}";
        let source = format!("{many}{many}{many}{{% endfor %}}{{% endfor %}}{{% endfor %}}");
        let render = |fuel| {
            let mut environment = jinja_environment();
            environment.set_fuel(fuel);
            environment.add_template_owned("chat", source.clone()).unwrap();
            let (sender, ended) = mpsc::channel();
            // It ends with the process of the test.
            std::thread::spawn(move || {
                let rendered = environment.get_template("chat").unwrap().render(());
                let _ = sender.send(rendered.unwrap_err().kind());
            });
            ended.recv_timeout(Duration::from_secs(if fuel.is_some() { 60 } else { 2 }))
        };
        assert_eq!(render(Some(FUEL)), Ok(ErrorKind::OutOfFuel));
        assert_eq!(render(None), Err(mpsc::RecvTimeoutError::Timeout));
    }
}
