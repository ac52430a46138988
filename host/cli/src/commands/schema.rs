//! `pl-host schema`: the JSON Schema of a checked workflow, as `workflow.json` of a run folder holds it.

use std::io::Write;

use pl_dsl::workflow::Workflow;

use crate::exit::Outcome;

pub fn run() -> Outcome {
    Ok(writeln!(std::io::stdout().lock(), "{:#}", Workflow::json_schema())?)
}
