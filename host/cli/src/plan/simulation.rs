//! Rendering of simulated schedules.

use std::fmt;

use pl_run::schedule::simulate::Simulation;
use pl_run::schedule::simulate::pools::{PhaseCosts, SplitSimulation};
use serde_json::{Value, json};

use super::Counted;

/// A staleness that all learners have.
pub struct ComparedSchedule {
    pub by_keys: Simulation,
    /// The same with `order = arrival`, where that is possible.
    pub by_arrival: Option<Simulation>,
}

/// Simulated schedules: a line for each staleness, and one for the workflow.
pub struct SimulationTable<'a> {
    pub steps: u64,
    /// The first one is `sync`.
    pub schedules: &'a [ComparedSchedule],
    /// The workflow as it is written, with its checkpoints.
    pub workflow: Option<&'a Simulation>,
}

impl SimulationTable<'_> {
    pub fn to_json(&self) -> Value {
        let schedule = |one: &ComparedSchedule| {
            let mut line = json!(one.by_keys);
            line["by_arrival"] = json!(one.by_arrival);
            line
        };
        let schedules: Vec<Value> = self.schedules.iter().map(schedule).collect();
        json!({ "steps": self.steps, "schedules": schedules, "workflow": self.workflow })
    }

    fn line(&self, name: &str, simulation: &Simulation) -> String {
        let Simulation { seconds, rollout_idle, train_idle, .. } = *simulation;
        let speedup = self.speedup(simulation);
        let (rollout_idle, train_idle) = (100.0 * rollout_idle, 100.0 * train_idle);
        format!("  {name:<17}{seconds:>6.1} s {speedup:>9.2}x {rollout_idle:>13.0} % {train_idle:>13.0} %")
    }

    /// Seconds of `sync` over those of a simulation.
    fn speedup(&self, simulation: &Simulation) -> f64 {
        let sync = self.schedules.first().map_or(0.0, |sync| sync.by_keys.seconds);
        if simulation.seconds > 0.0 { sync / simulation.seconds } else { 1.0 }
    }
}

impl fmt::Display for SimulationTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_arrival = self.schedules.iter().any(|one| one.by_arrival.is_some());
        let arrival = if has_arrival { "   order = arrival" } else { "" };
        let steps = Counted(self.steps, "step");
        writeln!(f, "{steps}, rollouts and training on devices of their own")?;
        writeln!(f, "  staleness       seconds   speed-up   rollouts idle   training idle{arrival}")?;
        for ComparedSchedule { by_keys, by_arrival } in self.schedules {
            let name = match by_keys.staleness {
                0 => " (sync)",
                1 => " (one_step_off)",
                _ => "",
            };
            write!(f, "{}", self.line(&format!("{}{name}", by_keys.staleness), by_keys))?;
            match by_arrival {
                Some(simulation) => writeln!(f, "{:>17.2}x", self.speedup(simulation))?,
                None => writeln!(f)?,
            }
        }
        match self.workflow {
            Some(workflow) => writeln!(f, "{}", self.line("as written", workflow)),
            None => Ok(()),
        }
    }
}

/// Splits of devices for people: a line for each staleness.
pub struct SplitTable<'a> {
    pub steps: u64,
    /// Largest staleness of a policy of the workflow.
    pub staleness: u64,
    pub costs: &'a PhaseCosts,
    pub devices: u32,
    pub simulations: &'a [SplitSimulation],
}

impl SplitTable<'_> {
    pub fn to_json(&self) -> Value {
        json!({
            "steps": self.steps,
            "devices": self.devices,
            "sync_step_seconds": self.costs.sync_step(self.devices),
            "bound": self.costs.bound(self.devices),
            "schedules": self.simulations,
        })
    }
}

impl fmt::Display for SplitTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let devices = self.devices;
        let (sync, bound) = (self.costs.sync_step(devices), self.costs.bound(devices));
        let (steps, devices) = (Counted(self.steps, "step"), Counted(devices.into(), "device"));
        writeln!(f, "{steps} on {devices}; sync, phase by phase, takes {sync:.1} s a step")?;
        writeln!(f, "  staleness   speed-up   devices: rollouts + learners   idle: rollouts, training")?;
        for SplitSimulation { split, simulation, speedup } in self.simulations {
            let mark = if simulation.staleness == self.staleness { '*' } else { ' ' };
            let train = split.train.iter().map(u32::to_string).collect::<Vec<_>>().join(" + ");
            let split = format!("{} + {train}", split.rollout);
            writeln!(
                f,
                "{mark} {:<11}{speedup:>8.2}x   {split:<28}{:>10.0} %, {:.0} %",
                simulation.staleness,
                100.0 * simulation.rollout_idle,
                100.0 * simulation.train_idle
            )?;
        }
        writeln!(f, "  bound by the work{bound:>5.2}x")?;
        writeln!(f, "* staleness of the workflow")
    }
}

#[cfg(test)]
mod tests {
    use pl_run::schedule::simulate::{RunCosts, StepCosts};

    use super::*;

    #[test]
    fn schedules_are_compared_with_sync() {
        let step =
            StepCosts { episodes: vec![3.0], tasks: vec![0], train: vec![2.0], ..StepCosts::default() };
        let costs = RunCosts::of_steps(vec![step]);
        let schedules = [0, 1, 2].map(|staleness| ComparedSchedule {
            by_keys: Simulation::new(4, staleness, &costs),
            by_arrival: Simulation::by_arrival(4, staleness, &costs),
        });
        let workflow = Some(&schedules[1].by_keys);
        let table = SimulationTable { steps: 4, schedules: &schedules, workflow };
        let expected = [
            "4 steps, rollouts and training on devices of their own",
            "  staleness       seconds   speed-up   rollouts idle   training idle   order = arrival",
            "  0 (sync)           20.0 s      1.00x            40 %            60 %",
            "  1 (one_step_off)   14.0 s      1.43x            14 %            43 %",
            "  2                  14.0 s      1.43x            14 %            43 %             1.43x",
            "  as written         14.0 s      1.43x            14 %            43 %",
        ];
        assert_eq!(table.to_string().lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn splits_are_compared_with_sync() {
        let costs = PhaseCosts {
            devices: 4,
            wake: 1.0,
            rollout: 4.0,
            sleep: 1.0,
            train: vec![4.0],
            other: 0.0,
            tail: 0.0,
        };
        let simulations = [0, 1].map(|staleness| costs.simulate(4, 3, staleness).unwrap());
        let table =
            SplitTable { steps: 3, staleness: 1, costs: &costs, devices: 4, simulations: &simulations };
        let expected = [
            "3 steps on 4 devices; sync, phase by phase, takes 10.0 s a step",
            "  staleness   speed-up   devices: rollouts + learners   idle: rollouts, training",
            // 4 * 4 / 2 seconds of rollouts, then as many of training.
            "  0              0.62x   2 + 2                               50 %, 50 %",
            "* 1              0.94x   2 + 2                               25 %, 25 %",
            "  bound by the work 1.25x",
            "* staleness of the workflow",
        ];
        assert_eq!(table.to_string().lines().collect::<Vec<_>>(), expected);
        assert_eq!(table.to_json()["schedules"][1]["split"]["rollout"], 2);
    }
}
