//! Errors of commands, their messages and their exit codes.

use std::io::Write;

use pl_run::Error;

use crate::diagnostics::{self, DiagnosticFormat};
use crate::stderr;
use crate::visible::visible;

/// Reason for which a command did not succeed.
#[derive(Debug)]
pub enum CommandError {
    /// The operation failed (exit code 1) or its input is invalid (exit code 2).
    Run(Box<Error>),
    /// A training run failed: exit code 1.
    Stopped {
        error: Box<Error>,
        /// Checkpoint that is left, and the command that continues.
        saved: String,
    },
    /// The command's own input is invalid: exit code 2.
    Input(String),
    /// The command itself failed: exit code 1.
    Failed(String),
    /// Diagnostics were already shown: exit code 2.
    Diagnosed,
    /// Ctrl-C, and what was complete has been saved: exit code 130.
    Interrupted(String),
    /// The reader of stdout is gone: exit code 0, without a message.
    PipeClosed,
}

/// Result of a command.
pub type CommandResult = Result<(), CommandError>;

impl CommandError {
    pub fn input(error: impl ToString) -> CommandError {
        CommandError::Input(error.to_string())
    }

    pub fn failed(error: impl ToString) -> CommandError {
        CommandError::Failed(error.to_string())
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> CommandError {
        CommandError::Run(Box::new(error))
    }
}

impl From<std::io::Error> for CommandError {
    /// Converts an error of writing results.
    fn from(error: std::io::Error) -> CommandError {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => CommandError::PipeClosed,
            _ => CommandError::Failed(format!("cannot write results: {error}")),
        }
    }
}

impl From<pl_toolchain::Error> for CommandError {
    /// Treats mistakes of the author as input, and tools that are missing or fail as failures.
    fn from(error: pl_toolchain::Error) -> CommandError {
        match error {
            pl_toolchain::Error::Input(_) | pl_toolchain::Error::Project { .. } => CommandError::input(error),
            _ => CommandError::failed(error),
        }
    }
}

/// Shows an error on stderr and returns the exit code.
pub fn report(result: &CommandResult) -> u8 {
    let Err(error) = result else { return 0 };
    match error {
        CommandError::PipeClosed => 0,
        CommandError::Diagnosed => 2,
        CommandError::Run(error) => {
            match error.as_ref() {
                // A stderr that can't be written to shows nothing.
                Error::Workflow(errors) => drop(diagnostics::show(errors, DiagnosticFormat::Human)),
                error => error_line(&error.to_string()),
            }
            if error.is_input() { 2 } else { 1 }
        }
        CommandError::Stopped { error, saved } => {
            error_line(&format!("{error}\n{saved}"));
            1
        }
        CommandError::Input(message) => {
            error_line(message);
            2
        }
        CommandError::Failed(message) => {
            error_line(message);
            1
        }
        CommandError::Interrupted(message) => {
            stderr::line(&visible(message));
            130
        }
    }
}

/// Writes an error's message to stderr.
fn error_line(message: &str) {
    stderr::line(&format!("error: {}", visible(message)));
}

/// Ends the process without libtorch's destructors, which are a third of what a short command takes.
pub fn leave(code: i32) -> ! {
    // What `std::process::exit` does before them. Nothing can be said about a stdout that is gone.
    let _ = std::io::stdout().flush();
    // SAFETY: No other thread needs what the destructors would free, and open files are written by their owners.
    unsafe { libc::_exit(code) }
}
