//! `pl-host check`: all mistakes of a workflow, or what it is.

use std::io::Write;

use crate::arguments::Check;
use crate::exit::{Outcome, Stop};
use crate::session::Loaded;

pub fn run(options: &Check) -> Outcome {
    let runtime = tokio::runtime::Runtime::new().map_err(Stop::failed)?;
    let loaded = Loaded::open(&runtime, &options.source.file, &options.source.overrides, options.format)?;
    let workflow = &loaded.workflow;
    let names = |list: &mut dyn Iterator<Item = &String>| list.cloned().collect::<Vec<_>>().join(", ");
    let mut out = std::io::stdout().lock();
    writeln!(out, "{} is right", options.source.file.display())?;
    writeln!(out, "  layout    {:?}", workflow.layout)?;
    writeln!(out, "  agents    {}", names(&mut workflow.agents.iter().map(|a| &a.name)))?;
    writeln!(out, "  policies  {}", names(&mut workflow.policies.iter().map(|p| &p.name)))?;
    writeln!(out, "  models    {}", names(&mut workflow.models.iter().map(|m| &m.source)))?;
    if let Some(train) = &workflow.train {
        writeln!(out, "  training  {} steps of {} tasks", train.steps, train.tasks_per_step)?;
    }
    Ok(())
}
