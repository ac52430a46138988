//! Choice of a server for each request: health, connections and placement.

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::config::Backoff;
use crate::error::ServerError;
use crate::event::{FleetEvent, Observer};
use crate::health::Health;
use crate::placement::Placement;

/// Number of failures in a row after which a server is reported.
const REPORTED_AFTER: u32 = 3;

/// State of all servers of a fleet.
pub(crate) struct Balancer {
    fleet: String,
    addresses: Vec<String>,
    connections: usize,
    state: Mutex<State>,
    /// Wakes requests that wait for a server.
    changed: Notify,
    observer: Observer,
}

struct State {
    health: Vec<Health>,
    /// Requests in progress by server.
    in_flight: Vec<usize>,
    placement: Placement,
    /// True while no server works, once that was reported.
    paused: bool,
    /// Message of the latest failure.
    last_failure: String,
}

/// Result of a look for a server.
enum Choice {
    Server(usize),
    /// None has room: the time at which one may be asked again, if that is known.
    Wait(Option<Instant>),
}

/// Right of a request to be in progress on a server. Its result is reported with [`Lease::succeed`] or
/// [`Lease::fail`]; a request that was cancelled reports none.
pub(crate) struct Lease<'b> {
    balancer: &'b Balancer,
    /// Index of the server.
    pub(crate) server: usize,
    epoch: u64,
}

impl Balancer {
    pub(crate) fn new(
        fleet: &str,
        addresses: &[String],
        connections: usize,
        backoff: Backoff,
        observer: Observer,
    ) -> Self {
        let state = State {
            health: addresses.iter().map(|_| Health::new(backoff)).collect(),
            in_flight: vec![0; addresses.len()],
            placement: Placement::default(),
            paused: false,
            last_failure: String::new(),
        };
        Self {
            fleet: fleet.to_owned(),
            addresses: addresses.to_vec(),
            connections: connections.max(1),
            state: Mutex::new(state),
            changed: Notify::new(),
            observer,
        }
    }

    /// Waits for a server with room. Servers in `tried` have failed on the request: they get it again only if no
    /// other server works.
    pub(crate) async fn acquire(&self, beginnings: &[u64], tried: &[usize]) -> Lease<'_> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registered before the look, so that no change is missed.
            changed.as_mut().enable();
            let choice = {
                let mut state = self.state.lock();
                let choice = state.choose(beginnings, tried, self.connections, Instant::now());
                if let Choice::Server(server) = choice {
                    return self.begin(&mut state, server);
                }
                choice
            };
            self.report_pause();
            match choice {
                Choice::Wait(Some(until)) => {
                    tokio::select! { () = changed => {}, () = sleep_until(until) => {} }
                }
                _ => changed.await,
            }
        }
    }

    /// Returns a lease of a server other than those in `excluded` if one has room now.
    pub(crate) fn try_acquire(&self, beginnings: &[u64], excluded: &[usize]) -> Option<Lease<'_>> {
        let mut state = self.state.lock();
        match state.choose(beginnings, excluded, self.connections, Instant::now()) {
            Choice::Server(server) if !excluded.contains(&server) => Some(self.begin(&mut state, server)),
            _ => None,
        }
    }

    /// Reports that no server works, if that is new.
    pub(crate) fn report_pause(&self) {
        let event = self.state.lock().pause_event(&self.fleet);
        if let Some(event) = event {
            (self.observer)(event);
        }
    }

    /// Begins a request on a server whatever its state.
    pub(crate) fn force(&self, server: usize) -> Lease<'_> {
        self.begin(&mut self.state.lock(), server)
    }

    fn begin(&self, state: &mut State, server: usize) -> Lease<'_> {
        let epoch = state.health.get_mut(server).map_or(0, |health| {
            health.begin();
            health.epoch()
        });
        if let Some(count) = state.in_flight.get_mut(server) {
            *count += 1;
        }
        Lease { balancer: self, server, epoch }
    }

    fn address(&self, server: usize) -> String {
        self.addresses.get(server).cloned().unwrap_or_default()
    }
}

impl State {
    fn choose(&mut self, beginnings: &[u64], tried: &[usize], connections: usize, now: Instant) -> Choice {
        let servers = || self.health.iter().zip(&self.in_flight).enumerate();
        let usable: Vec<(usize, usize)> = servers()
            .filter(|(_, (health, load))| health.admits(now) && **load < connections)
            .map(|(server, (_, load))| (server, *load))
            .collect();
        let untried: Vec<(usize, usize)> =
            usable.iter().copied().filter(|(server, _)| !tried.contains(server)).collect();
        let others_down = servers().all(|(server, (health, _))| tried.contains(&server) || health.is_down());
        let resume = self.health.iter().filter_map(|health| health.resume_at(now)).min();
        let candidates = if untried.is_empty() && others_down { &usable } else { &untried };
        match self.placement.choose(beginnings, candidates) {
            Some(server) => Choice::Server(server),
            None => Choice::Wait(resume),
        }
    }

    /// True if no server works.
    fn is_stopped(&self) -> bool {
        self.health.iter().all(Health::is_unavailable)
    }

    /// Returns the event to report if no server works and that is new.
    fn pause_event(&mut self, fleet: &str) -> Option<FleetEvent> {
        if self.paused || !self.is_stopped() {
            return None;
        }
        self.paused = true;
        Some(FleetEvent::Paused { fleet: fleet.to_owned(), reason: self.last_failure.clone() })
    }
}

impl Lease<'_> {
    /// Reports that the server answered rightly.
    pub(crate) fn succeed(self) {
        let Balancer { fleet, .. } = self.balancer;
        let mut events = Vec::new();
        {
            let mut state = self.balancer.state.lock();
            let failures = state.health.get(self.server).map_or(0, Health::failures);
            let health = state.health.get_mut(self.server);
            let was_down = health.is_some_and(|health| health.succeed(self.epoch));
            if was_down && failures >= REPORTED_AFTER {
                events.push(FleetEvent::ServerBack { server: self.balancer.address(self.server) });
            }
            if state.paused && !state.is_stopped() {
                state.paused = false;
                events.push(FleetEvent::Resumed { fleet: fleet.clone() });
            }
        }
        events.into_iter().for_each(|event| (self.balancer.observer)(event));
    }

    /// Reports a failure of the server.
    pub(crate) fn fail(self, error: &ServerError) {
        let server = self.balancer.address(self.server);
        tracing::warn!(%server, %error, "a request to a server failed");
        let mut event = None;
        {
            let mut state = self.balancer.state.lock();
            let Some(health) = state.health.get_mut(self.server) else { return };
            let now = Instant::now();
            if matches!(error, ServerError::Busy { .. }) {
                health.refuse(self.epoch, error.retry_after(), now);
            } else if health.fail(self.epoch, error.retry_after(), now) && health.failures() == REPORTED_AFTER
            {
                event = Some(FleetEvent::ServerDown { server, reason: error.to_string() });
            }
            state.last_failure = error.to_string();
        }
        if let Some(event) = event {
            (self.balancer.observer)(event);
        }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        {
            let mut state = self.balancer.state.lock();
            if let Some(count) = state.in_flight.get_mut(self.server) {
                *count = count.saturating_sub(1);
            }
            if let Some(health) = state.health.get_mut(self.server) {
                health.end(self.epoch);
            }
        }
        self.balancer.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_fleet_that_is_busy_for_long_is_paused_until_a_request_succeeds() {
        let events = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&events);
        let observer: Observer = Arc::new(move |event| sink.lock().push(event));
        let balancer = Balancer::new("fleet", &["http://a".to_owned()], 4, Backoff::default(), observer);
        let busy = |seconds: u64| {
            let (server, message) = ("http://a".to_owned(), "slow down".to_owned());
            ServerError::Busy { server, message, retry_after: Some(Duration::from_secs(seconds)) }
        };
        balancer.acquire(&[], &[]).await.fail(&busy(1));
        balancer.acquire(&[], &[]).await.fail(&busy(60));
        assert!(events.lock().is_empty(), "a moment is no pause");
        balancer.acquire(&[], &[]).await.succeed();
        let paused = FleetEvent::Paused { fleet: "fleet".to_owned(), reason: busy(60).to_string() };
        let resumed = FleetEvent::Resumed { fleet: "fleet".to_owned() };
        assert_eq!(*events.lock(), [paused, resumed]);
    }
}
