//! How a command ends: its exit code and what a person reads.

use std::process::ExitCode;

/// Why a command did not finish.
#[derive(Debug)]
pub enum Stop {
    /// The input is wrong: exit code 2.
    Input(String),
    /// Diagnostics have been written already: exit code 2.
    Diagnosed,
    /// The run failed: exit code 1.
    Failed(String),
    /// Ctrl-C, after the state was saved: exit code 130.
    Interrupted(String),
    /// Nobody reads our output any more: quietly done.
    PipeClosed,
}

pub type Outcome = Result<(), Stop>;

impl Stop {
    pub fn input(error: impl ToString) -> Stop {
        Stop::Input(error.to_string())
    }

    pub fn failed(error: impl ToString) -> Stop {
        Stop::Failed(error.to_string())
    }
}

impl From<std::io::Error> for Stop {
    /// Of writing results: a closed pipe is no error.
    fn from(error: std::io::Error) -> Stop {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Stop::PipeClosed,
            _ => Stop::Failed(format!("cannot write results: {error}")),
        }
    }
}

impl From<pl_trainer::Error> for Stop {
    fn from(error: pl_trainer::Error) -> Stop {
        Stop::failed(error)
    }
}

impl From<pl_record::Error> for Stop {
    fn from(error: pl_record::Error) -> Stop {
        Stop::failed(error)
    }
}

impl From<pl_toolchain::Error> for Stop {
    /// What an author wrote wrongly is input; a tool that is missing or fails is not.
    fn from(error: pl_toolchain::Error) -> Stop {
        match error {
            pl_toolchain::Error::Input(_) | pl_toolchain::Error::Project { .. } => Stop::input(error),
            _ => Stop::failed(error),
        }
    }
}

pub fn report(result: Outcome) -> ExitCode {
    match result {
        Ok(()) | Err(Stop::PipeClosed) => ExitCode::SUCCESS,
        Err(Stop::Diagnosed) => ExitCode::from(2),
        Err(Stop::Input(message)) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
        Err(Stop::Failed(message)) => {
            eprintln!("error: {message}");
            ExitCode::from(1)
        }
        Err(Stop::Interrupted(message)) => {
            eprintln!("{message}");
            ExitCode::from(130)
        }
    }
}
