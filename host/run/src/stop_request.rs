//! Requests to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
}
