//! Health of one server, from the results of its requests.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff};
use tokio::time::Instant;

use crate::config::Backoff;

/// Time for which a server may refuse all requests because it is busy before it counts as one that doesn't work. Limits on rates
/// are often those of a minute, of which some part has passed.
const LONGEST_BUSY: Duration = Duration::from_secs(30);

/// Health of a server.
///
/// After a failure it gets no request until its waiting time is over, and then one request at a time until one
/// succeeds. Results of requests that began before the latest failure change nothing: fifty requests that end
/// with one connection are one failure.
#[derive(Debug)]
pub(crate) struct Health {
    backoff: Backoff,
    /// Number of failures in a row.
    failures: u32,
    /// Number of failures and refusals so far.
    epoch: u64,
    /// Waiting times of the failures in a row.
    delays: Option<ExponentialBackoff>,
    resume_at: Option<Instant>,
    /// Time of the first refusal since the last success, of those that followed each other.
    refuses_since: Option<Instant>,
    /// True while a request finds out if the server works again.
    on_trial: bool,
}

impl Health {
    pub(crate) fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            failures: 0,
            epoch: 0,
            delays: None,
            resume_at: None,
            refuses_since: None,
            on_trial: false,
        }
    }

    /// Number that a request's result is reported with.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Number of failures in a row.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// True if the last request failed.
    pub(crate) fn is_down(&self) -> bool {
        self.failures > 0
    }

    /// True if the server doesn't work: it is down, or refuses requests until a time that is long after the first refusal.
    pub(crate) fn is_unavailable(&self) -> bool {
        let refuses_long = self.refuses_since.zip(self.resume_at);
        self.is_down() || refuses_long.is_some_and(|(since, until)| until - since >= LONGEST_BUSY)
    }

    /// True if the server may get a request.
    pub(crate) fn admits(&self, now: Instant) -> bool {
        self.resume_at.is_none_or(|at| at <= now) && !(self.is_down() && self.on_trial)
    }

    /// End of the waiting time, if one is running.
    pub(crate) fn resume_at(&self, now: Instant) -> Option<Instant> {
        self.resume_at.filter(|at| *at > now)
    }

    /// Begins a request.
    pub(crate) fn begin(&mut self) {
        self.on_trial = self.is_down();
    }

    /// Ends a request of an epoch, whatever its result.
    pub(crate) fn end(&mut self, epoch: u64) {
        if epoch == self.epoch {
            self.on_trial = false;
        }
    }

    /// Reports a success. Returns true if the server was down.
    pub(crate) fn succeed(&mut self, epoch: u64) -> bool {
        // Whenever the request began: the server does some work.
        self.refuses_since = None;
        if epoch != self.epoch {
            return false;
        }
        self.delays = None;
        self.resume_at = None;
        std::mem::take(&mut self.failures) > 0
    }

    /// Reports a failure. `wait` is the waiting time that the server asks for. Returns true unless the request
    /// began before an earlier failure.
    pub(crate) fn fail(&mut self, epoch: u64, wait: Option<Duration>, now: Instant) -> bool {
        let is_new = self.pause(epoch, wait, now);
        self.failures += u32::from(is_new);
        is_new
    }

    /// Reports a refusal of a server that works. Returns true unless the request began before an earlier one.
    pub(crate) fn refuse(&mut self, epoch: u64, wait: Option<Duration>, now: Instant) -> bool {
        let until = self.resume_at;
        let is_new = self.pause(epoch, wait, now);
        if is_new {
            // A server that was not asked for a while may have worked in between.
            if until.is_some_and(|until| now - until > LONGEST_BUSY) {
                self.refuses_since = None;
            }
            self.refuses_since.get_or_insert(now);
        }
        is_new
    }

    fn pause(&mut self, epoch: u64, wait: Option<Duration>, now: Instant) -> bool {
        if epoch != self.epoch {
            return false;
        }
        self.epoch += 1;
        self.on_trial = false;
        let backoff = self.backoff;
        let delays = self.delays.get_or_insert_with(|| backoff.delays().build());
        let delay = delays.next().unwrap_or(backoff.longest);
        // A server may say 0, and its clock may be another.
        self.resume_at = Some(now + wait.unwrap_or(delay).max(delay));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn health() -> Health {
        Health::new(Backoff { shortest: 10 * MS, longest: 80 * MS })
    }

    #[test]
    fn failures_of_one_moment_count_once() {
        let (mut health, now) = (health(), Instant::now());
        let epoch = health.epoch();
        assert!(health.fail(epoch, None, now));
        assert!(!health.fail(epoch, None, now));
        assert!(!health.succeed(epoch), "a request of before the failure says nothing");
        assert_eq!(health.failures(), 1);
        assert!(!health.admits(now));
        assert!(health.admits(now + 21 * MS), "10 ms, at most doubled by jitter");
    }

    #[test]
    fn a_server_that_was_down_is_tried_with_one_request() {
        let (mut health, mut now) = (health(), Instant::now());
        health.fail(health.epoch(), None, now);
        now += 100 * MS;
        health.begin();
        assert!(!health.admits(now), "one at a time");
        let epoch = health.epoch();
        health.end(epoch);
        assert!(health.admits(now), "the trial was cancelled");
        assert!(health.succeed(epoch));
        health.begin();
        assert!(health.admits(now));
    }

    #[test]
    fn waiting_times_grow_up_to_the_longest_and_servers_may_ask_for_more() {
        let (mut health, now) = (health(), Instant::now());
        let mut waits = Vec::new();
        for _ in 0..8 {
            health.fail(health.epoch(), None, now);
            waits.push(health.resume_at(now).unwrap() - now);
        }
        assert!(waits[0] >= 10 * MS && waits[0] <= 20 * MS, "{waits:?}");
        assert!(waits[7] >= 80 * MS && waits[7] <= 170 * MS, "{waits:?}");
        health.fail(health.epoch(), Some(5000 * MS), now);
        assert_eq!(health.resume_at(now).unwrap() - now, 5000 * MS);
        health.fail(health.epoch(), Some(Duration::ZERO), now);
        assert!(health.resume_at(now).unwrap() - now >= 80 * MS, "not at once");
    }

    #[test]
    fn a_busy_server_is_not_down() {
        let (mut health, now) = (health(), Instant::now());
        assert!(health.refuse(health.epoch(), Some(MS), now));
        assert!(!health.is_down() && !health.admits(now) && health.admits(now + 21 * MS));
    }

    #[test]
    fn a_server_that_is_busy_for_long_is_unavailable_until_it_answers() {
        let (mut health, mut now) = (health(), Instant::now());
        let wait = LONGEST_BUSY / 3;
        for is_long in [false, false, true] {
            health.refuse(health.epoch(), Some(wait), now);
            now += wait;
            assert_eq!(health.is_unavailable(), is_long);
        }
        let epoch = health.epoch();
        health.refuse(epoch, Some(wait), now);
        health.succeed(epoch);
        assert!(!health.is_unavailable(), "a request of before the last refusal was answered");
        health.refuse(health.epoch(), Some(2 * LONGEST_BUSY), now);
        assert!(health.is_unavailable() && !health.is_down(), "it says so itself");
    }

    #[test]
    fn refusals_long_after_each_other_are_not_one() {
        let (mut health, mut now) = (health(), Instant::now());
        let first = health.epoch();
        health.refuse(first, Some(MS), now);
        health.succeed(first);
        health.refuse(first, Some(MS), now);
        for _ in 0..2 {
            now += 2 * LONGEST_BUSY;
            health.refuse(health.epoch(), Some(MS), now);
            assert!(!health.is_unavailable());
        }
    }
}
