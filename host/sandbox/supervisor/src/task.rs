//! A task: the compiler, then the cases, each from the same files and without any remains of the previous
//! one.

use std::io::Result;

use pl_supervisor::{FileEntry, MAX_COMPILED, RunReport, SupervisorMessage, SupervisorTask, Termination};

use crate::container::Container;
use crate::folder;
use crate::program::{self, Program};

/// Runs a task in a clean container and sends the result of each of its programs.
pub fn run(
    task: &SupervisorTask,
    container: &mut Container<'_>,
    send: &mut impl FnMut(&SupervisorMessage) -> Result<()>,
) -> Result<()> {
    let work = container.work;
    let mut compiled = None;
    if !task.compile.is_empty() {
        let report = run_once(task, container, &task.compile, b"", &task.files)?;
        let mut report = RunReport { is_compiler: true, ..report };
        if report.termination != Termination::Exited(0) {
            return send(&SupervisorMessage::Ran(Box::new(report)));
        }
        match folder::read_all(work, MAX_COMPILED) {
            Ok(files) => compiled = Some(files),
            Err(error) => {
                report.termination = Termination::NotStarted(error.to_string());
                return send(&SupervisorMessage::Ran(Box::new(report)));
            }
        }
    }
    let files = compiled.as_ref().unwrap_or(&task.files);
    for (number, stdin) in task.cases.iter().enumerate() {
        // Each run is reported before its remains are removed.
        let is_clean = number == 0 && compiled.is_none();
        if !is_clean && let Err(error) = container.clean() {
            return send(&SupervisorMessage::Clean(Some(error.to_string())));
        }
        let mut report = run_once(task, container, &task.run, stdin, files)?;
        report.output_files = folder::read_named(work, &task.output_files, task.max_files);
        send(&SupervisorMessage::Ran(Box::new(report)))?;
    }
    Ok(())
}

fn run_once(
    task: &SupervisorTask,
    container: &mut Container<'_>,
    command: &[String],
    stdin: &[u8],
    files: &[FileEntry],
) -> Result<RunReport> {
    let work = container.work;
    if let Err(error) = folder::fill(work, files) {
        let termination = Termination::NotStarted(error.to_string());
        return Ok(RunReport { termination, ..RunReport::default() });
    }
    let program = Program { command, stdin, work, timeout_ms: task.timeout_ms, max_output: task.max_output };
    let mut report = program::run(&program, &container.children)?;
    (report.out_of_memory, report.process_limit) = container.counters.since_last();
    Ok(report)
}
