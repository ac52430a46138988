//! `pl-host schema`: the JSON Schema of a checked workflow, which a run folder has as `workflow.json`.

use std::io::Write;

use pl_dsl::workflow::Workflow;

use crate::exit::CommandResult;

pub fn run() -> CommandResult {
    Ok(writeln!(std::io::stdout().lock(), "{:#}", Workflow::json_schema())?)
}
