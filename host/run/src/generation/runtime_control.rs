//! Pauses of the embedded engine, and new weights for its policies, on behalf of clients of a server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use pl_inference::{EngineCommand, WeightUpdate};
use pl_model::{Config, Model, TensorSet, Weights};
use pl_types::{GenerateError, ModelDtype, PauseMode, WeightInfo, WeightSource};

use super::{PolicyRouter, Route};

/// Error of a command to the engine of a session.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The weights of a policy can't be replaced.
    #[error("the weights of this policy can't be replaced: {0}")]
    Fixed(&'static str),
    /// The weights don't fit, or can't be read.
    #[error(transparent)]
    Weights(#[from] pl_model::Error),
    /// The model in a folder has other dimensions than that of the policy.
    #[error("{path}: the model has other dimensions than that of the policy", path = .0.display())]
    OtherModel(PathBuf),
    /// The engine refused.
    #[error(transparent)]
    Engine(#[from] GenerateError),
}

/// Commands to the engine of a session.
pub struct RuntimeControl {
    router: Arc<PolicyRouter>,
    /// Weights by policy. `None` where they can't be replaced.
    weights: Vec<Option<Mutex<CurrentWeights>>>,
    state: Mutex<EngineState>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct EngineState {
    is_paused: bool,
    is_sleeping: bool,
}

/// Weights of a policy that is a whole model.
pub(crate) struct CurrentWeights {
    pub(crate) config: Config,
    pub(crate) dtype: ModelDtype,
    pub(crate) weights: Weights,
    pub(crate) version: u64,
    /// `None` until it was needed.
    pub(crate) checksum: Option<String>,
}

impl CurrentWeights {
    fn checksum(&mut self) -> Result<String, pl_model::Error> {
        if let Some(checksum) = &self.checksum {
            return Ok(checksum.clone());
        }
        let checksum = self.weights.checksum()?;
        self.checksum = Some(checksum.clone());
        Ok(checksum)
    }

    /// Reads weights.
    fn read(&mut self, source: &WeightSource) -> Result<Weights, ControlError> {
        match source {
            WeightSource::Folder(folder) => self.read_folder(folder),
            WeightSource::Delta(path) => {
                let checksum = self.checksum()?;
                Ok(self.weights.apply_delta(&self.config, &checksum, path)?)
            }
        }
    }

    fn read_folder(&self, folder: &Path) -> Result<Weights, ControlError> {
        let model = Model::load(folder, self.weights.device(), self.dtype)?;
        if model.weights.sizes() != self.weights.sizes() {
            return Err(ControlError::OtherModel(folder.to_path_buf()));
        }
        Ok(model.weights)
    }
}

impl RuntimeControl {
    pub(crate) fn new(router: Arc<PolicyRouter>, weights: Vec<Option<CurrentWeights>>) -> Self {
        let weights = weights.into_iter().map(|weights| weights.map(Mutex::new)).collect();
        Self { router, weights, state: Mutex::default() }
    }

    fn command(&self, command: EngineCommand) -> Result<(), ControlError> {
        Ok(self.router.engines.iter().try_for_each(|engine| engine.command(command))?)
    }

    fn set(&self, state: EngineState) {
        *self.state.lock() = state;
    }

    /// Returns true between [`Self::pause`] and [`Self::resume`].
    pub fn is_paused(&self) -> bool {
        self.state.lock().is_paused
    }

    /// Returns true between [`Self::sleep`] and [`Self::wake_up`].
    pub fn is_sleeping(&self) -> bool {
        self.state.lock().is_sleeping
    }

    /// Lets all later requests wait. Returns when the engine is at rest.
    ///
    /// # Errors
    /// If the engine has ended.
    pub async fn pause(&self, mode: PauseMode, clear_prefixes: bool) -> Result<(), ControlError> {
        let gate = &self.router.gate;
        match mode {
            PauseMode::Keep => self.command(EngineCommand::Pause)?,
            PauseMode::Abort | PauseMode::Wait => {
                gate.close();
                if mode == PauseMode::Abort {
                    gate.abort();
                }
                gate.drained().await;
            }
        }
        if clear_prefixes {
            self.command(EngineCommand::ClearPrefixes)?;
        }
        self.set(EngineState { is_paused: true, is_sleeping: self.is_sleeping() });
        Ok(())
    }

    /// Goes on after a pause.
    ///
    /// # Errors
    /// If the engine sleeps or has ended.
    pub fn resume(&self) -> Result<(), ControlError> {
        if self.is_sleeping() {
            return Err(GenerateError::Setup("the engine sleeps; wake it up instead".to_owned()).into());
        }
        self.command(EngineCommand::Resume)?;
        self.router.gate.open();
        self.set(EngineState::default());
        Ok(())
    }

    /// Waits for the requests in progress, lets all later ones wait, and gives the memory of the KV cache back.
    ///
    /// # Errors
    /// If the engine is paused with requests in progress, or has ended.
    pub async fn sleep(&self) -> Result<(), ControlError> {
        self.router.gate.close();
        if !self.is_paused() {
            self.router.gate.drained().await;
        }
        if let Err(error) = self.command(EngineCommand::Sleep) {
            if !self.is_paused() {
                self.router.gate.open();
            }
            return Err(error);
        }
        self.set(EngineState { is_paused: true, is_sleeping: true });
        Ok(())
    }

    /// Takes the memory of the KV cache again, and lets requests pass.
    ///
    /// # Errors
    /// If memory runs out, or the engine has ended.
    pub fn wake_up(&self) -> Result<(), ControlError> {
        if !self.is_sleeping() {
            return Ok(());
        }
        self.command(EngineCommand::WakeUp)?;
        self.router.gate.open();
        self.set(EngineState::default());
        Ok(())
    }

    fn current(&self, policy: usize) -> Result<&Mutex<CurrentWeights>, ControlError> {
        let reason = "it is an adapter, shares its model with another policy, or lives on another server";
        self.weights.get(policy).and_then(Option::as_ref).ok_or(ControlError::Fixed(reason))
    }

    /// Replaces the weights of a policy of the workflow that is a whole model. Requests in progress finish with the old
    /// ones. Returns the checksum of the new ones.
    ///
    /// # Errors
    /// If the weights can't be read, don't fit, or the policy is not a model of its own.
    pub fn load_weights(
        &self,
        policy: usize,
        source: &WeightSource,
        version: u64,
    ) -> Result<String, ControlError> {
        let mut current = self.current(policy)?.lock();
        let weights = current.read(source)?;
        let checksum = weights.checksum()?;
        self.publish(policy, WeightUpdate::Weights(weights.shallow()), version)?;
        (current.weights, current.version) = (weights, version);
        current.checksum = Some(checksum.clone());
        Ok(checksum)
    }

    /// Gives the weights of a policy another number, which later completions carry.
    ///
    /// # Errors
    /// If the policy is not a model of its own.
    pub fn set_version(&self, policy: usize, version: u64) -> Result<(), ControlError> {
        let mut current = self.current(policy)?.lock();
        self.publish(policy, WeightUpdate::Version, version)?;
        current.version = version;
        Ok(())
    }

    /// Returns version and checksum of the weights of a policy.
    ///
    /// # Errors
    /// If the policy is not a model of its own.
    pub fn weight_info(&self, policy: usize) -> Result<WeightInfo, ControlError> {
        let mut current = self.current(policy)?.lock();
        Ok(WeightInfo { version: current.version, checksum: current.checksum()? })
    }

    fn publish(&self, policy: usize, update: WeightUpdate, version: u64) -> Result<(), ControlError> {
        match self.router.route(policy).as_deref() {
            Some(Route::Engine(place)) => Ok(place.engine.publish(place.policy, update, version)?),
            _ => Err(ControlError::Fixed("servers generate for it")),
        }
    }
}
