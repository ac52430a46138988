//! The processes of the container: waiting for them, and ending them all.

use std::io::{Error, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// How long processes may take to die. One that is stuck in the kernel longer costs the container.
const DYING: Duration = Duration::from_secs(5);

/// The processes of the container, all of which are children of PID 1 or become so.
pub struct Children {
    /// Readable when one of them has ended.
    ended: OwnedFd,
}

/// A process that is over.
pub struct Ended {
    pub pid: i32,
    /// As `wait` gives it.
    pub status: i32,
    /// Bytes of its largest process at its largest.
    pub peak: u64,
}

impl Children {
    /// Turns the signal of their ends into something to poll.
    pub fn watch() -> Result<Self> {
        // SAFETY: the set is initialised by sigemptyset, and the descriptor is ours alone.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGCHLD);
            libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(Error::last_os_error());
            }
            Ok(Self { ended: OwnedFd::from_raw_fd(fd) })
        }
    }

    /// What to poll for processes that ended.
    pub fn fd(&self) -> RawFd {
        self.ended.as_raw_fd()
    }

    /// Forgets that the descriptor was readable. To be called before [`Children::next`].
    pub fn acknowledge(&self) {
        let mut buffer = [0_u8; size_of::<libc::signalfd_siginfo>() * 4];
        // SAFETY: the buffer is as long as is said.
        while unsafe { libc::read(self.fd(), buffer.as_mut_ptr().cast(), buffer.len()) } > 0 {}
    }

    /// The next process that has ended. An error where there is no process at all.
    pub fn next(&self) -> Result<Option<Ended>> {
        let mut status = 0;
        // SAFETY: all zeros is an rusage, and both places outlive the call.
        let (pid, usage) = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            (libc::wait4(-1, &mut status, libc::WNOHANG, &mut usage), usage)
        };
        match pid {
            0 => Ok(None),
            pid if pid > 0 => Ok(Some(Ended { pid, status, peak: usage.ru_maxrss.unsigned_abs() << 10 })),
            _ => Err(Error::last_os_error()),
        }
    }

    /// Ends every process but this one. The error says what could not be ended.
    pub fn end_all(&self) -> std::result::Result<(), String> {
        let deadline = Instant::now() + DYING;
        loop {
            // One pass over all processes under the lock that forking takes: none slips through it.
            // SAFETY: no memory is involved.
            unsafe { libc::kill(-1, libc::SIGKILL) };
            self.acknowledge();
            loop {
                match self.next() {
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(_) => return Ok(()),
                }
            }
            if Instant::now() > deadline {
                return Err("processes that do not die".to_owned());
            }
            let mut poll = libc::pollfd { fd: self.fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one descriptor, as is said.
            unsafe { libc::poll(&mut poll, 1, 10) };
        }
    }
}
