//! Simulation of schedules: the order of [`StepSchedule`] under a virtual clock.
//!
//! Rollouts and training are taken to run side by side without slowing each other down, as on devices of their
//! own. Costs come from a run's `timings.jsonl` or are given.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::StepSchedule;
use crate::error::Error;
use crate::progress::StepSeconds;

/// Seconds that the parts of one step take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepCosts {
    pub rollout: f64,
    pub train: f64,
    /// Evaluations after the step; 0 if none is due.
    pub evaluate: f64,
}

/// Simulated run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Simulation {
    pub staleness: u64,
    /// Duration of the whole run in seconds.
    pub seconds: f64,
    /// Share of the time in which no step and no evaluation is played.
    pub rollout_idle: f64,
    /// Share of the time in which nothing is trained.
    pub train_idle: f64,
}

/// Reads the costs of a run's finished steps.
///
/// # Errors
/// [`Error::Costs`] if the folder has no timings of a finished step, or they can't be read.
pub fn read_costs(run: &Path) -> Result<Vec<StepCosts>, Error> {
    #[derive(Deserialize)]
    struct Line {
        seconds: StepSeconds,
    }
    let path = run.join("timings.jsonl");
    let failed = |problem: String| Error::Costs { path: path.clone(), problem };
    let text = std::fs::read_to_string(&path).map_err(|error| failed(error.to_string()))?;
    let mut costs = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Line { seconds } =
            serde_json::from_str(line).map_err(|error| failed(format!("line {}: {error}", index + 1)))?;
        costs.push(StepCosts { rollout: seconds.play, train: seconds.train, evaluate: seconds.evaluate });
    }
    if costs.is_empty() {
        return Err(failed("the run has not finished a step".to_owned()));
    }
    Ok(costs)
}

impl Simulation {
    /// Simulates a run. Step `n` takes the `n`-th of `costs`, which are repeated if there are more steps.
    pub fn new(schedule: StepSchedule, costs: &[StepCosts]) -> Simulation {
        let cost = |step: u64| costs[(step - 1) as usize % costs.len()];
        let mut rollouts = RolloutClock { free: 0.0, busy: 0.0, last: 0, played: Vec::new() };
        // Times at which the trainer is ready for the next step.
        let (mut now, mut busy) = (0.0, 0.0);
        rollouts.hand_over(schedule, 0, now, 0.0, &cost);
        for step in 1..=schedule.steps() {
            let StepCosts { train, evaluate, .. } = cost(step);
            now = rollouts.played[step as usize - 1].max(now) + train;
            busy += train;
            let evaluated = rollouts.hand_over(schedule, step, now, evaluate, &cost);
            if evaluate > 0.0 {
                now = evaluated;
            }
        }
        let idle = |busy: f64| if now > 0.0 { 1.0 - busy / now } else { 0.0 };
        Simulation {
            staleness: schedule.staleness,
            seconds: now,
            rollout_idle: idle(rollouts.busy),
            train_idle: idle(busy),
        }
    }
}

/// Clock of the rollout thread.
struct RolloutClock {
    /// Time at which its work so far is done.
    free: f64,
    busy: f64,
    /// Last step that was handed over.
    last: u64,
    /// Time at which each step has been played, from step 1 on.
    played: Vec<f64>,
}

impl RolloutClock {
    /// Takes the weights after `update` at time `now`. Returns the time at which their evaluation is done.
    fn hand_over(
        &mut self,
        schedule: StepSchedule,
        update: u64,
        now: f64,
        evaluate: f64,
        cost: &impl Fn(u64) -> StepCosts,
    ) -> f64 {
        let evaluated = self.free.max(now) + evaluate;
        self.free = evaluated;
        self.busy += evaluate;
        for step in schedule.steps_to_play(update, self.last) {
            let rollout = cost(step).rollout;
            self.free += rollout;
            self.busy += rollout;
            self.played.push(self.free);
            self.last = step;
        }
        evaluated
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn simulate(steps: u64, staleness: u64, costs: &[StepCosts]) -> Simulation {
        Simulation::new(StepSchedule::new(steps, staleness), costs)
    }

    fn constant(rollout: f64, train: f64) -> [StepCosts; 1] {
        [StepCosts { rollout, train, evaluate: 0.0 }]
    }

    #[test]
    fn worked_examples() {
        // Four steps of 3 + 2 seconds in turn.
        let sync = simulate(4, 0, &constant(3.0, 2.0));
        assert_eq!(sync.seconds, 20.0);
        assert!((sync.rollout_idle - 0.4).abs() < 1e-12 && (sync.train_idle - 0.6).abs() < 1e-12);
        // All rollouts without a pause, then the last update.
        assert_eq!(simulate(4, 1, &constant(3.0, 2.0)).seconds, 14.0);
        // The first rollouts, then all updates without a pause.
        assert_eq!(simulate(4, 1, &constant(2.0, 3.0)).seconds, 14.0);
        // One slow step of rollouts: a larger staleness plays it earlier.
        let costs: Vec<StepCosts> = [1.0, 1.0, 1.0, 7.0, 1.0, 1.0]
            .map(|rollout| StepCosts { rollout, train: 2.0, evaluate: 0.0 })
            .into();
        assert_eq!(simulate(6, 1, &costs).seconds, 18.0);
        assert_eq!(simulate(6, 3, &costs).seconds, 16.0);
        let evaluated = [StepCosts { rollout: 3.0, train: 2.0, evaluate: 1.0 }];
        assert_eq!(simulate(4, 0, &evaluated).seconds, 24.0);
    }

    proptest! {
        #[test]
        fn no_schedule_beats_the_work_that_has_to_be_done(
            costs in prop::collection::vec((0.01f64..9.0, 0.01f64..9.0), 1..20),
            steps in 1u64..30,
            staleness in 0u64..6,
        ) {
            let costs: Vec<StepCosts> = costs
                .into_iter()
                .map(|(rollout, train)| StepCosts { rollout, train, evaluate: 0.0 })
                .collect();
            let sum = |part: fn(&StepCosts) -> f64| -> f64 {
                (0..steps as usize).map(|step| part(&costs[step % costs.len()])).sum()
            };
            let (rollout, train) = (sum(|c| c.rollout), sum(|c| c.train));
            let seconds = simulate(steps, staleness, &costs).seconds;
            prop_assert!(seconds >= rollout.max(train) - 1e-9);
            prop_assert!(seconds <= rollout + train + 1e-9);
            // A larger staleness is never slower.
            prop_assert!(simulate(steps, staleness + 1, &costs).seconds <= seconds + 1e-9);
            let sync = simulate(steps, 0, &costs).seconds;
            prop_assert!((sync - rollout - train).abs() < 1e-9);
        }
    }
}
