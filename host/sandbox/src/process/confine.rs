//! Restrictions that a worker process puts on itself before its first job: limits of the kernel, and a filter that
//! allows only the system calls that running a loaded component takes.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// Memory of a worker process in addition to that of its job: stacks, tables, buffers of output.
pub const PROCESS_OVERHEAD: u64 = 192 << 20;

/// Calls that are allowed with all arguments: memory, time, threads that exist, signals of this process, and the
/// streams that are open.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sendto,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Step of the confinement that failed.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    #[error("cannot write /proc/self/oom_score_adj: {0}")]
    OomScore(io::Error),
    #[error("cannot read /proc/self/status: {0}")]
    Status(io::Error),
    #[error("/proc/self/status has no VmData")]
    NoDataSize,
    #[error("cannot {action}: {source}")]
    Kernel { action: &'static str, source: rustix::io::Errno },
    #[error("cannot filter system calls: {0}")]
    Filter(#[from] seccompiler::Error),
    #[error("cannot make the filter of system calls: {0}")]
    Backend(#[from] seccompiler::BackendError),
}

/// Confines this process, with all its threads. `job_memory` is the memory limit of a job in bytes. Every call that is
/// not allowed ends the process with SIGSYS.
///
/// # Errors
/// The step that the kernel refused. Such a process must not run jobs.
pub fn confine(job_memory: u64) -> Result<(), ConfineError> {
    let kernel = |action| move |source| ConfineError::Kernel { action, source };
    // If the machine's memory runs out, the kernel ends this process and not the run. Written first: files in /proc of a
    // process that is not dumpable don't belong to its user.
    fs::write("/proc/self/oom_score_adj", "1000").map_err(ConfineError::OomScore)?;
    // Other processes of the user can neither trace it nor read its memory.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(kernel("close its memory to others"))?;
    let memory = data_size()?.saturating_add(job_memory).saturating_add(PROCESS_OVERHEAD);
    let limits = [
        (Resource::Data, memory, "limit memory"),
        (Resource::Core, 0, "rule out core dumps"),
        (Resource::Fsize, 0, "rule out files"),
        (Resource::Nofile, 0, "rule out further open files"),
        (Resource::Nproc, 0, "rule out processes"),
        (Resource::Msgqueue, 0, "rule out message queues"),
    ];
    for (resource, most, action) in limits {
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        setrlimit(resource, limit).map_err(kernel(action))?;
    }
    seccompiler::apply_filter_all_threads(&filter()?)?;
    Ok(())
}

/// Returns the bytes of this process that `RLIMIT_DATA` counts.
fn data_size() -> Result<u64, ConfineError> {
    let status = fs::read_to_string("/proc/self/status").map_err(ConfineError::Status)?;
    let size = status.lines().find_map(|line| line.strip_prefix("VmData:"));
    let kib = size.and_then(|size| size.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or(ConfineError::NoDataSize)
}

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    // No memory becomes executable.
    let no_execution = has_bits(2, libc::PROT_EXEC, 0)?;
    // `RLIMIT_DATA` counts neither shared memory nor stacks.
    let is_counted = has_bits(3, libc::MAP_TYPE | libc::MAP_GROWSDOWN, libc::MAP_PRIVATE)?;
    rules.insert(libc::SYS_mmap, vec![SeccompRule::new(vec![no_execution.clone(), is_counted])?]);
    for call in [libc::SYS_mprotect, libc::SYS_pkey_mprotect] {
        rules.insert(call, vec![SeccompRule::new(vec![no_execution.clone()])?]);
    }
    // Memory may grow and shrink, but not move over other memory.
    let in_place = has_bits(3, libc::MREMAP_FIXED, 0)?;
    rules.insert(libc::SYS_mremap, vec![SeccompRule::new(vec![in_place])?]);
    let own = u64::from(std::process::id());
    let to_itself = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, own)?;
    rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![to_itself])?]);
    let architecture = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, architecture)?.try_into()
}

/// Returns the condition that the bits `mask` of an argument are `bits`.
fn has_bits(
    argument: u8,
    mask: libc::c_int,
    bits: libc::c_int,
) -> Result<SeccompCondition, seccompiler::BackendError> {
    let operator = SeccompCmpOp::MaskedEq(u64::from(mask.cast_unsigned()));
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, u64::from(bits.cast_unsigned()))
}
