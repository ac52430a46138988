//! Loops on libtorch's threads. They are on the cores of their learner, and threads of another pool would compete with them: OpenMP's
//! threads spin for a moment when a loop ends.

use std::ffi::c_void;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use pl_kernels::cpu::Workers;

/// Runs a function on a number of threads of the caller's team, the caller among them (GCC's interface to OpenMP, which libtorch
/// uses too).
type Launch = unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void), *mut c_void, u32, u32);

/// `None` if libtorch has another OpenMP.
static LAUNCH: LazyLock<Option<Launch>> = LazyLock::new(|| {
    // SAFETY: it looks for a symbol in the libraries of the process.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"GOMP_parallel".as_ptr()) };
    // SAFETY: the symbol of this name is a function of this type.
    (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Launch>(found) })
});

struct Loop<'a> {
    next: AtomicUsize,
    count: usize,
    body: &'a (dyn Fn(usize) + Sync),
}

impl Loop<'_> {
    fn run(&self) {
        loop {
            let i = self.next.fetch_add(1, Ordering::Relaxed);
            if i >= self.count {
                return;
            }
            (self.body)(i);
        }
    }
}

/// # Safety
/// `data` is a [`Loop`] that outlives the call.
unsafe extern "C" fn run(data: *mut c_void) {
    // SAFETY: guaranteed by the caller.
    unsafe { &*data.cast::<Loop<'_>>() }.run();
}

/// Calls `body` once for each number below `count`, on any thread. `body` does not panic.
pub(crate) fn parallel_for(count: usize, body: &(dyn Fn(usize) + Sync)) {
    let work = Loop { next: AtomicUsize::new(0), count, body };
    let threads = libtorch_threads().min(count.max(1));
    match *LAUNCH {
        // SAFETY: the launch returns when all threads have ended the function, so the loop outlives them.
        Some(launch) if threads > 1 => unsafe {
            launch(run, (&raw const work).cast_mut().cast(), threads as u32, 0)
        },
        _ => work.run(),
    }
}

/// Returns the number of libtorch's threads.
fn libtorch_threads() -> usize {
    usize::try_from(tch::get_num_threads()).unwrap_or(1).max(1)
}

/// Returns these threads for the kernels of training.
pub(crate) fn workers() -> Workers<'static> {
    Workers::new(libtorch_threads(), &parallel_for)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_once() {
        for count in [0, 1, 2, 1000] {
            let hits: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
            parallel_for(count, &|i| {
                hits[i].fetch_add(1, Ordering::Relaxed);
            });
            assert!(hits.iter().all(|hits| hits.load(Ordering::Relaxed) == 1), "{count}");
        }
    }

    #[test]
    fn several_threads_work() {
        if tch::get_num_threads() < 2 {
            return;
        }
        let threads = std::sync::Mutex::new(std::collections::HashSet::new());
        parallel_for(200, &|_| {
            threads.lock().unwrap().insert(std::thread::current().id());
            std::thread::sleep(std::time::Duration::from_millis(1));
        });
        assert!(threads.into_inner().unwrap().len() > 1, "libtorch's OpenMP was not found");
    }
}
