//! What one call may use, and who says no.

use std::time::Duration;

use wasmtime::ResourceLimiter;

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
    /// Wall-clock backstop, for when fuel runs much slower than [`FUEL_PER_SECOND`]. Time that the guest waits
    /// for the host does not count.
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

/// Counts the linear memory of all memories of a store and refuses what goes over.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    pub memory: u64,
    pub table: u32,
    pub used: u64,
    /// A growth was refused since the call began.
    pub denied: bool,
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
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let used = self.used + desired.saturating_sub(current) as u64;
        let allowed = used <= self.memory;
        if allowed {
            self.used = used;
        } else {
            self.denied = true;
        }
        Ok(allowed)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let allowed = desired <= self.table as usize;
        self.denied |= !allowed;
        Ok(allowed)
    }
}
