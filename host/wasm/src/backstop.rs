//! The wall-clock backstop of a call: how long the guest itself has run.
//!
//! The engine looks at the clock every [`TICK`] while a guest runs. Between two looks the guest has run as long as its
//! thread has, and no longer than a tick: neither what other programs of a loaded machine take, nor what other guests
//! of the thread do meanwhile, nor what the guest waits for of the host is held against it.

use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// How often guests are looked at for the clock, and give way to other tasks of their thread. Shorter costs
/// wake-ups; longer lets one guest hold a thread.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// Of one call.
#[derive(Debug, Default)]
pub(crate) struct Backstop {
    ran: Duration,
    last: Option<Look>,
}

/// What the clocks said when the guest was looked at last.
#[derive(Debug)]
struct Look {
    thread: ThreadId,
    ran: Duration,
    at: Instant,
}

impl Backstop {
    /// A look at the clock: how long the guest has run by now, at least.
    pub(crate) fn look(&mut self) -> Duration {
        let look = Look { thread: thread::current().id(), ran: thread_time(), at: Instant::now() };
        if let Some(last) = &self.last {
            let passed = if last.thread == look.thread {
                look.ran.saturating_sub(last.ran)
            } else {
                look.at.saturating_duration_since(last.at)
            };
            self.ran += passed.min(TICK);
        }
        self.last = Some(look);
        self.ran
    }
}

/// Time that this thread has spent on a processor.
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

    /// Keeps this thread on a processor for so long.
    fn work(time: Duration) {
        let until = thread_time() + time;
        while thread_time() < until {}
    }

    #[test]
    fn what_the_guest_waits_for_is_not_held_against_it() {
        let mut backstop = Backstop::default();
        backstop.look();
        thread::sleep(5 * TICK);
        let waited = backstop.look();
        assert!(waited < TICK / 2, "{waited:?}");
        work(TICK / 2);
        assert!(backstop.look() >= waited + TICK / 2);
    }

    #[test]
    fn what_its_thread_does_for_others_counts_for_a_tick_at_most() {
        let mut backstop = Backstop::default();
        backstop.look();
        work(5 * TICK);
        assert_eq!(backstop.look(), TICK);
        // Nothing is known of another thread's time, but a tick is still the most.
        let mut backstop = thread::spawn(move || backstop).join().unwrap();
        work(2 * TICK);
        thread::scope(|scope| {
            scope.spawn(|| assert_eq!(backstop.look(), 2 * TICK));
        });
    }
}
