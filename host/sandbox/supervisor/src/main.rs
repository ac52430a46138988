//! PID 1 of a sandbox's container: runs one task at a time and removes everything that it leaves.
//!
//! No process of the container has any capability, so jobs run under the supervisor's own user. They can't
//! reach it: signals from inside its PID namespace can't kill or stop a PID 1 without handlers; it is not
//! dumpable, so its memory, descriptors and environment are closed to them; and a filter on system calls,
//! which all processes of the container share, denies every call that changes another process (see
//! `confine`).
//!
//! Its arguments are the limits that the container should have (`--limits=MEMORY,PROCESSES,CPUS,REQUIRED`),
//! then the writable folders, the working folder first. It exits when its standard input ends,
//! and all processes of the container end with it: no container keeps working after its host is gone.

mod confine;
mod container;
mod counters;
mod error;
mod folder;
mod ipc;
mod limits;
mod program;
mod reap;
mod task;

use std::ffi::OsString;
use std::io::{BufWriter, ErrorKind};
use std::path::PathBuf;
use std::process::ExitCode;

use pl_supervisor::{SupervisorMessage, SupervisorTask, read_frame, write_frame};

use crate::container::Container;
use crate::limits::Limits;

/// Prefix of the argument with the limits.
const LIMITS: &str = "--limits=";

/// Maximum size of a task in bytes: more than the memory of a container.
const MAX_TASK: usize = 1 << 30;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let (limits, folders) = split(&arguments);
    match serve(limits, &folders) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pl-supervisor: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Splits the arguments into the text of the limits, if there is one, and the folders.
fn split(arguments: &[OsString]) -> (Option<&str>, Vec<PathBuf>) {
    let limits = arguments.first().and_then(|first| first.to_str()?.strip_prefix(LIMITS));
    (limits, arguments.iter().skip(limits.iter().count()).map(PathBuf::from).collect())
}

/// Confines this process, and checks that the container is isolated and limited as it should be.
fn isolate(limits: Option<&str>, folders: &[PathBuf]) -> error::Result<()> {
    let parse = |text: &str| Limits::parse(text).ok_or_else(|| error::Error::InvalidLimits(text.to_owned()));
    let limits = limits.map(parse).transpose()?;
    // A runtime with a kernel of its own has its filter outside, as its limits.
    if limits.is_some_and(|limits| limits.required) {
        confine::check_engine_filter()?;
    }
    confine::confine_self()?;
    confine::check_container(folders)?;
    limits.map_or(Ok(()), |limits| limits.check())
}

fn serve(limits: Option<&str>, folders: &[PathBuf]) -> std::io::Result<()> {
    let (mut input, mut output) = (std::io::stdin(), BufWriter::new(std::io::stdout()));
    let mut send = |message: &SupervisorMessage| write_frame(&mut output, message);
    let refusal = isolate(limits, folders).err();
    send(&SupervisorMessage::Ready(refusal.as_ref().map(ToString::to_string)))?;
    let Some(work) = folders.first().filter(|_| refusal.is_none()) else { return Ok(()) };
    let mut container = Container::new(work, folders)?;
    loop {
        let task: SupervisorTask = read_frame(&mut input, MAX_TASK)?;
        task::run(&task, &mut container, &mut send)?;
        send(&SupervisorMessage::Clean(container.clean().err().map(|error| error.to_string())))?;
    }
}
