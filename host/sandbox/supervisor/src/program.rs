//! One program from its start to its end, with its time and its output bounded.

use std::io::{PipeReader, PipeWriter, Read, Result, Write, pipe};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use pl_supervisor::{End, Run};

use crate::confine::filter::Filter;
use crate::reap::{Children, Ended};
use crate::zygote::Keeper;

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
    from: Option<PipeReader>,
    bytes: Vec<u8>,
    most: usize,
}

/// Whose child a program is, and so who hears of its end.
#[derive(Clone, Copy)]
enum Parent {
    /// This process: the program has this number.
    Supervisor(i32),
    /// The interpreter that was forked for it.
    Zygote,
}

/// Runs a program, and ends what it leaves running. Its processes are gone when this returns.
pub fn run(program: &Program<'_>, children: &Children, keeper: &mut Keeper) -> Result<Run> {
    let started = Instant::now();
    let (input, to) = pipe()?;
    let (from_out, out) = pipe()?;
    let (from_err, err) = pipe()?;
    let parent = match start(program, keeper, [input.into(), out.into(), err.into()]) {
        Ok(parent) => parent,
        Err(error) => {
            let name = program.command.first().map_or("", String::as_str);
            return Ok(Run {
                end: End::Refused(format!("{name} can't be started: {error}")),
                ..Run::default()
            });
        }
    };
    nonblocking(to.as_raw_fd())?;
    let mut stdin = Some((to, program.stdin));
    let mut stdout = Printed::new(from_out, program.output)?;
    let mut stderr = Printed::new(from_err, program.output)?;
    let deadline = started + Duration::from_millis(program.timeout);
    let mut peak = 0;
    let end = loop {
        stdin = stdin.and_then(feed);
        if !stdout.read() || !stderr.read() {
            break End::Flooded;
        }
        if let Some(ended) = ended(parent, children, keeper, &mut peak) {
            break end(ended.status);
        }
        let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
        else {
            break End::TimedOut;
        };
        let watched =
            [stdin.as_ref().map(|(pipe, _)| pipe.as_raw_fd()), stdout.fd(), stderr.fd(), keeper.fd()];
        wait(children, watched, left);
    };
    let took = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    // What is left running prints no more; the pipes are then at their end.
    let _ = keeper.end_programs(children);
    let flooded = !stdout.read() || !stderr.read();
    let end = if flooded && end != End::TimedOut { End::Flooded } else { end };
    Ok(Run { end, stdout: stdout.bytes, stderr: stderr.bytes, took, peak, ..Run::default() })
}

/// Starts a program: a fork of the interpreter that waits for it, or a process of its own.
fn start(program: &Program<'_>, keeper: &mut Keeper, streams: [OwnedFd; 3]) -> Result<Parent> {
    if keeper.fork(program.command, &streams) {
        return Ok(Parent::Zygote);
    }
    let [stdin, stdout, stderr] = streams;
    let mut command = command(program.command, program.work)?;
    command.stdin(stdin).stdout(stdout).stderr(stderr);
    let neighbour = keeper.process();
    // SAFETY: this process has one thread, so that its child may do anything.
    unsafe { command.pre_exec(move || become_a_job(neighbour)) };
    Ok(Parent::Supervisor(command.spawn()?.id().cast_signed()))
}

/// A command line in the working folder, with the environment of programs.
pub fn command(line: &[String], work: &Path) -> Result<Command> {
    let Some((name, arguments)) = line.split_first() else {
        return Err(std::io::Error::other("no command line is given"));
    };
    let mut command = Command::new(name);
    command.args(arguments).current_dir(work).env_remove("HOSTNAME").env("HOME", work);
    Ok(command)
}

/// What differs between a job's process and the supervisor's.
fn become_a_job(neighbour: Option<i32>) -> Result<()> {
    no_signal_is_blocked();
    // SAFETY: no memory is involved but the texts.
    unsafe {
        libc::setsid();
        // The files of a process that is closed to its user are not its user's.
        libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0);
        // Where memory is short, the kernel takes a job and not the supervisor.
        let score = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if score >= 0 {
            libc::write(score, c"1000".as_ptr().cast(), 4);
            libc::close(score);
        }
    }
    neighbour.map_or(Ok(()), |pid| Filter::of_neighbours(pid).install())
}

/// The supervisor blocks the signal of its children's ends, and its children start like it.
pub fn no_signal_is_blocked() {
    // SAFETY: the set is initialised by sigemptyset.
    unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
}

/// The program's end, where it has come. `peak` grows to that of the largest process that has ended.
fn ended(parent: Parent, children: &Children, keeper: &mut Keeper, peak: &mut u64) -> Option<Ended> {
    children.acknowledge();
    let mut found = None;
    while let Some(one) = children.next().ok().flatten() {
        if keeper.process() == Some(one.pid) {
            keeper.lose();
            continue;
        }
        *peak = (*peak).max(one.peak);
        if matches!(parent, Parent::Supervisor(pid) if pid == one.pid) {
            found = Some(one);
        }
    }
    if matches!(parent, Parent::Zygote) {
        found = keeper.ended();
        *peak = found.as_ref().map_or(*peak, |one| one.peak.max(*peak));
    }
    found
}

fn end(status: i32) -> End {
    let status = ExitStatus::from_raw(status);
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Exited(code),
        (None, signal) => End::Signalled(signal.unwrap_or_default()),
    }
}

/// Writes what the program takes of its input. None when there is no more, or nobody who reads it.
fn feed((mut pipe, mut left): (PipeWriter, &[u8])) -> Option<(PipeWriter, &[u8])> {
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

/// Waits until something happens or the time is over: stdin can be written, stdout, stderr or the waiting interpreter
/// can be read. Where the host is gone, this process ends.
fn wait(children: &Children, [stdin, stdout, stderr, zygote]: [Option<RawFd>; 4], left: Duration) {
    let watch = |fd: Option<RawFd>, events| libc::pollfd { fd: fd.unwrap_or(-1), events, revents: 0 };
    let mut watched = [
        watch(Some(libc::STDIN_FILENO), 0),
        watch(Some(children.fd()), libc::POLLIN),
        watch(stdin, libc::POLLOUT),
        watch(stdout, libc::POLLIN),
        watch(stderr, libc::POLLIN),
        watch(zygote, libc::POLLIN),
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
    fn new(from: PipeReader, most: u64) -> Result<Self> {
        nonblocking(from.as_raw_fd())?;
        Ok(Self { from: Some(from), bytes: Vec::new(), most: usize::try_from(most).unwrap_or(usize::MAX) })
    }

    fn fd(&self) -> Option<RawFd> {
        self.from.as_ref().map(AsRawFd::as_raw_fd)
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
