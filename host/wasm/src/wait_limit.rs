//! The limit on waits.
//!
//! Neither fuel nor the backstop counts while a guest waits in the host, for example for an HTTP response, and some waits
//! would never end. So the waits of one call have a limit of their own.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::time::Sleep;

/// Reasons for which a suspended call is not waiting in the sense of the limit. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct WaitMonitor {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// True if the guest has just yielded to other tasks of its thread.
    yielded: AtomicBool,
    /// Number of running host functions that limit their own duration.
    exempt: AtomicUsize,
}

/// Exempts the waits of a call from their limit until it is dropped; see [`crate::Guest::exempt_wait`].
#[derive(Debug)]
#[must_use = "waits are exempt until this is dropped"]
pub struct WaitExemption {
    monitor: WaitMonitor,
}

impl WaitMonitor {
    /// Notes that the guest yields, so that its next suspension is not a wait.
    pub(crate) fn note_yield(&self) {
        self.shared.yielded.store(true, Ordering::Relaxed);
    }

    pub(crate) fn exempt(&self) -> WaitExemption {
        self.shared.exempt.fetch_add(1, Ordering::Relaxed);
        WaitExemption { monitor: self.clone() }
    }

    /// Returns true if a call that is suspended now waits in the host.
    fn take_waiting(&self) -> bool {
        let yielded = self.shared.yielded.swap(false, Ordering::Relaxed);
        !yielded && self.shared.exempt.load(Ordering::Relaxed) == 0
    }
}

impl Drop for WaitExemption {
    fn drop(&mut self) {
        self.monitor.shared.exempt.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Performs a call. Returns `None` if its waits together last longer than `limit`; the call is cancelled then.
pub(crate) async fn limited<F: Future>(call: F, monitor: &WaitMonitor, limit: Duration) -> Option<F::Output> {
    let mut call = pin!(call);
    let mut waited = Duration::ZERO;
    // Start of the current wait, and the timer that wakes this task at its end.
    let mut wait: Option<(Instant, Pin<Box<Sleep>>)> = None;
    poll_fn(|context| {
        if let Some((start, _)) = wait.take() {
            waited += start.elapsed();
        }
        if let Poll::Ready(output) = call.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        if !monitor.take_waiting() {
            return Poll::Pending;
        }
        let mut timer = Box::pin(tokio::time::sleep(limit.saturating_sub(waited)));
        if waited >= limit || timer.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        wait = Some((Instant::now(), timer));
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn waits_count_together() {
        let monitor = WaitMonitor::default();
        let waits = async {
            for _ in 0..100 {
                sleep(LIMIT / 10).await;
            }
        };
        assert_eq!(limited(waits, &monitor, LIMIT).await, None);
        assert_eq!(limited(sleep(LIMIT / 10), &monitor, 100 * LIMIT).await, Some(()));
        assert_eq!(limited(std::future::pending::<()>(), &monitor, LIMIT).await, None);
    }

    #[tokio::test]
    async fn yields_and_exempt_waits_do_not_count() {
        let monitor = WaitMonitor::default();
        let exempt = async {
            let _exemption = monitor.exempt();
            sleep(2 * LIMIT).await;
        };
        assert_eq!(limited(exempt, &monitor, LIMIT).await, Some(()));
        let yields = async {
            let start = Instant::now();
            while start.elapsed() < 2 * LIMIT {
                std::thread::sleep(LIMIT / 10);
                monitor.note_yield();
                tokio::task::yield_now().await;
            }
        };
        assert_eq!(limited(yields, &monitor, LIMIT).await, Some(()));
    }
}
