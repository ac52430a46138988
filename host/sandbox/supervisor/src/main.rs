//! PID 1 of a sandbox's container: runs one task at a time, and leaves nothing of it behind.
//!
//! No process of the container has any capability, so jobs run under the supervisor's own user. What keeps it out of
//! their reach: signals from inside its PID namespace can't end or stop a PID 1 that handles none; it is not dumpable,
//! so that its memory, descriptors and environment are closed to them; and a filter on system calls, which all
//! processes of the container share, leaves them no call that changes another process (see `confine`). Beside it there
//! may be an interpreter that waits to be forked, as closed to programs as the supervisor is (see `zygote`).
//!
//! Its arguments are the writable folders, the working folder first. It ends with its standard input, and with it all
//! processes of the container: a host that is gone leaves no container that does anything.

mod confine;
mod container;
mod counters;
mod folder;
mod ipc;
mod program;
mod reap;
mod task;
mod zygote;

use std::io::{BufWriter, ErrorKind};
use std::path::PathBuf;
use std::process::ExitCode;

use pl_supervisor::{Message, Task, read_frame, write_frame};

use crate::container::Container;

/// Bytes of a task, at most: more than a container's memory would hold.
const LARGEST_TASK: usize = 1 << 30;

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
    let (mut host, mut answers) = (std::io::stdin(), BufWriter::new(std::io::stdout()));
    let mut say = |message: &Message| write_frame(&mut answers, &message.encode());
    let refusal = confine::this_process().and_then(|()| confine::check(folders)).err();
    say(&Message::Ready(refusal.clone()))?;
    let Some(work) = folders.first().filter(|_| refusal.is_none()) else { return Ok(()) };
    let mut container = Container::new(work, folders)?;
    loop {
        let task = read_frame(&mut host, LARGEST_TASK)?;
        let task = Task::decode(&task).ok_or(ErrorKind::InvalidData)?;
        task::run(&task, &mut container, &mut say)?;
        say(&Message::Clean(container.clean().err()))?;
    }
}
