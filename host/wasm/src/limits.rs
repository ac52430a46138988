//! What one call may use, what it pays for, and who says no.

use std::time::Duration;

use thiserror::Error;
use wasmtime::{CallHook, OperatorCost, ResourceLimiter, StoreContextMut, Trap};

use crate::Guest;

/// Fuel that stands for one second of work: what a modest core executes of compiled code. (Measured on a current
/// server core: 6 to 13 times 10^9 for the Python worker.)
///
/// Guests' clocks run on it ([`crate::Guest`]), and limits in seconds become fuel through it, so that where a
/// time limit falls does not depend on the machine.
pub const FUEL_PER_SECOND: u64 = 5_000_000_000;

/// Limits of one call into a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of linear memory, of the whole instance.
    pub memory: u64,
    /// Elements of one table.
    pub table: u32,
    /// Units of fuel, about one per instruction. Decides deterministically.
    pub fuel: u64,
    /// Clock backstop, for when fuel runs much slower than [`FUEL_PER_SECOND`]: time that the guest itself runs.
    /// What it waits for the host, and what the machine does for others, does not count.
    pub timeout: Duration,
    /// Bytes that the guest may hand to the host in one call or one return.
    pub returned: u64,
}

impl Default for Limits {
    /// For plugins: 64 MiB because domains hold one task at a time; 10^9 units because a call should take
    /// microseconds, and a fifth of a second is surely a loop; 10 s so that the clock never decides on a loaded machine;
    /// 16 MiB so that a view with images fits.
    fn default() -> Self {
        Self {
            memory: 64 << 20,
            table: 20_000,
            fuel: 1_000_000_000,
            timeout: Duration::from_secs(10),
            returned: 16 << 20,
        }
    }
}

/// Fuel that any call of the host costs a guest: about what passing from one to the other takes, so that a loop of
/// calls that do little ends when a loop that does nothing would. What a call does beyond that is charged by
/// [`Guest::charge`].
pub(crate) const HOST_CALL: u64 = 500;

/// What instructions cost: one unit each (and one per byte or element that they move), but for those that leave the
/// guest's own code to ask for space, which take a hundred times as long whether they are granted it or not.
pub(crate) fn costs() -> OperatorCost {
    let mut costs = OperatorCost { MemoryGrow: u8::MAX, TableGrow: u8::MAX, ..OperatorCost::new() };
    costs.variable.memory_grow_per_page = u8::MAX;
    costs
}

/// Takes the price of a call of the host from the guest's fuel as the call returns.
///
/// # Errors
/// The trap of a guest that can't pay.
pub(crate) fn collect<T>(mut store: StoreContextMut<'_, Guest<T>>, hook: CallHook) -> wasmtime::Result<()> {
    if !matches!(hook, CallHook::ReturningFromHost) {
        return Ok(());
    }
    let guest = store.data_mut();
    let owed = std::mem::take(&mut guest.owed);
    // The engine's own looks at the clock come at moments that no two runs share. They are free, or fuel would not
    // be deterministic.
    if std::mem::take(&mut guest.interrupted) {
        return Ok(());
    }
    let left = store.get_fuel()?.checked_sub(HOST_CALL.saturating_add(owed));
    store.set_fuel(left.unwrap_or(0))?;
    if left.is_none() {
        return Err(Trap::OutOfFuel.into());
    }
    Ok(())
}

/// What was refused to a guest since its call began. It may have coped with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Memory,
    Table,
}

/// The machine could not give memory that the limits allow. A guest that went on without would do so on this machine
/// alone, so it does not get to.
#[derive(Debug, Error)]
#[error("the machine has no memory left: {0}")]
pub(crate) struct Short(String);

/// Counts the linear memory of all memories of a store and refuses what goes over.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    pub memory: u64,
    pub table: u32,
    pub used: u64,
    pub refused: Option<Refused>,
}

impl Limiter {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { memory: limits.memory, table: limits.table, ..Self::default() }
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        // What the memory's own type forbids was never the limit's to allow.
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let used = self.used + desired.saturating_sub(current) as u64;
        let allowed = used <= self.memory;
        if allowed {
            self.used = used;
        } else {
            self.refused = Some(Refused::Memory);
        }
        Ok(allowed)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        let words = format!("{error:#}");
        // More than the memory's addresses reach: every machine says no.
        if words.contains("exceeds memory type's limits") {
            return Ok(());
        }
        Err(Short(words).into())
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
