//! A task: its compiler, then its cases, each from the same files and with nothing left of the one before.

use std::io::Result;
use std::path::Path;

use pl_supervisor::{End, Entry, Message, Run, Task};

use crate::counters::Counters;
use crate::folder;
use crate::program::{self, Program};
use crate::reap::Children;

/// Bytes that a compiler's results may take in the supervisor's memory.
const COMPILED: u64 = 32 << 20;

/// Runs a task and says how each of its programs ended. `clean` is called between cases.
pub fn run(
    task: &Task,
    work: &Path,
    children: &Children,
    counters: &mut Counters,
    clean: &mut impl FnMut() -> std::result::Result<(), String>,
    say: &mut impl FnMut(&Message) -> Result<()>,
) -> Result<()> {
    let mut start = |command: &[String], stdin: &[u8], files: &[Entry]| -> Result<Run> {
        if let Err(reason) = folder::fill(work, files) {
            return Ok(Run { end: End::Refused(reason), ..Run::default() });
        }
        let program = Program { command, stdin, work, timeout: task.timeout, output: task.output };
        let mut run = program::run(&program, children)?;
        (run.memory, run.processes) = counters.since_last();
        Ok(run)
    };
    let mut files = None;
    if !task.compile.is_empty() {
        let run = Run { compiling: true, ..start(&task.compile, b"", &task.files)? };
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
        if !first && let Err(left) = clean() {
            return say(&Message::Clean(Some(left)));
        }
        let mut run = start(&task.run, stdin, files)?;
        run.files = folder::read_named(work, &task.keep, task.kept);
        say(&Message::Ran(Box::new(run)))?;
    }
    Ok(())
}
