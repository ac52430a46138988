//! `wasi:clocks` over [`crate::clock`].

use std::time::Duration;

use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Lift, Linker, Lower, Resource};
use wasmtime_wasi::p2::{DynPollable, Pollable, subscribe};

use crate::clock::{Clock, NANOS, READ_STEP, time_of};
use crate::guest::Guest;
use crate::limits::FUEL_PER_SECOND;

/// Time at the start of a guest: 2025-01-01T00:00:00Z, in seconds of Unix time.
const EPOCH: u64 = 1_735_689_600;

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

/// Current time of the guest, since its start.
fn elapsed<T>(store: &mut StoreContextMut<'_, Guest<T>>) -> wasmtime::Result<Duration> {
    let left = store.get_fuel()?;
    let guest = store.data_mut();
    match &mut guest.clock {
        Clock::Fuel(before) => Ok(before.saturating_add(time_of(guest.fuel.saturating_sub(left)))),
        Clock::PerRead(now) => {
            *now = now.saturating_add(READ_STEP);
            Ok(*now)
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Deducts the fuel of the sleep at once and returns a pollable that is ready. A guest that waits for something else at
/// the same time also pays for the whole sleep; everything else is always ready here.
fn sleep<T: Send + 'static>(
    mut store: StoreContextMut<'_, Guest<T>>,
    nanos: u64,
) -> wasmtime::Result<(Resource<DynPollable>,)> {
    let price = u128::from(nanos) * u128::from(FUEL_PER_SECOND) / u128::from(NANOS);
    let left = u128::from(store.get_fuel()?).saturating_sub(price);
    // Without fuel, the guest's next instruction ends its call.
    store.set_fuel(u64::try_from(left).unwrap_or(u64::MAX))?;
    let guest = store.data_mut();
    if let Clock::PerRead(now) = &mut guest.clock {
        *now = now.saturating_add(Duration::from_nanos(nanos));
    }
    let table = guest.table();
    let ready = table.push(Ready)?;
    Ok((subscribe(table, ready)?,))
}

/// A finished wait.
struct Ready;

#[wasmtime_wasi::async_trait]
impl Pollable for Ready {
    async fn ready(&mut self) {}
}
