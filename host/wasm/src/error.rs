//! What can go wrong: before a guest runs ([`Error`]) and while it runs ([`Fault`]).

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;
use wasmtime::{PoolConcurrencyLimitError, Trap};

use crate::limits::{Refused, Short};

/// An engine or a component that can't be had.
#[derive(Debug, Error)]
pub enum Error {
    /// The process can't get what the configuration asks for, such as address space.
    #[error(
        "the WebAssembly engine does not start: {0}; on a machine with little address space, lower the number of instances"
    )]
    Engine(String),
    /// The bytes are no component at all.
    #[error("{name} is not a WebAssembly component: {what}; {advice}")]
    NotAComponent {
        /// The file or plugin, as the caller named it.
        name: String,
        /// What the bytes look like instead.
        what: &'static str,
        /// What to do next.
        advice: &'static str,
    },
    /// It says that it is a component, but the engine can't compile it.
    #[error(
        "{name} does not compile: {reason}; it may be cut short or made for another contract, so build or fetch it again"
    )]
    Damaged {
        /// The file or plugin, as the caller named it.
        name: String,
        /// The engine's words.
        reason: String,
    },
    /// The cache folder can't be made.
    #[error("the compile cache {} can't be used: {source}; give another folder or remove it", path.display())]
    Cache {
        /// The folder.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
}

/// How a call into a guest ended other than by returning. The instance must not be used again.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Fault {
    /// The deterministic limit on work: the same call ends at the same instruction everywhere.
    #[error("it used up its {fuel} units of fuel: it loops, or needs a larger `fuel`")]
    OutOfFuel {
        /// Units given to the call.
        fuel: u64,
    },
    /// The wall-clock backstop. The only fault that depends on the machine.
    #[error("it ran longer than {} s on the clock before its fuel was used up (this ending is not reproducible); raise `timeout` or lower `fuel`", after.as_secs_f64())]
    Timeout {
        /// The limit.
        after: Duration,
    },
    /// It asked for more linear memory than its limit and could not go on without.
    #[error("it needs more than its {limit} bytes of memory: raise `memory`")]
    Memory {
        /// Bytes of linear memory allowed.
        limit: u64,
    },
    /// It asked for a larger table than its limit and could not go on without.
    #[error("it needs a table of more than {limit} elements")]
    Table {
        /// Elements allowed.
        limit: u32,
    },
    /// The machine has less memory left than the guest's limit. Depends on the machine.
    #[error("{0}: run fewer episodes at a time, or lower `memory` (this ending is not reproducible)")]
    Short(String),
    /// Calls nested too deeply.
    #[error("its calls nest too deeply: the stack is full")]
    Stack,
    /// It handed the host more bytes in one call than its limit.
    #[error("it handed over more than {limit} bytes in one call")]
    Returned {
        /// Bytes allowed.
        limit: u64,
    },
    /// It did what the component model forbids: handed over a text that is not UTF-8, a list outside of its memory, a
    /// variant without such a case, a handle that is none, or took more handles than there are.
    #[error("it broke the rules of the component model: {0}")]
    Rules(String),
    /// Any other trap: a panic, a division by zero, an access out of bounds.
    #[error("it trapped: {0}")]
    Trap(String),
    /// It asked to end the process.
    #[error("it left with exit code {0}")]
    Exit(i32),
    /// A function of the host refused; see [`HostError`].
    #[error("{0}")]
    Host(String),
    /// The host's own side of the call failed: the pool of instances has no room.
    #[error("the call could not be made: {0}")]
    Call(String),
}

impl Fault {
    /// Whether the same call ends in the same way on every machine.
    pub fn reproducible(&self) -> bool {
        !matches!(self, Self::Timeout { .. } | Self::Short(_))
    }
}

/// What a host function raises to end the guest's call with [`Fault::Host`].
#[derive(Debug, Clone, Error)]
#[error("{0}")]
pub struct HostError(pub String);

/// Raised by the epoch callback when the deadline has passed.
#[derive(Debug, Error)]
#[error("the wall-clock limit has passed")]
pub(crate) struct Late;

/// What is known of the call that failed, for [`classify`].
pub(crate) struct Circumstances {
    pub fuel: u64,
    pub timeout: Duration,
    pub memory: u64,
    pub table: u32,
    pub returned: u64,
    /// What the limiter has refused during the call.
    pub refused: Option<Refused>,
}

/// Turns the engine's error into a fault.
pub(crate) fn classify(error: &wasmtime::Error, at: &Circumstances) -> Fault {
    if error.downcast_ref::<Late>().is_some() {
        return Fault::Timeout { after: at.timeout };
    }
    if let Some(refused) = error.downcast_ref::<HostError>() {
        return Fault::Host(refused.0.clone());
    }
    if let Some(exit) = error.downcast_ref::<wasmtime_wasi::I32Exit>() {
        return Fault::Exit(exit.0);
    }
    if let Some(short) = error.downcast_ref::<Short>() {
        return Fault::Short(short.to_string());
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => Fault::OutOfFuel { fuel: at.fuel },
        Some(Trap::Interrupt) => Fault::Timeout { after: at.timeout },
        Some(Trap::StackOverflow) => Fault::Stack,
        // A guest whose allocation failed aborts, which is a trap like any other.
        _ if at.refused == Some(Refused::Memory) => Fault::Memory { limit: at.memory },
        _ if at.refused == Some(Refused::Table) => Fault::Table { limit: at.table },
        Some(trap) => Fault::Trap(trap.to_string()),
        None => {
            let words = format!("{error:#}");
            if words.contains("fuel allocated for hostcalls has been exhausted") {
                Fault::Returned { limit: at.returned }
            } else if error.is::<PoolConcurrencyLimitError>() {
                Fault::Call(words)
            } else {
                // What is left the engine refused to read or to do.
                Fault::Rules(words)
            }
        }
    }
}
