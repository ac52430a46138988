//! Limits of what a plugin writes to the program's log, over all of its instances and calls.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Period of the limits.
const PERIOD: Duration = Duration::from_secs(60);

/// Limit of the lines of a period: ten a second, which a person can follow. Traces have all lines.
pub(crate) const MAX_LINES: u32 = 600;

/// Limit of their bytes.
pub(crate) const MAX_BYTES: usize = 256 << 10;

/// Limit of the hosts that are reported as denied. A plugin may make up any number of them.
const MAX_HOSTS: usize = 20;

/// Volume of a plugin's log, shared by its instances.
#[derive(Debug, Default)]
pub(crate) struct PluginLog(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Start of the period. `None` before the first line.
    start: Option<Instant>,
    lines: u32,
    bytes: usize,
    /// True if lines of this period were dropped.
    is_full: bool,
    /// Hosts whose requests were reported as denied.
    denied: BTreeSet<String>,
}

/// Decision about a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    Shown,
    /// The first line beyond the limits in this period, after which none is shown until its end.
    FirstDropped,
    Dropped,
}

impl PluginLog {
    /// Counts a line that is to be written now.
    pub fn admit(&self, now: Instant, bytes: usize) -> Admission {
        let mut state = self.0.lock();
        if state.start.is_none_or(|start| now.saturating_duration_since(start) >= PERIOD) {
            let denied = std::mem::take(&mut state.denied);
            *state = State { start: Some(now), denied, ..State::default() };
        }
        if state.is_full {
            return Admission::Dropped;
        }
        state.is_full = state.lines >= MAX_LINES || state.bytes.saturating_add(bytes) > MAX_BYTES;
        if state.is_full {
            return Admission::FirstDropped;
        }
        state.lines += 1;
        state.bytes += bytes;
        Admission::Shown
    }

    /// Returns true if a denied request to this host has to be reported: once for each host, and for the first ones only.
    pub fn is_new_denial(&self, host: &str) -> bool {
        let mut state = self.0.lock();
        state.denied.len() < MAX_HOSTS && state.denied.insert(host.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_all_calls_count_together_for_a_minute() {
        let (log, start) = (PluginLog::default(), Instant::now());
        for _ in 0..MAX_LINES {
            assert_eq!(log.admit(start, 10), Admission::Shown);
        }
        assert_eq!(log.admit(start, 10), Admission::FirstDropped);
        assert_eq!(log.admit(start + PERIOD / 2, 0), Admission::Dropped);
        assert_eq!(log.admit(start + PERIOD, MAX_BYTES), Admission::Shown);
        assert_eq!(log.admit(start + PERIOD, 1), Admission::FirstDropped);
    }

    #[test]
    fn a_denied_host_is_reported_once() {
        let log = PluginLog::default();
        assert!(log.is_new_denial("a.org") && !log.is_new_denial("a.org"));
        let reported = (0..1000).filter(|number| log.is_new_denial(&format!("{number}.org"))).count();
        assert_eq!(reported, MAX_HOSTS - 1);
        log.admit(Instant::now(), 1);
        assert!(!log.is_new_denial("a.org"), "a new minute");
    }
}
