//! The data of a store, and calls under limits.

use std::sync::Arc;
use std::time::Duration;

use wasmtime::component::ResourceTable;
use wasmtime::{CallHook, StoreContextMut, Trap, UpdateDeadline};
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use crate::allowed_host::AllowedHost;
use crate::backstop::Backstop;
use crate::clock::{Clock, time_of};
use crate::error::{CallContext, TimeoutElapsed, WaitElapsed, classify};
use crate::granted_folders::Folders;
use crate::http_message::HttpRecorder;
use crate::http_policy::{DeniedRequests, HttpPolicy};
use crate::input::Input;
use crate::limits::{HOST_CALL, Limiter, Refused};
use crate::memory_budget::MemoryBudget;
use crate::memory_fs::{CreateFileError, FsError, Node};
use crate::randomness::{RandomSource, Seed};
use crate::stream_work::StreamWork;
use crate::wait_limit::{self, WaitExemption, WaitMonitor};
use crate::{Captured, GuestFault, Limits, Output, Stack};

/// Maximum number of a guest's open resources (descriptors, streams, pollables): more than any program opens. The host
/// needs a few hundred bytes for each.
const MAX_RESOURCES: usize = 16_384;

/// The same for a guest that may use HTTP: a request takes eight. The host may need 50 KiB for each, so 25 MiB in all.
const MAX_RESOURCES_WITH_HTTP: usize = 512;

/// Maximum size of the headers of a request or response, in bytes of the host's memory.
pub(crate) const MAX_HEADERS: usize = 32 << 10;

/// A store of a guest.
pub type Store<T> = wasmtime::Store<Guest<T>>;

/// Data of a store: the user's data, the limits, and what WASI gives access to.
pub struct Guest<T> {
    /// The user's data.
    pub data: T,
    limiter: Limiter,
    timeout: Duration,
    returned: u64,
    /// Fuel of one call.
    pub(crate) fuel: u64,
    pub(crate) clock: Clock,
    /// Fuel of the last call.
    used_last: u64,
    /// Fuel to deduct when the current host call returns.
    pub(crate) owed: u64,
    /// The same for the work of streams, which can't reach the guest.
    stream_work: StreamWork,
    /// True if the epoch callback made the current host call.
    pub(crate) interrupted: bool,
    backstop: Backstop,
    /// Limit on the waits of one call.
    wait: Duration,
    waits: WaitMonitor,
    /// Created at first use, because most guests never use WASI.
    wasi: Option<Box<WasiState>>,
    /// Bytes of stdout and of stderr kept for [`Guest::take_output`].
    kept_output: u64,
    /// Call stack of the last fault.
    stack: Stack,
    /// Hosts that it may call over HTTP.
    hosts: Arc<[AllowedHost]>,
    /// Records HTTP requests, or replays recorded responses.
    recorder: Option<Arc<dyn HttpRecorder>>,
    /// Root of its files. `None` means no file system at all.
    files: Option<Node>,
    /// Source of WASI's randomness.
    pub(crate) random: RandomSource<T>,
}

struct WasiState {
    context: WasiCtx,
    table: ResourceTable,
    /// The guest's output, unless [`Guest::set_streams`] redirects it.
    stdout: Output,
    stderr: Output,
    http: WasiHttpCtx,
    http_policy: HttpPolicy,
}

impl<T: Send + 'static> Guest<T> {
    pub(crate) fn store(engine: &wasmtime::Engine, data: T, limits: &Limits) -> Store<T> {
        let guest = Self {
            data,
            limiter: Limiter::new(limits),
            timeout: limits.timeout,
            returned: limits.returned,
            fuel: limits.fuel,
            clock: Clock::Fuel(Duration::ZERO),
            used_last: 0,
            owed: 0,
            stream_work: StreamWork::default(),
            interrupted: false,
            backstop: Backstop::default(),
            wait: limits.wait,
            waits: WaitMonitor::default(),
            wasi: None,
            kept_output: 0,
            stack: Stack::default(),
            hosts: Arc::default(),
            recorder: None,
            files: None,
            random: RandomSource::new(Seed::Number(0)),
        };
        let mut store = Store::new(engine, guest);
        store.limiter(|guest| &mut guest.limiter);
        store.call_hook(deduct_host_call);
        store.set_max_component_handles(MAX_RESOURCES);
        store.set_hostcall_fuel(usize::try_from(limits.returned).unwrap_or(usize::MAX));
        store.epoch_deadline_callback(|mut context| {
            let guest = context.data_mut();
            guest.interrupted = true;
            if guest.backstop.check() >= guest.timeout {
                return Err(TimeoutElapsed.into());
            }
            // Yields, so that one busy guest doesn't occupy a thread that others wait for.
            guest.waits.note_yield();
            Ok(UpdateDeadline::Yield(1))
        });
        store
    }

    /// Sets the guest's input and output. By default stdin is empty and [`Guest::keep_output`] decides about output.
    pub fn set_streams(&mut self, stdin: impl Into<bytes::Bytes>, stdout: Output, stderr: Output) {
        self.wasi = Some(Box::new(WasiState::new(
            Input::new(stdin.into(), self.stream_work.clone()),
            stdout,
            stderr,
            HttpPolicy::new(&self.hosts, &self.recorder, &self.limiter.budget),
        )));
    }

    /// Keeps the first `limit` bytes of stdout and of stderr for [`Guest::take_output`] and drops the rest. Call this
    /// before the guest runs.
    pub fn keep_output(&mut self, limit: u64) {
        self.kept_output = limit;
    }

    /// Takes everything that the guest wrote to stdout and stderr since the last call.
    pub fn take_output(&mut self) -> (Captured, Captured) {
        match &self.wasi {
            Some(world) => (world.stdout.take(), world.stderr.take()),
            None => Default::default(),
        }
    }

    /// Takes the call stack of the last fault.
    pub fn take_stack(&mut self) -> Stack {
        std::mem::take(&mut self.stack)
    }

    /// Gives the guest a writable file system in memory with these files (path and bytes). They count against its memory,
    /// as do all that it creates.
    ///
    /// # Errors
    /// [`CreateFileError`] for the first invalid path, or if the files exceed the memory.
    pub fn set_files<'f>(
        &mut self,
        files: impl IntoIterator<Item = (&'f str, &'f [u8])>,
    ) -> Result<(), CreateFileError> {
        let failed = |path: &str, reason: FsError| CreateFileError { path: path.to_owned(), reason };
        let root = Node::root(self.budget().clone()).map_err(|reason| failed("/", reason))?;
        for (path, bytes) in files {
            root.put(path, bytes).map_err(|reason| failed(path, reason))?;
        }
        self.files = Some(root);
        Ok(())
    }

    pub(crate) fn files(&self) -> Option<&Node> {
        self.files.as_ref()
    }

    /// Sets the guest's clock, and restarts its randomness from a seed. A new store has a [`Clock::Fuel`] at zero and
    /// [`Seed::Number`] 0.
    pub fn rewind(&mut self, clock: Clock, seed: Seed<T>) {
        self.clock = clock;
        self.random = RandomSource::new(seed);
    }

    /// Lets the guest read these folders and nothing else. Call this before the guest runs.
    pub fn mount(&mut self, folders: &Folders) {
        self.files = Some(folders.root().clone());
    }

    /// Lets the guest call these hosts over HTTP. Call this before the guest runs.
    pub fn allow_hosts(&mut self, hosts: Arc<[AllowedHost]>) {
        if let Some(world) = &mut self.wasi {
            world.set_hosts(&hosts);
        }
        self.hosts = hosts;
    }

    /// Returns true if the guest may call any host over HTTP.
    pub fn may_use_http(&self) -> bool {
        !self.hosts.is_empty()
    }

    /// Installs a recorder for outgoing HTTP; it may also replay recorded responses.
    pub fn set_http_recorder(&mut self, recorder: Option<Arc<dyn HttpRecorder>>) {
        if let Some(world) = &mut self.wasi {
            world.http_policy.recorder.clone_from(&recorder);
        }
        self.recorder = recorder;
    }

    /// Takes the requests to hosts that are not granted since the last call.
    pub fn take_denied_requests(&mut self) -> Option<DeniedRequests> {
        self.wasi.as_mut()?.http_policy.denied.take()
    }

    /// Exempts the call's waits from [`Limits::wait`] until the value is dropped: for host functions that limit their own
    /// duration.
    pub fn exempt_wait(&self) -> WaitExemption {
        self.waits.exempt()
    }

    /// Returns true if the guest has called a host, so that its behaviour is no longer reproducible.
    pub fn used_http(&self) -> bool {
        self.wasi.as_ref().is_some_and(|world| world.http_policy.used)
    }

    /// Longest time that the guest may work in one call: all of its fuel as time.
    pub fn longest_call(&self) -> Duration {
        time_of(self.fuel)
    }

    /// Fuel used by the last call.
    pub fn fuel_used(&self) -> u64 {
        self.used_last
    }

    /// Charges the guest fuel for the work of a host function, beyond the price of every call:
    /// [`crate::FUEL_PER_SECOND`] per second of work on a modest core, so about one per byte copied or read.
    pub fn charge(&mut self, fuel: u64) {
        self.owed = self.owed.saturating_add(fuel);
    }

    /// Largest number of bytes that the host has held for the guest: linear memory, files, open handles.
    pub fn memory_held(&self) -> u64 {
        self.budget().peak()
    }

    pub(crate) fn budget(&self) -> &MemoryBudget {
        &self.limiter.budget
    }

    /// Counter of the work of streams, for each of them.
    pub(crate) fn stream_work(&self) -> StreamWork {
        self.stream_work.clone()
    }

    /// Returns true if a growth of memory was refused since the last call began. The guest may have handled it.
    pub fn memory_refused(&self) -> bool {
        self.limiter.refused == Some(Refused::Memory)
    }

    /// Table of WASI's resources.
    pub fn table(&mut self) -> &mut ResourceTable {
        &mut self.wasi_state().table
    }

    fn wasi_state(&mut self) -> &mut WasiState {
        let Self { wasi, kept_output, hosts, recorder, limiter, stream_work, .. } = self;
        wasi.get_or_insert_with(|| {
            let output = || Output::first(*kept_output, stream_work.clone());
            Box::new(WasiState::new(
                Input::new(bytes::Bytes::new(), stream_work.clone()),
                output(),
                output(),
                HttpPolicy::new(hosts, recorder, &limiter.budget),
            ))
        })
    }
}

impl<T> Guest<T> {
    /// Takes the fuel owed for the host call that returns now.
    pub(crate) fn take_owed(&mut self) -> u64 {
        let for_requests = self.wasi.as_mut().map_or(0, |world| std::mem::take(&mut world.http_policy.owed));
        std::mem::take(&mut self.owed).saturating_add(for_requests).saturating_add(self.stream_work.take())
    }
}

impl WasiState {
    /// Creates a context with streams only. The linker replaces clocks and randomness, so the context's own are never used.
    fn new(stdin: Input, stdout: Output, stderr: Output, http_policy: HttpPolicy) -> Self {
        let mut builder = WasiCtxBuilder::new();
        builder.allow_tcp(false).allow_udp(false);
        builder.stdin(stdin).stdout(stdout.clone()).stderr(stderr.clone());
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(MAX_HEADERS);
        let mut table = ResourceTable::new();
        table.set_max_capacity(max_resources(http_policy.hosts()));
        Self { context: builder.build(), table, stdout, stderr, http, http_policy }
    }

    fn set_hosts(&mut self, hosts: &Arc<[AllowedHost]>) {
        self.table.set_max_capacity(max_resources(hosts));
        self.http_policy.set_hosts(hosts);
    }
}

fn max_resources(hosts: &[AllowedHost]) -> usize {
    if hosts.is_empty() { MAX_RESOURCES } else { MAX_RESOURCES_WITH_HTTP }
}

impl<T: Send + 'static> WasiView for Guest<T> {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let WasiState { context, table, .. } = self.wasi_state();
        WasiCtxView { ctx: context, table }
    }
}

impl<T: Send + 'static> WasiHttpView for Guest<T> {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        let WasiState { http, table, http_policy, .. } = self.wasi_state();
        WasiHttpCtxView { hooks: http_policy, table, ctx: http }
    }
}

/// Deducts the price of a host call from the guest's fuel when the call returns.
///
/// # Errors
/// [`Trap::OutOfFuel`] if the guest has too little fuel.
fn deduct_host_call<T>(mut store: StoreContextMut<'_, Guest<T>>, hook: CallHook) -> wasmtime::Result<()> {
    if !matches!(hook, CallHook::ReturningFromHost) {
        return Ok(());
    }
    let guest = store.data_mut();
    // The engine's own clock checks happen at random moments. They must be free, or fuel would not be deterministic. One may
    // come while the guest makes room for the result of a call of the host, which owes its fuel then.
    if std::mem::take(&mut guest.interrupted) {
        return Ok(());
    }
    let owed = guest.take_owed();
    let left = store.get_fuel()?.checked_sub(HOST_CALL.saturating_add(owed));
    store.set_fuel(left.unwrap_or(0))?;
    if left.is_none() {
        return Err(Trap::OutOfFuel.into());
    }
    Ok(())
}

/// Makes a call (or an instantiation) with full fuel, a fresh backstop and the store's limits.
///
/// After a fault the instance is in an unknown state: drop the store.
///
/// # Errors
/// The fault that ended the call.
pub async fn call<T: Send + 'static, R>(
    store: &mut Store<T>,
    work: impl AsyncFnOnce(&mut Store<T>) -> wasmtime::Result<R>,
) -> Result<R, GuestFault> {
    begin(store).map_err(|error| GuestFault::Call(format!("{error:#}")))?;
    let (waits, wait) = (store.data().waits.clone(), store.data().wait);
    let outcome = wait_limit::limited(work(store), &waits, wait).await;
    let outcome = outcome.unwrap_or_else(|| Err(WaitElapsed.into()));
    let left = store.get_fuel().unwrap_or(0);
    let guest = store.data_mut();
    guest.used_last = guest.fuel.saturating_sub(left);
    guest.clock.advance(guest.used_last);
    outcome.map_err(|error| {
        guest.stack = Stack::from_error(&error);
        classify(
            &error,
            &CallContext {
                fuel: guest.fuel,
                timeout: guest.timeout,
                wait: guest.wait,
                memory: guest.limiter.budget.limit(),
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
