//! `wasi:random` over [`crate::randomness`].

use rand::Rng;
use wasmtime::StoreContextMut;
use wasmtime::component::Linker;

use crate::error::HostError;
use crate::guest::Guest;

/// Maximum number of bytes that a guest may draw at once: more than any use needs, less than would do harm.
const MAX_BYTES: u64 = 1 << 20;

/// Fuel per random byte: it is computed, and then copied to the guest.
const BYTE_FUEL: u64 = 17;

/// Seed of hash tables; the value is arbitrary.
const INSECURE_SEED: (u64, u64) = (0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03);

/// Replaces the random interfaces of a linker that has WASI's.
pub(crate) fn link<T: Send + 'static>(linker: &mut Linker<Guest<T>>) -> wasmtime::Result<()> {
    for (interface, bytes, number) in [
        ("wasi:random/random@0.2.12", "get-random-bytes", "get-random-u64"),
        ("wasi:random/insecure@0.2.12", "get-insecure-random-bytes", "get-insecure-random-u64"),
    ] {
        let mut instance = linker.instance(interface)?;
        instance.func_wrap(bytes, |mut store: StoreContextMut<'_, Guest<T>>, (length,): (u64,)| {
            if length > MAX_BYTES {
                let message =
                    format!("it requested {length} random bytes at once; {MAX_BYTES} is the maximum");
                return Err(HostError(message).into());
            }
            let mut bytes = vec![0_u8; length as usize];
            let guest = store.data_mut();
            guest.charge(BYTE_FUEL * length);
            guest.random.generator(&guest.data).fill_bytes(&mut bytes);
            Ok((bytes,))
        })?;
        instance.func_wrap(number, |mut store: StoreContextMut<'_, Guest<T>>, (): ()| {
            let guest = store.data_mut();
            Ok((guest.random.generator(&guest.data).next_u64(),))
        })?;
    }
    linker
        .instance("wasi:random/insecure-seed@0.2.12")?
        .func_wrap("insecure-seed", |_: StoreContextMut<'_, Guest<T>>, (): ()| Ok((INSECURE_SEED,)))?;
    Ok(())
}
