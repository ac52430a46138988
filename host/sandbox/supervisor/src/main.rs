//! PID 1 of a sandbox's container: runs one task at a time and removes everything that it leaves.
//!
//! No process of the container has any capability, so jobs run under the supervisor's own user. They can't
//! reach it: signals from inside its PID namespace can't kill or stop a PID 1 without handlers; it is not
//! dumpable, so its memory, descriptors and environment are closed to them; and a filter on system calls,
//! which all processes of the container share, denies every call that changes another process (see
//! `confine`).
//!
//! Its arguments are the writable folders, the working folder first. It exits when its standard input ends,
//! and all processes of the container end with it: no container keeps working after its host is gone.

mod confine;
mod container;
mod counters;
mod error;
mod folder;
mod ipc;
mod program;
mod reap;
mod task;

use std::io::{BufWriter, ErrorKind};
use std::path::PathBuf;
use std::process::ExitCode;

use pl_supervisor::{SupervisorMessage, SupervisorTask, read_frame, write_frame};

use crate::container::Container;

/// Maximum size of a task in bytes: more than the memory of a container.
const MAX_TASK: usize = 1 << 30;

fn main() -> ExitCode {
    let folders: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    match serve(&folders) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pl-supervisor: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(folders: &[PathBuf]) -> std::io::Result<()> {
    let (mut input, mut output) = (std::io::stdin(), BufWriter::new(std::io::stdout()));
    let mut send = |message: &SupervisorMessage| write_frame(&mut output, message);
    let refusal = confine::confine_self().and_then(|()| confine::check_container(folders)).err();
    send(&SupervisorMessage::Ready(refusal.as_ref().map(ToString::to_string)))?;
    let Some(work) = folders.first().filter(|_| refusal.is_none()) else { return Ok(()) };
    let mut container = Container::new(work, folders)?;
    loop {
        let task: SupervisorTask = read_frame(&mut input, MAX_TASK)?;
        task::run(&task, &mut container, &mut send)?;
        send(&SupervisorMessage::Clean(container.clean().err().map(|error| error.to_string())))?;
    }
}
