//! Adapters that are added to the embedded engine at run time, for clients of a server.

use std::path::Path;
use std::sync::Arc;

use pl_inference::PolicyWeights;
use pl_model::{Adapter, Config};
use pl_record::hash_file;

use crate::error::Error;

use super::store::TENSORS;
use super::{EnginePolicy, PolicyRouter, Route, no_route};

/// Loader of adapters into the engine of a session.
#[derive(Clone)]
pub struct RuntimeAdapters {
    router: Arc<PolicyRouter>,
    /// Dimensions of each policy's model.
    configs: Arc<[Config]>,
}

impl RuntimeAdapters {
    pub(crate) fn new(router: Arc<PolicyRouter>, configs: Vec<Config>) -> Self {
        Self { router, configs: configs.into() }
    }

    /// Loads a PEFT folder onto the base model of a policy of the workflow. Returns the index of the new
    /// policy, and the hash of the adapter's file of tensors.
    ///
    /// # Errors
    /// If the folder can't be read, the adapter does not fit the model, or servers generate for the policy.
    pub fn load(&self, base: usize, folder: &Path, version: u64) -> Result<(usize, String), Error> {
        let missing = || Error::Engine(no_route(base));
        let config = self.configs.get(base).ok_or_else(missing)?;
        let unusable = |reason: String| Error::WeightFiles { path: folder.to_path_buf(), reason };
        let adapter = Adapter::load(folder, config).map_err(|error| unusable(error.to_string()))?;
        let checksum = hash_file(&folder.join(TENSORS)).map_err(Error::RunFolder)?;
        let route = self.router.route(base);
        let Some(Route::Engine(place)) = route.as_deref() else {
            return Err(unusable("other servers generate for the policy on whose model it is".to_owned()));
        };
        let weights = PolicyWeights { base: place.base, adapter: Some(adapter), version };
        let policy = place.engine.add_policy(weights).map_err(Error::Engine)?;
        let mut routes = self.router.routes.write();
        routes.push(Arc::new(Route::Engine(EnginePolicy { policy, ..place.clone() })));
        Ok((routes.len() - 1, checksum))
    }

    /// Removes a policy that was loaded. Requests in progress finish.
    ///
    /// # Errors
    /// If there is no such policy.
    pub fn unload(&self, policy: usize) -> Result<(), Error> {
        let missing = || Error::Engine(no_route(policy));
        let mut routes = self.router.routes.write();
        let route = routes.get_mut(policy).filter(|_| policy >= self.configs.len()).ok_or_else(missing)?;
        match std::mem::replace(route, Arc::new(Route::Removed)).as_ref() {
            Route::Engine(place) => place.engine.remove_policy(place.policy).map_err(Error::Engine),
            _ => Err(missing()),
        }
    }
}
