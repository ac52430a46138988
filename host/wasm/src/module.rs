//! Core modules that are functions from bytes to bytes: no imports, no WASI, no waiting.
//!
//! A module exports its `memory`, `allocate(length) -> address` for an argument, and functions without parameters that read
//! the argument and return the place of their result: the address in the upper 32 bits, the length in the lower ones.

use std::path::Path;
use std::time::Duration;

use pl_types::erased::Erased;
use wasmtime::{Config, Engine, Instance, InstancePre, Linker, Memory, Store, TypedFunc};

use crate::cache::{self, Cache};
use crate::error::{CallContext, classify};
use crate::limits::{self, Limiter};
use crate::{Error, GuestFault, Limits};

/// Stack of compiled code, in bytes. It is part of the calling thread's, of which most threads have 2 MiB.
const STACK: usize = 512 << 10;

/// A compiled module. Cheap to clone.
#[derive(Clone)]
pub struct Module {
    prepared: Erased<InstancePre<Limiter>>,
    limits: Limits,
}

/// An instance of a [`Module`]. It keeps its state from call to call.
pub struct ModuleInstance {
    store: Store<Limiter>,
    instance: Instance,
    memory: Memory,
    allocate: TypedFunc<u32, u32>,
    limits: Limits,
}

impl Module {
    /// Compiles a module, or loads it from the compile cache in `cache_dir`. `name` is for messages. Of the limits, those
    /// on memory, tables, fuel and returned bytes apply: a module calls nothing that could wait.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is no module or has imports, [`Error::Cache`] if the folder can't be created.
    pub fn load(name: &str, bytes: &[u8], cache_dir: Option<&Path>, limits: Limits) -> Result<Self, Error> {
        let mut config = Config::new();
        config
            .consume_fuel(true)
            .operator_cost(limits::costs())
            .max_wasm_stack(STACK)
            // Results must not depend on the CPU.
            .cranelift_nan_canonicalization(true)
            .relaxed_simd_deterministic(true);
        let engine = Engine::new(&config).map_err(|error| Error::Engine(format!("{error:#}")))?;
        let damaged =
            |error: wasmtime::Error| Error::Damaged { name: name.to_owned(), reason: format!("{error:#}") };
        let cache = cache_dir.map(|folder| Cache::open(folder, &engine)).transpose()?;
        let hash = cache::hash(bytes);
        let cached = cache.as_ref().and_then(|cache| cache.get_module(&engine, &hash));
        let module = match cached {
            Some(module) => module,
            None => {
                let module = wasmtime::Module::from_binary(&engine, bytes).map_err(damaged)?;
                if let Some(cache) = &cache {
                    cache.put(&hash, module.serialize());
                }
                module
            }
        };
        let prepared = Linker::new(&engine).instantiate_pre(&module).map_err(damaged)?;
        Ok(Self { prepared: Erased::new(prepared), limits })
    }

    /// Creates an instance.
    ///
    /// # Errors
    /// [`GuestFault`] if the module needs more than its limits to start, or lacks the exports.
    pub fn instantiate(&self) -> Result<ModuleInstance, GuestFault> {
        let mut store = Store::new(self.prepared.module().engine(), Limiter::new(&self.limits));
        store.limiter(|limiter| limiter);
        let started = self.start(&mut store);
        let (instance, memory, allocate) =
            started.map_err(|error| classify(&error, &context(&store, &self.limits)))?;
        Ok(ModuleInstance { store, instance, memory, allocate, limits: self.limits.clone() })
    }

    fn start(&self, store: &mut Store<Limiter>) -> wasmtime::Result<(Instance, Memory, TypedFunc<u32, u32>)> {
        store.set_fuel(self.limits.fuel)?;
        let instance = self.prepared.instantiate(&mut *store)?;
        let memory = instance.get_memory(&mut *store, "memory");
        let memory = memory.ok_or_else(|| wasmtime::Error::msg("the module exports no memory"))?;
        Ok((instance, memory, instance.get_typed_func(&mut *store, "allocate")?))
    }
}

impl ModuleInstance {
    /// Calls an exported function.
    ///
    /// # Errors
    /// The [`GuestFault`] that ended the call. The instance must not be used afterwards.
    pub fn call(&mut self, function: &str, argument: &[u8]) -> Result<Vec<u8>, GuestFault> {
        self.store.data_mut().refused = None;
        let packed = match self.run(function, argument) {
            Ok(packed) => packed,
            Err(error) => return Err(classify(&error, &context(&self.store, &self.limits))),
        };
        let (address, length) = (packed >> 32, packed & u64::from(u32::MAX));
        if length > self.limits.returned {
            return Err(GuestFault::Returned { limit: self.limits.returned });
        }
        let range = address as usize..(address + length) as usize;
        let result = self.memory.data(&self.store).get(range).map(<[u8]>::to_vec);
        result.ok_or_else(|| GuestFault::Rules("a result is outside of the memory".to_owned()))
    }

    fn run(&mut self, function: &str, argument: &[u8]) -> wasmtime::Result<u64> {
        let length = u32::try_from(argument.len())?;
        let function: TypedFunc<(), u64> = self.instance.get_typed_func(&mut self.store, function)?;
        self.store.set_fuel(self.limits.fuel)?;
        let address = self.allocate.call(&mut self.store, length)?;
        self.memory.write(&mut self.store, address as usize, argument)?;
        function.call(&mut self.store, ())
    }

    /// Bytes of linear memory, which grows and never shrinks.
    pub fn memory(&self) -> u64 {
        self.memory.data_size(&self.store) as u64
    }
}

fn context(store: &Store<Limiter>, limits: &Limits) -> CallContext {
    CallContext {
        fuel: limits.fuel,
        timeout: Duration::MAX,
        wait: Duration::MAX,
        memory: limits.memory,
        table: limits.table,
        returned: limits.returned,
        refused: store.data().refused,
    }
}
