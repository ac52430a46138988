//! Clocks that never go as the machine's does: two runs read the same times.
//!
//! Sleeping takes no time on the host; it uses up the fuel that working as long would have.

use std::time::Duration;

use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Lift, Linker, Lower, Resource};
use wasmtime_wasi::p2::{DynPollable, Pollable, subscribe};

use crate::FUEL_PER_SECOND;
use crate::guest::Guest;

/// What a guest reads when it starts: 2025-01-01T00:00:00Z, in seconds of Unix time.
const EPOCH: u64 = 1_735_689_600;

const NANOS: u64 = 1_000_000_000;

/// What the clock of [`Clock::Looks`] goes on by at each look.
const LOOK: Duration = Duration::from_micros(1);

/// What makes a guest's time pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// Work and sleep: it stood at this when the call began, and goes on with the fuel that the guest uses.
    Works(Duration),
    /// Sleep, and a microsecond at each look. What a guest reads then follows from what it does, not from how long its
    /// instance, with the memory that it has laid out so far, takes for it.
    Looks(Duration),
}

impl Clock {
    /// A call is over that used so much fuel.
    pub(crate) fn worked(&mut self, fuel: u64) {
        if let Self::Works(before) = self {
            *before = before.saturating_add(time_of(fuel));
        }
    }
}

#[derive(ComponentType, Lift, Lower)]
#[component(record)]
pub(crate) struct Datetime {
    seconds: u64,
    nanoseconds: u32,
}

/// Replaces the clocks of a linker that has WASI's.
pub(crate) fn link<T: Send + 'static>(linker: &mut Linker<Guest<T>>) -> wasmtime::Result<()> {
    let mut wall = linker.instance("wasi:clocks/wall-clock@0.2.12")?;
    wall.func_wrap("now", |mut store: StoreContextMut<'_, Guest<T>>, (): ()| {
        let now = elapsed(&mut store)?;
        let nanoseconds = now.subsec_nanos();
        Ok((Datetime { seconds: EPOCH + now.as_secs(), nanoseconds },))
    })?;
    wall.func_wrap("resolution", |_: StoreContextMut<'_, Guest<T>>, (): ()| {
        Ok((Datetime { seconds: 0, nanoseconds: 1 },))
    })?;

    let mut monotonic = linker.instance("wasi:clocks/monotonic-clock@0.2.12")?;
    monotonic.func_wrap("now", |mut store: StoreContextMut<'_, Guest<T>>, (): ()| {
        Ok((nanos(elapsed(&mut store)?),))
    })?;
    monotonic.func_wrap("resolution", |_: StoreContextMut<'_, Guest<T>>, (): ()| Ok((1_u64,)))?;
    monotonic.func_wrap(
        "subscribe-instant",
        |mut store: StoreContextMut<'_, Guest<T>>, (when,): (u64,)| {
            let now = nanos(elapsed(&mut store)?);
            sleep(store, when.saturating_sub(now))
        },
    )?;
    monotonic
        .func_wrap("subscribe-duration", |store: StoreContextMut<'_, Guest<T>>, (duration,): (u64,)| {
            sleep(store, duration)
        })?;
    Ok(())
}

/// Time as the guest sees it.
fn elapsed<T>(store: &mut StoreContextMut<'_, Guest<T>>) -> wasmtime::Result<Duration> {
    let left = store.get_fuel()?;
    let guest = store.data_mut();
    match &mut guest.clock {
        Clock::Works(before) => Ok(before.saturating_add(time_of(guest.fuel.saturating_sub(left)))),
        Clock::Looks(now) => {
            *now = now.saturating_add(LOOK);
            Ok(*now)
        }
    }
}

/// How long a guest works on so much fuel.
pub(crate) fn time_of(fuel: u64) -> Duration {
    let nanos = u128::from(fuel) * u128::from(NANOS) / u128::from(FUEL_PER_SECOND);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Pays for the sleep at once; what the guest then waits for is ready. A guest that waits for something else at
/// the same time pays for the whole sleep too, and all else is always ready here.
fn sleep<T: Send + 'static>(
    mut store: StoreContextMut<'_, Guest<T>>,
    nanos: u64,
) -> wasmtime::Result<(Resource<DynPollable>,)> {
    let price = u128::from(nanos) * u128::from(FUEL_PER_SECOND) / u128::from(NANOS);
    let left = u128::from(store.get_fuel()?).saturating_sub(price);
    // With none left, the guest's next instruction ends its call.
    store.set_fuel(u64::try_from(left).unwrap_or(u64::MAX))?;
    let guest = store.data_mut();
    if let Clock::Looks(now) = &mut guest.clock {
        *now = now.saturating_add(Duration::from_nanos(nanos));
    }
    let table = guest.table();
    let over = table.push(Over)?;
    Ok((subscribe(table, over)?,))
}

/// A wait that is over.
struct Over;

#[wasmtime_wasi::async_trait]
impl Pollable for Over {
    async fn ready(&mut self) {}
}
