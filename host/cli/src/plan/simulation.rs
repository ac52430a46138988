//! Rendering of simulated schedules.

use std::fmt;

use pl_run::schedule::StepSchedule;
use pl_run::schedule::simulate::Simulation;

/// Simulated schedules for people: a line for each staleness.
pub struct SimulationTable<'a> {
    /// Schedule of the workflow.
    pub schedule: StepSchedule,
    /// The first one is `sync`.
    pub simulations: &'a [Simulation],
}

impl fmt::Display for SimulationTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = self.schedule.steps();
        writeln!(f, "{steps} steps, rollouts and training on devices of their own")?;
        writeln!(f, "  staleness       seconds   speed-up   rollouts idle   training idle")?;
        let sync = self.simulations.first().map_or(0.0, |sync| sync.seconds);
        for simulation in self.simulations {
            let Simulation { staleness, seconds, rollout_idle, train_idle } = *simulation;
            let name = match staleness {
                0 => " (sync)",
                1 => " (one_step_off)",
                _ => "",
            };
            let mark = if staleness == self.schedule.staleness() { '*' } else { ' ' };
            let speedup = if seconds > 0.0 { sync / seconds } else { 1.0 };
            let staleness = format!("{staleness}{name}");
            writeln!(
                f,
                "{mark} {staleness:<17}{seconds:>6.1} s {speedup:>9.2}x {:>13.0} % {:>13.0} %",
                100.0 * rollout_idle,
                100.0 * train_idle
            )?;
        }
        writeln!(f, "* schedule of the workflow")
    }
}

#[cfg(test)]
mod tests {
    use pl_run::schedule::simulate::StepCosts;

    use super::*;

    #[test]
    fn schedules_are_compared_with_sync() {
        let costs = [StepCosts { rollout: 3.0, train: 2.0, evaluate: 0.0 }];
        let simulations = [0, 1].map(|staleness| Simulation::new(StepSchedule::new(4, staleness), &costs));
        let table = SimulationTable { schedule: StepSchedule::new(4, 1), simulations: &simulations };
        let expected = [
            "4 steps, rollouts and training on devices of their own",
            "  staleness       seconds   speed-up   rollouts idle   training idle",
            "  0 (sync)           20.0 s      1.00x            40 %            60 %",
            "* 1 (one_step_off)   14.0 s      1.43x            14 %            43 %",
            "* schedule of the workflow",
        ];
        assert_eq!(table.to_string().lines().collect::<Vec<_>>(), expected);
    }
}
