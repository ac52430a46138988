//! Commands to the engine: pauses, sleep, and new weights of whole models.

use async_trait::async_trait;
use pl_types::{PauseMode, WeightInfo, WeightSource};

/// Message of a command that was refused.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct ControlError(pub String);

/// An engine that is controlled while it runs.
#[async_trait]
pub trait EngineControl: Send + Sync {
    /// Lets all later requests wait. Returns when the engine is at rest.
    async fn pause(&self, mode: PauseMode, clear_cache: bool) -> Result<(), ControlError>;
    /// Goes on after a pause.
    async fn resume(&self) -> Result<(), ControlError>;
    fn is_paused(&self) -> bool;
    /// Waits for the requests in progress, lets all later ones wait, and gives the memory of the KV cache back.
    async fn sleep(&self) -> Result<(), ControlError>;
    /// Takes the memory of the KV cache again, and lets requests pass.
    async fn wake_up(&self) -> Result<(), ControlError>;
    fn is_sleeping(&self) -> bool;
    /// Replaces the weights of a policy. Returns their checksum.
    async fn load_weights(
        &self,
        policy: usize,
        source: WeightSource,
        version: u64,
    ) -> Result<String, ControlError>;
    /// Gives the weights of a policy another version.
    async fn set_version(&self, policy: usize, version: u64) -> Result<(), ControlError>;
    async fn weight_info(&self, policy: usize) -> Result<WeightInfo, ControlError>;
}
