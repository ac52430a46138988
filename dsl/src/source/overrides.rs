//! Overrides of params and settings, given by `--set`, a file, or environment variables.

use std::fmt;

/// Prefix of environment variables that override params.
pub const VARIABLE: &str = "PL_HOST_PARAM_";

/// One `PATH=VALUE` given from outside of the workflow file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    /// A param's name, or a dotted path to a setting.
    pub path: String,
    /// Value as given. Text needs no quotes.
    pub value: String,
    /// Name of the override in messages, such as `--set samples=8`.
    pub shown: String,
    /// True if it is ignored when the workflow has no such param: environment variables may be meant for other workflows.
    pub optional: bool,
}

/// Error for an override that is not a `PATH=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OverrideError {
    /// There is no `=`, or nothing before it. Has the text as given.
    #[error("`{0}` has no value: give a param as `NAME=VALUE` and a setting as `BLOCK.SETTING=VALUE`")]
    NoValue(String),
    /// A line in a file of overrides is not well written, for example because a bracket has no counterpart. Has the file and
    /// the line, and the mistake.
    #[error(
        "{place}: {mistake} (a text with brackets or quotes in it needs quotes around it: `NAME = \"a }}\"`)"
    )]
    Syntax {
        /// File and line.
        place: String,
        /// Mistake in one sentence.
        mistake: String,
    },
}

impl std::str::FromStr for Override {
    type Err = OverrideError;

    /// Parses the argument of `--set`.
    fn from_str(given: &str) -> Result<Self, Self::Err> {
        let shown = format!("--set {given}");
        match given.split_once('=').map(|(path, value)| (path.trim(), value.trim())) {
            Some((path, value)) if !path.is_empty() => {
                Ok(Override { path: path.to_owned(), value: value.to_owned(), shown, optional: false })
            }
            _ => Err(OverrideError::NoValue(shown)),
        }
    }
}

impl Override {
    /// Creates an override from an environment variable named [`VARIABLE`] plus the name of a param. Returns `None` for
    /// other variables.
    pub fn from_variable(name: &str, value: &str) -> Option<Override> {
        let path = name.strip_prefix(VARIABLE).filter(|path| !path.is_empty())?;
        let shown = format!("{name}={value}");
        Some(Override { path: path.to_owned(), value: value.to_owned(), shown, optional: true })
    }
}

impl fmt::Display for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}
