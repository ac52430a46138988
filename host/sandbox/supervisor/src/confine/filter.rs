//! The filter on system calls, on top of the engine's own: what could change the supervisor, which has the same user,
//! and what only programs that break out have use for.

use std::io::{Error, Result};

use libc::sock_filter;

/// A program of the kernel's packet filter over one system call.
pub struct Filter {
    code: Vec<sock_filter>,
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Where `struct seccomp_data` has them.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const ARGUMENTS_AT: u32 = 16;

/// New namespaces of any kind.
const NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

/// Calls that no job needs.
const REFUSED: &[libc::c_long] = &[
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
    // What outlives processes, and doors into the kernel.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
];

/// Calls for which programs have another way where the kernel does not know them.
const UNKNOWN: &[libc::c_long] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Its flags lie in memory, where a filter can't see them.
    libc::SYS_clone3,
];

/// Calls with a process as their first argument, of which 0 is the caller.
const OF_THE_CALLER: &[libc::c_long] = &[
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setattr,
];

/// Calls that signal the process, thread or group of their first argument.
const SIGNALS: &[libc::c_long] = &[
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
];

/// Of the kernel's headers: `fcntl.h`, `ioctls.h` and `sockios.h`.
const F_SETOWN_EX: i32 = 15;
const FIOSETOWN: u32 = 0x8901;
const SIOCSPGRP: u32 = 0x8902;

impl Filter {
    /// The filter that jobs run under.
    pub fn of_jobs() -> Self {
        let mut filter = Filter { code: Vec::new() };
        filter.load(ARCHITECTURE_AT);
        filter.unless_equal(ARCHITECTURE, |body| body.refuse(libc::ENOSYS));
        filter.load(NUMBER_AT);
        // x86-64 knows a second set of numbers with this bit.
        filter.when(libc::BPF_JGE, 0x4000_0000, |body| body.refuse(libc::ENOSYS));
        for call in REFUSED {
            filter.on(*call, |body| body.refuse(libc::EPERM));
        }
        for call in UNKNOWN {
            filter.on(*call, |body| body.refuse(libc::ENOSYS));
        }
        for call in OF_THE_CALLER {
            filter.on(*call, |body| body.only(0, &[0]).refuse(libc::EPERM));
        }
        // PRIO_PROCESS of the caller; the other kinds reach the whole user.
        filter.on(libc::SYS_setpriority, |body| {
            body.load(ARGUMENTS_AT);
            body.unless_equal(0, |other| other.refuse(libc::EPERM));
            body.only(1, &[0]).refuse(libc::EPERM)
        });
        filter.on(libc::SYS_clone, |body| {
            body.load(ARGUMENTS_AT);
            body.when(libc::BPF_JSET, NAMESPACES, |inner| inner.refuse(libc::EPERM));
            body.allow()
        });
        // A machine's own sockets (AF_VSOCK) and others know no network namespace.
        let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6].map(i32::cast_unsigned);
        filter.on(libc::SYS_socket, |body| body.only(0, &families).refuse(libc::EAFNOSUPPORT));
        filter.allow();
        filter
    }

    /// The filter of programs that run beside a process of ours: no call of theirs signals it.
    pub fn of_neighbours(pid: i32) -> Self {
        let mut filter = Filter { code: Vec::new() };
        // Numbers of another architecture are refused by the filter above, which goes on holding.
        filter.load(NUMBER_AT);
        // Itself, its group, and everybody.
        let reached = [pid, -pid, -1].map(i32::cast_unsigned);
        for call in SIGNALS {
            filter.on(*call, |body| body.all_but(0, &reached, libc::EPERM));
        }
        // A descriptor of a process may be its folder in /proc.
        filter.on(libc::SYS_pidfd_send_signal, |body| body.refuse(libc::ENOSYS));
        // Who is signalled when a file has news.
        let owners = [libc::F_SETOWN, F_SETOWN_EX].map(i32::cast_unsigned);
        filter.on(libc::SYS_fcntl, |body| body.all_but(1, &owners, libc::EPERM));
        filter.on(libc::SYS_ioctl, |body| body.all_but(1, &[FIOSETOWN, SIOCSPGRP], libc::EPERM));
        // A sister's end is signalled to the process that would be its parent.
        filter.on(libc::SYS_clone, |body| {
            body.load(ARGUMENTS_AT);
            body.when(libc::BPF_JSET, libc::CLONE_PARENT.cast_unsigned(), |inner| inner.refuse(libc::EPERM));
            body.allow()
        });
        filter.allow();
        filter
    }

    /// Puts it on this process and all that it starts.
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

    fn push(&mut self, code: u32, jt: u8, jf: u8, k: u32) -> &mut Self {
        self.code.push(sock_filter { code: code as u16, jt, jf, k });
        self
    }

    fn load(&mut self, at: u32) {
        self.push(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at);
    }

    fn refuse(&mut self, error: i32) -> &mut Self {
        self.push(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | error.cast_unsigned())
    }

    fn allow(&mut self) -> &mut Self {
        self.push(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW)
    }

    /// What follows for one call. The body must return.
    fn on(&mut self, call: libc::c_long, body: impl FnOnce(&mut Filter) -> &mut Filter) {
        self.when(libc::BPF_JEQ, call as u32, body);
    }

    /// What follows where what is loaded compares so.
    fn when(&mut self, comparison: u32, value: u32, body: impl FnOnce(&mut Filter) -> &mut Filter) {
        let length = self.inner(body);
        let at = self.code.len() - usize::from(length);
        let jump = sock_filter {
            code: (libc::BPF_JMP | comparison | libc::BPF_K) as u16,
            jt: 0,
            jf: length,
            k: value,
        };
        self.code.insert(at, jump);
    }

    /// What follows where what is loaded is another value.
    fn unless_equal(&mut self, value: u32, body: impl FnOnce(&mut Filter) -> &mut Filter) {
        let length = self.inner(body);
        let at = self.code.len() - usize::from(length);
        let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        self.code.insert(at, sock_filter { code, jt: length, jf: 0, k: value });
    }

    fn inner(&mut self, body: impl FnOnce(&mut Filter) -> &mut Filter) -> u8 {
        let before = self.code.len();
        body(self);
        (self.code.len() - before) as u8
    }

    /// Refuses these values of an argument and allows all others.
    fn all_but(&mut self, argument: u32, values: &[u32], error: i32) -> &mut Self {
        self.load(ARGUMENTS_AT + 8 * argument);
        for value in values {
            self.when(libc::BPF_JEQ, *value, |body| body.refuse(error));
        }
        self.allow()
    }

    /// Allows these values of an argument.
    fn only(&mut self, argument: u32, values: &[u32]) -> &mut Self {
        self.load(ARGUMENTS_AT + 8 * argument);
        for value in values {
            self.when(libc::BPF_JEQ, *value, Filter::allow);
        }
        self
    }
}
