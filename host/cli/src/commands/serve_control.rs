//! The engine of a session as the server's commands reach it.

use std::sync::Arc;

use async_trait::async_trait;
use pl_run::RuntimeControl;
use pl_serve::{ControlError, EngineControl};
use pl_types::{PauseMode, WeightInfo, WeightSource};

/// Commands to the engine of a session.
pub struct SessionControl(pub Arc<RuntimeControl>);

fn refused(error: impl std::fmt::Display) -> ControlError {
    ControlError(error.to_string())
}

impl SessionControl {
    /// Runs a command that reads files or waits for the engine.
    async fn blocking<T: Send + 'static>(
        &self,
        command: impl FnOnce(&RuntimeControl) -> Result<T, pl_run::ControlError> + Send + 'static,
    ) -> Result<T, ControlError> {
        let control = Arc::clone(&self.0);
        tokio::task::spawn_blocking(move || command(&control)).await.map_err(refused)?.map_err(refused)
    }
}

#[async_trait]
impl EngineControl for SessionControl {
    async fn pause(&self, mode: PauseMode, clear_cache: bool) -> Result<(), ControlError> {
        self.0.pause(mode, clear_cache).await.map_err(refused)
    }

    async fn resume(&self) -> Result<(), ControlError> {
        self.blocking(RuntimeControl::resume).await
    }

    fn is_paused(&self) -> bool {
        self.0.is_paused()
    }

    async fn sleep(&self) -> Result<(), ControlError> {
        self.0.sleep().await.map_err(refused)
    }

    async fn wake_up(&self) -> Result<(), ControlError> {
        self.blocking(RuntimeControl::wake_up).await
    }

    fn is_sleeping(&self) -> bool {
        self.0.is_sleeping()
    }

    async fn load_weights(
        &self,
        policy: usize,
        source: WeightSource,
        version: u64,
    ) -> Result<String, ControlError> {
        self.blocking(move |control| control.load_weights(policy, &source, version)).await
    }

    async fn set_version(&self, policy: usize, version: u64) -> Result<(), ControlError> {
        self.blocking(move |control| control.set_version(policy, version)).await
    }

    async fn weight_info(&self, policy: usize) -> Result<WeightInfo, ControlError> {
        self.blocking(move |control| control.weight_info(policy)).await
    }
}
