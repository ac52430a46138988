//! Conversion of a supervisor's reports into verdicts.

use std::time::Duration;

use pl_supervisor::{RunReport, Termination};

use crate::job::{Ending, File, Usage, Verdict, to_text};
use crate::limits::SandboxLimits;

/// Returns the verdict of a job from the reports of its cases, or from its compiler's report alone.
pub fn from_reports(
    reports: Vec<RunReport>,
    cases: usize,
    has_cases: bool,
    limits: &SandboxLimits,
) -> Verdict {
    let failed_to_compile = reports.iter().any(|report| report.is_compiler);
    let mut verdicts: Vec<Verdict> = reports.into_iter().map(|report| from_report(report, limits)).collect();
    if failed_to_compile {
        for verdict in &mut verdicts {
            verdict.note("it was not run, as it does not compile");
        }
        verdicts = verdicts.first().map_or_else(Vec::new, |one| vec![one.clone(); cases]);
    }
    match verdicts.pop() {
        Some(only) if !has_cases => only,
        last => {
            verdicts.extend(last);
            Verdict::from_cases(verdicts)
        }
    }
}

fn from_report(report: RunReport, limits: &SandboxLimits) -> Verdict {
    let (ending, note) = ending(&report, limits);
    let exit = match &report.termination {
        Termination::Exited(0) => Some(0),
        Termination::Exited(code) => Some(*code),
        // As shells have it. A limit that the kernel enforces with a signal has no exit code.
        Termination::Signalled(signal) if ending == Ending::Error => Some(128 + signal),
        _ => None,
    };
    let flooded = report.termination == Termination::OutputLimit;
    let is_cut = |bytes: &[u8]| flooded && bytes.len() as u64 == limits.output;
    let (stdout_cut, stderr_cut) = (is_cut(&report.stdout), is_cut(&report.stderr));
    let files = report.output_files.into_iter();
    let mut verdict = Verdict {
        ending,
        exit,
        stdout: to_text(report.stdout, stdout_cut),
        stderr: to_text(report.stderr, stderr_cut),
        reproducible: report.termination != Termination::TimedOut,
        output_files: files.map(|file| File { path: file.path, bytes: file.bytes }).collect(),
        cases: Vec::new(),
        usage: Usage {
            time: Duration::from_micros(report.duration_us),
            memory: (report.peak_memory > 0).then_some(report.peak_memory),
        },
    };
    if let Some(note) = note {
        verdict.note(&note);
    }
    verdict
}

/// Returns the reason why a run ended, and a note for its stderr.
fn ending(report: &RunReport, limits: &SandboxLimits) -> (Ending, Option<String>) {
    match &report.termination {
        Termination::Exited(0) => (Ending::Ok, None),
        // If a program gets no memory or no process, that is the reason for anything it does afterwards.
        _ if report.out_of_memory => {
            let memory = limits.memory >> 20;
            let note = format!("it needed more memory than the {memory} MiB that it may have");
            (Ending::Memory, Some(note))
        }
        _ if report.process_limit => {
            (Ending::ProcessLimit, Some("it started more processes than it may".to_owned()))
        }
        Termination::TimedOut => {
            let note = format!("it ran longer than {} s", limits.timeout.as_secs_f64());
            (Ending::Timeout, Some(note))
        }
        Termination::OutputLimit => {
            let note = format!("it printed more than the {} bytes that are kept", limits.output);
            (Ending::OutputLimit, Some(note))
        }
        Termination::NotStarted(reason) => (Ending::Error, Some(reason.clone())),
        Termination::Signalled(signal) => (Ending::Error, Some(format!("signal {signal} ended it"))),
        Termination::Exited(_) => (Ending::Error, None),
    }
}
