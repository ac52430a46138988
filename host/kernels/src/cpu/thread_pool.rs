//! A pool of threads that share the iterations of a loop.
//!
//! A step of generation is a few hundred short loops in sequence. Waking sleeping threads for each would cost
//! more than the loops do, so the workers of this pool spin for a while before they park, and a loop never
//! waits for a worker that has not joined it: a loop ends when the iterations in progress have ended.
//!
//! Each thread begins with a share of neighbouring iterations, so that it reads memory in order and prefetches what it needs next. One
//! that has none left takes the last iteration of another thread's share.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time that a worker spins before it parks: longer than the gaps within a step, short compared with the
/// pauses between requests.
const SPIN_TIME: Duration = Duration::from_micros(100);
/// Number of spins between two reads of the clock.
const SPINS_PER_CLOCK_READ: u32 = 64;

/// Bit of [`Shared::state`] that is set while workers may join the loop.
const OPEN: u64 = 1 << 31;
/// Bits of [`Shared::state`] with the number of workers in the loop.
const WORKERS: u64 = OPEN - 1;
/// Lowest bit of [`Shared::state`] of the loop's number.
const ROUND: u64 = 1 << 32;

/// The loop that workers run: `call(body, thread, iteration)`.
#[derive(Clone, Copy)]
struct LoopTask {
    call: unsafe fn(*const (), usize, usize),
    body: *const (),
}

/// Iterations that a thread has not begun, in a cache line of its own: the first in the lower half of the number, and the end in the
/// upper one. The first may be past the end.
#[repr(align(64))]
struct Remaining(AtomicU64);

impl Remaining {
    fn set(&self, start: u32, end: u32) {
        self.0.store(u64::from(end) << 32 | u64::from(start), Ordering::Relaxed);
    }

    /// Takes the first iteration, for the thread that it is the share of. Other threads only move the end.
    fn take_first(&self) -> Option<usize> {
        let (start, end) = Self::range(self.0.fetch_add(1, Ordering::Relaxed));
        (start < end).then_some(start as usize)
    }

    /// Takes the last iteration, for another thread.
    fn take_last(&self) -> Option<usize> {
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |range| {
            let (start, end) = Self::range(range);
            (start < end).then(|| range - (1 << 32))
        });
        taken.ok().map(|range| Self::range(range).1 as usize - 1)
    }

    fn range(range: u64) -> (u32, u32) {
        (range as u32, (range >> 32) as u32)
    }
}

struct Shared {
    /// Number of the loop, its open bit, and the number of workers in it.
    state: AtomicU64,
    /// Iterations that are left, by thread.
    remaining: Vec<Remaining>,
    task: UnsafeCell<LoopTask>,
    panicked: AtomicBool,
    stop: AtomicBool,
    parked: AtomicUsize,
    park_lock: Mutex<()>,
    wake: Condvar,
}

// SAFETY: `task` is written while the loop is closed and has no workers, and read by workers that joined an
// open loop; `state` orders the two. The body that it points to is Sync.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// Pool of threads. The calling thread takes part in each loop.
pub struct ThreadPool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Makes the pool `!Sync`: one caller at a time.
    _not_sync: PhantomData<std::cell::Cell<()>>,
}

unsafe fn no_op(_: *const (), _: usize, _: usize) {}

impl ThreadPool {
    /// Creates a pool of `threads` threads, including the calling one.
    ///
    /// # Errors
    /// If a thread can't be started.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            remaining: (0..threads.max(1)).map(|_| Remaining(AtomicU64::new(0))).collect(),
            task: UnsafeCell::new(LoopTask { call: no_op, body: std::ptr::null() }),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            parked: AtomicUsize::new(0),
            park_lock: Mutex::new(()),
            wake: Condvar::new(),
        });
        let mut pool = Self { shared, workers: Vec::new(), _not_sync: PhantomData };
        for thread in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let worker = std::thread::Builder::new()
                .name(format!("kernel-{thread}"))
                .spawn(move || run_worker(&shared, thread))?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// Returns the number of threads, including the calling one.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `body(thread, iteration)` once for each iteration below `count`, on any free thread (the caller
    /// is thread 0), neighbouring iterations on the same one if possible. Returns when all iterations have ended.
    ///
    /// # Panics
    /// If the body panics, after the other iterations in progress have ended, or starts a loop of this pool; if there are 2^32 - 1
    /// iterations or more.
    pub fn for_each<F: Fn(usize, usize) + Sync>(&self, count: usize, body: F) {
        if count <= 1 || self.workers.is_empty() {
            (0..count).for_each(|i| body(0, i));
            return;
        }
        assert!(count < u32::MAX as usize, "{count} iterations");
        unsafe fn call<F: Fn(usize, usize)>(body: *const (), thread: usize, iteration: usize) {
            // SAFETY: `body` is the F of the open loop, which `for_each` keeps alive until the loop has
            // ended.
            unsafe { (*body.cast::<F>())(thread, iteration) }
        }
        let shared = &*self.shared;
        let before = shared.state.load(Ordering::Acquire);
        assert!(before & (OPEN | WORKERS) == 0, "a loop within a loop of the same pool");
        let task = LoopTask { call: call::<F>, body: std::ptr::from_ref(&body).cast() };
        // SAFETY: the previous loop is closed, and all workers have left it, as checked; this thread alone opens loops,
        // since the pool is not Sync.
        unsafe { *shared.task.get() = task };
        shared.share_out(count);
        // SeqCst here and in `park`: either a worker that parks sees the loop, or this thread sees the parked
        // worker.
        let round = (before & !(ROUND - 1)).wrapping_add(ROUND);
        shared.state.store(round | OPEN, Ordering::SeqCst);
        if shared.parked.load(Ordering::SeqCst) > 0 {
            let _guard = shared.park_lock.lock().unwrap_or_else(PoisonError::into_inner);
            shared.wake.notify_all();
        }
        let own = catch_unwind(AssertUnwindSafe(|| run_iterations(shared, task, 0)));
        if own.is_err() {
            shared.share_out(0);
        }
        shared.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut spins = 0u32;
        while shared.state.load(Ordering::Acquire) & WORKERS != 0 {
            spins = spins.wrapping_add(1);
            // A worker that lost its core may need this one.
            if spins.is_multiple_of(4096) { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        // Read in any case: the next loop has not failed.
        let elsewhere = shared.panicked.swap(false, Ordering::AcqRel);
        if let Err(panic) = own {
            resume_unwind(panic);
        }
        assert!(!elsewhere, "a kernel failed on another thread");
    }
}

impl Shared {
    /// Divides the iterations of a loop among all threads.
    fn share_out(&self, count: usize) {
        let threads = self.remaining.len();
        // At most `count`, which is below 2^32. The calling thread, which always takes part, has an iteration if there is one.
        let bound = |thread: usize| (count * thread).div_ceil(threads) as u32;
        for (thread, remaining) in self.remaining.iter().enumerate() {
            remaining.set(bound(thread), bound(thread + 1));
        }
    }
}

fn run_iterations(shared: &Shared, task: LoopTask, thread: usize) {
    let (before, from_own) = shared.remaining.split_at(thread);
    let Some((own, after)) = from_own.split_first() else { return };
    // SAFETY: the loop is open or this worker is in it, so its body is alive.
    let run = |iteration| unsafe { (task.call)(task.body, thread, iteration) };
    while let Some(iteration) = own.take_first() {
        run(iteration);
    }
    for other in after.iter().chain(before) {
        while let Some(iteration) = other.take_last() {
            run(iteration);
        }
    }
}

/// Main function of a worker.
fn run_worker(shared: &Shared, thread: usize) {
    let mut last = 0;
    loop {
        let Some(round) = next_round(shared, last) else { return };
        last = round;
        // SAFETY: this worker joined the loop while it was open.
        let task = unsafe { *shared.task.get() };
        if catch_unwind(AssertUnwindSafe(|| run_iterations(shared, task, thread))).is_err() {
            shared.panicked.store(true, Ordering::Release);
            shared.share_out(0);
        }
        shared.state.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Joins the next open loop and returns its number. Returns `None` if the pool is dropped.
fn next_round(shared: &Shared, last: u64) -> Option<u64> {
    let mut since = Instant::now();
    let mut spins = 0u32;
    loop {
        if let Some(round) = join_loop(shared, last) {
            return Some(round);
        }
        if shared.stop.load(Ordering::Acquire) {
            return None;
        }
        spins += 1;
        if spins.is_multiple_of(SPINS_PER_CLOCK_READ) && since.elapsed() > SPIN_TIME {
            park(shared, last);
            since = Instant::now();
        }
        std::hint::spin_loop();
    }
}

fn join_loop(shared: &Shared, last: u64) -> Option<u64> {
    let mut state = shared.state.load(Ordering::SeqCst);
    while state & OPEN != 0 && state / ROUND != last {
        match shared.state.compare_exchange_weak(state, state + 1, Ordering::AcqRel, Ordering::SeqCst) {
            Ok(_) => return Some(state / ROUND),
            Err(now) => state = now,
        }
    }
    None
}

/// Sleeps until a new loop is open or the pool is dropped.
fn park(shared: &Shared, last: u64) {
    let mut guard = shared.park_lock.lock().unwrap_or_else(PoisonError::into_inner);
    shared.parked.fetch_add(1, Ordering::SeqCst);
    loop {
        let state = shared.state.load(Ordering::SeqCst);
        if (state & OPEN != 0 && state / ROUND != last) || shared.stop.load(Ordering::SeqCst) {
            break;
        }
        guard = shared.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
    }
    shared.parked.fetch_sub(1, Ordering::SeqCst);
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        {
            let _guard = self.shared.park_lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.shared.wake.notify_all();
        }
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

/// Size of a cache line in bytes, and of the largest vector.
pub(crate) const LINE: usize = 64;

/// Memory of one thread that is reused from call to call.
#[derive(Default)]
pub(crate) struct Scratch(UnsafeCell<Vec<f32>>);

// SAFETY: `Scratch::get` requires that only the thread that owns it calls it.
unsafe impl Sync for Scratch {}

impl Scratch {
    /// Returns `len` numbers of unspecified values, aligned for vectors.
    ///
    /// # Safety
    /// To be called only by the thread that owns this scratch, and not during an earlier borrow.
    #[allow(clippy::mut_from_ref, reason = "each thread has its own")]
    pub(crate) unsafe fn get(&self, len: usize) -> &mut [f32] {
        // SAFETY: the caller guarantees that nothing else refers to the numbers.
        let held = unsafe { &mut *self.0.get() };
        if held.len() < len + LINE {
            held.resize(len + LINE, 0.0);
        }
        let start = held.as_ptr().align_offset(LINE).min(LINE);
        &mut held[start..start + len]
    }
}

/// A slice whose disjoint parts are written by different threads.
#[derive(Clone, Copy)]
pub(crate) struct DisjointSlice<'a, T> {
    start: *mut T,
    len: usize,
    _slice: PhantomData<&'a mut [T]>,
}

// SAFETY: callers of `part` guarantee that parts do not overlap.
unsafe impl<T: Send> Send for DisjointSlice<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for DisjointSlice<'_, T> {}

impl<'a, T> DisjointSlice<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), _slice: PhantomData }
    }

    /// Returns the address of the first element.
    pub(crate) fn start(&self) -> *mut T {
        self.start
    }

    /// Returns `len` elements from index `start` on.
    ///
    /// # Safety
    /// No other thread takes an overlapping part during this borrow.
    ///
    /// # Panics
    /// If the part ends after the slice.
    pub(crate) unsafe fn part(&self, start: usize, len: usize) -> &'a mut [T] {
        assert!(start <= self.len && len <= self.len - start, "a part past the end");
        // SAFETY: within the slice; the caller guarantees the rest.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_iteration_runs_once() {
        for threads in [1, 2, 5] {
            let pool = ThreadPool::new(threads).unwrap();
            for count in [0, 1, 2, 3, 100, 1000] {
                for _ in 0..20 {
                    let hits: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
                    pool.for_each(count, |thread, i| {
                        assert!(thread < threads);
                        hits[i].fetch_add(1, Ordering::Relaxed);
                    });
                    assert!(hits.iter().all(|hit| hit.load(Ordering::Relaxed) == 1));
                }
            }
        }
    }

    #[test]
    fn parked_workers_wake_up() {
        let pool = ThreadPool::new(3).unwrap();
        for _ in 0..3 {
            std::thread::sleep(5 * SPIN_TIME);
            let sum = AtomicUsize::new(0);
            pool.for_each(64, |_, i| {
                // Long enough for all workers to join.
                std::thread::sleep(Duration::from_micros(50));
                sum.fetch_add(i, Ordering::Relaxed);
            });
            assert_eq!(sum.load(Ordering::Relaxed), 64 * 63 / 2);
        }
    }

    #[test]
    fn iterations_of_a_busy_thread_are_taken_by_another() {
        let pool = ThreadPool::new(2).unwrap();
        let others = AtomicUsize::new(0);
        let begun = Instant::now();
        pool.for_each(10, |_, i| {
            if i > 0 {
                others.fetch_add(1, Ordering::Relaxed);
                return;
            }
            while others.load(Ordering::Relaxed) < 9 {
                assert!(begun.elapsed() < Duration::from_secs(60), "nothing took them");
                std::thread::yield_now();
            }
        });
        assert_eq!(others.into_inner(), 9);
    }

    #[test]
    fn a_loop_within_a_loop_is_refused() {
        use std::rc::Rc;

        thread_local! {
            static POOL: std::cell::RefCell<Option<Rc<ThreadPool>>> = const { std::cell::RefCell::new(None) };
        }
        let pool = Rc::new(ThreadPool::new(2).unwrap());
        POOL.set(Some(Rc::clone(&pool)));
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.for_each(64, |thread, _| {
                // Only the calling thread can reach the pool.
                if thread == 0 {
                    let again = POOL.with_borrow(|pool| pool.clone().unwrap());
                    again.for_each(64, |_, _| std::hint::spin_loop());
                }
            });
        }));
        let message = *result.unwrap_err().downcast::<&str>().unwrap();
        assert_eq!(message, "a loop within a loop of the same pool");
        pool.for_each(64, |_, _| {});
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_stays_usable() {
        let pool = ThreadPool::new(2).unwrap();
        for bad in [0, 63] {
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.for_each(64, |_, i| {
                    std::thread::sleep(Duration::from_micros(20));
                    assert!(i != bad, "bad");
                });
            }));
            assert!(result.is_err());
            let sum = AtomicUsize::new(0);
            pool.for_each(10, |_, i| {
                sum.fetch_add(i, Ordering::Relaxed);
            });
            assert_eq!(sum.load(Ordering::Relaxed), 45);
        }
    }
}
