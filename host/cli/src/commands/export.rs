//! `pl-host export`: the episodes, the numbers or the times of a run for other programs.

use std::fs::File;
use std::io::{BufWriter, Write};

use pl_viewer::{Error, ExportFormat, export};

use crate::arguments::view::{ExportArgs, ExportChoice};
use crate::exit::{CommandError, CommandResult};
use crate::stderr;
use crate::stored_workflows::StoredWorkflows;
use crate::visible::{self, visible};

pub fn run(options: &ExportArgs) -> CommandResult {
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
    let workflows = StoredWorkflows::new(options.trust);
    let mut out = output(options)?;
    let exported = export(&options.run, format, &workflows, &mut out).map_err(|error| match error {
        Error::Output(error) => CommandError::from(error),
        error => CommandError::input(error),
    })?;
    for problem in &exported.problems {
        stderr::line(&format!("warning: {}", visible(problem)));
    }
    let unit = match format {
        ExportFormat::Table => "rows",
        ExportFormat::ChromeTrace => "events",
        _ => "lines",
    };
    stderr::line(&format!("{} {unit}", exported.lines));
    Ok(())
}

/// Opens the file that is written to, or standard output.
fn output(options: &ExportArgs) -> Result<Box<dyn Write + Send>, CommandError> {
    match &options.out {
        Some(path) => {
            let failed = |error| CommandError::failed(format!("cannot write {}: {error}", path.display()));
            Ok(Box::new(BufWriter::new(File::create(path).map_err(failed)?)))
        }
        None if options.format == ExportChoice::Parquet => {
            Err(CommandError::input("a Parquet file is not text; name it with --out FILE"))
        }
        None => Ok(Box::new(visible::stdout())),
    }
}
