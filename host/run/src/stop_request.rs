//! Requests to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Interval at which a request is looked for.
const LOOK: Duration = Duration::from_millis(100);

/// Request to stop a run after its current step, or a search after its current design. Clones share the request.
#[derive(Debug, Clone, Default)]
pub struct StopRequest(Arc<AtomicBool>);

impl StopRequest {
    /// Requests the stop. Returns true if it had been requested before.
    pub fn request(&self) -> bool {
        self.0.swap(true, Ordering::Relaxed)
    }

    /// Returns true if the stop has been requested.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Waits until the stop is requested.
    pub(crate) async fn requested(&self) {
        while !self.is_requested() {
            tokio::time::sleep(LOOK).await;
        }
    }
}
