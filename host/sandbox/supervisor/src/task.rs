//! A task: its compiler, then its cases, each from the same files and with nothing left of the one before.

use std::io::{Error, Result};

use pl_supervisor::{End, Entry, Message, Run, Task};

use crate::container::Container;
use crate::folder;
use crate::program::{self, Program};

/// Bytes that a compiler's results may take in the supervisor's memory.
const COMPILED: u64 = 32 << 20;

/// Runs a task in a clean container and says how each of its programs ended.
pub fn run(
    task: &Task,
    container: &mut Container<'_>,
    say: &mut impl FnMut(&Message) -> Result<()>,
) -> Result<()> {
    let work = container.work;
    let start = |container: &mut Container<'_>, command: &[String], stdin: &[u8], files: &[Entry]| {
        if let Err(reason) = folder::fill(work, files) {
            return Ok(Run { end: End::Refused(reason), ..Run::default() });
        }
        let program = Program { command, stdin, work, timeout: task.timeout, output: task.output };
        let mut run = program::run(&program, &container.children, &mut container.keeper)?;
        (run.memory, run.processes) = container.counters.since_last();
        Ok::<Run, Error>(run)
    };
    let mut files = None;
    if !task.compile.is_empty() {
        let run = Run { compiling: true, ..start(container, &task.compile, b"", &task.files)? };
        let compiled = match run.end {
            End::Exited(0) => folder::read_all(work, COMPILED),
            _ => return say(&Message::Ran(Box::new(run))),
        };
        match compiled {
            Ok(compiled) => files = Some(compiled),
            Err(reason) => {
                return say(&Message::Ran(Box::new(Run { end: End::Refused(reason), ..run })));
            }
        }
    }
    let files = files.as_ref().unwrap_or(&task.files);
    for (at, stdin) in task.cases.iter().enumerate() {
        // The last one's traces are removed after it was reported.
        let first = at == 0 && task.compile.is_empty();
        if !first && let Err(left) = container.clean() {
            return say(&Message::Clean(Some(left)));
        }
        if let Err(left) = container.keeper.prepare(&task.run, work, &container.children) {
            return say(&Message::Clean(Some(left)));
        }
        let mut run = start(container, &task.run, stdin, files)?;
        run.files = folder::read_named(work, &task.keep, task.kept);
        say(&Message::Ran(Box::new(run)))?;
    }
    Ok(())
}
