//! What can go wrong with a plugin, in words for the person whose workflow uses it.

use pl_types::ItemKind;
use pl_wasm::{Fault, Stack, Store};
use thiserror::Error;

use crate::services::{self, Context, settle};

/// A plugin that can't be used, or a call into one that failed.
#[derive(Debug, Error)]
pub enum Error {
    /// The component does not load.
    #[error("plugin {plugin}: {source}")]
    Load {
        /// The plugin's name in the workflow.
        plugin: String,
        /// Why.
        source: pl_wasm::Error,
    },
    /// The component does not have the imports and exports of a contract that this host speaks.
    #[error("plugin {plugin} ({version}) does not fit the plugin contract: {reason}")]
    Contract {
        /// The plugin's name in the workflow.
        plugin: String,
        /// The first digits of the component's hash.
        version: String,
        /// What does not fit, and what to do.
        reason: String,
    },
    /// The plugin has no such item.
    #[error("plugin {plugin} ({version}) has no {kind} named {item}; {offered}")]
    UnknownItem {
        /// The plugin's name in the workflow.
        plugin: String,
        /// The first digits of the component's hash.
        version: String,
        /// What was asked for.
        kind: ItemKind,
        /// What was asked for.
        item: String,
        /// What there is.
        offered: String,
    },
    /// A call failed. The instance that it ran in is gone; others of the same plugin are untouched.
    #[error(transparent)]
    Call(Box<CallError>),
}

/// A call into a plugin that failed, and where.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{plugin}{}{item} ({version}), {function}: {cause}{stack}{}", if item.is_empty() { "" } else { "." }, last_words(said))]
pub struct CallError {
    /// The plugin's name in the workflow.
    pub plugin: String,
    /// The first digits of the component's hash.
    pub version: String,
    /// The item; empty for `describe`.
    pub item: String,
    /// The contract's function.
    pub function: &'static str,
    /// What happened.
    pub cause: Cause,
    /// Where the plugin stood; empty unless it trapped.
    pub stack: Stack,
    /// What it wrote last, to stderr or as a warning, in the call that failed.
    pub said: String,
}

fn last_words(said: &str) -> String {
    said.lines().map(|line| format!("\n  it said: {line}")).collect()
}

/// A cause with what is known of the guest, on its way to a [`CallError`].
#[derive(Debug)]
pub(crate) struct Failed {
    pub cause: Cause,
    pub stack: Stack,
    pub said: String,
}

impl Failed {
    /// What the contract forbids was returned.
    pub(crate) fn invalid(words: String) -> Self {
        Cause::Invalid(words).into()
    }

    /// The call into `store` ended with `fault`.
    pub(crate) fn fault(fault: Fault, store: &mut Store<Context>) -> Self {
        let said = services::said_last(settle(store));
        Self { cause: fault.into(), stack: store.data_mut().take_stack(), said }
    }
}

impl From<Cause> for Failed {
    fn from(cause: Cause) -> Self {
        Self { cause, stack: Stack::default(), said: String::new() }
    }
}

impl Error {
    /// Whether the same call fails in the same way on every machine.
    pub fn reproducible(&self) -> bool {
        match self.cause() {
            Some(Cause::Fault(fault)) => fault.reproducible(),
            _ => true,
        }
    }

    /// What the plugin itself refused, where it did.
    pub fn refusal(&self) -> Option<(RefusalKind, &str)> {
        match self.cause()? {
            Cause::Refused { kind, message } => Some((*kind, message)),
            _ => None,
        }
    }

    /// Why the call failed, where it was a call.
    pub fn cause(&self) -> Option<&Cause> {
        match self {
            Self::Call(call) => Some(&call.cause),
            _ => None,
        }
    }
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Cause {
    /// It did not come to an end by itself.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The plugin answered with an error of its own.
    #[error("{}{message}", kind.lead())]
    Refused {
        /// What it is about.
        kind: RefusalKind,
        /// The plugin's words.
        message: String,
    },
    /// It returned what the contract forbids.
    #[error("it returned what the plugin contract forbids: {0}")]
    Invalid(String),
    /// The episode's instance was lost in an earlier call.
    #[error(
        "an earlier call of this episode failed, and its state is lost; restore it from a snapshot or start anew"
    )]
    Lost,
}

/// What a plugin's refusal is about.
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
    fn lead(self) -> &'static str {
        match self {
            Self::Settings => "its settings do not fit: ",
            Self::Task => "the task does not fit: ",
            Self::Internal => "it gave up: ",
        }
    }
}
