//! `pl-host export`: the episodes, the numbers or the times of a run for other programs.

use std::io::{self, Write};
use std::path::Path;

use pl_run::StopRequest;
use pl_viewer::{Error, ExportFormat, Exported, export};

use crate::app::App;
use crate::arguments::view::{ExportArgs, ExportChoice};
use crate::exit::{CommandError, CommandResult};
use crate::interrupt::give_up_on_signals;
use crate::output_file::OutputFile;
use crate::plan::Counted;
use crate::stderr;
use crate::stored_workflows::StoredWorkflows;
use crate::visible::{self, visible};

pub fn run(app: &App, options: &ExportArgs) -> CommandResult {
    let format = match options.format {
        ExportChoice::Jsonl => ExportFormat::Episodes,
        ExportChoice::Parquet => ExportFormat::Table,
        ExportChoice::Sft => ExportFormat::Examples,
        ExportChoice::Dpo => ExportFormat::Preferences,
        ExportChoice::Atif => ExportFormat::Trajectories,
        ExportChoice::Scalars => ExportFormat::Scalars,
        ExportChoice::ChromeTrace => ExportFormat::ChromeTrace,
        ExportChoice::Timeline => ExportFormat::Timeline,
    };
    let exported = match &options.out {
        Some(path) => {
            // Before the file is created, which is not left unfinished.
            let stop = give_up_on_signals(app);
            let mut file = UntilStopped { out: OutputFile::create(path)?, stop };
            let exported = write(options, format, &mut file);
            if file.stop.is_requested() {
                let message = format!("stopped; {} was not written", path.display());
                return Err(CommandError::Interrupted(message));
            }
            let exported = exported?;
            // An earlier export stays where nothing takes its place.
            if !is_lost(&exported) {
                file.out.finish()?;
            }
            exported
        }
        None if options.format == ExportChoice::Parquet => {
            return Err(CommandError::input("a Parquet file is not text; name it with --out FILE"));
        }
        None => write(options, format, &mut visible::stdout())?,
    };
    for problem in &exported.problems {
        stderr::line(&format!("warning: {}", visible(problem)));
    }
    let unit = match format {
        ExportFormat::Table => "row",
        ExportFormat::ChromeTrace => "event",
        _ => "line",
    };
    if is_lost(&exported) {
        let run = options.run.display();
        return Err(CommandError::failed(format!(
            "nothing of {run} could be exported: its files are damaged"
        )));
    }
    stderr::line(&Counted(exported.lines, unit).to_string());
    finished(&options.run, &exported)
}

/// Returns an error for an export that lacks a part: programs that train on it must notice.
fn finished(run: &Path, exported: &Exported) -> CommandResult {
    match exported.problems.is_empty() {
        true => Ok(()),
        false => {
            let run = run.display();
            Err(CommandError::failed(format!(
                "files of {run} are damaged or missing; the export has what is left"
            )))
        }
    }
}

/// Returns true if nothing could be read of a run that has something.
fn is_lost(exported: &Exported) -> bool {
    exported.lines == 0 && !exported.problems.is_empty()
}

/// Writes the export of the run.
fn write(
    options: &ExportArgs,
    format: ExportFormat,
    out: &mut (impl Write + Send),
) -> Result<Exported, CommandError> {
    let workflows = StoredWorkflows::new(options.trust);
    export(&options.run, format, &workflows, out).map_err(|error| match error {
        Error::Output(error) => CommandError::from(error),
        error => CommandError::input(error),
    })
}

/// Output that fails once a signal has asked for an end.
struct UntilStopped<W> {
    out: W,
    stop: StopRequest,
}

impl<W: Write> Write for UntilStopped<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Writers repeat what fails with the kind `Interrupted`.
        if self.stop.is_requested() {
            return Err(io::Error::other("stopped"));
        }
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_of_damaged_files_alone_is_lost() {
        let exported = |lines, problems: &[&str]| {
            let problems = problems.iter().map(|&problem| problem.to_owned()).collect();
            is_lost(&Exported { lines, problems })
        };
        assert!(exported(0, &["a trace file is damaged"]));
        // A run without an episode, and one with a damaged file among others.
        assert!(!exported(0, &[]) && !exported(3, &["a trace file is damaged"]));
    }

    #[test]
    fn an_export_that_lacks_a_part_is_no_success() {
        let finished = |problems| finished(Path::new("run"), &Exported { lines: 3, problems });
        assert!(finished(Vec::new()).is_ok());
        let error = finished(vec!["a trace file is damaged".to_owned()]).unwrap_err();
        assert!(matches!(error, CommandError::Failed(_)), "exit code 1");
    }

    #[test]
    fn nothing_is_written_after_a_signal() {
        let mut out = UntilStopped { out: Vec::new(), stop: StopRequest::default() };
        out.write_all(b"before").unwrap();
        out.stop.request();
        assert!(out.write_all(b"after").is_err());
        assert_eq!(out.out, b"before");
    }
}
