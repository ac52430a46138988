//! `pl-host export`: the episodes of a run as JSON lines.

use pl_viewer::{Error, ExportFormat, export};

use crate::arguments::view::{ExportArgs, ExportChoice};
use crate::exit::{CommandError, CommandResult};
use crate::stored_workflows::StoredWorkflows;
use crate::visible::{self, visible};

pub fn run(options: &ExportArgs) -> CommandResult {
    let format = match options.format {
        ExportChoice::Jsonl => ExportFormat::Episodes,
        ExportChoice::Sft => ExportFormat::Examples,
        ExportChoice::Dpo => ExportFormat::Preferences,
    };
    let workflows = StoredWorkflows::new(options.trust);
    let mut out = visible::stdout();
    let exported = export(&options.run, format, &workflows, &mut out).map_err(|error| match error {
        Error::Output(error) => CommandError::from(error),
        error => CommandError::input(error),
    })?;
    for problem in &exported.problems {
        eprintln!("warning: {}", visible(problem));
    }
    eprintln!("{} lines", exported.lines);
    Ok(())
}
