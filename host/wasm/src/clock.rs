//! Deterministic clocks: two runs read the same times.
//!
//! Sleeping takes no time on the host; it uses as much fuel as working for that time.

use std::time::Duration;

use crate::limits::FUEL_PER_SECOND;

/// Nanoseconds per second.
pub(crate) const NANOS: u64 = 1_000_000_000;

/// Amount by which [`Clock::PerRead`] advances at each read.
pub(crate) const READ_STEP: Duration = Duration::from_micros(1);

/// The rule by which a guest's time advances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// Time advances with the fuel that the guest uses, from this value at the start of the call.
    Fuel(Duration),
    /// Time advances with sleep, and by a microsecond at each read. The times that a guest reads then follow from its
    /// actions, not from the work that an instance of a certain age needs for them.
    PerRead(Duration),
}

impl Clock {
    /// Advances the clock after a call that used this much fuel.
    pub(crate) fn advance(&mut self, fuel: u64) {
        if let Self::Fuel(before) = self {
            *before = before.saturating_add(time_of(fuel));
        }
    }
}

/// Time that an amount of fuel stands for.
pub(crate) fn time_of(fuel: u64) -> Duration {
    let nanos = u128::from(fuel) * u128::from(NANOS) / u128::from(FUEL_PER_SECOND);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}
