//! Weights that leases name.

use std::sync::Arc;

use pl_cluster::{Coordinator, WeightsRef};
use tokio::runtime::Handle;

use super::weights_folder::WeightsFolder;

/// Weights of a learner that leases name. They are removed when no lease will name them any more.
pub(crate) struct LeasedWeights {
    pub(super) reference: WeightsRef,
    place: WeightsPlace,
}

/// Place of a run's weights.
pub(super) enum WeightsPlace {
    /// The object store of the server.
    Server(Arc<Coordinator>, Handle),
    /// A folder that all machines share.
    Folder(Arc<WeightsFolder>),
}

impl LeasedWeights {
    pub(super) fn new(reference: WeightsRef, place: WeightsPlace) -> LeasedWeights {
        LeasedWeights { reference, place }
    }
}

impl Drop for LeasedWeights {
    fn drop(&mut self) {
        let WeightsRef { learner, hash, .. } = &self.reference;
        match &self.place {
            WeightsPlace::Server(coordinator, runtime) => {
                let (coordinator, hash) = (Arc::clone(coordinator), hash.clone());
                runtime.spawn(async move { coordinator.remove_blob(&hash).await });
            }
            WeightsPlace::Folder(folder) => folder.remove(*learner, hash),
        }
    }
}
