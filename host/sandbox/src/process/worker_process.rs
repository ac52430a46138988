//! One worker process, seen from this program.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use pl_supervisor::{decode, encode_frame};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::protocol::{WorkerReady, WorkerStart};
use crate::job::{Job, Verdict};
use crate::proc_stat::cpu_time;

/// Longest time from the start of a process to its first message: it loads a compiled component.
const LONGEST_START: Duration = Duration::from_secs(60);

/// Environment variables that a process gets: the place of the program's libraries, and those that the program would start
/// itself again for.
const INHERITED: [&str; 4] =
    ["LD_LIBRARY_PATH", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "CUBLAS_WORKSPACE_CONFIG"];

/// Longest first message in bytes.
const LONGEST_READY: usize = 64 << 10;

/// CPU time that a process may take between two checks without a job: the engine's clock alone takes some milliseconds a
/// second.
const IDLE_CPU_TIME: Duration = Duration::from_millis(100);

/// Command that starts a worker process. It has to call [`serve_jobs`](super::serve_jobs).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerProgram {
    pub path: PathBuf,
    pub arguments: Vec<String>,
}

/// Reason for which a worker process is not usable.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error("cannot start it: {0}")]
    Start(io::Error),
    #[error("it can't take jobs: {0}")]
    NotReady(String),
    /// It was ended for taking too long.
    #[error("it gave no answer within {} s", .0.as_secs_f64())]
    Late(Duration),
    #[error("its answer is malformed")]
    Malformed,
    #[error("it made a system call that workers may not make")]
    ForbiddenCall,
    #[error("it ended by itself ({0})")]
    Ended(ExitStatus),
}

/// A confined process that runs one job at a time. Dropping it ends it.
pub struct WorkerProcess {
    child: Child,
    socket: UnixStream,
    /// Number of jobs that it has run.
    pub jobs: u32,
    /// CPU time at the end of its last job, or at a check after that. `None` if it isn't known.
    cpu_time: Option<Duration>,
}

impl WorkerProcess {
    /// Starts a process and waits until it takes jobs.
    ///
    /// # Errors
    /// The reason for which it takes none.
    pub async fn start(program: &WorkerProgram, start: &WorkerStart) -> Result<Self, ProcessError> {
        let (own, other) = UnixStream::pair().map_err(ProcessError::Start)?;
        let other = other.into_std().map_err(ProcessError::Start)?;
        other.set_nonblocking(false).map_err(ProcessError::Start)?;
        let child = spawn(program, OwnedFd::from(other)).map_err(ProcessError::Start)?;
        let mut process = Self { child, socket: own, jobs: 0, cpu_time: None };
        match process.request(start, LONGEST_READY, LONGEST_START).await? {
            WorkerReady::Ready => {
                process.cpu_time = cpu_time(process.child.id());
                Ok(process)
            }
            WorkerReady::Failed(reason) => Err(ProcessError::NotReady(reason)),
        }
    }

    /// Runs one job. After an error, the process is not usable any more.
    ///
    /// # Errors
    /// The process ended, was too late, or gave no verdict of at most `longest` bytes.
    pub async fn run(&mut self, job: &Job, longest: usize, limit: Duration) -> Result<Verdict, ProcessError> {
        self.jobs = self.jobs.saturating_add(1);
        let verdict: Verdict = self.request(job, longest, limit).await?;
        self.cpu_time = cpu_time(self.child.id());
        // These come from other back ends only.
        match verdict.cases.is_empty() && verdict.output_files.is_empty() {
            true => Ok(verdict),
            false => Err(ProcessError::Malformed),
        }
    }

    /// Checks a process without a job. Returns true if it has computed since its last job or check. That isn't known where
    /// `/proc` hides processes that can't be traced, as confined ones can't.
    pub fn computes_without_job(&mut self) -> bool {
        let now = cpu_time(self.child.id());
        let taken = now.zip(self.cpu_time).map(|(now, before)| now.saturating_sub(before));
        self.cpu_time = now;
        taken.is_some_and(|taken| taken > IDLE_CPU_TIME)
    }

    /// Sends a message and receives the answer.
    async fn request<T: DeserializeOwned>(
        &mut self,
        message: &impl Serialize,
        longest: usize,
        limit: Duration,
    ) -> Result<T, ProcessError> {
        let answer = timeout(limit, exchange(&mut self.socket, message, longest)).await;
        match answer.map_err(|_| ProcessError::Late(limit))? {
            Ok(Some(content)) => decode(&content).ok_or(ProcessError::Malformed),
            Ok(None) => Err(ProcessError::Malformed),
            Err(_) => Err(self.end()),
        }
    }

    /// Returns the reason for which the process has closed its socket.
    fn end(&mut self) -> ProcessError {
        // It may still be on its way out: a signal that is pending comes before this one.
        let _ = self.child.kill();
        match self.child.wait() {
            Ok(status) if status.signal() == Some(libc::SIGSYS) => ProcessError::ForbiddenCall,
            Ok(status) => ProcessError::Ended(status),
            Err(error) => ProcessError::Start(error),
        }
    }
}

/// Starts a process with a socket as its standard input. The socket stays open in that process alone, so that its end
/// is noticed here.
fn spawn(program: &WorkerProgram, socket: OwnedFd) -> io::Result<Child> {
    let mut command = Command::new(&program.path);
    command.args(&program.arguments).env_clear();
    command.envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.stdin(socket).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // Both fail only if the process was waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the content of the answer's frame. Returns `None` if it is longer than `longest`.
async fn exchange(
    socket: &mut UnixStream,
    message: &impl Serialize,
    longest: usize,
) -> io::Result<Option<Vec<u8>>> {
    socket.write_all(&encode_frame(message)?).await?;
    let length = socket.read_u32_le().await? as usize;
    if length > longest {
        return Ok(None);
    }
    let mut content = vec![0; length];
    socket.read_exact(&mut content).await?;
    Ok(Some(content))
}
