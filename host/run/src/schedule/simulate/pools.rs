//! Split of devices into pools: one for rollouts and one for each learner, against runs in which all devices do the same
//! phase at a time.
//!
//! The model: a device has a fixed number of slots, and an episode takes as long beside many others as alone (generation
//! is limited by the bandwidth of memory); an update takes half the time on twice the devices. Lengths of episodes are
//! log-normal, with the deviation that gives the tail asked for.

use distrs::Normal;
use serde::Serialize;

use super::{RunCosts, Simulation, StepCosts};

/// Slots of a device. Only rounding depends on it.
const SLOTS: u32 = 8;

/// Largest tail that lengths are found for.
pub const LONGEST_TAIL: f64 = 0.95;

/// Seconds of the phases of a `sync` step on `devices` devices, one phase after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct PhaseCosts {
    /// Number of devices that the seconds are for.
    pub devices: u32,
    /// Preparation of the devices for generation: weights and caches take their memory.
    pub wake: f64,
    /// Rollouts, to the end of the slowest episode.
    pub rollout: f64,
    /// End of generation: caches give their memory back.
    pub sleep: f64,
    /// Update of each learner, one after the other.
    pub train: Vec<f64>,
    /// The rest of a step. Added to the updates, on any number of devices.
    pub other: f64,
    /// Share of the rollouts in which slots have no episode because others last longer: 0 for episodes of one length, at
    /// most [`LONGEST_TAIL`].
    pub tail: f64,
}

/// Devices of each pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Split {
    pub rollout: u32,
    /// In the order of the learners.
    pub train: Vec<u32>,
}

/// Simulated run on a split.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SplitSimulation {
    pub split: Split,
    #[serde(flatten)]
    pub simulation: Simulation,
    /// Seconds of `sync` on the same devices, one phase after the other, over those of the split.
    pub speedup: f64,
}

impl PhaseCosts {
    /// Seconds of a `sync` step on `devices` devices, one phase after the other.
    pub fn sync_step(&self, devices: u32) -> f64 {
        let costs = StepCosts {
            episodes: shuffled(&self.lengths(), 1),
            tasks: Vec::new(),
            lanes: Vec::new(),
            train: vec![0.0],
            publish: 0.0,
        };
        let slots = (SLOTS * devices) as usize;
        let costs = RunCosts { slots, ..RunCosts::of_steps(vec![costs]) };
        let rollout = Simulation::new(1, 0, &costs).seconds;
        let train = self.train.iter().sum::<f64>() * f64::from(self.devices) / f64::from(devices);
        self.wake + rollout + self.sleep + train + self.other
    }

    /// Largest speed-up over `sync` on `devices` devices that conservation of work allows: every device busy with
    /// episodes and updates all the time.
    pub fn bound(&self, devices: u32) -> f64 {
        let work = self.rollout * (1.0 - self.tail) + self.train.iter().sum::<f64>();
        self.sync_step(devices) / (work * f64::from(self.devices) / f64::from(devices))
    }

    /// Simulates `steps` steps with a staleness, on the split of `devices` devices that is fastest. Returns `None` if
    /// there are fewer devices than pools.
    pub fn simulate(&self, devices: u32, steps: u64, staleness: u64) -> Option<SplitSimulation> {
        let lengths = self.lengths();
        let best = self.balanced(devices, lengths.iter().sum())?;
        // The balance is that of long runs; start and end, and waiting for the slowest, shift it a little.
        let near = [-2_i64, -1, 0, 1, 2].map(|shift| i64::from(best.rollout) + shift);
        let splits = near.iter().filter_map(|rollout| self.split(devices, u32::try_from(*rollout).ok()?));
        let sync = self.sync_step(devices) * steps as f64;
        let simulations = splits.map(|split| {
            let simulation = Simulation::new(steps, staleness, &self.run_costs(&split, &lengths, steps));
            SplitSimulation { split, simulation, speedup: sync / simulation.seconds }
        });
        simulations.max_by(|a, b| a.speedup.total_cmp(&b.speedup))
    }

    /// Returns the split whose slower side is fastest. A step's episodes take `work` seconds of slots.
    fn balanced(&self, devices: u32, work: f64) -> Option<Split> {
        let seconds =
            |split: &Split| (work / f64::from(SLOTS * split.rollout)).max(self.slowest_update(split));
        let mut best: Option<(f64, Split)> = None;
        // From few devices for rollouts on: the slower side gets faster up to the balance, then slower.
        let (mut low, mut high) = (1, devices.checked_sub(self.train.len() as u32)?);
        while low <= high {
            let split = self.split(devices, low + (high - low) / 2)?;
            let is_short = work / f64::from(SLOTS * split.rollout) > self.slowest_update(&split);
            if is_short {
                low = split.rollout + 1;
            } else {
                high = split.rollout - 1;
            }
            if best.as_ref().is_none_or(|(least, _)| seconds(&split) < *least) {
                best = Some((seconds(&split), split));
            }
        }
        best.map(|(_, split)| split)
    }

    /// Splits the devices that rollouts leave among the learners: each in turn to the slowest. Returns `None` if
    /// there are too few.
    fn split(&self, devices: u32, rollout: u32) -> Option<Split> {
        let mut train = vec![1; self.train.len()];
        let rest = devices.checked_sub(rollout)?.checked_sub(train.len() as u32)?;
        if rollout == 0 || train.is_empty() {
            return None;
        }
        for _ in 0..rest {
            let seconds = |(own, seconds): (&u32, &f64)| seconds / f64::from(*own);
            let slowest = (0..train.len()).max_by(|a, b| {
                let of = |index: &usize| seconds((&train[*index], &self.train[*index]));
                // Of equal ones, the first.
                of(a).total_cmp(&of(b)).then(b.cmp(a))
            });
            if let Some(own) = slowest.and_then(|index| train.get_mut(index)) {
                *own += 1;
            }
        }
        Some(Split { rollout, train })
    }

    /// Seconds of each learner's update, with the rest of a step.
    fn update_seconds(&self, split: &Split) -> Vec<f64> {
        let own = self.train.iter().zip(&split.train);
        let seconds =
            |(seconds, devices): (&f64, &u32)| seconds * f64::from(self.devices) / f64::from(*devices);
        own.map(seconds).map(|seconds| seconds + self.other).collect()
    }

    fn slowest_update(&self, split: &Split) -> f64 {
        self.update_seconds(split).into_iter().fold(0.0, f64::max)
    }

    fn run_costs(&self, split: &Split, lengths: &[f64], steps: u64) -> RunCosts {
        let train = self.update_seconds(split);
        let step = |step| StepCosts {
            episodes: shuffled(lengths, step),
            tasks: Vec::new(),
            lanes: Vec::new(),
            train: train.clone(),
            publish: 0.0,
        };
        let slots = (SLOTS * split.rollout) as usize;
        let steps = (1..=steps).map(step).collect();
        RunCosts { slots, ..RunCosts::of_steps(steps) }
    }

    /// Lengths of a step's episodes, as many as [`PhaseCosts::devices`] have slots. The longest takes
    /// [`PhaseCosts::rollout`].
    fn lengths(&self) -> Vec<f64> {
        let count = (SLOTS * self.devices).max(1);
        let quantiles: Vec<f64> = (0..count)
            .map(|index| Normal::ppf((f64::from(index) + 0.5) / f64::from(count), 0.0, 1.0))
            .collect();
        let longest = quantiles.last().copied().unwrap_or(0.0);
        let shares = |deviation: f64| -> Vec<f64> {
            quantiles.iter().map(|quantile| (deviation * (quantile - longest)).exp()).collect()
        };
        // The idle share grows with the deviation.
        let (mut low, mut high) = (0.0, 64.0);
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            let mean = shares(middle).iter().sum::<f64>() / f64::from(count);
            *if 1.0 - mean < self.tail { &mut low } else { &mut high } = middle;
        }
        shares(low).into_iter().map(|share| share * self.rollout).collect()
    }
}

/// Returns the lengths in another order for each step.
fn shuffled(lengths: &[f64], step: u64) -> Vec<f64> {
    let mut ordered: Vec<(u64, f64)> =
        lengths.iter().enumerate().map(|(index, own)| (mix(step, index as u64), *own)).collect();
    ordered.sort_by_key(|(order, _)| *order);
    ordered.into_iter().map(|(_, own)| own).collect()
}

/// Mixes two numbers into one that looks random (the finaliser of SplitMix64).
fn mix(step: u64, index: u64) -> u64 {
    let mut z = (step << 32 | index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::path::Path;

    use super::*;

    fn published(tail: f64) -> PhaseCosts {
        PhaseCosts {
            devices: 32,
            wake: 5.0,
            rollout: 50.0,
            sleep: 5.0,
            train: vec![25.0, 10.0],
            other: 5.0,
            tail,
        }
    }

    #[test]
    fn lengths_have_the_tail_asked_for() {
        for tail in [0.0, 0.3, 0.6, 0.9, LONGEST_TAIL] {
            let lengths = published(tail).lengths();
            let longest = lengths.iter().copied().fold(0.0, f64::max);
            let mean = lengths.iter().sum::<f64>() / lengths.len() as f64;
            assert!((longest - 50.0).abs() < 1e-9 && (mean / longest - (1.0 - tail)).abs() < 1e-6, "{tail}");
        }
        assert_eq!(published(0.5).sync_step(32), 100.0);
        assert_eq!(published(0.5).sync_step(64), 82.5);
    }

    #[test]
    fn splits_use_every_device_and_stay_below_the_bound() {
        for (devices, tail, staleness) in
            [(32, 0.0, 1), (32, 0.7, 4), (64, 0.5, 2), (1000, 0.9, 8), (3, 0.5, 1)]
        {
            let costs = published(tail);
            let own = costs.simulate(devices, 16, staleness).unwrap();
            assert_eq!(own.split.rollout + own.split.train.iter().sum::<u32>(), devices);
            assert!(own.speedup < costs.bound(devices), "{devices} devices: {own:?}");
        }
        assert!(published(0.5).simulate(2, 16, 1).is_none());
    }

    /// Table of the published scenario in docs/schedules.md.
    #[test]
    fn the_published_scenario_is_documented() {
        let mut table = String::new();
        for tail in [0.0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9] {
            let costs = published(tail);
            write!(table, "| {tail:.1} |").unwrap();
            for devices in [32, 64, 128] {
                let speedup = |staleness| costs.simulate(devices, 64, staleness).unwrap().speedup;
                let [one, four, eight] = [1, 4, 8].map(speedup);
                write!(table, " {:.2} | {one:.2} | {four:.2} | {eight:.2} |", costs.bound(devices)).unwrap();
            }
            table.push('\n');
        }
        let mut reached = String::new();
        for devices in [32, 64, 128] {
            let first = |goal: f64| {
                let is_reached = |percent: u32| {
                    let costs = published(f64::from(percent) / 100.0);
                    costs.simulate(devices, 64, 8).unwrap().speedup >= goal
                };
                let percent = (0..=95).collect::<Vec<_>>().partition_point(|percent| !is_reached(*percent));
                if percent > 95 { "above 0.95".to_owned() } else { format!("{:.2}", percent as f64 / 100.0) }
            };
            writeln!(reached, "| {devices} | {} | {} | {} |", first(2.2), first(2.5), first(3.0)).unwrap();
        }
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schedules.md");
        let docs = std::fs::read_to_string(docs).unwrap();
        assert!(docs.contains(&table), "docs/schedules.md should have\n{table}");
        assert!(docs.contains(&reached), "docs/schedules.md should have\n{reached}");
    }
}
