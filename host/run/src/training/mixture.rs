//! Splitting of a step's tasks among the scenarios of a mixture.
//!
//! The tasks of a run are dealt one after another. Each goes to the scenario that is furthest below its share of the tasks
//! dealt so far, this one included: the one with the largest `weight * dealt - own`, where the weights add up to 1. Of equal
//! ones, the first in the file gets it. So after any number of tasks, the number of each scenario is within one of its share
//! for two scenarios, and never further off than the number of scenarios, however few tasks a step has.
//!
//! The split is a function of the counts so far, which checkpoints keep. Tasks that a step plays in place of others are of the
//! same scenario and are not counted.

/// Deals `tasks` tasks to scenarios with these weights. `dealt` has the number of tasks that each got before, and is updated.
/// Returns the number of tasks of each. All are 0 if no weight is above 0.
pub(super) fn deal(weights: &[f64], dealt: &mut [u64], tasks: u32) -> Vec<u32> {
    let sum: f64 = weights.iter().sum();
    let mut counts = vec![0; weights.len()];
    if sum <= 0.0 {
        return counts;
    }
    for _ in 0..tasks {
        let total = dealt.iter().sum::<u64>() + 1;
        let deficit = |weight: f64, own: u64| weight / sum * total as f64 - own as f64;
        let mut best: Option<(usize, f64)> = None;
        for (index, (weight, own)) in weights.iter().zip(dealt.iter()).enumerate() {
            let deficit = deficit(*weight, *own);
            if *weight > 0.0 && best.is_none_or(|(_, largest)| deficit > largest) {
                best = Some((index, deficit));
            }
        }
        if let Some((index, _)) = best {
            dealt[index] += 1;
            counts[index] += 1;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_scenario_gets_all_tasks() {
        let mut dealt = [5];
        assert_eq!(deal(&[0.3], &mut dealt, 8), [8]);
        assert_eq!(dealt, [13]);
    }

    #[test]
    fn shares_follow_the_weights() {
        let mut dealt = [0, 0];
        let steps: Vec<Vec<u32>> = (0..5).map(|_| deal(&[0.7, 0.3], &mut dealt, 2)).collect();
        assert_eq!(steps, [[1, 1], [2, 0], [1, 1], [2, 0], [1, 1]]);
        assert_eq!(dealt, [7, 3]);
        // A scenario of weight 0 is left out, and a step of one task has one scenario.
        let mut dealt = [0, 0, 0];
        let steps: Vec<Vec<u32>> = (0..3).map(|_| deal(&[2.0, 0.0, 1.0], &mut dealt, 1)).collect();
        assert_eq!(steps, [[1, 0, 0], [0, 0, 1], [1, 0, 0]]);
    }

    proptest! {
        /// However the tasks are divided into steps, the counts are those of the same tasks dealt at once, and close to the
        /// shares.
        #[test]
        fn counts_stay_close_to_the_shares(
            weights in prop::collection::vec(0_u32..20, 1..6),
            steps in prop::collection::vec(1_u32..9, 1..60),
        ) {
            prop_assume!(weights.iter().any(|weight| *weight > 0));
            let weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
            let sum: f64 = weights.iter().sum();
            let (mut dealt, mut tasks) = (vec![0; weights.len()], 0);
            for step in &steps {
                let counts = deal(&weights, &mut dealt, *step);
                prop_assert_eq!(counts.iter().sum::<u32>(), *step);
                tasks += step;
                for (weight, own) in weights.iter().zip(&dealt) {
                    let share = weight / sum * f64::from(tasks);
                    prop_assert!((share - *own as f64).abs() < weights.len() as f64, "{dealt:?}");
                }
            }
            let mut at_once = vec![0; weights.len()];
            deal(&weights, &mut at_once, tasks);
            prop_assert_eq!(at_once, dealt);
        }
    }
}
