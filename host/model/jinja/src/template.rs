//! A template, and its renderings.

use std::io;

use minijinja::{Environment, Error, ErrorKind, Value};

use crate::dialect::{MOST_BYTES, environment};

/// A parsed template.
#[derive(Debug)]
pub struct Template {
    environment: Environment<'static>,
}

/// Reason for which a conversation is not rendered.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The template raises an exception, or does what can't be done with these values.
    Refused(String),
    /// It ran into a limit: the limit, and the line.
    Limit(String),
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// A message with the line of the mistake.
    pub fn parse(source: String) -> Result<Self, String> {
        let mut environment = environment();
        environment.add_template_owned("chat", source).map_err(|error| explain(&error))?;
        Ok(Self { environment })
    }

    /// Renders a conversation: `context` is a JSON object of the template's variables.
    ///
    /// # Errors
    /// [`Failure`], with the line of the template.
    pub fn render(&self, context: &[u8]) -> Result<String, Failure> {
        let refuse = |error: Error| Failure::Refused(explain(&error));
        let context: Value =
            serde_json::from_slice(context).map_err(|error| Failure::Refused(error.to_string()))?;
        let mut text = BoundedText::default();
        let chat = self.environment.get_template("chat").map_err(refuse)?;
        match chat.render_captured_to(context, &mut text) {
            Ok(_) => String::from_utf8(text.bytes).map_err(|error| Failure::Refused(error.to_string())),
            Err(error) if text.is_full || error.kind() == ErrorKind::OutOfFuel => {
                let limit = if text.is_full { "writes too much" } else { "does not end" };
                Err(Failure::Limit(format!("it {limit} (line {})", error.line().unwrap_or_default())))
            }
            Err(error) => Err(refuse(error)),
        }
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

fn explain(error: &Error) -> String {
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
        let render = |is_limited: bool| {
            let mut template = Template::parse(source.clone()).unwrap();
            if !is_limited {
                template.environment.set_fuel(None);
            }
            let (sender, ended) = mpsc::channel();
            // It ends with the process of the test.
            std::thread::spawn(move || {
                let _ = sender.send(template.render(b"{}").unwrap_err());
            });
            ended.recv_timeout(Duration::from_secs(if is_limited { 60 } else { 2 }))
        };
        assert_eq!(render(true), Ok(Failure::Limit("it does not end (line 1)".to_owned())));
        assert_eq!(render(false), Err(mpsc::RecvTimeoutError::Timeout));
    }
}
