//! Chat templates: messages to the text that the model was trained on.
//!
//! Templates are Jinja, in the dialect of Hugging Face's `apply_chat_template`: trimmed blocks, Python string
//! methods, `raise_exception`, `strftime_now`, and a `tojson` that writes as Python's `json.dumps` does.

use minijinja::{Environment, ErrorKind, Value, context};
use serde::Serialize;

use crate::Error;

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChatMessage {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// Its text.
    pub content: String,
}

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
    /// tokens. A model may come without a template; then rendering is an error.
    ///
    /// # Errors
    /// [`Error::Template`] when the template does not parse.
    pub fn new(
        model: impl Into<String>,
        source: Option<String>,
        bos: Option<String>,
        eos: Option<String>,
    ) -> Result<Self, Error> {
        let model = model.into();
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |message: String| -> Result<Value, minijinja::Error> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
        });
        environment
            .add_function("strftime_now", |format: String| chrono::Local::now().format(&format).to_string());
        environment.add_filter("tojson", python_json);
        if let Some(source) = &source {
            environment
                .add_template_owned("chat", source.clone())
                .map_err(|e| Error::Template { model: model.clone(), reason: explain(&e) })?;
        }
        Ok(Self { model, source, bos, eos, environment })
    }

    /// The text of a conversation; with `add_generation_prompt`, up to where the assistant's answer begins.
    ///
    /// # Errors
    /// [`Error::Template`] when the model has no template, or when the template refuses the messages.
    pub fn render(&self, messages: &[ChatMessage], add_generation_prompt: bool) -> Result<String, Error> {
        let fail = |reason: String| Error::Template { model: self.model.clone(), reason };
        if self.source.is_none() {
            return Err(fail("the model has none; use a chat (instruct) model".into()));
        }
        self.environment
            .get_template("chat")
            .and_then(|template| {
                template.render(context! {
                    messages,
                    add_generation_prompt,
                    bos_token => self.bos,
                    eos_token => self.eos,
                    tools => Value::from(()),
                    documents => Value::from(()),
                })
            })
            .map_err(|e| fail(explain(&e)))
    }

    /// The template as written, where the model has one.
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

fn explain(error: &minijinja::Error) -> String {
    let what = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    match error.line() {
        Some(line) => format!("line {line}: {what}"),
        None => what,
    }
}

/// `json.dumps(value, ensure_ascii=False, indent=indent)`.
fn python_json(value: &Value, options: minijinja::value::Kwargs) -> Result<Value, minijinja::Error> {
    let bad = |e: serde_json::Error| minijinja::Error::new(ErrorKind::BadSerialization, e.to_string());
    let indent: Option<usize> = options.get("indent")?;
    let mut out = Vec::new();
    match indent {
        Some(width) => {
            let spaces = " ".repeat(width);
            let formatter = serde_json::ser::PrettyFormatter::with_indent(spaces.as_bytes());
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, formatter)).map_err(bad)?;
        }
        None => {
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, Spaced)).map_err(bad)?;
        }
    }
    Ok(Value::from_safe_string(String::from_utf8_lossy(&out).into_owned()))
}

/// Python's separators: a space after commas and colons.
struct Spaced;

impl serde_json::ser::Formatter for Spaced {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, writer: &mut W) -> std::io::Result<()> {
        writer.write_all(b": ")
    }
}
