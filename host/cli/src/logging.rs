//! Log messages on stderr, and spans for a collector.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::sync::Arc;

use pl_rollout::SPAN_TARGET;
use pl_telemetry::OtlpExporter;
use tracing::Metadata;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};

use crate::arguments::Command;
use crate::exit::CommandError;
use crate::progress::Terminal;
use crate::stderr;

/// Environment variable with the filter of the messages.
const FILTER: &str = "PL_HOST_LOG";

/// Name of the program in a collector.
const SERVICE: &str = "pl-host";

/// Starts to write log messages, and to send spans if the command names a collector.
///
/// # Errors
/// If the collector's address is not one, or the filter of the messages is invalid.
pub fn start(command: &Command, terminal: &Arc<Terminal>) -> Result<Option<OtlpExporter>, CommandError> {
    let endpoint = match command {
        Command::Run(options) => options.otlp.as_deref(),
        _ => None,
    };
    let exporter = endpoint.map(|endpoint| OtlpExporter::start(endpoint, SERVICE)).transpose();
    let exporter = exporter.map_err(CommandError::input)?;
    let filter = filter(std::env::var_os(FILTER).as_deref())?;
    let written = fmt::layer()
        .with_writer(messages_on(terminal))
        // Only for a terminal, and not with `NO_COLOR`.
        .with_ansi(console::colors_enabled_stderr())
        .with_target(false)
        // It would be written by `eprintln!`.
        .log_internal_errors(false)
        .with_filter(filter);
    let spans = exporter.as_ref().map(|exporter| exporter.layer().with_filter(filter_fn(is_of_run)));
    tracing_subscriber::registry().with(written).with(spans).init();
    Ok(exporter)
}

/// Returns the filter of the messages: warnings and errors, or what the variable says.
///
/// # Errors
/// [`CommandError::Input`] if it is invalid.
fn filter(text: Option<&OsStr>) -> Result<EnvFilter, CommandError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(EnvFilter::new("warn")) };
    EnvFilter::try_new(text.to_string_lossy()).map_err(|error| {
        let shown = text.display();
        CommandError::input(format!(
            "{FILTER}={shown}: {error}; write `error`, `warn`, `info`, `debug` or `trace`, or such a level for some \
             modules as in `warn,pl_run=debug`"
        ))
    })
}

/// Returns a writer of messages that hides the bars of the terminal meanwhile.
fn messages_on(terminal: &Arc<Terminal>) -> impl Fn() -> Messages + Send + Sync + use<> {
    let terminal = Arc::clone(terminal);
    move || Messages(Arc::clone(&terminal))
}

struct Messages(Arc<Terminal>);

impl Write for Messages {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Returns true for the spans of a run, and false for those of libraries and for messages.
fn is_of_run(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && metadata.target() == SPAN_TARGET
}

/// Sends the last spans and reports how many there were.
pub fn finish(exporter: OtlpExporter) {
    let (sent, lost) = exporter.finish();
    match lost {
        0 => stderr::line(&format!("{sent} spans sent")),
        lost => stderr::line(&format!("{sent} spans sent, {lost} lost")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_filter_is_refused_by_the_name_of_its_variable() {
        for (text, expected) in [
            (None, "warn"),
            (Some(""), "warn"),
            (Some("debug"), "debug"),
            (Some("pl_run=info"), "pl_run=info"),
        ] {
            let found = filter(text.map(OsStr::new)).map(|filter| filter.to_string());
            assert!(matches!(&found, Ok(found) if found == expected), "{text:?}: {found:?}");
        }
        let Err(CommandError::Input(why)) = filter(Some(OsStr::new("warn,pl_run=loud"))) else {
            panic!("an invalid filter is accepted")
        };
        assert!(why.starts_with("PL_HOST_LOG=warn,pl_run=loud: "), "{why}");
    }
}
