//! Counts and latencies of the requests to one server.

use std::future::Future;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;

use crate::error::ServerError;

/// Requests to one server over some time.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ServerStats {
    /// Address of the server.
    pub server: String,
    /// Requests with a right answer.
    pub requests: u64,
    /// Requests without one.
    pub failures: u64,
    /// Requests that were given up before their answer: another server was faster, or the run ended.
    pub cancelled: u64,
    /// Tokens of the completions.
    pub tokens: u64,
    /// Mean time of a request with a right answer, in seconds. `None` if there was none.
    pub mean_seconds: Option<f64>,
    /// 95 % of these requests took no longer. `None` if there was none.
    pub p95_seconds: Option<f64>,
}

/// Counters behind [`ServerStats`].
#[derive(Debug, Default)]
pub(crate) struct StatsCounters(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    failures: u64,
    cancelled: u64,
    tokens: u64,
    /// Times of the requests with a right answer.
    latencies: Vec<Duration>,
}

impl StatsCounters {
    /// Awaits a request and counts it, also if it is cancelled.
    pub(crate) async fn measure<T>(
        &self,
        request: impl Future<Output = Result<T, ServerError>>,
        tokens: impl Fn(&T) -> u64,
    ) -> Result<T, ServerError> {
        let start = Instant::now();
        let cancelled = Cancelled(self);
        let result = request.await;
        std::mem::forget(cancelled);
        let mut counts = self.0.lock();
        match &result {
            Ok(answer) => {
                counts.tokens += tokens(answer);
                counts.latencies.push(start.elapsed());
            }
            Err(_) => counts.failures += 1,
        }
        drop(counts);
        result
    }

    /// Returns the counts since the last call.
    pub(crate) fn take(&self, server: &str) -> ServerStats {
        let Counts { failures, cancelled, tokens, mut latencies } = std::mem::take(&mut *self.0.lock());
        latencies.sort_unstable();
        let count = latencies.len();
        let mean = latencies.iter().sum::<Duration>().as_secs_f64() / count.max(1) as f64;
        let p95 = latencies.get((count * 95).div_ceil(100).saturating_sub(1));
        ServerStats {
            server: server.to_owned(),
            requests: count as u64,
            failures,
            cancelled,
            tokens,
            mean_seconds: (count > 0).then_some(mean),
            p95_seconds: p95.map(Duration::as_secs_f64),
        }
    }
}

/// Counts a request as cancelled when it is dropped before its answer.
struct Cancelled<'c>(&'c StatsCounters);

impl Drop for Cancelled<'_> {
    fn drop(&mut self) {
        self.0.0.lock().cancelled += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_are_counted_once() {
        let counters = StatsCounters::default();
        for tokens in [3, 4] {
            counters.measure(std::future::ready(Ok(tokens)), |tokens| *tokens).await.unwrap();
        }
        let failure = ServerError::Busy { server: "s".into(), message: String::new(), retry_after: None };
        assert!(
            counters.measure(std::future::ready(Err::<u64, _>(failure)), |tokens| *tokens).await.is_err()
        );
        let endless = counters.measure(std::future::pending::<Result<u64, _>>(), |tokens| *tokens);
        assert!(tokio::time::timeout(Duration::from_millis(1), endless).await.is_err());
        let stats = counters.take("s");
        assert_eq!((stats.requests, stats.failures, stats.cancelled, stats.tokens), (2, 1, 1, 7));
        assert!(
            stats.mean_seconds.is_some() && stats.p95_seconds >= stats.mean_seconds.map(|mean| mean / 2.0)
        );
        assert_eq!(counters.take("s"), ServerStats { server: "s".into(), ..ServerStats::default() });
    }
}
