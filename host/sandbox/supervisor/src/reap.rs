//! The processes of the container: waiting for them and killing them all.

use std::io::{Error as IoError, Result as IoResult};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Time that killed processes get to die. If one is stuck in the kernel for longer, the container is
/// discarded.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// The processes of the container, all of which are children of PID 1 or become so.
pub struct Children {
    /// Readable if a child has ended.
    signals: OwnedFd,
}

/// A process that has ended.
pub struct EndedChild {
    pub pid: i32,
    /// Status as `wait` returns it.
    pub status: i32,
    /// Peak memory of its largest process, in bytes.
    pub peak_memory: u64,
}

impl Children {
    /// Turns SIGCHLD into a descriptor to poll.
    pub fn watch() -> IoResult<Self> {
        // SAFETY: the set is initialised by sigemptyset, and the descriptor is owned by nothing else.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGCHLD);
            libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(IoError::last_os_error());
            }
            Ok(Self { signals: OwnedFd::from_raw_fd(fd) })
        }
    }

    /// Returns the descriptor to poll for ended processes.
    pub fn fd(&self) -> RawFd {
        self.signals.as_raw_fd()
    }

    /// Makes the descriptor unreadable again. Call it before [`Children::next`].
    pub fn acknowledge(&self) {
        let mut buffer = [0_u8; size_of::<libc::signalfd_siginfo>() * 4];
        // SAFETY: the buffer has the length that is passed.
        while unsafe { libc::read(self.fd(), buffer.as_mut_ptr().cast(), buffer.len()) } > 0 {}
    }

    /// Returns the next process that has ended, `None` if all are alive, and an error if there is no process
    /// at all.
    pub fn next(&self) -> IoResult<Option<EndedChild>> {
        let mut status = 0;
        // SAFETY: all zeros is a valid rusage, and both variables outlive the call.
        let (pid, usage) = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            (libc::wait4(-1, &mut status, libc::WNOHANG, &mut usage), usage)
        };
        match pid {
            0 => Ok(None),
            pid if pid > 0 => {
                Ok(Some(EndedChild { pid, status, peak_memory: usage.ru_maxrss.unsigned_abs() << 10 }))
            }
            _ => Err(IoError::last_os_error()),
        }
    }

    /// Kills every process except this one and waits until they are gone.
    pub fn kill_all(&self) -> Result<()> {
        let deadline = Instant::now() + KILL_TIMEOUT;
        loop {
            // One pass over all processes under the lock that forking takes: none escapes it.
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
                return Err(Error::RemainingProcesses);
            }
            let mut poll = libc::pollfd { fd: self.fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one descriptor, as the count says.
            unsafe { libc::poll(&mut poll, 1, 10) };
        }
    }
}
