//! `pl-host check`: the mistakes of a workflow, or a summary of it.

use std::io::Write;

use pl_run::{CheckedWorkflow, DevicePreference, Error, select_device};

use crate::app::App;
use crate::arguments::common::WorkflowArgs;
use crate::arguments::workflow::CheckArgs;
use crate::diagnostics;
use crate::diagnostics::DiagnosticFormat;
use crate::exit::{CommandError, CommandResult};
use crate::plan::Counted;
use crate::visible;

pub fn run(app: &App, options: &CheckArgs) -> CommandResult {
    let WorkflowArgs { file, given, .. } = &options.source;
    let device = select_device(&app.host, DevicePreference::Auto)?;
    let mut checked = match CheckedWorkflow::open(&app.host, file, &given.all()?) {
        Err(Error::Workflow(errors)) => {
            diagnostics::show(&errors, options.format)?;
            return Err(CommandError::Diagnosed);
        }
        checked => checked?,
    };
    let memory = checked.estimate_memory(device);
    if let Ok(memory) = &memory {
        checked.warn_of_memory(memory);
    }
    checked.warn_of_missing_files();
    diagnostics::show(&checked.warnings, options.format)?;
    if options.format != DiagnosticFormat::Human {
        return Ok(());
    }
    let workflow = &checked.workflow;
    let names = |list: &mut dyn Iterator<Item = &String>| list.cloned().collect::<Vec<_>>().join(", ");
    let mut out = visible::stdout();
    writeln!(out, "{} is valid", file.display())?;
    writeln!(out, "  layout    {}", workflow.layout)?;
    writeln!(out, "  agents    {}", names(&mut workflow.agents.iter().map(|a| &a.name)))?;
    writeln!(out, "  policies  {}", names(&mut workflow.policies.iter().map(|p| &p.name)))?;
    writeln!(out, "  models    {}", names(&mut workflow.models.iter().map(|m| &m.source)))?;
    for corpus in checked.corpora() {
        writeln!(out, "  corpus    {}, {}", corpus.name, corpus.source.location())?;
    }
    let names = workflow.scenarios.iter().filter_map(|scenario| scenario.name.as_ref());
    let names: Vec<&str> = names.map(String::as_str).collect();
    if !names.is_empty() {
        writeln!(out, "  scenarios {}", names.join(", "))?;
    }
    if let Some(train) = &workflow.train {
        let steps = Counted(train.steps.into(), "step");
        let tasks = Counted(train.tasks_per_step.into(), "task");
        writeln!(out, "  training  {steps} of {tasks}")?;
    }
    match memory {
        Ok(memory) => write!(out, "{memory}")?,
        Err(reason) => writeln!(out, "  memory    unknown: {reason}")?,
    }
    Ok(())
}
