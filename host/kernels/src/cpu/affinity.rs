//! Cores that a thread runs on, and the number of threads that libtorch starts for it.

use std::ffi::c_int;
use std::io;

// MKL is a part of libtorch on this architecture.
#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    /// Sets the number of MKL's threads for the calling thread, and returns the one before.
    fn MKL_Set_Num_Threads_Local(threads: c_int) -> c_int;
}

/// Returns the numbers of the cores that the calling thread may run on, ascending.
///
/// # Errors
/// Those of the system.
pub fn available_cores() -> io::Result<Vec<u32>> {
    // SAFETY: a set of bits is valid with all of them 0.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is writable and as long as the call is told.
    let result = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let cores = 0..libc::CPU_SETSIZE as u32;
    // SAFETY: the number of a core is below the size of the set.
    Ok(cores.filter(|core| unsafe { libc::CPU_ISSET(*core as usize, &set) }).collect())
}

/// Lets the calling thread run on these cores alone, and the threads that it starts from now on.
///
/// # Errors
/// Those of the system: none of the cores exists, or the process may use none of them.
pub fn confine_thread(cores: &[u32]) -> io::Result<()> {
    // SAFETY: a set of bits is valid with all of them 0.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for core in cores.iter().filter(|core| **core < libc::CPU_SETSIZE as u32) {
        // SAFETY: the number of the core is below the size of the set.
        unsafe { libc::CPU_SET(*core as usize, &mut set) };
    }
    // SAFETY: `set` is readable and as long as the call is told.
    let result = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets the number of threads that libtorch computes with when the calling thread calls it, itself included.
pub fn limit_libtorch_threads(threads: usize) {
    let threads = c_int::try_from(threads.max(1)).unwrap_or(c_int::MAX);
    tch::set_num_threads(threads);
    // The call above is about the calling thread for OpenMP, and about all threads for MKL.
    // SAFETY: it takes any positive number, and changes a variable of the calling thread.
    #[cfg(target_arch = "x86_64")]
    let _before = unsafe { MKL_Set_Num_Threads_Local(threads) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_on_the_cores_that_it_is_given() {
        let all = available_cores().unwrap();
        let first = all[..1].to_vec();
        let seen = std::thread::scope(|scope| {
            let confined = scope.spawn(|| {
                confine_thread(&first).unwrap();
                limit_libtorch_threads(1);
                let child = std::thread::spawn(available_cores).join().unwrap().unwrap();
                (available_cores().unwrap(), child, tch::get_num_threads())
            });
            confined.join().unwrap()
        });
        assert_eq!(seen, (first.clone(), first, 1));
        assert_eq!(available_cores().unwrap(), all, "other threads keep theirs");
    }

    #[test]
    fn cores_that_do_not_exist_are_refused() {
        assert!(confine_thread(&[]).is_err());
        assert!(confine_thread(&[9999]).is_err());
    }
}
