//! What a store holds beside its user's data, and how calls are made under limits.

use std::sync::Arc;
use std::time::Duration;

use wasmtime::UpdateDeadline;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use crate::backstop::Backstop;
use crate::clock::{Clock, time_of};
use crate::error::{Circumstances, Late, classify};
use crate::exchange::Post;
use crate::files::Node;
use crate::folders::Folders;
use crate::http::{Door, Host};
use crate::limits::{self, Limiter, Refused};
use crate::randomness::{Chance, Seed};
use crate::{Captured, Fault, Limits, Output, Stack};

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
    pub(crate) clock: Clock,
    /// Fuel of the last call.
    used_last: u64,
    /// Fuel to be taken when the call of the host returns that it is charged for.
    pub(crate) owed: u64,
    /// The host was called by the engine's look at the clock.
    pub(crate) interrupted: bool,
    backstop: Backstop,
    /// Made when first asked for: most guests never do.
    wasi: Option<Box<World>>,
    /// Bytes of stdout and of stderr that are kept for [`Guest::take_output`].
    kept_output: u64,
    /// Where it stood when its last call faulted.
    stack: Stack,
    /// Whom it may ask over HTTP.
    hosts: Arc<[Host]>,
    /// Who keeps what it asks.
    post: Option<Arc<dyn Post>>,
    /// The root of its files; none has no file system at all.
    files: Option<Node>,
    /// What WASI's randomness draws from.
    pub(crate) chance: Chance<T>,
}

struct World {
    context: WasiCtx,
    table: ResourceTable,
    /// What the guest writes, unless someone else reads it.
    stdout: Output,
    stderr: Output,
    http: WasiHttpCtx,
    door: Door,
}

impl<T: Send + 'static> Guest<T> {
    pub(crate) fn store(engine: &wasmtime::Engine, data: T, limits: &Limits) -> Store<T> {
        let guest = Self {
            data,
            limiter: Limiter::new(limits),
            timeout: limits.timeout,
            returned: limits.returned,
            fuel: limits.fuel,
            clock: Clock::Works(Duration::ZERO),
            used_last: 0,
            owed: 0,
            interrupted: false,
            backstop: Backstop::default(),
            wasi: None,
            kept_output: 0,
            stack: Stack::default(),
            hosts: Arc::default(),
            post: None,
            files: None,
            chance: Chance::new(Seed::Number(0)),
        };
        let mut store = Store::new(engine, guest);
        store.limiter(|guest| &mut guest.limiter);
        store.call_hook(limits::collect);
        store.set_hostcall_fuel(usize::try_from(limits.returned).unwrap_or(usize::MAX));
        store.epoch_deadline_callback(|mut context| {
            let guest = context.data_mut();
            guest.interrupted = true;
            if guest.backstop.look() >= guest.timeout {
                return Err(Late.into());
            }
            // Gives way, so that one busy guest does not hold a thread that others wait for.
            Ok(UpdateDeadline::Yield(1))
        });
        store
    }

    /// Gives the guest input and output. Without it stdin is empty, and output goes where [`Guest::keep_output`]
    /// says.
    pub fn set_streams(&mut self, stdin: impl Into<bytes::Bytes>, stdout: Output, stderr: Output) {
        self.wasi =
            Some(Box::new(World::new(stdin.into(), stdout, stderr, Door::new(&self.hosts, &self.post))));
    }

    /// Keeps the first `limit` bytes of stdout and of stderr for [`Guest::take_output`], and drops what is beyond.
    /// To be called before the guest runs.
    pub fn keep_output(&mut self, limit: u64) {
        self.kept_output = limit;
    }

    /// What the guest has written to stdout and to stderr since it was last asked for.
    pub fn take_output(&mut self) -> (Captured, Captured) {
        match &self.wasi {
            Some(world) => (world.stdout.take(), world.stderr.take()),
            None => Default::default(),
        }
    }

    /// Where the guest stood when its last call faulted.
    pub fn take_stack(&mut self) -> Stack {
        std::mem::take(&mut self.stack)
    }

    /// Gives the guest a file system in memory, of at most `limit` bytes, with these files (path and bytes). It
    /// may read and write there as it likes.
    ///
    /// # Errors
    /// The first path that can't be, with the reason.
    pub fn set_files<'f>(
        &mut self,
        limit: u64,
        files: impl IntoIterator<Item = (&'f str, &'f [u8])>,
    ) -> Result<(), String> {
        let root = Node::root(limit);
        for (path, bytes) in files {
            root.put(path, bytes)
                .map_err(|failure| format!("the file {path:?} can't be there: {failure}"))?;
        }
        self.files = Some(root);
        Ok(())
    }

    pub(crate) fn files(&self) -> Option<&Node> {
        self.files.as_ref()
    }

    /// Sets the guest's clock, and puts its randomness to the start of a seed's. A new store has a [`Clock::Works`] at
    /// zero and [`Seed::Number`] 0.
    pub fn rewind(&mut self, clock: Clock, seed: Seed<T>) {
        self.clock = clock;
        self.chance = Chance::new(seed);
    }

    /// Lets the guest read these folders, and nothing else. To be called before the guest runs.
    pub fn mount(&mut self, folders: &Folders) {
        self.files = Some(folders.root().clone());
    }

    /// Lets the guest ask these hosts over HTTP. To be called before the guest runs.
    pub fn admit(&mut self, hosts: Arc<[Host]>) {
        self.hosts = hosts;
    }

    /// Whether the guest may ask anybody over HTTP.
    pub fn may_ask(&self) -> bool {
        !self.hosts.is_empty()
    }

    /// Has everything kept that the guest asks over HTTP from now on, by whom may also answer it.
    pub fn set_post(&mut self, post: Option<Arc<dyn Post>>) {
        if let Some(world) = &mut self.wasi {
            world.door.post.clone_from(&post);
        }
        self.post = post;
    }

    /// Whether the guest has asked a host: what it does since then depends on the world.
    pub fn asked(&self) -> bool {
        self.wasi.as_ref().is_some_and(|world| world.door.passed)
    }

    /// As long as the guest may work in one call: what all its fuel is in time.
    pub fn longest_call(&self) -> Duration {
        time_of(self.fuel)
    }

    /// Fuel that the last call used.
    pub fn fuel_used(&self) -> u64 {
        self.used_last
    }

    /// Charges the guest for what a function of the host did for it, beyond the price of any call: fuel, at
    /// [`crate::FUEL_PER_SECOND`] per second that it takes on a modest core. A byte copied or looked at is one.
    pub fn charge(&mut self, fuel: u64) {
        self.owed = self.owed.saturating_add(fuel);
    }

    /// Bytes of linear memory of all its instances. It never shrinks.
    pub fn memory_held(&self) -> u64 {
        self.limiter.used
    }

    /// Whether a growth of memory was refused since the last call began. The guest may have coped with it.
    pub fn memory_refused(&self) -> bool {
        self.limiter.refused == Some(Refused::Memory)
    }

    /// The table of WASI's resources.
    pub fn table(&mut self) -> &mut ResourceTable {
        &mut self.world().table
    }

    fn world(&mut self) -> &mut World {
        let Self { wasi, kept_output, hosts, post, .. } = self;
        wasi.get_or_insert_with(|| {
            let output = || Output::first(*kept_output);
            Box::new(World::new(bytes::Bytes::new(), output(), output(), Door::new(hosts, post)))
        })
    }
}

impl<T> Guest<T> {
    /// What is to be paid for the call of the host that returns now.
    pub(crate) fn take_owed(&mut self) -> u64 {
        let asked = self.wasi.as_mut().map_or(0, |world| std::mem::take(&mut world.door.owed));
        std::mem::take(&mut self.owed).saturating_add(asked)
    }
}

impl World {
    /// Nothing but its streams. Clocks and randomness are replaced in the linker; the context's own are never asked.
    fn new(stdin: bytes::Bytes, stdout: Output, stderr: Output, door: Door) -> Self {
        let mut builder = WasiCtxBuilder::new();
        builder.allow_tcp(false).allow_udp(false);
        builder.stdin(MemoryInputPipe::new(stdin)).stdout(stdout.clone()).stderr(stderr.clone());
        Self {
            context: builder.build(),
            table: ResourceTable::new(),
            stdout,
            stderr,
            http: WasiHttpCtx::new(),
            door,
        }
    }
}

impl<T: Send + 'static> WasiView for Guest<T> {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let World { context, table, .. } = self.world();
        WasiCtxView { ctx: context, table }
    }
}

impl<T: Send + 'static> WasiHttpView for Guest<T> {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        let World { http, table, door, .. } = self.world();
        WasiHttpCtxView { hooks: door, table, ctx: http }
    }
}

/// Makes a call (or an instantiation) with full fuel, a fresh backstop, and the store's limits.
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
    guest.used_last = guest.fuel.saturating_sub(left);
    guest.clock.worked(guest.used_last);
    outcome.map_err(|error| {
        guest.stack = Stack::of(&error);
        classify(
            &error,
            &Circumstances {
                fuel: guest.fuel,
                timeout: guest.timeout,
                memory: guest.limiter.memory,
                table: guest.limiter.table,
                returned: guest.returned,
                refused: guest.limiter.refused,
            },
        )
    })
}

fn begin<T: Send + 'static>(store: &mut Store<T>) -> wasmtime::Result<()> {
    let guest = store.data_mut();
    guest.limiter.refused = None;
    guest.backstop = Backstop::default();
    let fuel = guest.fuel;
    store.set_fuel(fuel)?;
    store.set_epoch_deadline(1);
    Ok(())
}
