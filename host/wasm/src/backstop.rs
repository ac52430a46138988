//! The wall-clock backstop of a call: the time that the guest itself has run.
//!
//! The engine reads the clock every [`TICK`] while a guest runs. Between two reads, the guest is charged the CPU time of
//! its thread, and at most one tick. So it pays neither for other programs on a loaded machine, nor for other guests on
//! its thread, nor for waiting on the host.

use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// Interval at which guests check the clock and yield to other tasks of their thread. Shorter costs wake-ups; longer lets
/// one guest occupy a thread.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// Run time of one call.
#[derive(Debug, Default)]
pub(crate) struct Backstop {
    ran: Duration,
    last: Option<ClockReading>,
}

/// The clocks at the last check.
#[derive(Debug)]
struct ClockReading {
    thread: ThreadId,
    ran: Duration,
    at: Instant,
}

impl Backstop {
    /// Reads the clock and returns a lower bound of the guest's run time.
    pub(crate) fn check(&mut self) -> Duration {
        let reading = ClockReading { thread: thread::current().id(), ran: thread_time(), at: Instant::now() };
        if let Some(last) = &self.last {
            let passed = if last.thread == reading.thread {
                reading.ran.saturating_sub(last.ran)
            } else {
                reading.at.saturating_duration_since(last.at)
            };
            self.ran += passed.min(TICK);
        }
        self.last = Some(reading);
        self.ran
    }
}

/// CPU time of this thread.
fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec that lives through the call, which writes to nothing else.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    debug_assert_eq!(failed, 0, "every Linux has the clock");
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps this thread busy for an amount of CPU time.
    fn work(time: Duration) {
        let until = thread_time() + time;
        while thread_time() < until {}
    }

    #[test]
    fn waiting_is_not_charged() {
        let mut backstop = Backstop::default();
        backstop.check();
        thread::sleep(5 * TICK);
        let waited = backstop.check();
        assert!(waited < TICK / 2, "{waited:?}");
        work(TICK / 2);
        assert!(backstop.check() >= waited + TICK / 2);
    }

    #[test]
    fn work_of_others_on_the_thread_is_charged_as_one_tick_at_most() {
        let mut backstop = Backstop::default();
        backstop.check();
        work(5 * TICK);
        assert_eq!(backstop.check(), TICK);
        // The time of another thread is unknown, but a tick is still the maximum.
        let mut backstop = thread::spawn(move || backstop).join().unwrap();
        work(2 * TICK);
        thread::scope(|scope| {
            scope.spawn(|| assert_eq!(backstop.check(), 2 * TICK));
        });
    }
}
