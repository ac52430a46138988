//! Randomness from a seed.
//!
//! WASI's random interfaces draw from one generator of the store, which can be put back to its start between calls, so
//! that what a shared instance draws does not depend on who called it before. What guests take for their hash tables
//! (`insecure-seed`) is the same for all: an instance may keep it for longer than one call.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use wasmtime::StoreContextMut;
use wasmtime::component::Linker;

use crate::HostError;
use crate::guest::Guest;

/// Most bytes that a guest may ask for at once: more than any use, less than what would hurt.
const MOST: u64 = 1 << 20;

/// What hash tables begin with; any number serves.
const FOR_TABLES: (u64, u64) = (0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03);

/// What a guest's randomness begins with.
#[derive(Debug)]
pub enum Seed<T> {
    /// A number.
    Number(u64),
    /// What a function makes of the store's data, when the guest first draws in a call. Most never do.
    Of(fn(&T) -> [u8; 32]),
}

/// What a store draws from.
pub(crate) struct Chance<T> {
    seed: Seed<T>,
    running: Option<Box<ChaCha8Rng>>,
}

impl<T> Chance<T> {
    pub(crate) fn new(seed: Seed<T>) -> Self {
        Self { seed, running: None }
    }

    fn of(&mut self, data: &T) -> &mut ChaCha8Rng {
        self.running.get_or_insert_with(|| {
            Box::new(match self.seed {
                Seed::Number(number) => ChaCha8Rng::seed_from_u64(number),
                Seed::Of(seed) => ChaCha8Rng::from_seed(seed(data)),
            })
        })
    }
}

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
            guest.chance.of(&guest.data).fill_bytes(&mut drawn);
            Ok((drawn,))
        })?;
        instance.func_wrap(number, |mut store: StoreContextMut<'_, Guest<T>>, (): ()| {
            let guest = store.data_mut();
            Ok((guest.chance.of(&guest.data).next_u64(),))
        })?;
    }
    linker
        .instance("wasi:random/insecure-seed@0.2.12")?
        .func_wrap("insecure-seed", |_: StoreContextMut<'_, Guest<T>>, (): ()| Ok((FOR_TABLES,)))?;
    Ok(())
}
