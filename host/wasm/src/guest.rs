//! What a store holds beside its user's data, and how calls are made under limits.

use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use wasmtime::UpdateDeadline;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

use crate::error::{Circumstances, Late, classify};
use crate::limits::Limiter;
use crate::{Fault, Limits, Output};

/// A store of a guest.
pub type Store<T> = wasmtime::Store<Guest<T>>;

/// What a store holds: the user's data, the limits, and an empty world behind WASI.
pub struct Guest<T> {
    /// The user's.
    pub data: T,
    limiter: Limiter,
    timeout: Duration,
    returned: u64,
    /// Fuel of one call.
    pub(crate) fuel: u64,
    /// Fuel of the calls before this one: the guest's clock goes on between calls.
    pub(crate) used_before: u64,
    deadline: Instant,
    /// Made when first asked for: most guests never do.
    wasi: Option<Box<World>>,
    seed: u64,
}

struct World {
    context: WasiCtx,
    table: ResourceTable,
}

impl<T: Send + 'static> Guest<T> {
    pub(crate) fn store(engine: &wasmtime::Engine, data: T, limits: &Limits) -> Store<T> {
        let guest = Self {
            data,
            limiter: Limiter::new(limits),
            timeout: limits.timeout,
            returned: limits.returned,
            fuel: limits.fuel,
            used_before: 0,
            deadline: Instant::now(),
            wasi: None,
            seed: 0,
        };
        let mut store = Store::new(engine, guest);
        store.limiter(|guest| &mut guest.limiter);
        store.set_hostcall_fuel(usize::try_from(limits.returned).unwrap_or(usize::MAX));
        store.epoch_deadline_callback(|context| {
            if Instant::now() >= context.data().deadline {
                return Err(Late.into());
            }
            // Gives way, so that one busy guest does not hold a thread that others wait for.
            Ok(UpdateDeadline::Yield(1))
        });
        store
    }

    /// Gives the guest input, output and a seed of what WASI calls randomness. Without it stdin is empty,
    /// output is dropped and the seed is 0.
    pub fn set_world(&mut self, seed: u64, stdin: impl Into<bytes::Bytes>, stdout: Output, stderr: Output) {
        self.seed = seed;
        let mut builder = world(seed);
        builder.stdin(MemoryInputPipe::new(stdin)).stdout(stdout).stderr(stderr);
        self.wasi = Some(Box::new(World { context: builder.build(), table: ResourceTable::new() }));
    }

    /// Time spent in the host on the guest's behalf, which its wall-clock backstop shall not count.
    pub fn excuse(&mut self, spent: Duration) {
        self.deadline += spent;
    }

    /// Whether a growth of memory was refused since the last call began. The guest may have coped with it.
    pub fn memory_refused(&self) -> bool {
        self.limiter.denied
    }

    /// The table of WASI's resources.
    pub fn table(&mut self) -> &mut ResourceTable {
        &mut self.world().table
    }

    fn world(&mut self) -> &mut World {
        let seed = self.seed;
        self.wasi.get_or_insert_with(|| {
            Box::new(World { context: world(seed).build(), table: ResourceTable::new() })
        })
    }
}

/// Nothing but randomness from a seed. Clocks are replaced in the linker.
fn world(seed: u64) -> WasiCtxBuilder {
    let mut builder = WasiCtxBuilder::new();
    builder
        .secure_random(ChaCha8Rng::seed_from_u64(seed))
        .insecure_random(ChaCha8Rng::seed_from_u64(seed ^ 1))
        .insecure_random_seed(u128::from(seed))
        .allow_tcp(false)
        .allow_udp(false);
    builder
}

impl<T: Send + 'static> WasiView for Guest<T> {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let World { context, table } = self.world();
        WasiCtxView { ctx: context, table }
    }
}

/// Makes a call (or an instantiation) with full fuel, a fresh deadline, and the store's limits.
///
/// After a fault the instance is in an unknown state: drop the store.
///
/// # Errors
/// The fault that ended it.
pub async fn call<T: Send + 'static, R>(
    store: &mut Store<T>,
    work: impl AsyncFnOnce(&mut Store<T>) -> wasmtime::Result<R>,
) -> Result<R, Fault> {
    begin(store).map_err(|error| Fault::Call(format!("{error:#}")))?;
    let outcome = work(store).await;
    let left = store.get_fuel().unwrap_or(0);
    let guest = store.data_mut();
    guest.used_before += guest.fuel.saturating_sub(left);
    outcome.map_err(|error| {
        classify(
            &error,
            &Circumstances {
                fuel: guest.fuel,
                timeout: guest.timeout,
                memory: guest.limiter.memory,
                returned: guest.returned,
                denied: guest.limiter.denied,
            },
        )
    })
}

fn begin<T: Send + 'static>(store: &mut Store<T>) -> wasmtime::Result<()> {
    let guest = store.data_mut();
    guest.limiter.denied = false;
    guest.deadline = Instant::now() + guest.timeout;
    let fuel = guest.fuel;
    store.set_fuel(fuel)?;
    store.set_epoch_deadline(1);
    Ok(())
}
