//! The memory that a guest may make the host hold, in one budget: linear memory, files, their names, and open handles.
//!
//! Everything counts by the bytes that the host allocates for it, until it is freed. So a guest holds no more than its limit
//! whatever it does, apart from the fixed size of a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A limit on bytes and their use. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct MemoryBudget {
    shared: Arc<Counters>,
}

#[derive(Debug)]
struct Counters {
    limit: u64,
    used: AtomicU64,
    /// Largest value of `used`.
    peak: AtomicU64,
}

/// Bytes of a budget, returned to it when dropped.
#[derive(Debug)]
pub(crate) struct MemoryCharge {
    budget: MemoryBudget,
    bytes: u64,
}

/// The budget has too little left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exhausted;

impl MemoryBudget {
    pub(crate) fn new(limit: u64) -> Self {
        Self { shared: Arc::new(Counters { limit, used: AtomicU64::new(0), peak: AtomicU64::new(0) }) }
    }

    /// Maximum number of bytes.
    pub(crate) fn limit(&self) -> u64 {
        self.shared.limit
    }

    /// Largest number of bytes that were in use at the same time.
    pub(crate) fn peak(&self) -> u64 {
        self.shared.peak.load(Ordering::Relaxed)
    }

    /// Takes bytes for good.
    pub(crate) fn take(&self, bytes: u64) -> Result<(), Exhausted> {
        let Counters { limit, used, peak } = &*self.shared;
        let add = |used: u64| used.checked_add(bytes).filter(|sum| sum <= limit);
        let before = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).map_err(|_| Exhausted)?;
        peak.fetch_max(before + bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Takes bytes until the charge is dropped.
    pub(crate) fn charge(&self, bytes: u64) -> Result<MemoryCharge, Exhausted> {
        self.take(bytes)?;
        Ok(MemoryCharge { budget: self.clone(), bytes })
    }
}

impl MemoryCharge {
    /// Raises the number of bytes.
    pub(crate) fn grow(&mut self, bytes: u64) -> Result<(), Exhausted> {
        self.budget.take(bytes.saturating_sub(self.bytes))?;
        self.bytes = self.bytes.max(bytes);
        Ok(())
    }

    /// Lowers the number of bytes.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        self.release(self.bytes.saturating_sub(bytes));
        self.bytes = self.bytes.min(bytes);
    }

    fn release(&self, bytes: u64) {
        self.budget.shared.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        self.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_return_their_bytes() {
        let budget = MemoryBudget::new(100);
        let mut first = budget.charge(60).unwrap();
        assert!(budget.charge(41).is_err());
        first.grow(90).unwrap();
        assert_eq!(first.grow(101), Err(Exhausted));
        first.shrink(10);
        let second = budget.charge(90).unwrap();
        drop((first, second));
        assert_eq!(budget.peak(), 100);
        budget.take(100).unwrap();
        assert_eq!(budget.take(1), Err(Exhausted));
        assert_eq!(budget.take(u64::MAX), Err(Exhausted));
    }
}
