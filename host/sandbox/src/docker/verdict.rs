//! How a program ended in a container, as a verdict.

use std::time::Duration;

use pl_supervisor::{End, Run};

use crate::job::printed;
use crate::{Ending, File, SandboxLimits, Usage, Verdict};

/// The verdict of a job from the runs of its cases, or from its compiler's alone.
pub fn of_job(runs: Vec<Run>, cases: usize, many: bool, limits: &SandboxLimits) -> Verdict {
    let failed_to_compile = runs.iter().any(|run| run.compiling);
    let mut verdicts: Vec<Verdict> = runs.into_iter().map(|run| of_run(run, limits)).collect();
    if failed_to_compile {
        for verdict in &mut verdicts {
            verdict.note("it was not run, as it does not compile");
        }
        verdicts = verdicts.first().map_or_else(Vec::new, |one| vec![one.clone(); cases]);
    }
    match verdicts.pop() {
        Some(only) if !many => only,
        last => {
            verdicts.extend(last);
            Verdict::of_cases(verdicts)
        }
    }
}

fn of_run(run: Run, limits: &SandboxLimits) -> Verdict {
    let (memory, processes) = (run.memory, run.processes);
    let (ending, exit, note) = match &run.end {
        End::Exited(0) => (Ending::Ok, Some(0), None),
        end => {
            let exit = match end {
                End::Exited(code) => Some(*code),
                // As a shell has it.
                End::Signalled(signal) => Some(128 + signal),
                _ => None,
            };
            let (ending, note) = match end {
                // Whatever a program does when it gets no memory or no process, that is why.
                _ if memory => (Ending::Memory, Some(too_much_memory(limits))),
                _ if processes => {
                    (Ending::ProcessLimit, Some("it started more processes than it may".to_owned()))
                }
                End::TimedOut => (Ending::Timeout, Some(too_long(limits))),
                End::Flooded => (Ending::OutputLimit, Some(too_much_output(limits))),
                End::Refused(reason) => (Ending::Error, Some(reason.clone())),
                End::Signalled(signal) => (Ending::Error, Some(format!("signal {signal} ended it"))),
                End::Exited(_) => (Ending::Error, None),
            };
            let by_us = !matches!(end, End::Exited(_)) && ending != Ending::Error;
            (ending, exit.filter(|_| !by_us), note)
        }
    };
    let cut = |bytes: &[u8]| run.end == End::Flooded && bytes.len() as u64 == limits.output;
    let cuts = [cut(&run.stdout), cut(&run.stderr)];
    let mut verdict = Verdict {
        ending,
        exit,
        stdout: printed(run.stdout, cuts[0]),
        stderr: printed(run.stderr, cuts[1]),
        reproducible: run.end != End::TimedOut,
        files: run.files.into_iter().map(|file| File { path: file.path, bytes: file.bytes }).collect(),
        cases: Vec::new(),
        usage: Usage { time: Duration::from_micros(run.took), memory: (run.peak > 0).then_some(run.peak) },
    };
    if let Some(note) = note {
        verdict.note(&note);
    }
    verdict
}

pub fn too_long(limits: &SandboxLimits) -> String {
    format!("it ran longer than {} s", limits.timeout.as_secs_f64())
}

fn too_much_output(limits: &SandboxLimits) -> String {
    format!("it printed more than the {} bytes that are kept", limits.output)
}

fn too_much_memory(limits: &SandboxLimits) -> String {
    format!("it needed more memory than the {} MiB that it may have", limits.memory >> 20)
}
