//! Weights in the object store.

use std::sync::Arc;

use pl_cluster::{Coordinator, WeightsRef};
use tokio::runtime::Handle;

/// Weights of a learner in the object store. They are removed when no lease will name them any more.
pub(crate) struct LeasedWeights {
    pub(super) reference: WeightsRef,
    coordinator: Arc<Coordinator>,
    runtime: Handle,
}

impl LeasedWeights {
    pub(super) fn new(
        reference: WeightsRef,
        coordinator: Arc<Coordinator>,
        runtime: Handle,
    ) -> LeasedWeights {
        LeasedWeights { reference, coordinator, runtime }
    }
}

impl Drop for LeasedWeights {
    fn drop(&mut self) {
        let (coordinator, hash) = (Arc::clone(&self.coordinator), self.reference.hash.clone());
        self.runtime.spawn(async move { coordinator.remove_blob(&hash).await });
    }
}
