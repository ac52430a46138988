//! Instances that are shared by stateless calls.

use std::sync::{Arc, Mutex, PoisonError};

use pl_wasm::{InstancePermit, Lifetime, Store};

use crate::Stream;
use crate::error::Failed;
use crate::journal::Journal;
use crate::plugin::Inner;
use crate::services::{Context, begin, settle};

/// Calls that one instance serves before it is replaced, so that a slow leak never becomes an error.
const CALLS: u32 = 10_000;

/// Idle instances kept. More are made when more calls run at once, and dropped after.
const IDLE: usize = 16;

/// An instance with its store. Fields are dropped in this order: the seat last.
struct Instance<B> {
    bindings: B,
    store: Store<Context>,
    calls: u32,
    _permit: InstancePermit,
}

/// A call that keeps nothing: all that tells it from others.
pub(crate) struct Call<'c> {
    pub item: &'c Arc<str>,
    pub function: &'static str,
    pub stream: Stream,
    pub journal: Option<&'c Journal>,
}

/// Idle instances of one plugin and world.
pub(crate) struct Pool<B> {
    /// Boxed, for they come and go with every call.
    idle: Mutex<Vec<Box<Instance<B>>>>,
}

impl<B> Default for Pool<B> {
    fn default() -> Self {
        Self { idle: Mutex::default() }
    }
}

impl<B> Pool<B> {
    /// Makes one call on an idle instance, or on a new one from `make`. The instance comes back only where the
    /// call returned. The call begins with the clock, the randomness and the stream of a fresh instance.
    pub(crate) async fn call<R>(
        &self,
        plugin: &Inner,
        Call { item, function, stream, journal }: Call<'_>,
        make: impl AsyncFnOnce(&mut Store<Context>) -> wasmtime::Result<B>,
        work: impl AsyncFnOnce(&B, &mut Store<Context>) -> wasmtime::Result<R>,
    ) -> Result<R, Failed> {
        let mut instance = match self.take() {
            Some(instance) => instance,
            None => {
                let seat = plugin.engine.permit(Lifetime::Call).await;
                let mut store = plugin.store(item, None, Stream::new([0; 32]), None);
                let made = pl_wasm::call(&mut store, make).await;
                let bindings = made.map_err(|fault| Failed::fault(fault, &mut store))?;
                Box::new(Instance { bindings, store, calls: 0, _permit: seat })
            }
        };
        let guest = instance.store.data_mut();
        guest.data.item = Arc::clone(item);
        guest.data.stream = stream;
        guest.data.journal = journal.cloned();
        begin(&mut instance.store, function);
        let bindings = &instance.bindings;
        let returned = pl_wasm::call(&mut instance.store, async |store| work(bindings, store).await).await;
        let returned = returned.map_err(|fault| Failed::fault(fault, &mut instance.store))?;
        settle(&mut instance.store);
        self.give_back(instance, plugin.crowded());
        Ok(returned)
    }

    fn take(&self) -> Option<Box<Instance<B>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// Keeps an instance, unless it has served long enough, or `crowded`: others may be waiting for its seat.
    fn give_back(&self, mut instance: Box<Instance<B>>, crowded: bool) {
        instance.calls += 1;
        if instance.calls >= CALLS || crowded {
            return;
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE {
            idle.push(instance);
        }
    }
}
