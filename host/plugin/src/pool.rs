//! Pool of instances for stateless calls.

use std::sync::Arc;

use parking_lot::Mutex;
use pl_types::AnswerQuestions;
use pl_wasm::{InstancePermit, Lifetime, Store};

use crate::call_log::CallLog;
use crate::error::CallFailure;
use crate::random::RandomStream;
use crate::services::{Context, Services, begin_call, end_call};
use crate::stores::StoreFactory;

/// Number of calls after which an instance is replaced, so that a slow leak never becomes an error.
const MAX_CALLS: u32 = 10_000;

/// Limit of idle instances. More are created while more calls run concurrently, and dropped afterwards.
const MAX_IDLE: usize = 16;

/// An instance with its store. Fields are dropped in this order: the permit last.
struct Instance<B> {
    bindings: B,
    store: Store<Context>,
    calls: u32,
    _permit: InstancePermit,
}

/// Identity of a stateless call.
pub(crate) struct StatelessCall<'c> {
    pub item: &'c Arc<str>,
    pub function: &'static str,
    pub stream: RandomStream,
    pub call_log: Option<&'c CallLog>,
    /// Services that the call may use besides the random stream and the log.
    pub services: Option<Services>,
    /// Policies that the call may ask.
    pub policies: Option<Arc<dyn AnswerQuestions>>,
}

/// Idle instances of one plugin and world.
pub(crate) struct InstancePool<B> {
    /// Boxed, because each call moves an instance out and back.
    idle: Mutex<Vec<Box<Instance<B>>>>,
}

impl<B> Default for InstancePool<B> {
    fn default() -> Self {
        Self { idle: Mutex::default() }
    }
}

impl<B> InstancePool<B> {
    /// Makes one call on an idle instance, or on a new one from `make`. The instance returns to the pool only
    /// if the call succeeds. The call starts with the clock, the randomness and the stream of a fresh
    /// instance.
    pub(crate) async fn call<R>(
        &self,
        stores: &StoreFactory,
        StatelessCall { item, function, stream, call_log, services, policies }: StatelessCall<'_>,
        make: impl AsyncFnOnce(&mut Store<Context>) -> wasmtime::Result<B>,
        work: impl AsyncFnOnce(&B, &mut Store<Context>) -> wasmtime::Result<R>,
    ) -> Result<R, CallFailure> {
        let mut instance = match self.acquire() {
            Some(instance) => instance,
            None => {
                let permit = stores.engine.permit(Lifetime::Call).await;
                // Instances are made for whichever episode comes first: their start is no part of its recording, so
                // it sends no requests.
                let mut store = stores.offline(item, RandomStream::new([0; 32]));
                let created = pl_wasm::call(&mut store, make).await;
                let bindings = created.map_err(|fault| CallFailure::fault(fault, &mut store))?;
                stores.allow_hosts(&mut store);
                Box::new(Instance { bindings, store, calls: 0, _permit: permit })
            }
        };
        let guest = instance.store.data_mut();
        guest.data.item = Arc::clone(item);
        guest.data.stream = stream;
        guest.data.call_log = call_log.cloned();
        (guest.data.services, guest.data.policies) = (services, policies);
        begin_call(&mut instance.store, function);
        let bindings = &instance.bindings;
        let returned = pl_wasm::call(&mut instance.store, async |store| work(bindings, store).await).await;
        let returned = returned.map_err(|fault| CallFailure::fault(fault, &mut instance.store))?;
        end_call(&mut instance.store);
        self.release(instance, stores.permits_are_scarce());
        Ok(returned)
    }

    fn acquire(&self) -> Option<Box<Instance<B>>> {
        self.idle.lock().pop()
    }

    /// Returns an instance to the pool, unless it has reached its number of calls or another call may need
    /// its permit.
    fn release(&self, mut instance: Box<Instance<B>>, permits_are_scarce: bool) {
        instance.calls += 1;
        if instance.calls >= MAX_CALLS || permits_are_scarce {
            return;
        }
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE {
            idle.push(instance);
        }
    }
}
