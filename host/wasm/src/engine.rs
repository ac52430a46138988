//! The engine: one configuration for every guest of a kind, and the thread that keeps its wall-clock backstop.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::component::Linker;
use wasmtime::{Config, Enabled, InstanceAllocationStrategy, PoolingAllocationConfig, WasmBacktraceDetails};

use crate::backstop::TICK;
use crate::cache::{self, Cache};
use crate::component::{Component, check_header};
use crate::guest::{Guest, Store};
use crate::{Error, Limits, clock, filesystem, limits, randomness};

/// Address space of one linear memory: all that 32 bits reach, so that compiled code needs no bounds checks.
const RESERVATION: u64 = 4 << 30;

/// Linear memories per component instance: one, and one more where an adapter brings its own.
const MEMORIES: u32 = 2;

/// What an engine is made for.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Folder of the compile cache; none compiles on each start.
    pub cache_dir: Option<PathBuf>,
    /// Instances at a time that stay ([`Stay::Long`]).
    pub instances: u32,
    /// Instances at a time for one call each ([`Stay::Call`]).
    pub calls: u32,
    /// Bytes of stack of a guest's compiled code.
    pub stack: usize,
    /// Largest table, in elements.
    pub table: u32,
    /// Core instances, and tables, per component instance: one of a C or Rust guest, up to 64 for Python.
    pub parts: u32,
    /// Bytes of a freed memory that are cleared in place instead of given back: makes small guests quick to
    /// instantiate again, and holds that much per idle slot.
    pub keep_resident: usize,
    /// Keeps what a component says of its source, so that a fault's [`crate::Stack`] has files and lines.
    pub source_lines: bool,
}

impl EngineConfig {
    /// For plugins: many small instances that come and go.
    pub fn plugins() -> Self {
        Self {
            cache_dir: None,
            instances: 1024,
            calls: 256,
            stack: 1 << 20,
            table: 20_000,
            // A plugin in Python is an interpreter too.
            parts: 64,
            keep_resident: 256 << 10,
            source_lines: true,
        }
    }

    /// For interpreters that run untrusted code: few instances of a large component.
    pub fn workers() -> Self {
        Self {
            cache_dir: None,
            instances: 64,
            calls: 0,
            // An interpreter nests one C call in another per level of its program.
            stack: 16 << 20,
            table: 100_000,
            parts: 64,
            // Twice what a sympy solve writes to.
            keep_resident: 32 << 20,
            source_lines: false,
        }
    }

    /// With a compile cache in `folder`, which is made if it doesn't exist.
    #[must_use]
    pub fn cache_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cache_dir = Some(folder.into());
        self
    }

    fn wasmtime(&self) -> Config {
        let mut pool = PoolingAllocationConfig::new();
        let instances = self.instances.saturating_add(self.calls);
        let parts = instances.saturating_mul(self.parts);
        pool.total_component_instances(instances)
            .max_component_instance_size(16 << 20)
            // No instance takes more than its share, or one that is made of many parts would leave no room for others.
            .max_core_instances_per_component(self.parts)
            .max_memories_per_component(MEMORIES)
            .max_tables_per_component(self.tables())
            .total_core_instances(parts)
            .max_core_instance_size(16 << 20)
            .total_memories(instances.saturating_mul(MEMORIES))
            .total_tables(instances.saturating_mul(self.tables()))
            .max_tables_per_module(4)
            .table_elements(self.table as usize)
            .total_stacks(instances)
            .max_memory_size(RESERVATION as usize)
            // Where the kernel can tell which pages a guest wrote, those alone are cleared.
            .pagemap_scan(Enabled::Auto)
            .linear_memory_keep_resident(self.keep_resident)
            .table_keep_resident(self.keep_resident.min(64 << 10))
            .async_stack_keep_resident(self.keep_resident.min(64 << 10));

        let lines =
            if self.source_lines { WasmBacktraceDetails::Enable } else { WasmBacktraceDetails::Disable };
        let mut config = Config::new();
        config
            .wasm_backtrace_details(lines)
            .allocation_strategy(InstanceAllocationStrategy::Pooling(pool))
            .memory_reservation(RESERVATION)
            .memory_init_cow(true)
            .consume_fuel(true)
            .operator_cost(limits::costs())
            .epoch_interruption(true)
            .max_wasm_stack(self.stack)
            // Host functions run on the same stack, above the guest's frames.
            .async_stack_size(self.stack + (1 << 20))
            // Nothing that a guest computes may depend on the processor or on timing.
            .cranelift_nan_canonicalization(true)
            .relaxed_simd_deterministic(true)
            .parallel_compilation(true);
        config
    }

    /// Tables per component instance: most guests have two, and interpreters a few more than that.
    fn tables(&self) -> u32 {
        self.parts.min(8)
    }
}

/// Compiles components and makes stores for them. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    inner: wasmtime::Engine,
    cache: Option<Cache>,
    long: Arc<Semaphore>,
    calls: Arc<Semaphore>,
    /// Seats of each kind in all.
    capacity: (usize, usize),
}

/// How long an instance is wanted. Two separate supplies, so that those who hold one for long and wait for a
/// call in another can't block each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stay {
    /// Across calls, such as an environment's episode.
    Long,
    /// For one call that waits for no other.
    Call,
}

/// The right to one instance of the engine's pool; see [`Engine::seat`].
#[derive(Debug)]
pub struct Seat(#[allow(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

impl Engine {
    /// Starts an engine.
    ///
    /// # Errors
    /// [`Error::Engine`] where address space is short, [`Error::Cache`] where the folder can't be made.
    pub fn new(config: EngineConfig) -> Result<Self, Error> {
        let inner =
            wasmtime::Engine::new(&config.wasmtime()).map_err(|error| Error::Engine(format!("{error:#}")))?;
        let cache = config.cache_dir.as_deref().map(|folder| Cache::open(folder, &inner)).transpose()?;
        let weak = inner.weak();
        std::thread::Builder::new()
            .name("wasm-ticker".to_owned())
            .spawn(move || {
                while let Some(engine) = weak.upgrade() {
                    engine.increment_epoch();
                    drop(engine);
                    std::thread::sleep(TICK);
                }
            })
            .map_err(|error| Error::Engine(error.to_string()))?;
        let capacity = (config.instances as usize, config.calls as usize);
        let long = Arc::new(Semaphore::new(capacity.0));
        let calls = Arc::new(Semaphore::new(capacity.1));
        Ok(Self { inner, cache, long, calls, capacity })
    }

    /// The engine underneath.
    pub fn inner(&self) -> &wasmtime::Engine {
        &self.inner
    }

    /// Compiles a component, or takes it from the cache. `name` is for messages. Compiling a large component
    /// takes every core for seconds: call it from a blocking thread.
    ///
    /// # Errors
    /// [`Error::NotAComponent`] or [`Error::Damaged`], each with what to do.
    pub fn load(&self, name: &str, bytes: &[u8]) -> Result<Component, Error> {
        check_header(name, bytes)?;
        let hash = cache::hash(bytes);
        if let Some(cached) = self.cached(hash) {
            return Ok(cached);
        }
        let compiled = wasmtime::component::Component::from_binary(&self.inner, bytes)
            .map_err(|error| Error::Damaged { name: name.to_owned(), reason: format!("{error:#}") })?;
        if let Some(cache) = &self.cache {
            cache.put(&hash, &compiled);
        }
        Ok(Component::new(compiled, hash))
    }

    /// The component, where the cache has its code: in tens of milliseconds for a large one.
    pub fn find(&self, bytes: &[u8]) -> Option<Component> {
        self.cached(cache::hash(bytes))
    }

    fn cached(&self, hash: blake3::Hash) -> Option<Component> {
        let code = self.cache.as_ref()?.get(&self.inner, &hash)?;
        Some(Component::new(code, hash))
    }

    /// Whether the cache has a component's code, so that loading it takes no time of the compiler.
    pub fn is_cached(&self, bytes: &[u8]) -> bool {
        self.cache.as_ref().is_some_and(|cache| cache.has(&cache::hash(bytes)))
    }

    /// A note kept beside a component's compiled code, such as what it said of itself. None where there is no
    /// cache or no such note.
    pub fn note(&self, component: &Component, kind: &str) -> Option<Vec<u8>> {
        let cache = self.cache.as_ref()?;
        std::fs::read(cache.path(&component.raw_hash(), kind)).ok()
    }

    /// The same of a component that is not loaded.
    pub fn note_of(&self, bytes: &[u8], kind: &str) -> Option<Vec<u8>> {
        let cache = self.cache.as_ref()?;
        std::fs::read(cache.path(&cache::hash(bytes), kind)).ok()
    }

    /// Keeps a note beside a component's compiled code, where there is a cache.
    pub fn keep_note(&self, component: &Component, kind: &str, note: &[u8]) {
        if let Some(cache) = &self.cache
            && let Err(error) = cache.write(&cache.path(&component.raw_hash(), kind), note)
        {
            tracing::warn!(%error, "a note could not be written to the compile cache");
        }
    }

    /// A linker that offers all of WASI 0.2 with nothing behind it but what its store grants ([`Guest::mount`],
    /// [`Guest::admit`]).
    ///
    /// # Errors
    /// [`Error::Engine`]; not seen in practice.
    pub fn linker<T: Send + 'static>(&self) -> Result<Linker<Guest<T>>, Error> {
        let fail = |error: wasmtime::Error| Error::Engine(format!("{error:#}"));
        let mut linker = Linker::new(&self.inner);
        linker.allow_shadowing(true);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker).map_err(fail)?;
        wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker).map_err(fail)?;
        clock::link(&mut linker).map_err(fail)?;
        randomness::link(&mut linker).map_err(fail)?;
        filesystem::link(&mut linker).map_err(fail)?;
        Ok(linker)
    }

    /// A store for one instance.
    pub fn store<T: Send + 'static>(&self, data: T, limits: &Limits) -> Store<T> {
        Guest::store(&self.inner, data, limits)
    }

    /// Waits until the pool has room for one more instance, and holds it until the seat is dropped. Stores are
    /// made after their seat and dropped before it: a pool without room fails to instantiate.
    pub async fn seat(&self, stay: Stay) -> Seat {
        match Arc::clone(self.seats(stay)).acquire_owned().await {
            Ok(permit) => Seat(permit),
            Err(_) => unreachable!("the semaphore is never closed"),
        }
    }

    /// Seats in all.
    pub fn capacity(&self, stay: Stay) -> usize {
        match stay {
            Stay::Long => self.capacity.0,
            Stay::Call => self.capacity.1,
        }
    }

    /// Seats free at the moment.
    pub fn free_seats(&self, stay: Stay) -> usize {
        self.seats(stay).available_permits()
    }

    fn seats(&self, stay: Stay) -> &Arc<Semaphore> {
        match stay {
            Stay::Long => &self.long,
            Stay::Call => &self.calls,
        }
    }
}
