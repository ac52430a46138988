//! Errors before a guest runs ([`Error`]) and while it runs ([`GuestFault`]).

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;
use wasmtime::{PoolConcurrencyLimitError, Trap};

use crate::limits::{OutOfMachineMemory, Refused};

/// An engine that can't start or a component that can't be loaded.
#[derive(Debug, Error)]
pub enum Error {
    /// The process lacks a resource that the configuration needs, such as address space.
    #[error(
        "the WebAssembly engine does not start: {0}; on a machine with little address space, lower the number of instances"
    )]
    Engine(String),
    /// The bytes are not a component.
    #[error("{name} is not a WebAssembly component: {what}; {advice}")]
    NotAComponent {
        /// The file or plugin, as the caller named it.
        name: String,
        /// Kind of file that the bytes seem to be.
        what: &'static str,
        /// Advice for the user.
        advice: &'static str,
    },
    /// The header is that of a component, but the engine can't compile it.
    #[error(
        "{name} does not compile: {reason}; it may be cut short or made for another contract, so build or fetch it again"
    )]
    Damaged {
        /// The file or plugin, as the caller named it.
        name: String,
        /// Message of the engine.
        reason: String,
    },
    /// Compiling it would take too much memory or time.
    #[error(
        "{name} is too much to compile: {reason}; build it with optimisation, or divide it into several components"
    )]
    TooMuchToCompile {
        /// The file or plugin, as the caller named it.
        name: String,
        /// The limit, and what the component has.
        reason: String,
    },
    /// The cache folder can't be created.
    #[error("the compile cache {} can't be used: {source}; remove it, or set PL_HOST_CACHE to a folder that you can write to", path.display())]
    Cache {
        /// The folder.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
}

/// Reasons for which a call into a guest ended without a result. The instance must not be used again.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GuestFault {
    /// The deterministic limit on work: the same call ends at the same instruction everywhere.
    #[error("it used up its {fuel} units of fuel: it loops, or needs a larger `fuel`")]
    OutOfFuel {
        /// Units given to the call.
        fuel: u64,
    },
    /// The wall-clock backstop. Depends on the machine.
    #[error("it ran longer than {} s on the clock before its fuel was used up (not reproducible); raise `timeout` or lower `fuel`", after.as_secs_f64())]
    Timeout {
        /// The limit.
        after: Duration,
    },
    /// It waited in the host, for example for responses over HTTP. Depends on the machine.
    #[error("its waits for HTTP took longer than {} s together (not reproducible); raise `timeout`, on which that limit depends", limit.as_secs_f64())]
    WaitTooLong {
        /// The limit.
        limit: Duration,
    },
    /// It needed more linear memory than its limit.
    #[error("it needs more than its {limit} bytes of memory: raise `memory`")]
    Memory {
        /// Bytes of linear memory allowed.
        limit: u64,
    },
    /// It needed a larger table than its limit.
    #[error("it needs a table of more than {limit} elements")]
    Table {
        /// Elements allowed.
        limit: u32,
    },
    /// The machine has less memory left than the guest's limit. Depends on the machine.
    #[error("{0}: run fewer episodes at a time, or lower `memory` (not reproducible)")]
    MachineMemory(String),
    /// Calls nested too deeply.
    #[error("its calls nest too deeply: the stack is full")]
    Stack,
    /// It passed more bytes to the host in one call than its limit.
    #[error("it passed more than {limit} bytes to the host in one call")]
    Returned {
        /// Bytes allowed.
        limit: u64,
    },
    /// It violated the component model: a text that is not UTF-8, a list outside of its memory, an unknown case of a
    /// variant, an invalid handle, or too many handles.
    #[error("it violated the component model: {0}")]
    Rules(String),
    /// Any other trap: a panic, a division by zero, an access out of bounds.
    #[error("it trapped: {0}")]
    Trap(String),
    /// It exited.
    #[error("it exited with code {0}")]
    Exit(i32),
    /// A host function failed; see [`HostError`].
    #[error("{0}")]
    Host(String),
    /// The machine failed in a host function; see [`MachineError`].
    #[error("{0} (not reproducible)")]
    Machine(String),
    /// The host could not make the call: the pool of instances is full. Depends on the machine.
    #[error("the call could not be made: {0} (not reproducible)")]
    Call(String),
}

impl GuestFault {
    /// Returns true if the same call ends in the same way on every machine.
    pub fn reproducible(&self) -> bool {
        !matches!(
            self,
            Self::Timeout { .. }
                | Self::WaitTooLong { .. }
                | Self::MachineMemory(_)
                | Self::Machine(_)
                | Self::Call(_)
        )
    }
}

/// Error with which a host function ends the guest's call with [`GuestFault::Host`].
#[derive(Debug, Clone, Error)]
#[error("{0}")]
pub struct HostError(pub String);

/// Error with which a host function ends the guest's call with [`GuestFault::Machine`]: the machine failed, whatever the
/// guest did.
#[derive(Debug, Clone, Error)]
#[error("{0}")]
pub struct MachineError(pub String);

/// Raised by the epoch callback when the deadline has passed.
#[derive(Debug, Error)]
#[error("the wall-clock limit has passed")]
pub(crate) struct TimeoutElapsed;

/// The waits of a call have lasted too long.
#[derive(Debug, Error)]
#[error("the limit on waits has passed")]
pub(crate) struct WaitElapsed;

/// Limits and events of the failed call, for [`classify`].
pub(crate) struct CallContext {
    pub fuel: u64,
    pub timeout: Duration,
    pub wait: Duration,
    pub memory: u64,
    pub table: u32,
    pub returned: u64,
    /// Resource that the limiter refused during the call.
    pub refused: Option<Refused>,
}

/// Converts an error of the engine to a fault.
pub(crate) fn classify(error: &wasmtime::Error, call: &CallContext) -> GuestFault {
    if error.downcast_ref::<TimeoutElapsed>().is_some() {
        return GuestFault::Timeout { after: call.timeout };
    }
    if error.downcast_ref::<WaitElapsed>().is_some() {
        return GuestFault::WaitTooLong { limit: call.wait };
    }
    if let Some(host) = error.downcast_ref::<HostError>() {
        return GuestFault::Host(host.0.clone());
    }
    if let Some(machine) = error.downcast_ref::<MachineError>() {
        return GuestFault::Machine(machine.0.clone());
    }
    if let Some(exit) = error.downcast_ref::<wasmtime_wasi::I32Exit>() {
        return GuestFault::Exit(exit.0);
    }
    if let Some(short) = error.downcast_ref::<OutOfMachineMemory>() {
        return GuestFault::MachineMemory(short.to_string());
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => GuestFault::OutOfFuel { fuel: call.fuel },
        Some(Trap::Interrupt) => GuestFault::Timeout { after: call.timeout },
        Some(Trap::StackOverflow) => GuestFault::Stack,
        // A guest whose allocation failed aborts, which is a trap like any other.
        _ if call.refused == Some(Refused::Memory) => GuestFault::Memory { limit: call.memory },
        _ if call.refused == Some(Refused::Table) => GuestFault::Table { limit: call.table },
        Some(trap) => GuestFault::Trap(trap.to_string()),
        None => {
            let message = format!("{error:#}");
            if message.contains("fuel allocated for hostcalls has been exhausted") {
                GuestFault::Returned { limit: call.returned }
            } else if error.is::<PoolConcurrencyLimitError>() {
                GuestFault::Call(message)
            } else {
                // Everything else is input that the engine refused.
                GuestFault::Rules(message)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_the_machine_are_not_reproducible() {
        let zero = Duration::ZERO;
        let call = CallContext {
            fuel: 1,
            timeout: zero,
            wait: zero,
            memory: 1,
            table: 1,
            returned: 1,
            refused: None,
        };
        let lost = classify(&MachineError("a worker was lost".to_owned()).into(), &call);
        assert_eq!(lost, GuestFault::Machine("a worker was lost".to_owned()));
        let full = GuestFault::Call("the pool is full".to_owned());
        assert!(!lost.reproducible() && !full.reproducible());
        let refused = classify(&HostError("not allowed".to_owned()).into(), &call);
        assert!(refused.reproducible());
    }
}
