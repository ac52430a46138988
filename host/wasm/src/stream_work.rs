//! Fuel for the work of streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Fuel owed for reads and writes of a guest's streams, deducted when the host call returns. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct StreamWork(Arc<AtomicU64>);

impl StreamWork {
    pub(crate) fn charge(&self, fuel: u64) {
        self.0.fetch_add(fuel, Ordering::Relaxed);
    }

    pub(crate) fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }
}
