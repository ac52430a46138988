//! One program from its start to its end, with its time and its output bounded.

use std::io::{Read, Result, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use pl_supervisor::{End, Run};

use crate::reap::Children;

/// A program to run.
pub struct Program<'a> {
    pub command: &'a [String],
    pub stdin: &'a [u8],
    /// Where it starts.
    pub work: &'a Path,
    /// Milliseconds.
    pub timeout: u64,
    /// Bytes of each stream.
    pub output: u64,
}

/// What a program prints to one stream.
struct Printed {
    from: Option<Box<dyn Stream>>,
    bytes: Vec<u8>,
    most: usize,
}

trait Stream: Read + AsRawFd {}
impl<T: Read + AsRawFd> Stream for T {}

/// Runs a program, and ends what it leaves running. Its processes are gone when this returns.
pub fn run(program: &Program<'_>, children: &Children) -> Result<Run> {
    let started = Instant::now();
    let mut child = match spawn(program) {
        Ok(child) => child,
        Err(error) => {
            let name = program.command.first().map_or("", String::as_str);
            return Ok(Run {
                end: End::Refused(format!("{name} can't be started: {error}")),
                ..Run::default()
            });
        }
    };
    let pid = child.id().cast_signed();
    let mut stdin = child.stdin.take().map(|pipe| (pipe, program.stdin));
    let mut stdout = Printed::new(child.stdout.take().map(|pipe| Box::new(pipe) as _), program.output)?;
    let mut stderr = Printed::new(child.stderr.take().map(|pipe| Box::new(pipe) as _), program.output)?;
    if let Some((pipe, _)) = &stdin {
        nonblocking(pipe.as_raw_fd())?;
    }
    let deadline = started + Duration::from_millis(program.timeout);
    let mut peak = 0;
    let end = loop {
        stdin = stdin.and_then(feed);
        if !stdout.read() || !stderr.read() {
            break End::Flooded;
        }
        children.acknowledge();
        let mut ended = None;
        while let Some(one) = children.next().ok().flatten() {
            peak = peak.max(one.peak);
            if one.pid == pid {
                ended = Some(end(one.status));
            }
        }
        if let Some(end) = ended {
            break end;
        }
        let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
        else {
            break End::TimedOut;
        };
        wait(children, stdin.as_ref().map(|(pipe, _)| pipe), [&stdout, &stderr], left);
    };
    let took = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    // What is left running prints no more; the pipes are then at their end.
    let _ = children.end_all();
    let flooded = !stdout.read() || !stderr.read();
    let end = if flooded && end != End::TimedOut { End::Flooded } else { end };
    Ok(Run { end, stdout: stdout.bytes, stderr: stderr.bytes, took, peak, ..Run::default() })
}

fn spawn(program: &Program<'_>) -> Result<std::process::Child> {
    let Some((name, arguments)) = program.command.split_first() else {
        return Err(std::io::Error::other("no command line is given"));
    };
    let mut command = Command::new(name);
    command
        .args(arguments)
        .current_dir(program.work)
        .env_remove("HOSTNAME")
        .env("HOME", program.work)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // SAFETY: between fork and exec only calls that are safe there.
    unsafe { command.pre_exec(become_a_job) };
    command.spawn()
}

/// What differs between a job's process and the supervisor's.
fn become_a_job() -> Result<()> {
    // SAFETY: all of these are async-signal-safe; the set is initialised by sigemptyset.
    unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::setsid();
        // Where memory is short, the kernel takes a job and not the supervisor.
        let score = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if score >= 0 {
            libc::write(score, c"1000".as_ptr().cast(), 4);
            libc::close(score);
        }
    }
    Ok(())
}

fn end(status: i32) -> End {
    let status = ExitStatus::from_raw(status);
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Exited(code),
        (None, signal) => End::Signalled(signal.unwrap_or_default()),
    }
}

/// Writes what the program takes of its input. None when there is no more, or nobody who reads it.
fn feed((mut pipe, mut left): (ChildStdin, &[u8])) -> Option<(ChildStdin, &[u8])> {
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

/// Waits until something happens or the time is over. Where the host is gone, this process ends.
fn wait(children: &Children, stdin: Option<&ChildStdin>, printed: [&Printed; 2], left: Duration) {
    let watch = |fd: Option<RawFd>, events| libc::pollfd { fd: fd.unwrap_or(-1), events, revents: 0 };
    let [stdout, stderr] =
        printed.map(|one| watch(one.from.as_ref().map(|pipe| pipe.as_raw_fd()), libc::POLLIN));
    let mut watched = [
        watch(Some(libc::STDIN_FILENO), 0),
        watch(Some(children.fd()), libc::POLLIN),
        watch(stdin.map(AsRawFd::as_raw_fd), libc::POLLOUT),
        stdout,
        stderr,
    ];
    // Rounded up, so that a deadline has passed when the time is over.
    let left = libc::c_int::try_from(left.as_millis() + 1).unwrap_or(libc::c_int::MAX);
    // SAFETY: as many descriptors as are said.
    unsafe { libc::poll(watched.as_mut_ptr(), watched.len() as libc::nfds_t, left) };
    if watched[0].revents & (libc::POLLHUP | libc::POLLERR) != 0 {
        std::process::exit(0);
    }
}

impl Printed {
    fn new(from: Option<Box<dyn Stream>>, most: u64) -> Result<Self> {
        if let Some(pipe) = &from {
            nonblocking(pipe.as_raw_fd())?;
        }
        Ok(Self { from, bytes: Vec::new(), most: usize::try_from(most).unwrap_or(usize::MAX) })
    }

    /// Takes what is there. False where it is more than is kept.
    fn read(&mut self) -> bool {
        let mut buffer = [0; 16 << 10];
        while let Some(pipe) = &mut self.from {
            match pipe.read(&mut buffer) {
                Ok(0) => self.from = None,
                Ok(length) => {
                    let room = self.most - self.bytes.len();
                    self.bytes.extend(buffer.iter().take(length.min(room)));
                    if length > room {
                        return false;
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => self.from = None,
            }
        }
        true
    }
}

fn nonblocking(fd: RawFd) -> Result<()> {
    // SAFETY: no memory is involved.
    if unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(())
}
