//! A Python interpreter that has started and waits: a program's process is a fork of it, which takes a millisecond where
//! a start takes fifteen.
//!
//! The parent is the only process that outlives a program, so it must be as far from programs as the supervisor is. It is
//! started while no process of a program lives and the folders are empty; its memory, files and limits are closed to
//! programs; a filter leaves them no call that signals it. It stays only where the kernel counts no other process
//! when a program is over. In all other cases it is ended with them, and the next one is started afresh.
//!
//! What it does itself is in `python/usercustomize.py`.

use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use pl_supervisor::PYTHON_FOLDER;

use crate::confine::filter::Filter;
use crate::program;
use crate::reap::{Children, Ended};

/// How long an interpreter may take to start. It takes milliseconds, on a busy machine a second.
const STARTING: Duration = Duration::from_secs(20);

/// Where the kernel counts the processes of the container, of version 2 and 1 of control groups.
const POPULATIONS: [&str; 2] = ["/sys/fs/cgroup/pids.current", "/sys/fs/cgroup/pids/pids.current"];

/// The one interpreter of the container, if it has one.
pub struct Keeper {
    zygote: Option<Zygote>,
    /// None can be had: the image's Python is another one, or the kernel counts no processes.
    unfit: bool,
    population: Option<File>,
}

/// A waiting interpreter.
struct Zygote {
    process: Child,
    command: Vec<String>,
    link: OwnedFd,
}

impl Keeper {
    /// Without an interpreter yet.
    pub fn new() -> Self {
        let population = POPULATIONS.iter().find_map(|place| File::open(place).ok());
        Self { zygote: None, unfit: population.is_none(), population }
    }

    /// Makes an interpreter wait for this command line, where it is one of Python's. To be called while no process of a
    /// program lives and the folders are empty: an interpreter reads its user's folder when it starts.
    pub fn prepare(
        &mut self,
        command: &[String],
        work: &Path,
        children: &Children,
    ) -> std::result::Result<(), String> {
        let fits = matches!(command, [name, file, ..] if name == "python3" && !file.starts_with('-'));
        if self.unfit || !fits || self.zygote.as_ref().is_some_and(|zygote| zygote.command == command) {
            return Ok(());
        }
        self.end_all(children)?;
        match Zygote::start(command, work) {
            Ok(zygote) => self.zygote = Some(zygote),
            Err(_) => {
                self.unfit = true;
                children.end_all()?;
            }
        }
        Ok(())
    }

    /// Forks the interpreter that waits for this command line, for a program with these streams. False where there is none.
    pub fn fork(&mut self, command: &[String], streams: &[OwnedFd; 3]) -> bool {
        let Some(zygote) = self.zygote.as_ref().filter(|zygote| zygote.command == command) else {
            return false;
        };
        let forked = zygote.fork(streams.each_ref().map(AsRawFd::as_raw_fd)).is_ok();
        if !forked {
            self.zygote = None;
        }
        forked
    }

    /// How the fork ended, where it has. A lost interpreter takes its fork with it.
    pub fn ended(&mut self) -> Option<Ended> {
        let lost = Ended { pid: 0, status: libc::SIGKILL, peak: 0 };
        let Some(zygote) = &self.zygote else { return Some(lost) };
        zygote.ended().unwrap_or_else(|_| {
            self.zygote = None;
            Some(lost)
        })
    }

    /// What to poll for the end of a fork.
    pub fn fd(&self) -> Option<RawFd> {
        self.zygote.as_ref().map(Zygote::fd)
    }

    /// The process that programs must not signal.
    pub fn process(&self) -> Option<i32> {
        self.zygote.as_ref().map(Zygote::pid)
    }

    /// The interpreter has ended.
    pub fn lose(&mut self) {
        self.zygote = None;
    }

    /// Ends every process of programs. The error says what could not be ended.
    pub fn end_programs(&mut self, children: &Children) -> std::result::Result<(), String> {
        // Those that have ended are counted until they are waited for.
        while let Ok(Some(ended)) = children.next() {
            if self.process() == Some(ended.pid) {
                self.zygote = None;
            }
        }
        if self.zygote.is_some() && self.count() == Some(2) {
            return Ok(());
        }
        self.end_all(children)
    }

    fn end_all(&mut self, children: &Children) -> std::result::Result<(), String> {
        self.zygote = None;
        children.end_all()
    }

    /// Processes and threads of the container. A process that forks and ends all the time is never missed in it, as it may
    /// be in a list.
    fn count(&self) -> Option<u64> {
        let mut buffer = [0; 32];
        let length = self.population.as_ref()?.read_at(&mut buffer, 0).ok()?;
        std::str::from_utf8(buffer.get(..length)?).ok()?.trim().parse().ok()
    }
}

impl Zygote {
    fn start(command: &[String], work: &Path) -> Result<Self> {
        let (link, theirs) = pair()?;
        let path = std::env::var_os("PYTHONPATH").filter(|path| !path.is_empty());
        let mut paths = std::ffi::OsString::from(PYTHON_FOLDER);
        if let Some(path) = path {
            paths.push(":");
            paths.push(path);
        }
        let number = theirs.as_raw_fd();
        let mut interpreter = program::command(command, work)?;
        interpreter
            .env("PYTHONPATH", paths)
            .env("PL_SUPERVISOR_LINK", number.to_string())
            // Pipes, as programs have them: the interpreter looks at what its streams are when it starts.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // SAFETY: this process has one thread, so that its child may allocate.
        unsafe { interpreter.pre_exec(move || before_it_starts(number)) };
        let zygote = Self { process: interpreter.spawn()?, command: command.to_vec(), link };
        drop(theirs);
        zygote.wait_until_ready()?;
        Ok(zygote)
    }

    fn wait_until_ready(&self) -> Result<()> {
        let mut poll = libc::pollfd { fd: self.fd(), events: libc::POLLIN, revents: 0 };
        let patience = libc::c_int::try_from(STARTING.as_millis()).unwrap_or(libc::c_int::MAX);
        // SAFETY: one descriptor, as is said.
        unsafe { libc::poll(&mut poll, 1, patience) };
        if self.hear()?.as_deref() != Some(b"ready") {
            return Err(Error::other("it does not wait"));
        }
        // Files of a process that is closed to its user are root's.
        let owner = std::fs::metadata(format!("/proc/{}/environ", self.pid()))?.uid();
        // SAFETY: no memory is involved.
        if owner == unsafe { libc::geteuid() } {
            return Err(Error::other("its memory is open to programs"));
        }
        Ok(())
    }

    fn pid(&self) -> i32 {
        self.process.id().cast_signed()
    }

    fn fd(&self) -> RawFd {
        self.link.as_raw_fd()
    }

    fn fork(&self, streams: [RawFd; 3]) -> Result<()> {
        const SIZE: u32 = size_of::<[RawFd; 3]>() as u32;
        let mut word = *b"f";
        let mut part = libc::iovec { iov_base: word.as_mut_ptr().cast(), iov_len: word.len() };
        // Of the alignment that such headers have.
        let mut control = [0_u64; 8];
        // SAFETY: the buffer is large enough for one header and three descriptors, and all of it outlives the call.
        let sent = unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(SIZE) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(SIZE) as _;
            libc::CMSG_DATA(header).cast::<[RawFd; 3]>().write_unaligned(streams);
            libc::sendmsg(self.fd(), &raw const message, libc::MSG_NOSIGNAL)
        };
        if sent < 0 { Err(Error::last_os_error()) } else { Ok(()) }
    }

    /// How its fork ended, where it has. An error where it is gone itself.
    fn ended(&self) -> Result<Option<Ended>> {
        let Some(words) = self.hear()? else { return Ok(None) };
        let words = String::from_utf8_lossy(&words);
        let numbers = words.split_once(' ').and_then(|(status, peak)| {
            Some(Ended { pid: 0, status: status.parse().ok()?, peak: peak.parse::<u64>().ok()? << 10 })
        });
        numbers.map(Some).ok_or_else(|| Error::other("it is not understood"))
    }

    /// A message that is there. An error where there will be none.
    fn hear(&self) -> Result<Option<Vec<u8>>> {
        let mut buffer = [0_u8; 64];
        // SAFETY: the buffer is as long as is said.
        let length =
            unsafe { libc::recv(self.fd(), buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT) };
        match usize::try_from(length) {
            Ok(0) => Err(Error::other("it has ended")),
            Ok(length) => Ok(buffer.get(..length).map(<[u8]>::to_vec)),
            Err(_) => match Error::last_os_error() {
                error if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
                error => Err(error),
            },
        }
    }
}

/// In its process: keeps the link open, and rules out that it, or any fork of it, signals it.
fn before_it_starts(link: RawFd) -> Result<()> {
    program::no_signal_is_blocked();
    // SAFETY: no memory is involved.
    let (kept, pid) = unsafe {
        libc::setsid();
        (libc::fcntl(link, libc::F_SETFD, 0), libc::getpid())
    };
    if kept < 0 {
        return Err(Error::last_os_error());
    }
    Filter::of_neighbours(pid).install()
}

fn pair() -> Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: two descriptors are written, which are ours alone.
    unsafe {
        if libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr())
            != 0
        {
            return Err(Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}
