//! Attempts at a request: on one server, on others after failures, and on two at a time.

use std::future::Future;
use std::pin::pin;

use futures::future::select;

use crate::balancer::Lease;
use crate::error::{Effect, ServerError};
use crate::fleet::Fleet;
use crate::server::Server;

/// Failure of an attempt.
struct Failure {
    /// Index of the server.
    server: usize,
    error: ServerError,
}

impl Fleet {
    /// Makes a call on one server, and on others if that fails.
    ///
    /// # Errors
    /// The last error of a call that was made as often as the fleet's `retries` allow, or that a server refuses.
    pub(crate) async fn attempt<'s, T, F: Future<Output = Result<T, ServerError>>>(
        &'s self,
        beginnings: &[u64],
        call: impl Fn(&'s Server) -> F,
    ) -> Result<T, ServerError> {
        let mut tried = Vec::new();
        let mut counted = 0;
        loop {
            let failures = match self.hedged(beginnings, &tried, &call).await {
                Ok(value) => return Ok(value),
                Err(failures) => failures,
            };
            for Failure { server, error } in failures {
                match error.effect() {
                    Effect::Moves => {}
                    Effect::Counts => {
                        counted += 1;
                        if !tried.contains(&server) {
                            tried.push(server);
                        }
                        if counted > self.config.retries {
                            return Err(error);
                        }
                    }
                    Effect::Ends => return Err(error),
                }
            }
        }
    }

    /// Makes a call on one server and, if that has not answered after the fleet's `hedge_after`, on another one that
    /// has room. The first right answer counts; the other call is cancelled.
    async fn hedged<'s, T, F: Future<Output = Result<T, ServerError>>>(
        &'s self,
        beginnings: &[u64],
        tried: &[usize],
        call: &impl Fn(&'s Server) -> F,
    ) -> Result<T, Vec<Failure>> {
        let lease = self.balancer.acquire(beginnings, tried).await;
        let excluded: Vec<usize> = tried.iter().copied().chain([lease.server]).collect();
        let mut first = pin!(self.call_on(lease, call));
        let Some(wait) = self.config.hedge_after else {
            return first.await.map_err(|failure| vec![failure]);
        };
        if let Ok(result) = tokio::time::timeout(wait, &mut first).await {
            return result.map_err(|failure| vec![failure]);
        }
        let Some(lease) = self.balancer.try_acquire(beginnings, &excluded) else {
            return first.await.map_err(|failure| vec![failure]);
        };
        let second = pin!(self.call_on(lease, call));
        let (result, other) = select(first, second).await.factor_first();
        match result {
            Err(failure) if failure.error.effect() != Effect::Ends => {
                other.await.map_err(|other| vec![failure, other])
            }
            result => result.map_err(|failure| vec![failure]),
        }
    }

    /// Makes a call on a server and reports its result to the balancer.
    async fn call_on<'s, T, F: Future<Output = Result<T, ServerError>>>(
        &'s self,
        lease: Lease<'s>,
        call: &impl Fn(&'s Server) -> F,
    ) -> Result<T, Failure> {
        let index = lease.server;
        let server = &self.servers[index];
        match call(server).await {
            Ok(value) => {
                lease.succeed();
                Ok(value)
            }
            Err(error) => {
                match error.effect() {
                    Effect::Moves | Effect::Counts => lease.fail(&error),
                    // The server works: it has answered.
                    Effect::Ends => lease.succeed(),
                }
                Err(Failure { server: index, error })
            }
        }
    }
}
