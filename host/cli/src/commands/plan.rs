//! `pl-host plan`: the amounts of everything that a run would use, or a simulation of its schedule.

use std::io::Write;
use std::path::Path;

use pl_run::plan::RunPlan;
use pl_run::schedule::simulate::pools::{LONGEST_TAIL, PhaseCosts, SplitSimulation};
use pl_run::schedule::simulate::{EvaluationCosts, RunCosts, Simulation, StepCosts, read_costs};
use pl_run::{CheckedWorkflow, select_device};

use crate::app::App;
use crate::arguments::workflow::PlanArgs;
use crate::exit::{CommandError, CommandResult};
use crate::plan::PlanTable;
use crate::plan::simulation::{ComparedSchedule, SimulationTable, SplitTable};
use crate::visible;

pub fn run(app: &App, options: &PlanArgs) -> CommandResult {
    if let Some(costs) = &options.costs {
        let checked = app.open(&options.source)?;
        return simulate(&checked, costs, options.devices, options.json);
    }
    let device = select_device(&app.host, options.device.into())?;
    let checked = app.open(&options.source)?;
    let plan = RunPlan::new(&app.host, &checked, device);
    let mut out = visible::stdout();
    if options.json {
        writeln!(out, "{:#}", plan.to_json())?;
    } else {
        write!(out, "{}", PlanTable(&plan))?;
    }
    Ok(())
}

/// Stalenesses that are simulated besides that of the workflow.
const STALENESSES: [u64; 5] = [0, 1, 2, 4, 8];

fn simulate(checked: &CheckedWorkflow, costs: &str, devices: Option<u32>, json: bool) -> CommandResult {
    let Some(train) = &checked.workflow.train else {
        let workflow = checked.workflow.name.clone();
        return Err(pl_run::Error::NoTrainBlock { workflow }.into());
    };
    let (steps, own) = (u64::from(train.steps), u64::from(checked.workflow.largest_staleness()));
    let mut stalenesses = STALENESSES.to_vec();
    if !stalenesses.contains(&own) {
        stalenesses.push(own);
        stalenesses.sort_unstable();
    }
    let mut out = std::io::stdout().lock();
    if let Some(devices) = devices {
        let costs = parse_phases(costs)?;
        let simulate = |staleness: &u64| costs.simulate(devices, steps, *staleness);
        let simulations: Option<Vec<SplitSimulation>> = stalenesses.iter().map(simulate).collect();
        let simulations = simulations.ok_or_else(|| {
            let pools = costs.train.len() + 1;
            CommandError::input(format!("--devices {devices}: rollouts and learners need at least {pools}"))
        })?;
        let table = SplitTable { steps, staleness: own, costs: &costs, devices, simulations: &simulations };
        match json {
            true => writeln!(out, "{:#}", table.to_json())?,
            false => write!(out, "{table}")?,
        }
        return Ok(());
    }
    let every: Vec<u32> = checked.workflow.evaluations.iter().map(|own| own.every).collect();
    let costs = parse_costs(costs, &every)?;
    let simulate = |staleness| ComparedSchedule {
        by_keys: Simulation::new(steps, staleness, &costs),
        by_arrival: Simulation::by_arrival(steps, staleness, &costs),
    };
    let schedules: Vec<ComparedSchedule> = stalenesses.into_iter().map(simulate).collect();
    let workflow = Simulation::of_workflow(&checked.workflow, &costs);
    let table = SimulationTable { steps, schedules: &schedules, workflow: workflow.as_ref() };
    match json {
        true => writeln!(out, "{:#}", table.to_json())?,
        false => write!(out, "{table}")?,
    }
    Ok(())
}

/// Reads the costs of a run's steps, or parses given ones. `every` has the intervals of the workflow's evaluations in steps.
fn parse_costs(text: &str, every: &[u32]) -> Result<RunCosts, CommandError> {
    if Path::new(text).is_dir() || !text.contains('=') {
        return Ok(read_costs(Path::new(text), every)?);
    }
    let (mut rollout, mut train, mut evaluate, mut publish) = (0.0, 0.0, 0.0, 0.0);
    for part in parts(text) {
        let (part, name, seconds) = part?;
        match name {
            "rollout" => rollout = seconds,
            "train" => train = seconds,
            "evaluate" => evaluate = seconds,
            "publish" => publish = seconds,
            _ => return Err(invalid(part, "the costs are `rollout`, `train`, `evaluate` and `publish`")),
        }
    }
    let step = StepCosts { episodes: vec![rollout], train: vec![train], publish, ..StepCosts::default() };
    let evaluations = EvaluationCosts { seconds: evaluate, every: every.to_vec() };
    Ok(RunCosts { evaluations, ..RunCosts::of_steps(vec![step]) })
}

/// Parses the costs of phases.
fn parse_phases(text: &str) -> Result<PhaseCosts, CommandError> {
    let mut costs = PhaseCosts {
        devices: 1,
        wake: 0.0,
        rollout: 0.0,
        sleep: 0.0,
        train: Vec::new(),
        other: 0.0,
        tail: 0.0,
    };
    for part in parts(text) {
        let (part, name, value) = part?;
        match name {
            "wake" => costs.wake = value,
            "rollout" => costs.rollout = value,
            "sleep" => costs.sleep = value,
            "train" => costs.train.push(value),
            "other" => costs.other = value,
            "tail" if value <= LONGEST_TAIL => costs.tail = value,
            "tail" => return Err(invalid(part, &format!("it is a share of at most {LONGEST_TAIL}"))),
            "devices" if value.fract() == 0.0 && (1.0..=1e5).contains(&value) => costs.devices = value as u32,
            "devices" => return Err(invalid(part, "a number from 1 to 100000 is expected")),
            _ => {
                return Err(invalid(
                    part,
                    "the costs are `wake`, `rollout`, `tail`, `sleep`, `train` (one per learner), `other`, and \
                     `devices`, on which they were measured",
                ));
            }
        }
    }
    if costs.rollout <= 0.0 || costs.train.is_empty() {
        return Err(CommandError::input(format!("--costs {text}: `rollout` and `train` are needed")));
    }
    Ok(costs)
}

/// Largest cost in seconds, some thirty years. The sums of larger ones lose the smaller ones, and a simulation of infinite sums
/// would not end.
const LARGEST_COST: f64 = 1e9;

/// Splits costs at their commas: each part, its name and its value.
fn parts(text: &str) -> impl Iterator<Item = Result<(&str, &str, f64), CommandError>> {
    text.split(',').map(|part| {
        let (name, value) =
            part.split_once('=').ok_or_else(|| invalid(part, "`NAME=SECONDS` is expected"))?;
        let value = value.trim().parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0);
        let value = value.ok_or_else(|| invalid(part, "a number of seconds is expected"))?;
        match value <= LARGEST_COST {
            true => Ok((part, name.trim(), value)),
            false => Err(invalid(part, &format!("a cost is at most {LARGEST_COST} seconds"))),
        }
    })
}

fn invalid(part: &str, problem: &str) -> CommandError {
    CommandError::input(format!("--costs {part}: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_that_no_simulation_can_add_up_are_refused() {
        assert!(
            parse_costs("rollout=1e9,train=1", &[]).is_ok() && parse_phases("rollout=1e9,train=1").is_ok()
        );
        let refused =
            [parse_costs("rollout=1e308,train=1", &[]).err(), parse_phases("rollout=1,train=1e10").err()];
        for (refused, part) in refused.iter().zip(["rollout=1e308", "train=1e10"]) {
            let Some(CommandError::Input(why)) = refused else { panic!("{part} is accepted") };
            assert_eq!(*why, format!("--costs {part}: a cost is at most 1000000000 seconds"));
        }
    }
}
