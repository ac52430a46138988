//! The filter on system calls, in addition to the Docker engine's own. It denies calls that could change the
//! supervisor, which has the same user as jobs, and calls that only an escape from the container needs.

use std::io::{Error, Result};

use libc::sock_filter;

/// A seccomp program: classic BPF over one system call.
pub struct Filter {
    code: Vec<sock_filter>,
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Offsets in `struct seccomp_data`.
const NUMBER_OFFSET: u32 = 0;
const ARCHITECTURE_OFFSET: u32 = 4;
const ARGUMENTS_OFFSET: u32 = 16;

/// Flags of `clone` that are denied: new namespaces of any kind, and a child of the supervisor instead of the
/// caller.
const DENIED_CLONE_FLAGS: u32 = (libc::CLONE_PARENT
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

/// Calls that no job needs. They fail with `EPERM`.
const DENIED: &[libc::c_long] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_ioprio_set,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // Other namespaces and file systems.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_mount_setattr,
    // Objects that outlive processes, and interfaces that exploits use.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
];

/// Calls that fail with `ENOSYS`, as on a kernel without them: programs then use another way.
const UNSUPPORTED: &[libc::c_long] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Its flags are in memory, which a filter can't read.
    libc::SYS_clone3,
];

/// Calls with a process as their first argument. They are allowed for 0, the caller.
const CALLER_ONLY: &[libc::c_long] = &[
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setattr,
];

impl Filter {
    /// Returns the filter for jobs.
    pub fn for_jobs() -> Self {
        let mut filter = Filter { code: Vec::new() };
        filter.load(ARCHITECTURE_OFFSET);
        filter.unless_equal(ARCHITECTURE, |body| body.deny(libc::ENOSYS));
        filter.load(NUMBER_OFFSET);
        // x86-64 has a second set of numbers (x32) with this bit.
        filter.when(libc::BPF_JGE, 0x4000_0000, |body| body.deny(libc::ENOSYS));
        for call in DENIED {
            filter.on_call(*call, |body| body.deny(libc::EPERM));
        }
        for call in UNSUPPORTED {
            filter.on_call(*call, |body| body.deny(libc::ENOSYS));
        }
        for call in CALLER_ONLY {
            filter.on_call(*call, |body| body.allow_values(0, &[0]).deny(libc::EPERM));
        }
        // PRIO_PROCESS of the caller; the other kinds reach the whole user.
        filter.on_call(libc::SYS_setpriority, |body| {
            body.load(ARGUMENTS_OFFSET);
            body.unless_equal(0, |other| other.deny(libc::EPERM));
            body.allow_values(1, &[0]).deny(libc::EPERM)
        });
        filter.on_call(libc::SYS_clone, |body| {
            body.load(ARGUMENTS_OFFSET);
            body.when(libc::BPF_JSET, DENIED_CLONE_FLAGS, |inner| inner.deny(libc::EPERM));
            body.allow()
        });
        // The memory that a socket of TCP or UDP holds is not the container's with control groups of version 1, nor with version 2 before
        // a connection is accepted. The sockets of virtual machines (AF_VSOCK) and others ignore network namespaces.
        let local = [libc::AF_UNIX.cast_unsigned()];
        for call in [libc::SYS_socket, libc::SYS_socketpair] {
            filter.on_call(call, |body| body.allow_values(0, &local).deny(libc::EAFNOSUPPORT));
        }
        filter.allow();
        filter
    }

    /// Installs the filter on this process and all that it starts.
    pub fn install(&self) -> Result<()> {
        let program = libc::sock_fprog {
            len: self.code.len() as libc::c_ushort,
            filter: self.code.as_ptr().cast_mut(),
        };
        // SAFETY: the program outlives the call, and its length is right.
        let installed =
            unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program, 0, 0) };
        if installed != 0 {
            return Err(Error::last_os_error());
        }
        Ok(())
    }

    fn push(&mut self, code: u32, k: u32) -> &mut Self {
        self.code.push(sock_filter { code: code as u16, jt: 0, jf: 0, k });
        self
    }

    fn load(&mut self, offset: u32) {
        self.push(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset);
    }

    fn deny(&mut self, error: i32) -> &mut Self {
        self.push(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | error.cast_unsigned())
    }

    fn allow(&mut self) -> &mut Self {
        self.push(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW)
    }

    /// Appends `body` for one call, whose number is loaded. The body must return.
    fn on_call(&mut self, call: libc::c_long, body: impl FnOnce(&mut Filter) -> &mut Filter) {
        self.when(libc::BPF_JEQ, call as u32, body);
    }

    /// Appends `body` for a loaded value that compares so.
    fn when(&mut self, comparison: u32, value: u32, body: impl FnOnce(&mut Filter) -> &mut Filter) {
        self.branch(comparison, value, body, |length| (0, length));
    }

    /// Appends `body` for a loaded value that is another one.
    fn unless_equal(&mut self, value: u32, body: impl FnOnce(&mut Filter) -> &mut Filter) {
        self.branch(libc::BPF_JEQ, value, body, |length| (length, 0));
    }

    /// Appends a jump and `body`. `jumps` returns the jump's distances if the comparison holds and if it
    /// doesn't, from the length of the body.
    fn branch(
        &mut self,
        comparison: u32,
        value: u32,
        body: impl FnOnce(&mut Filter) -> &mut Filter,
        jumps: fn(u8) -> (u8, u8),
    ) {
        let start = self.code.len();
        body(self);
        let (jt, jf) = jumps((self.code.len() - start) as u8);
        let code = (libc::BPF_JMP | comparison | libc::BPF_K) as u16;
        self.code.insert(start, sock_filter { code, jt, jf, k: value });
    }

    /// Allows these values of an argument.
    fn allow_values(&mut self, argument: u32, values: &[u32]) -> &mut Self {
        self.load(ARGUMENTS_OFFSET + 8 * argument);
        for value in values {
            self.when(libc::BPF_JEQ, *value, Filter::allow);
        }
        self
    }
}
