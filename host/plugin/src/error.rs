//! Errors of plugins, with messages for users of a workflow.

use pl_types::ItemKind;
use pl_wasm::{GuestFault, Stack, Store};
use thiserror::Error;

use crate::services::{self, Context, end_call};

/// A plugin that can't be used, or a call into one that failed.
#[derive(Debug, Error)]
pub enum Error {
    /// The component does not load.
    #[error("plugin {plugin}: {source}")]
    Load {
        /// The plugin's name in the workflow.
        plugin: String,
        /// Reason.
        source: pl_wasm::Error,
    },
    /// The component does not have the imports and exports of a contract that this host supports.
    #[error("plugin {plugin} ({version}) does not fit the plugin contract: {reason}")]
    Contract {
        /// The plugin's name in the workflow.
        plugin: String,
        /// The first digits of the component's hash.
        version: String,
        /// Reason and remedy.
        reason: String,
    },
    /// The plugin has no such item.
    #[error("plugin {plugin} ({version}) has no {kind} named {item}; {offered}")]
    UnknownItem {
        /// The plugin's name in the workflow.
        plugin: String,
        /// The first digits of the component's hash.
        version: String,
        /// Requested kind.
        kind: ItemKind,
        /// Requested name.
        item: String,
        /// Available items.
        offered: String,
    },
    /// A call failed. Its instance is gone; other instances of the plugin are unaffected.
    #[error(transparent)]
    Call(Box<CallError>),
}

/// A failed call into a plugin.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{plugin}{}{item} ({version}), {function}: {cause}{stack}{}", if item.is_empty() { "" } else { "." }, indent_output(output))]
pub struct CallError {
    /// The plugin's name in the workflow.
    pub plugin: String,
    /// The first digits of the component's hash.
    pub version: String,
    /// The item; empty for `describe`.
    pub item: String,
    /// The contract's function.
    pub function: &'static str,
    /// Reason of the failure.
    pub cause: Cause,
    /// Stack trace; empty unless the plugin trapped.
    pub stack: Stack,
    /// Last output of the failed call: its last warning and the end of its stderr.
    pub output: String,
}

fn indent_output(output: &str) -> String {
    output.lines().map(|line| format!("\n  plugin output: {line}")).collect()
}

/// A cause with the guest's stack and output, from which a [`CallError`] is made.
#[derive(Debug)]
pub(crate) struct CallFailure {
    pub cause: Cause,
    pub stack: Stack,
    pub output: String,
}

impl CallFailure {
    /// Creates the failure of a call that returned an invalid value.
    pub(crate) fn invalid(violation: impl std::error::Error) -> Self {
        Cause::Invalid(shortened(violation.to_string())).into()
    }

    /// Creates the failure of a call that ended with a fault.
    pub(crate) fn fault(fault: GuestFault, store: &mut Store<Context>) -> Self {
        let output = services::last_output(end_call(store));
        Self { cause: fault.into(), stack: store.data_mut().take_stack(), output }
    }
}

impl From<Cause> for CallFailure {
    fn from(cause: Cause) -> Self {
        Self { cause, stack: Stack::default(), output: String::new() }
    }
}

impl Error {
    /// Returns `true` if the same call fails in the same way on every machine.
    pub fn reproducible(&self) -> bool {
        match self.cause() {
            Some(Cause::Fault(fault)) => fault.reproducible(),
            _ => true,
        }
    }

    /// Returns the plugin's own error. Returns `None` if the call failed for another reason.
    pub fn refusal(&self) -> Option<(RefusalKind, &str)> {
        match self.cause()? {
            Cause::Refused { kind, message } => Some((*kind, message)),
            _ => None,
        }
    }

    /// Returns `true` if the plugin has refused an item's settings, for example because one without a default is missing.
    pub(crate) fn refuses_settings(&self) -> bool {
        matches!(self.refusal(), Some((RefusalKind::Settings, _)))
    }

    /// Returns the reason of a failed call. Returns `None` for other errors.
    pub fn cause(&self) -> Option<&Cause> {
        match self {
            Self::Call(call) => Some(&call.cause),
            _ => None,
        }
    }
}

/// Largest number of characters of a message that has text of a plugin. Messages are shown, recorded and repeated.
const LONGEST_MESSAGE: usize = 4000;

/// Cuts a message that is too long, and says how much is missing.
pub(crate) fn shortened(mut message: String) -> String {
    if let Some((end, _)) = message.char_indices().nth(LONGEST_MESSAGE) {
        let missing = message[end..].chars().count();
        message.truncate(end);
        message.push_str(&format!("… ({missing} more characters)"));
    }
    message
}

/// Reason of a failed call.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Cause {
    /// The host ended the call, or the plugin trapped.
    #[error(transparent)]
    Fault(#[from] GuestFault),
    /// The plugin returned an error of its own.
    #[error("{}{message}", kind.prefix())]
    Refused {
        /// Subject of the error.
        kind: RefusalKind,
        /// The plugin's message.
        message: String,
    },
    /// The plugin returned a value that violates the contract.
    #[error("the plugin returned a value that violates the plugin contract: {0}")]
    Invalid(String),
    /// The episode's instance was lost in an earlier call.
    #[error(
        "an earlier call of this episode failed, and its state is lost; restore it from a snapshot or start a new episode"
    )]
    Lost,
}

/// Subject of a plugin's own error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefusalKind {
    /// The item's settings.
    Settings,
    /// The task's record.
    Task,
    /// The plugin itself.
    Internal,
}

impl RefusalKind {
    fn prefix(self) -> &'static str {
        match self {
            Self::Settings => "invalid settings: ",
            Self::Task => "invalid task: ",
            Self::Internal => "the plugin reported: ",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_cut() {
        let short = "ü".repeat(LONGEST_MESSAGE);
        assert_eq!(shortened(short.clone()), short);
        assert_eq!(shortened(format!("{short}xyz")), format!("{short}… (3 more characters)"));
    }
}
