//! Gate in front of all generation of a session, which a server closes while its engine is paused.

use tokio::sync::watch;

/// Gate that requests pass. Open at first.
pub(crate) struct Gate {
    closed: watch::Sender<bool>,
    /// Number of requests that have passed and not ended.
    running: watch::Sender<usize>,
    /// Number of times that the requests in progress were aborted.
    aborts: watch::Sender<u64>,
}

/// A request that has passed.
pub(crate) struct Passage<'g> {
    gate: &'g Gate,
    aborts: watch::Receiver<u64>,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            closed: watch::Sender::new(false),
            running: watch::Sender::new(0),
            aborts: watch::Sender::new(0),
        }
    }
}

impl Gate {
    /// Waits until the gate is open.
    pub(crate) async fn pass(&self) -> Passage<'_> {
        loop {
            // The sender lives as long as the gate.
            let _ = self.closed.subscribe().wait_for(|closed| !closed).await;
            self.running.send_modify(|running| *running += 1);
            let passage = Passage { gate: self, aborts: self.aborts.subscribe() };
            // It may have been closed before the request was counted.
            if !*self.closed.borrow() {
                return passage;
            }
        }
    }

    /// Keeps all later requests waiting.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }

    pub(crate) fn open(&self) {
        self.closed.send_replace(false);
    }

    /// Ends the requests in progress.
    pub(crate) fn abort(&self) {
        self.aborts.send_modify(|aborts| *aborts += 1);
    }

    /// Waits until no request is in progress.
    pub(crate) async fn drained(&self) {
        let _ = self.running.subscribe().wait_for(|running| *running == 0).await;
    }
}

impl Passage<'_> {
    /// Waits until the request is aborted.
    pub(crate) async fn aborted(&mut self) {
        let _ = self.aborts.changed().await;
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        self.gate.running.send_modify(|running| *running -= 1);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_closed_gate_keeps_later_requests_and_waits_for_earlier_ones() {
        let gate = Gate::default();
        let mut first = gate.pass().await;
        gate.close();
        assert!(gate.pass().now_or_never().is_none());
        assert!(gate.drained().now_or_never().is_none());
        assert!(first.aborted().now_or_never().is_none());
        gate.abort();
        first.aborted().await;
        drop(first);
        gate.drained().await;
        gate.open();
        assert!(gate.pass().now_or_never().is_some());
    }
}
