//! Limits of a call, prices of host calls, and the limiter of memory.

use std::time::Duration;

use thiserror::Error;
use wasmtime::{OperatorCost, ResourceLimiter};

use crate::memory_budget::MemoryBudget;

/// Fuel that stands for one second of work: the rate at which a modest core executes compiled code. (Measured on a
/// current server core: 6 to 13 times 10^9 for the Python worker.)
///
/// Guests' clocks ([`crate::Clock`]) and limits in seconds are based on it, so that they don't depend on the machine.
pub const FUEL_PER_SECOND: u64 = 5_000_000_000;

/// Limits of one call into a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Memory that the host holds for the whole instance, in bytes: linear memory, files with their names, open handles.
    pub memory: u64,
    /// Elements of one table.
    pub table: u32,
    /// Units of fuel, about one per instruction. A deterministic limit.
    pub fuel: u64,
    /// Wall-clock backstop, in case fuel burns much more slowly than [`FUEL_PER_SECOND`]: the guest's own run time,
    /// without waits for the host and work of others on the machine.
    pub timeout: Duration,
    /// Time that the call may wait in the host, all its waits together: for HTTP, but not for host functions that limit
    /// their own duration ([`crate::Guest::exempt_wait`]).
    pub wait: Duration,
    /// Bytes that the guest may pass to the host in one call or one return.
    pub returned: u64,
}

impl Default for Limits {
    /// Returns the limits for plugins: 64 MiB because domains hold one task at a time; 2 x 10^9 units because a call should
    /// take microseconds, and two fifths of a second are surely a loop; 10 s so that the clock never decides on a loaded
    /// machine; 200 s of waits so that the slowest HTTP response (120 s) and some others fit; 16 MiB so that a view with images fits.
    fn default() -> Self {
        Self {
            memory: 64 << 20,
            table: 20_000,
            fuel: 2_000_000_000,
            timeout: Duration::from_secs(10),
            wait: Duration::from_secs(200),
            returned: 16 << 20,
        }
    }
}

/// Fuel of any host call: about the cost of the transition, so that a loop of trivial host calls ends when an empty loop
/// would. [`crate::Guest::charge`] adds the work of the call itself.
pub(crate) const HOST_CALL: u64 = 1_200;

/// Returns the fuel per instruction: one unit each (and one per byte or element moved), except for growing memories and
/// tables, which takes a hundred times as long whether it succeeds or not.
pub(crate) fn costs() -> OperatorCost {
    let mut costs = OperatorCost { MemoryGrow: u8::MAX, TableGrow: u8::MAX, ..OperatorCost::new() };
    costs.variable.memory_grow_per_page = u8::MAX;
    costs
}

/// Resource refused to a guest since its call began. The guest may have handled the refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Memory,
    Table,
}

/// The machine lacks memory that the limits allow. The guest's call ends, because continuing without that memory would be
/// a behaviour of this machine only.
#[derive(Debug, Error)]
#[error("the machine has no memory left: {0}")]
pub(crate) struct OutOfMachineMemory(String);

/// Charges the growth of all linear memories of a store to its budget, and refuses what exceeds it.
#[derive(Debug)]
pub(crate) struct Limiter {
    pub budget: MemoryBudget,
    pub table: u32,
    pub refused: Option<Refused>,
}

impl Limiter {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { budget: MemoryBudget::new(limits.memory), table: limits.table, refused: None }
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        // The memory's own type forbids this growth, whatever the limit.
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let allowed = self.budget.take(desired.saturating_sub(current) as u64).is_ok();
        if !allowed {
            self.refused = Some(Refused::Memory);
        }
        Ok(allowed)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        let message = format!("{error:#}");
        // Beyond the address range of the memory, which is the same on every machine.
        if message.contains("exceeds memory type's limits") {
            return Ok(());
        }
        Err(OutOfMachineMemory(message).into())
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let allowed = desired <= self.table as usize;
        if !allowed {
            self.refused = Some(Refused::Table);
        }
        Ok(allowed)
    }
}
