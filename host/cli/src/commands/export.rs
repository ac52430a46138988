//! `pl-host export`: the episodes, the numbers or the times of a run for other programs.

use std::io::Write;

use pl_viewer::{Error, ExportFormat, Exported, export};

use crate::arguments::view::{ExportArgs, ExportChoice};
use crate::exit::{CommandError, CommandResult};
use crate::output_file::OutputFile;
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
    let exported = match &options.out {
        Some(path) => {
            let mut file = OutputFile::create(path)?;
            let exported = write(options, format, &mut file)?;
            file.finish()?;
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
        ExportFormat::Table => "rows",
        ExportFormat::ChromeTrace => "events",
        _ => "lines",
    };
    stderr::line(&format!("{} {unit}", exported.lines));
    Ok(())
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
