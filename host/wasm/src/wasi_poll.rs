//! `wasi:io/poll` with a price for each handle that is waited for.

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::p2::DynPollable;
use wasmtime_wasi::p2::bindings::io::poll::{Host as _, HostPollable as _};

use crate::guest::Guest;

/// Fuel for each handle that is waited for, beyond that of every host call: the host looks it up and makes a future. A
/// list may name one handle millions of times.
const HANDLE_FUEL: u64 = 2_500;

/// Replaces the functions of a linker that has WASI's.
pub(crate) fn link<T: Send + 'static>(linker: &mut Linker<Guest<T>>) -> wasmtime::Result<()> {
    let mut poll = linker.instance("wasi:io/poll@0.2.12")?;
    poll.func_wrap_async(
        "poll",
        |mut store: StoreContextMut<'_, Guest<T>>, (pollables,): (Vec<Resource<DynPollable>>,)| {
            Box::new(async move {
                let guest = store.data_mut();
                guest.charge(HANDLE_FUEL.saturating_mul(pollables.len() as u64));
                let ready = guest.table().poll(pollables).await?;
                Ok((ready,))
            })
        },
    )?;
    poll.func_wrap_async(
        "[method]pollable.block",
        |mut store: StoreContextMut<'_, Guest<T>>, (pollable,): (Resource<DynPollable>,)| {
            Box::new(async move {
                let guest = store.data_mut();
                guest.charge(HANDLE_FUEL);
                guest.table().block(pollable).await
            })
        },
    )?;
    poll.func_wrap_async(
        "[method]pollable.ready",
        |mut store: StoreContextMut<'_, Guest<T>>, (pollable,): (Resource<DynPollable>,)| {
            Box::new(async move {
                let guest = store.data_mut();
                guest.charge(HANDLE_FUEL);
                let ready = guest.table().ready(pollable).await?;
                Ok((ready,))
            })
        },
    )
}
