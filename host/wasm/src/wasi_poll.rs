//! `wasi:io/poll` with a price for each handle.

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::p2::DynPollable;
use wasmtime_wasi::p2::bindings::io::poll::Host as _;

use crate::guest::Guest;

/// Fuel for each handle of a list but the first, which every host call pays for: the host looks it up and makes a future. A
/// list may name one handle millions of times.
const HANDLE_FUEL: u64 = 500;

/// Replaces the function of a linker that has WASI's.
pub(crate) fn link<T: Send + 'static>(linker: &mut Linker<Guest<T>>) -> wasmtime::Result<()> {
    linker.instance("wasi:io/poll@0.2.12")?.func_wrap_async(
        "poll",
        |mut store: StoreContextMut<'_, Guest<T>>, (pollables,): (Vec<Resource<DynPollable>>,)| {
            Box::new(async move {
                let guest = store.data_mut();
                guest.charge(HANDLE_FUEL.saturating_mul(pollables.len().saturating_sub(1) as u64));
                let ready = guest.table().poll(pollables).await?;
                Ok((ready,))
            })
        },
    )
}
