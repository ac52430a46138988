//! Threads that share the iterations of a loop.
//!
//! A step of generation is a few hundred short loops one after another. Handing each to a pool of sleeping
//! threads would cost more than the loops do, so members of a team look for the next loop a while before they
//! sleep, and nobody waits for a member that did not come: iterations are handed out one by one, and a loop is
//! over when those under way are.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a member looks for the next loop before it sleeps: longer than the gaps within a step, short beside
/// the pauses between requests.
const WATCH: Duration = Duration::from_micros(100);
/// Looks between two glances at the clock.
const LOOKS: u32 = 64;

/// Set in [`Shared::state`] while a loop takes members.
const OPEN: u64 = 1 << 31;
/// Members in the loop.
const MEMBERS: u64 = OPEN - 1;
/// Counts loops.
const ROUND: u64 = 1 << 32;

/// A loop as members see it: `call(body, thread, iteration)`.
#[derive(Clone, Copy)]
struct Job {
    call: unsafe fn(*const (), usize, usize),
    body: *const (),
    count: usize,
}

struct Shared {
    /// Number of the loop, whether it is open, members in it.
    state: AtomicU64,
    /// The next iteration.
    next: AtomicUsize,
    job: UnsafeCell<Job>,
    panicked: AtomicBool,
    stop: AtomicBool,
    sleepers: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
}

// SAFETY: `job` is written while the loop is closed and nobody is in it, and read by members that entered an open
// one; `state` orders the two. The body behind it is Sync.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// A team of threads; the one that calls is a member.
pub struct Team {
    shared: Arc<Shared>,
    members: Vec<JoinHandle<()>>,
    /// One caller at a time.
    _not_sync: PhantomData<std::cell::Cell<()>>,
}

unsafe fn nothing(_: *const (), _: usize, _: usize) {}

impl Team {
    /// A team of `threads` in all.
    ///
    /// # Errors
    /// When a thread can't be started.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            next: AtomicUsize::new(0),
            job: UnsafeCell::new(Job { call: nothing, body: std::ptr::null(), count: 0 }),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
        });
        let mut team = Self { shared, members: Vec::new(), _not_sync: PhantomData };
        for thread in 1..threads {
            let shared = Arc::clone(&team.shared);
            let member = std::thread::Builder::new()
                .name(format!("kernel-{thread}"))
                .spawn(move || serve(&shared, thread))?;
            team.members.push(member);
        }
        Ok(team)
    }

    /// Its threads.
    pub fn threads(&self) -> usize {
        self.members.len() + 1
    }

    /// Calls `body(thread, iteration)` once for each iteration below `count`, on whichever thread is free
    /// (numbered from 0, the caller). Returns when all are done.
    ///
    /// # Panics
    /// When the body does, after the others have ended.
    pub fn each<F: Fn(usize, usize) + Sync>(&self, count: usize, body: F) {
        if count <= 1 || self.members.is_empty() {
            (0..count).for_each(|i| body(0, i));
            return;
        }
        unsafe fn call<F: Fn(usize, usize)>(body: *const (), thread: usize, iteration: usize) {
            // SAFETY: `body` is the F of the loop that is open, which `each` keeps alive until it is over.
            unsafe { (*body.cast::<F>())(thread, iteration) }
        }
        let shared = &*self.shared;
        let job = Job { call: call::<F>, body: std::ptr::from_ref(&body).cast(), count };
        // SAFETY: the loop before is closed, and its members have left.
        unsafe { *shared.job.get() = job };
        shared.next.store(0, Ordering::Relaxed);
        // SeqCst here and where members lie down: either they see the loop or we see them.
        let round = (shared.state.load(Ordering::Relaxed) & !(ROUND - 1)).wrapping_add(ROUND);
        shared.state.store(round | OPEN, Ordering::SeqCst);
        if shared.sleepers.load(Ordering::SeqCst) > 0 {
            let _guard = shared.sleep.lock().unwrap_or_else(PoisonError::into_inner);
            shared.wake.notify_all();
        }
        let own = catch_unwind(AssertUnwindSafe(|| work(shared, job, 0)));
        if own.is_err() {
            shared.next.store(count, Ordering::Relaxed);
        }
        shared.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut looks = 0u32;
        while shared.state.load(Ordering::Acquire) & MEMBERS != 0 {
            looks = looks.wrapping_add(1);
            // A member that lost its core needs ours.
            if looks.is_multiple_of(4096) { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        if let Err(panic) = own {
            resume_unwind(panic);
        }
        assert!(!shared.panicked.swap(false, Ordering::AcqRel), "a kernel failed on another thread");
    }
}

fn work(shared: &Shared, job: Job, thread: usize) {
    loop {
        let iteration = shared.next.fetch_add(1, Ordering::Relaxed);
        if iteration >= job.count {
            return;
        }
        // SAFETY: the loop is open or has this member in it, so its body lives.
        unsafe { (job.call)(job.body, thread, iteration) };
    }
}

/// A member's life.
fn serve(shared: &Shared, thread: usize) {
    let mut last = 0;
    loop {
        let Some(round) = next_round(shared, last) else { return };
        last = round;
        // SAFETY: this member entered the loop while it was open.
        let job = unsafe { *shared.job.get() };
        if catch_unwind(AssertUnwindSafe(|| work(shared, job, thread))).is_err() {
            shared.panicked.store(true, Ordering::Release);
            shared.next.store(job.count, Ordering::Relaxed);
        }
        shared.state.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Enters the next loop that is open, and returns its number; none when the team ends.
fn next_round(shared: &Shared, last: u64) -> Option<u64> {
    let mut since = Instant::now();
    let mut looks = 0u32;
    loop {
        if let Some(round) = enter(shared, last) {
            return Some(round);
        }
        if shared.stop.load(Ordering::Acquire) {
            return None;
        }
        looks += 1;
        if looks.is_multiple_of(LOOKS) && since.elapsed() > WATCH {
            lie_down(shared, last);
            since = Instant::now();
        }
        std::hint::spin_loop();
    }
}

fn enter(shared: &Shared, last: u64) -> Option<u64> {
    let mut state = shared.state.load(Ordering::SeqCst);
    while state & OPEN != 0 && state / ROUND != last {
        match shared.state.compare_exchange_weak(state, state + 1, Ordering::AcqRel, Ordering::SeqCst) {
            Ok(_) => return Some(state / ROUND),
            Err(now) => state = now,
        }
    }
    None
}

/// Sleeps until there is something new.
fn lie_down(shared: &Shared, last: u64) {
    let mut guard = shared.sleep.lock().unwrap_or_else(PoisonError::into_inner);
    shared.sleepers.fetch_add(1, Ordering::SeqCst);
    loop {
        let state = shared.state.load(Ordering::SeqCst);
        if (state & OPEN != 0 && state / ROUND != last) || shared.stop.load(Ordering::SeqCst) {
            break;
        }
        guard = shared.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
    }
    shared.sleepers.fetch_sub(1, Ordering::SeqCst);
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        {
            let _guard = self.shared.sleep.lock().unwrap_or_else(PoisonError::into_inner);
            self.shared.wake.notify_all();
        }
        for member in self.members.drain(..) {
            let _ = member.join();
        }
    }
}

/// Memory of one thread, kept from call to call.
#[derive(Default)]
pub(crate) struct Scratch(UnsafeCell<Vec<f32>>);

// SAFETY: `Scratch::get` is called by the thread that owns it alone.
unsafe impl Sync for Scratch {}

impl Scratch {
    /// At least `len` numbers of any value.
    ///
    /// # Safety
    /// Only from the thread whose scratch this is, and not while an earlier borrow lives.
    #[allow(clippy::mut_from_ref, reason = "each thread has its own")]
    pub(crate) unsafe fn get(&self, len: usize) -> &mut [f32] {
        // SAFETY: the caller's.
        let held = unsafe { &mut *self.0.get() };
        if held.len() < len {
            held.resize(len, 0.0);
        }
        &mut held[..len]
    }
}

/// A slice of which threads write parts that do not overlap.
#[derive(Clone, Copy)]
pub(crate) struct Shards<'a, T> {
    start: *mut T,
    len: usize,
    _slice: PhantomData<&'a mut [T]>,
}

// SAFETY: whoever takes a part vouches that no other overlaps it.
unsafe impl<T: Send> Send for Shards<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shards<'_, T> {}

impl<'a, T> Shards<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), _slice: PhantomData }
    }

    /// The part from `at` on, `len` long.
    ///
    /// # Safety
    /// No other thread takes an overlapping part while this one lives.
    ///
    /// # Panics
    /// When the part reaches past the end.
    pub(crate) unsafe fn part(&self, at: usize, len: usize) -> &'a mut [T] {
        assert!(at <= self.len && len <= self.len - at, "a part past the end");
        // SAFETY: within the slice; the caller vouches for the rest.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(at), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_iteration_runs_once() {
        for threads in [1, 2, 5] {
            let team = Team::new(threads).unwrap();
            for count in [0, 1, 2, 3, 100, 1000] {
                for _ in 0..20 {
                    let hits: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
                    team.each(count, |thread, i| {
                        assert!(thread < threads);
                        hits[i].fetch_add(1, Ordering::Relaxed);
                    });
                    assert!(hits.iter().all(|hit| hit.load(Ordering::Relaxed) == 1));
                }
            }
        }
    }

    #[test]
    fn sleeping_members_wake_up() {
        let team = Team::new(3).unwrap();
        for _ in 0..3 {
            std::thread::sleep(5 * WATCH);
            let sum = AtomicUsize::new(0);
            team.each(64, |_, i| {
                // Long enough for all to come.
                std::thread::sleep(Duration::from_micros(50));
                sum.fetch_add(i, Ordering::Relaxed);
            });
            assert_eq!(sum.load(Ordering::Relaxed), 64 * 63 / 2);
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_team_lives_on() {
        let team = Team::new(2).unwrap();
        for bad in [0, 63] {
            let result = catch_unwind(AssertUnwindSafe(|| {
                team.each(64, |_, i| {
                    std::thread::sleep(Duration::from_micros(20));
                    assert!(i != bad, "bad");
                });
            }));
            assert!(result.is_err());
            let sum = AtomicUsize::new(0);
            team.each(10, |_, i| {
                sum.fetch_add(i, Ordering::Relaxed);
            });
            assert_eq!(sum.load(Ordering::Relaxed), 45);
        }
    }
}
