//! One program from its start to its end, with limits on its time and output.

use std::io::{PipeReader, PipeWriter, Read, Result, Write, pipe};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use pl_supervisor::{RunReport, Termination};

use crate::reap::Children;

/// A program to run.
pub struct Program<'a> {
    pub command: &'a [String],
    pub stdin: &'a [u8],
    /// Folder in which it starts.
    pub work: &'a Path,
    pub timeout_ms: u64,
    /// Bytes kept of each stream.
    pub max_output: u64,
}

/// A captured output stream of a program.
struct CapturedStream {
    /// `None` after the end of the stream.
    pipe: Option<PipeReader>,
    bytes: Vec<u8>,
    max_bytes: usize,
}

/// Runs a program and kills what it leaves running. Its processes are gone when this returns.
pub fn run(program: &Program<'_>, children: &Children) -> Result<RunReport> {
    let started = Instant::now();
    let (child_stdin, stdin) = pipe()?;
    let (stdout, child_stdout) = pipe()?;
    let (stderr, child_stderr) = pipe()?;
    let pid = match spawn(program, [child_stdin.into(), child_stdout.into(), child_stderr.into()]) {
        Ok(pid) => pid,
        Err(error) => {
            let name = program.command.first().map_or("", String::as_str);
            let termination = Termination::NotStarted(format!("{name} can't be started: {error}"));
            return Ok(RunReport { termination, ..RunReport::default() });
        }
    };
    set_nonblocking(stdin.as_raw_fd())?;
    let mut stdin = Some((stdin, program.stdin));
    let mut stdout = CapturedStream::new(stdout, program.max_output)?;
    let mut stderr = CapturedStream::new(stderr, program.max_output)?;
    let deadline = started + Duration::from_millis(program.timeout_ms);
    let mut peak_memory = 0;
    let termination = loop {
        stdin = stdin.and_then(feed_stdin);
        if !stdout.read() || !stderr.read() {
            break Termination::OutputLimit;
        }
        if let Some(status) = reap(pid, children, &mut peak_memory) {
            break termination(status);
        }
        let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
        else {
            break Termination::TimedOut;
        };
        let watched = [stdin.as_ref().map(|(pipe, _)| pipe.as_raw_fd()), stdout.fd(), stderr.fd()];
        wait(children, watched, left);
    };
    let duration_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    // Nothing prints any more after this, so the pipes are at their end. Processes that survive are reported
    // when the container is cleaned.
    let _ = children.kill_all();
    let over_limit = !stdout.read() || !stderr.read();
    let termination = if over_limit && termination != Termination::TimedOut {
        Termination::OutputLimit
    } else {
        termination
    };
    Ok(RunReport {
        termination,
        stdout: stdout.bytes,
        stderr: stderr.bytes,
        duration_us,
        peak_memory,
        ..RunReport::default()
    })
}

/// Starts a program in its working folder and returns its process id.
fn spawn(program: &Program<'_>, [stdin, stdout, stderr]: [OwnedFd; 3]) -> Result<i32> {
    let Some((name, arguments)) = program.command.split_first() else {
        return Err(std::io::Error::other("no command line is given"));
    };
    let mut command = Command::new(name);
    command.args(arguments).current_dir(program.work).env_remove("HOSTNAME").env("HOME", program.work);
    command.stdin(stdin).stdout(stdout).stderr(stderr);
    // SAFETY: this process has one thread, so its child may call anything.
    unsafe { command.pre_exec(become_job) };
    Ok(command.spawn()?.id().cast_signed())
}

/// Undoes, in a job's process, the settings that only the supervisor needs.
fn become_job() -> Result<()> {
    // SAFETY: the set is initialised by sigemptyset, and the texts end with a zero.
    unsafe {
        // The supervisor blocks SIGCHLD, and children inherit that.
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::setsid();
        // The files in /proc of a process that is not dumpable don't belong to its user.
        libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0);
        // If memory runs out, the kernel kills a job and not the supervisor.
        let score = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if score >= 0 {
            libc::write(score, c"1000".as_ptr().cast(), 4);
            libc::close(score);
        }
    }
    Ok(())
}

/// Reaps ended processes. Returns the program's status if it is one of them. `peak_memory` grows to that of
/// the largest.
fn reap(pid: i32, children: &Children, peak_memory: &mut u64) -> Option<i32> {
    children.acknowledge();
    let mut status = None;
    while let Some(child) = children.next().ok().flatten() {
        *peak_memory = child.peak_memory.max(*peak_memory);
        if child.pid == pid {
            status = Some(child.status);
        }
    }
    status
}

fn termination(status: i32) -> Termination {
    let status = ExitStatus::from_raw(status);
    match (status.code(), status.signal()) {
        (Some(code), _) => Termination::Exited(code),
        (None, signal) => Termination::Signalled(signal.unwrap_or_default()),
    }
}

/// Writes as much of the input as the program takes. Returns `None` if nothing is left or nothing reads it.
fn feed_stdin((mut pipe, mut left): (PipeWriter, &[u8])) -> Option<(PipeWriter, &[u8])> {
    while !left.is_empty() {
        match pipe.write(left) {
            Ok(written) => left = left.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Some((pipe, left)),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    None
}

/// Waits until `left` has passed, a process ends, stdin can be written, or stdout or stderr can be read. Ends
/// this process if the host is gone.
fn wait(children: &Children, [stdin, stdout, stderr]: [Option<RawFd>; 3], left: Duration) {
    let watch = |fd: Option<RawFd>, events| libc::pollfd { fd: fd.unwrap_or(-1), events, revents: 0 };
    let mut watched = [
        watch(Some(libc::STDIN_FILENO), 0),
        watch(Some(children.fd()), libc::POLLIN),
        watch(stdin, libc::POLLOUT),
        watch(stdout, libc::POLLIN),
        watch(stderr, libc::POLLIN),
    ];
    // Rounded up, so that the deadline has passed when this returns.
    let left = libc::c_int::try_from(left.as_millis() + 1).unwrap_or(libc::c_int::MAX);
    // SAFETY: the count is the array's length.
    unsafe { libc::poll(watched.as_mut_ptr(), watched.len() as libc::nfds_t, left) };
    if watched[0].revents & (libc::POLLHUP | libc::POLLERR) != 0 {
        std::process::exit(0);
    }
}

impl CapturedStream {
    fn new(pipe: PipeReader, max_bytes: u64) -> Result<Self> {
        set_nonblocking(pipe.as_raw_fd())?;
        let max_bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX);
        Ok(Self { pipe: Some(pipe), bytes: Vec::new(), max_bytes })
    }

    fn fd(&self) -> Option<RawFd> {
        self.pipe.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Reads what is available. Returns false if it exceeds the limit.
    fn read(&mut self) -> bool {
        let mut buffer = [0; 16 << 10];
        while let Some(pipe) = &mut self.pipe {
            match pipe.read(&mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(length) => {
                    let room = self.max_bytes - self.bytes.len();
                    self.bytes.extend(buffer.iter().take(length.min(room)));
                    if length > room {
                        return false;
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => self.pipe = None,
            }
        }
        true
    }
}

fn set_nonblocking(fd: RawFd) -> Result<()> {
    // SAFETY: no memory is involved.
    if unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(())
}
