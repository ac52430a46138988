//! Clocks that run on fuel.
//!
//! A guest sees time pass as it works and as it sleeps, never as the machine's clock goes: two runs read the
//! same times. Sleeping takes no time on the host; it uses up the fuel that working as long would have.

use std::time::Duration;

use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Lift, Linker, Lower, Resource};
use wasmtime_wasi::p2::{DynPollable, Pollable, subscribe};

use crate::FUEL_PER_SECOND;
use crate::guest::Guest;

/// What a guest reads when it starts: 2025-01-01T00:00:00Z, in seconds of Unix time.
const EPOCH: u64 = 1_735_689_600;

const NANOS: u64 = 1_000_000_000;

#[derive(ComponentType, Lift, Lower)]
#[component(record)]
pub(crate) struct Datetime {
    seconds: u64,
    nanoseconds: u32,
}

/// Replaces the clocks of a linker that has WASI's.
pub(crate) fn link<T: Send + 'static>(linker: &mut Linker<Guest<T>>) -> wasmtime::Result<()> {
    let mut wall = linker.instance("wasi:clocks/wall-clock@0.2.12")?;
    wall.func_wrap("now", |store: StoreContextMut<'_, Guest<T>>, (): ()| {
        let now = elapsed(&store)?;
        let nanoseconds = now.subsec_nanos();
        Ok((Datetime { seconds: EPOCH + now.as_secs(), nanoseconds },))
    })?;
    wall.func_wrap("resolution", |_: StoreContextMut<'_, Guest<T>>, (): ()| {
        Ok((Datetime { seconds: 0, nanoseconds: 1 },))
    })?;

    let mut monotonic = linker.instance("wasi:clocks/monotonic-clock@0.2.12")?;
    monotonic
        .func_wrap("now", |store: StoreContextMut<'_, Guest<T>>, (): ()| Ok((nanos(elapsed(&store)?),)))?;
    monotonic.func_wrap("resolution", |_: StoreContextMut<'_, Guest<T>>, (): ()| Ok((1_u64,)))?;
    monotonic.func_wrap("subscribe-instant", |store: StoreContextMut<'_, Guest<T>>, (when,): (u64,)| {
        let now = nanos(elapsed(&store)?);
        sleep(store, when.saturating_sub(now))
    })?;
    monotonic
        .func_wrap("subscribe-duration", |store: StoreContextMut<'_, Guest<T>>, (duration,): (u64,)| {
            sleep(store, duration)
        })?;
    Ok(())
}

/// Time as the guest sees it, since its store was made.
fn elapsed<T>(store: &StoreContextMut<'_, Guest<T>>) -> wasmtime::Result<Duration> {
    let guest = store.data();
    let used = guest.used_before.saturating_add(guest.fuel.saturating_sub(store.get_fuel()?));
    Ok(duration(used))
}

fn duration(fuel: u64) -> Duration {
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
    let table = store.data_mut().table();
    let over = table.push(Over)?;
    Ok((subscribe(table, over)?,))
}

/// A wait that is over.
struct Over;

#[wasmtime_wasi::async_trait]
impl Pollable for Over {
    async fn ready(&mut self) {}
}
