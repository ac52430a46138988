//! `pl-host plan`: the amounts of everything that a run would use, or a simulation of its schedule.

use std::io::Write;
use std::path::Path;

use pl_run::plan::RunPlan;
use pl_run::schedule::StepSchedule;
use pl_run::schedule::simulate::{Simulation, StepCosts, read_costs};
use pl_run::{CheckedWorkflow, select_device};

use crate::app::App;
use crate::arguments::workflow::PlanArgs;
use crate::exit::{CommandError, CommandResult};
use crate::plan::PlanTable;
use crate::plan::simulation::SimulationTable;

pub fn run(app: &App, options: &PlanArgs) -> CommandResult {
    if let Some(costs) = &options.costs {
        let checked = app.open(&options.source)?;
        return simulate(&checked, costs, options.json);
    }
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

/// Stalenesses that are simulated besides that of the workflow.
const STALENESSES: [u64; 5] = [0, 1, 2, 4, 8];

fn simulate(checked: &CheckedWorkflow, costs: &str, json: bool) -> CommandResult {
    let Some(train) = &checked.workflow.train else {
        let workflow = checked.workflow.name.clone();
        return Err(pl_run::Error::NoTrainBlock { workflow }.into());
    };
    let costs = parse_costs(costs)?;
    let own = StepSchedule::from(train);
    let mut stalenesses = STALENESSES.to_vec();
    if !stalenesses.contains(&own.staleness()) {
        stalenesses.push(own.staleness());
        stalenesses.sort_unstable();
    }
    let simulations: Vec<Simulation> = stalenesses
        .into_iter()
        .map(|staleness| Simulation::new(StepSchedule::new(own.steps(), staleness), &costs))
        .collect();
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{:#}", serde_json::json!({ "steps": own.steps(), "schedules": simulations }))?;
    } else {
        write!(out, "{}", SimulationTable { schedule: own, simulations: &simulations })?;
    }
    Ok(())
}

/// Reads the costs of a run's steps, or parses given ones.
fn parse_costs(text: &str) -> Result<Vec<StepCosts>, CommandError> {
    if Path::new(text).is_dir() || !text.contains('=') {
        return Ok(read_costs(Path::new(text))?);
    }
    let mut costs = StepCosts { rollout: 0.0, train: 0.0, evaluate: 0.0 };
    for part in text.split(',') {
        let invalid = |problem: &str| CommandError::input(format!("--costs {part}: {problem}"));
        let (name, value) = part.split_once('=').ok_or_else(|| invalid("`NAME=SECONDS` is expected"))?;
        let seconds =
            value.trim().parse().ok().filter(|seconds: &f64| seconds.is_finite() && *seconds >= 0.0);
        let seconds = seconds.ok_or_else(|| invalid("a number of seconds is expected"))?;
        match name.trim() {
            "rollout" => costs.rollout = seconds,
            "train" => costs.train = seconds,
            "evaluate" => costs.evaluate = seconds,
            _ => return Err(invalid("the costs are `rollout`, `train` and `evaluate`")),
        }
    }
    Ok(vec![costs])
}
