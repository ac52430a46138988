//! Errands that wait for a container.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Semaphore;

use super::errand::Errand;

/// First come, first served, but for those that lost their container: they go first.
pub struct Queue {
    waiting: Mutex<VecDeque<Errand>>,
    /// As many permits as errands wait.
    count: Semaphore,
}

impl Queue {
    pub fn new() -> Self {
        Self { waiting: Mutex::default(), count: Semaphore::new(0) }
    }

    pub fn push(&self, errand: Errand) {
        self.lock().push_back(errand);
        self.count.add_permits(1);
    }

    pub fn push_first(&self, errand: Errand) {
        self.lock().push_front(errand);
        self.count.add_permits(1);
    }

    /// Waits for an errand. Nothing is lost where this is cancelled.
    pub async fn pop(&self) -> Errand {
        loop {
            if let Ok(permit) = self.count.acquire().await {
                permit.forget();
            }
            if let Some(errand) = self.lock().pop_front() {
                return errand;
            }
        }
    }

    /// All that wait now.
    pub fn take_all(&self) -> Vec<Errand> {
        let mut taken = Vec::new();
        while let Ok(permit) = self.count.try_acquire() {
            permit.forget();
            taken.extend(self.lock().pop_front());
        }
        taken
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Errand>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
