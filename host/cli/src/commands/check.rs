//! `pl-host check`: all mistakes of a workflow, or what it is.

use std::io::Write;

use crate::arguments::{Check, DeviceChoice, Source};
use crate::exit::{Outcome, Stop};
use crate::memory::Estimate;
use crate::session::{self, Loaded};

pub fn run(options: &Check) -> Outcome {
    let runtime = tokio::runtime::Runtime::new().map_err(Stop::failed)?;
    let Source { file, given } = &options.source;
    let device = session::device(DeviceChoice::Auto)?;
    let mut memory = Err(String::new());
    let loaded = Loaded::check(&runtime, file, &given.all()?, options.format, |workflow, folder| {
        memory = Estimate::here(workflow, folder, device);
        memory.as_ref().map(Estimate::doubts).unwrap_or_default()
    })?;
    let workflow = &loaded.workflow;
    let names = |list: &mut dyn Iterator<Item = &String>| list.cloned().collect::<Vec<_>>().join(", ");
    let mut out = std::io::stdout().lock();
    writeln!(out, "{} is right", file.display())?;
    writeln!(out, "  layout    {:?}", workflow.layout)?;
    writeln!(out, "  agents    {}", names(&mut workflow.agents.iter().map(|a| &a.name)))?;
    writeln!(out, "  policies  {}", names(&mut workflow.policies.iter().map(|p| &p.name)))?;
    writeln!(out, "  models    {}", names(&mut workflow.models.iter().map(|m| &m.source)))?;
    if let Some(train) = &workflow.train {
        writeln!(out, "  training  {} steps of {} tasks", train.steps, train.tasks_per_step)?;
    }
    match memory {
        Ok(memory) => write!(out, "{memory}")?,
        Err(why) => writeln!(out, "  memory    unknown: {why}")?,
    }
    Ok(())
}
