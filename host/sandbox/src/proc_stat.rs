//! Values of `/proc/PID/stat`, which the kernel shows of every process. They are `None` of a process that has ended, and
//! where /proc hides the processes of others.

use std::time::Duration;

/// Clock ticks per second in this file (`USER_HZ`), which is the same on every machine with x86-64 or AArch64.
const TICKS_PER_SECOND: u64 = 100;

/// Returns the start time of a process in clock ticks since boot.
pub(crate) fn start_time(pid: u32) -> Option<String> {
    fields(pid, 19)?.into_iter().next()
}

/// Returns the CPU time of all threads of a process, rounded down to 10 ms.
pub(crate) fn cpu_time(pid: u32) -> Option<Duration> {
    // In user mode and in the kernel.
    let ticks =
        fields(pid, 11)?.iter().take(2).map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(Duration::from_millis(ticks.saturating_mul(1000 / TICKS_PER_SECOND)))
}

/// Returns the fields of a process from one on, counted from its state, which is the first.
fn fields(pid: u32, from: usize) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name, which may contain anything, ends with the last bracket.
    let (_, fields) = text.rsplit_once(')')?;
    Some(fields.split_whitespace().skip(from).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn cpu_time_grows_with_work() {
        let pid = std::process::id();
        let before = cpu_time(pid).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while cpu_time(pid).unwrap() < before + Duration::from_millis(50) {
            assert!(Instant::now() < deadline, "no CPU time is counted");
        }
        assert_eq!(cpu_time(u32::MAX), None);
    }
}
