//! `pl-host plan`: the amounts of everything that a run would use.

use std::io::Write;

use pl_run::plan::RunPlan;
use pl_run::select_device;

use crate::App;
use crate::arguments::Plan;
use crate::exit::CommandResult;
use crate::plan::PlanTable;

pub fn run(app: &App, options: &Plan) -> CommandResult {
    let device = select_device(&app.host, options.device.into())?;
    let checked = app.open(&options.source)?;
    let plan = RunPlan::new(&app.host, &checked, device);
    let mut out = std::io::stdout().lock();
    if options.json {
        writeln!(out, "{:#}", plan.to_json())?;
    } else {
        write!(out, "{}", PlanTable(&plan))?;
    }
    Ok(())
}
