//! Randomness from a seed.
//!
//! All of WASI's random interfaces draw from one generator of the store, which can be put back to its start
//! between calls, so that what a shared instance draws does not depend on who called it before.

use rand::Rng;
use wasmtime::StoreContextMut;
use wasmtime::component::Linker;

use crate::HostError;
use crate::guest::Guest;

/// Most bytes that a guest may ask for at once: more than any use, less than what would hurt.
const MOST: u64 = 1 << 20;

/// Replaces the random interfaces of a linker that has WASI's.
pub(crate) fn link<T: Send + 'static>(linker: &mut Linker<Guest<T>>) -> wasmtime::Result<()> {
    for (interface, bytes, number) in [
        ("wasi:random/random@0.2.12", "get-random-bytes", "get-random-u64"),
        ("wasi:random/insecure@0.2.12", "get-insecure-random-bytes", "get-insecure-random-u64"),
    ] {
        let mut instance = linker.instance(interface)?;
        instance.func_wrap(bytes, |mut store: StoreContextMut<'_, Guest<T>>, (length,): (u64,)| {
            if length > MOST {
                let words = format!("it asked for {length} random bytes at once; {MOST} is the most");
                return Err(HostError(words).into());
            }
            let mut drawn = vec![0_u8; length as usize];
            let guest = store.data_mut();
            guest.charge(length);
            guest.rng.fill_bytes(&mut drawn);
            Ok((drawn,))
        })?;
        instance.func_wrap(number, |mut store: StoreContextMut<'_, Guest<T>>, (): ()| {
            Ok((store.data_mut().rng.next_u64(),))
        })?;
    }
    linker.instance("wasi:random/insecure-seed@0.2.12")?.func_wrap(
        "insecure-seed",
        |mut store: StoreContextMut<'_, Guest<T>>, (): ()| {
            let rng = &mut store.data_mut().rng;
            Ok(((rng.next_u64(), rng.next_u64()),))
        },
    )?;
    Ok(())
}
