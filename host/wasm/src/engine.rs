//! The engine: one configuration for all guests of a kind, and the thread that advances its epoch.

use std::path::PathBuf;
use std::sync::Arc;

use pl_types::erased::Erased;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::component::Linker;
use wasmtime::{Config, Enabled, InstanceAllocationStrategy, PoolingAllocationConfig, WasmBacktraceDetails};

use crate::backstop::TICK;
use crate::cache::{self, Cache};
use crate::component::{Component, check_header};
use crate::functions::Functions;
use crate::guest::{Guest, Store};
use crate::{
    Error, Limits, compile_limits, limits, wasi_clock, wasi_filesystem, wasi_name_lookup, wasi_poll,
    wasi_random,
};

/// Address space of one linear memory: all of 32 bits, so that compiled code needs no bounds checks.
const RESERVATION: u64 = 4 << 30;

/// Linear memories per component instance: one, and a second one for adapters that have their own.
const MEMORIES: u32 = 2;

/// Configuration of an engine.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Folder of the compile cache. `None` compiles at each start.
    pub cache_dir: Option<PathBuf>,
    /// Simultaneous instances that live across calls ([`Lifetime::Episode`]).
    pub instances: u32,
    /// Simultaneous instances that live for one call ([`Lifetime::Call`]).
    pub calls: u32,
    /// Stack of a guest's compiled code, in bytes.
    pub stack: usize,
    /// Largest table, in elements.
    pub table: u32,
    /// Core instances and tables per component instance: 1 for a C or Rust guest, up to 64 for Python.
    pub parts: u32,
    /// Keeps a component's debug information, so that a fault's [`crate::Stack`] has files and lines.
    pub source_lines: bool,
    /// Keeps compiled functions in the compile cache for the next component that has the same, such as the next build of a
    /// plugin in Python. Only for components of the user's own, because the compiler's authors call it experimental.
    pub reuse_functions: bool,
}

impl EngineConfig {
    /// Returns the configuration for plugins: many small, short-lived instances.
    pub fn plugins() -> Self {
        Self {
            cache_dir: None,
            instances: 1024,
            calls: 256,
            stack: 1 << 20,
            table: 20_000,
            // A plugin in Python is an interpreter too.
            parts: 64,
            source_lines: true,
            reuse_functions: false,
        }
    }

    /// Returns the configuration for interpreters of untrusted code: few instances of a large component.
    pub fn workers() -> Self {
        Self {
            cache_dir: None,
            instances: 64,
            calls: 0,
            // An interpreter nests C calls with each call level of its program.
            stack: 16 << 20,
            table: 100_000,
            parts: 64,
            source_lines: false,
            reuse_functions: false,
        }
    }

    /// Sets the folder of the compile cache, which is created if it doesn't exist.
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
            // One instance of many parts must not take the room of others.
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
            // It takes only pages that are in memory for written ones: what was swapped out would stay for the next guest.
            .pagemap_scan(Enabled::No)
            // Clearing a small table is quicker than returning it to the system.
            .table_keep_resident(64 << 10);

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
            // Results of a guest must depend neither on the CPU nor on timing.
            .cranelift_nan_canonicalization(true)
            .relaxed_simd_deterministic(true)
            .parallel_compilation(true);
        config
    }

    /// Number of tables per component instance. Most guests have two, interpreters a few more.
    fn tables(&self) -> u32 {
        self.parts.min(8)
    }
}

/// Compiles components and creates stores for them. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    inner: Erased<wasmtime::Engine>,
    cache: Option<Cache>,
    /// Functions of other components, if they are used again.
    functions: Option<Arc<Functions>>,
    episodes: Arc<Semaphore>,
    calls: Arc<Semaphore>,
    /// Total permits for episodes and for calls.
    capacity: (usize, usize),
}

/// Lifetime of an instance. The two kinds have separate permits: otherwise holders of long-lived instances that wait for
/// a call could deadlock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Several calls, as for an episode of an environment.
    Episode,
    /// One call, which waits for no other instance.
    Call,
}

/// Permission to hold one instance of the engine's pool; see [`Engine::permit`].
#[derive(Debug)]
pub struct InstancePermit(#[allow(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

impl Engine {
    /// Starts an engine.
    ///
    /// # Errors
    /// [`Error::Engine`] if address space is short, [`Error::Cache`] if the folder can't be created.
    pub fn new(config: EngineConfig) -> Result<Self, Error> {
        let failed = |error: wasmtime::Error| Error::Engine(format!("{error:#}"));
        let functions = config.reuse_functions.then(Arc::<Functions>::default);
        let mut settings = config.wasmtime();
        if let Some(functions) = &functions {
            settings.enable_incremental_compilation(functions.clone()).map_err(failed)?;
        }
        let inner = wasmtime::Engine::new(&settings).map_err(failed)?;
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
        let episodes = Arc::new(Semaphore::new(capacity.0));
        let calls = Arc::new(Semaphore::new(capacity.1));
        let inner = Erased::new(inner);
        Ok(Self { inner, cache, functions, episodes, calls, capacity })
    }

    /// The underlying wasmtime engine.
    pub fn inner(&self) -> &wasmtime::Engine {
        &self.inner
    }

    /// Compiles a component, or loads it from the cache. `name` is for messages. Compiling a large component
    /// occupies all cores for seconds, so call this from a blocking thread.
    ///
    /// # Errors
    /// [`Error::NotAComponent`], [`Error::Damaged`] or [`Error::TooMuchToCompile`], each with what to do.
    pub fn load(&self, name: &str, bytes: &[u8]) -> Result<Component, Error> {
        check_header(name, bytes)?;
        let hash = cache::hash(bytes);
        self.cached(hash).map_or_else(|| self.compile(name, hash, bytes), Ok)
    }

    /// Does the same as [`Engine::load`] for a trusted component that is compressed with zstd. It is only decompressed to
    /// be compiled.
    ///
    /// # Errors
    /// Those of [`Engine::load`]; [`Error::Damaged`] also if it can't be decompressed.
    pub fn load_compressed(&self, name: &str, compressed: &[u8]) -> Result<Component, Error> {
        let hash = cache::hash(compressed);
        if let Some(cached) = self.cached(hash) {
            return Ok(cached);
        }
        let bytes = zstd::decode_all(compressed)
            .map_err(|error| Error::Damaged { name: name.to_owned(), reason: error.to_string() })?;
        check_header(name, &bytes)?;
        self.compile(name, hash, &bytes)
    }

    fn compile(&self, name: &str, hash: blake3::Hash, bytes: &[u8]) -> Result<Component, Error> {
        compile_limits::check(name, bytes)?;
        let reused = self.cache.as_ref().zip(self.functions.as_deref());
        let _lock = self.cache.as_ref().and_then(|cache| match reused {
            Some(_) => cache.lock_functions(),
            None => cache.lock(&hash),
        });
        // Another process may have compiled it in the meantime.
        if self.is_cached_hash(&hash)
            && let Some(cached) = self.cached(hash)
        {
            return Ok(cached);
        }
        if let Some((cache, functions)) = reused {
            cache.read_functions(functions);
        }
        let compiled = wasmtime::component::Component::from_binary(&self.inner, bytes);
        if let Some((cache, functions)) = reused {
            cache.put_functions(&hash, functions);
        }
        let compiled = compiled
            .map_err(|error| Error::Damaged { name: name.to_owned(), reason: format!("{error:#}") })?;
        if let Some(cache) = &self.cache {
            cache.put(&hash, compiled.serialize());
        }
        Ok(Component::new(compiled, hash))
    }

    /// Loads a component from the cache, in tens of milliseconds for a large one. Returns `None` if it isn't cached.
    pub fn find(&self, bytes: &[u8]) -> Option<Component> {
        self.cached(cache::hash(bytes))
    }

    fn cached(&self, hash: blake3::Hash) -> Option<Component> {
        let code = self.cache.as_ref()?.get(&self.inner, &hash)?;
        Some(Component::new(code, hash))
    }

    /// Gives the compiled code of a component in the cache to one that differs only in custom sections, which have no
    /// code.
    pub fn reassign(&self, from: &[u8], to: &[u8]) {
        if let Some(cache) = &self.cache {
            cache.reassign(&cache::hash(from), &cache::hash(to));
        }
    }

    /// Returns true if the cache has a component's code, so that loading it needs no compiler.
    pub fn is_cached(&self, bytes: &[u8]) -> bool {
        self.is_cached_hash(&cache::hash(bytes))
    }

    fn is_cached_hash(&self, hash: &blake3::Hash) -> bool {
        self.cache.as_ref().is_some_and(|cache| cache.has(hash))
    }

    /// Returns a note stored with a component's compiled code, such as its description. Returns `None` without a cache or
    /// such a note.
    pub fn note(&self, component: &Component, kind: &str) -> Option<Vec<u8>> {
        let cache = self.cache.as_ref()?;
        std::fs::read(cache.path(&component.raw_hash(), kind)).ok()
    }

    /// Does the same as [`Engine::note`] for a component that is not loaded.
    pub fn note_for_bytes(&self, bytes: &[u8], kind: &str) -> Option<Vec<u8>> {
        let cache = self.cache.as_ref()?;
        std::fs::read(cache.path(&cache::hash(bytes), kind)).ok()
    }

    /// Stores a note with a component's compiled code. Does nothing without a cache.
    pub fn write_note(&self, component: &Component, kind: &str, note: &[u8]) {
        if let Some(cache) = &self.cache
            && let Err(error) = cache.write(&cache.path(&component.raw_hash(), kind), note)
        {
            tracing::warn!(%error, "a note could not be written to the compile cache");
        }
    }

    /// Returns a linker with WASI 0.2, backed only by the store's grants ([`Guest::mount`]), and without `wasi:http`
    /// ([`crate::link_http`], [`crate::deny_http`]).
    ///
    /// # Errors
    /// [`Error::Engine`]; not seen in practice.
    pub fn linker<T: Send + 'static>(&self) -> Result<Linker<Guest<T>>, Error> {
        let fail = |error: wasmtime::Error| Error::Engine(format!("{error:#}"));
        let mut linker = Linker::new(&self.inner);
        linker.allow_shadowing(true);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker).map_err(fail)?;
        wasi_clock::link(&mut linker).map_err(fail)?;
        wasi_random::link(&mut linker).map_err(fail)?;
        wasi_poll::link(&mut linker).map_err(fail)?;
        wasi_filesystem::link(&mut linker).map_err(fail)?;
        wasi_name_lookup::link(&mut linker).map_err(fail)?;
        Ok(linker)
    }

    /// Creates a store for one instance.
    pub fn store<T: Send + 'static>(&self, data: T, limits: &Limits) -> Store<T> {
        Guest::store(&self.inner, data, limits)
    }

    /// Waits until the pool has room for one more instance and reserves it until the permit is dropped. Create stores
    /// after their permit and drop them before it: a pool without room fails to instantiate.
    pub async fn permit(&self, lifetime: Lifetime) -> InstancePermit {
        match Arc::clone(self.semaphore(lifetime)).acquire_owned().await {
            Ok(permit) => InstancePermit(permit),
            Err(_) => unreachable!("the semaphore is never closed"),
        }
    }

    /// Total number of permits.
    pub fn capacity(&self, lifetime: Lifetime) -> usize {
        match lifetime {
            Lifetime::Episode => self.capacity.0,
            Lifetime::Call => self.capacity.1,
        }
    }

    /// Number of permits free at the moment.
    pub fn free_permits(&self, lifetime: Lifetime) -> usize {
        self.semaphore(lifetime).available_permits()
    }

    fn semaphore(&self, lifetime: Lifetime) -> &Arc<Semaphore> {
        match lifetime {
            Lifetime::Episode => &self.episodes,
            Lifetime::Call => &self.calls,
        }
    }
}
