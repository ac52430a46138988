//! Group-relative advantages: the reward of a completion relative to the other completions of its group.
//!
//! [`Group`] defines which completions are comparable. For rewards `r_1 … r_n` of a group,
//!
//! ```text
//! A_i = (r_i - mean(r)) / (std(r) + EPSILON)          normalize = true: GRPO, Shao et al. 2024 (arXiv:2402.03300)
//! A_i =  r_i - mean(r)                                normalize = false
//! ```
//!
//! AT-GRPO (Zhao et al. 2025, arXiv:2510.11062) is the first formula with groups by agent and turn. `std` is
//! the sample standard deviation (divisor n - 1). A group of one, or of equal rewards, has no gradient: its
//! advantages are exactly 0.
//!
//! The second formula is one of the two changes that make Dr. GRPO (Liu et al. 2025, arXiv:2503.20783). The
//! other, a constant divisor of the loss in place of a number of tokens, is not made: the loss stays a mean
//! over the completion tokens of a mini-batch ([`crate::learner`]), so `normalize = false` is GRPO without
//! the division by the standard deviation, and not Dr. GRPO.

use std::collections::BTreeMap;

use pl_types::{Group, Transition};
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// Keeps the quotient finite; small compared with any meaningful spread of rewards.
pub const EPSILON: f64 = 1e-6;

/// Advantages of one step's transitions.
#[derive(Debug, Clone, PartialEq)]
pub struct Advantages {
    /// One per transition, in the order given.
    pub values: Vec<f64>,
    /// Number of groups.
    pub groups: usize,
    /// Number of groups with one member or equal rewards, which have no gradient.
    pub flat_groups: usize,
}

/// Advantages within one group, in the order of `rewards`.
pub fn group_advantages(rewards: &[f64], normalize: bool) -> Vec<f64> {
    // Tests the rewards instead of their deviations: the mean of equal numbers can differ from them by
    // rounding.
    if is_flat(rewards) {
        return vec![0.0; rewards.len()];
    }
    let n = rewards.len() as f64;
    let mean = rewards.iter().sum::<f64>() / n;
    let scale = if normalize {
        let squares: f64 = rewards.iter().map(|r| (r - mean).powi(2)).sum();
        (squares / (n - 1.0)).sqrt() + EPSILON
    } else {
        1.0
    };
    rewards.iter().map(|r| (r - mean) / scale).collect()
}

/// Advantages of `rewards`, each relative to its group. Members of a group are equal in `G`; they need not be
/// adjacent.
pub fn grouped_advantages<'a, G: Ord + 'a>(
    rewards: impl IntoIterator<Item = (&'a G, f64)>,
    normalize: bool,
) -> Advantages {
    let mut members: BTreeMap<&G, Vec<(usize, f64)>> = BTreeMap::new();
    let mut count = 0;
    for (index, (group, reward)) in rewards.into_iter().enumerate() {
        members.entry(group).or_default().push((index, reward));
        count = index + 1;
    }
    let mut result = Advantages { values: vec![0.0; count], groups: members.len(), flat_groups: 0 };
    for group in members.values() {
        let rewards: Vec<f64> = group.iter().map(|&(_, reward)| reward).collect();
        result.flat_groups += usize::from(is_flat(&rewards));
        for (&(index, _), advantage) in group.iter().zip(group_advantages(&rewards, normalize)) {
            result.values[index] = advantage;
        }
    }
    result
}

/// AT-GRPO advantages of a step's transitions: [`Transition::reward`] within [`Transition::group`].
///
/// With a `shuffle` seed, the rewards of each group are permuted first. Groups keep their mean and their
/// spread, but the link between completion and reward is lost: the control experiment for any claim of
/// learning.
pub fn advantages(transitions: &[Transition], normalize: bool, shuffle: Option<[u8; 32]>) -> Advantages {
    let rewards = match shuffle {
        None => transitions.iter().map(|t| t.reward).collect(),
        Some(seed) => shuffled_rewards(transitions, seed),
    };
    grouped_advantages::<Group>(transitions.iter().map(|t| &t.group).zip(rewards), normalize)
}

/// The rewards of `transitions`, permuted within each group.
fn shuffled_rewards(transitions: &[Transition], seed: [u8; 32]) -> Vec<f64> {
    let mut rng = ChaCha8Rng::from_seed(seed);
    let mut members: BTreeMap<&Group, Vec<usize>> = BTreeMap::new();
    for (index, transition) in transitions.iter().enumerate() {
        members.entry(&transition.group).or_default().push(index);
    }
    let mut rewards = vec![0.0; transitions.len()];
    for indices in members.values() {
        let mut permuted = indices.clone();
        permuted.shuffle(&mut rng);
        for (&index, &source) in indices.iter().zip(&permuted) {
            rewards[index] = transitions[source].reward;
        }
    }
    rewards
}

fn is_flat(rewards: &[f64]) -> bool {
    rewards.windows(2).all(|pair| pair[0] == pair[1])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shuffled_rewards_stay_in_their_groups() {
        let transitions: Vec<Transition> = (0..40)
            .map(|n| {
                let mut transition = crate::fixtures::transition(0, n, 4, 2);
                transition.group.task = n / 8;
                transition.reward = f64::from(n);
                transition
            })
            .collect();
        let shuffled = shuffled_rewards(&transitions, [1; 32]);
        assert_eq!(shuffled, shuffled_rewards(&transitions, [1; 32]));
        let mut moved = 0;
        for (group, rewards) in shuffled.chunks(8).enumerate() {
            let own: Vec<f64> = (0..8).map(|n| (group * 8 + n) as f64).collect();
            moved += rewards.iter().zip(&own).filter(|(a, b)| a != b).count();
            let mut sorted = rewards.to_vec();
            sorted.sort_by(f64::total_cmp);
            assert_eq!(sorted, own);
        }
        assert!(moved > 20, "{shuffled:?}");
    }

    #[test]
    fn advantages_of_a_worked_example() {
        // Mean 0.5, squares 4 × 0.25, sample std sqrt(1 / 3).
        let expected = 0.5 / ((1.0f64 / 3.0).sqrt() + EPSILON);
        let got = group_advantages(&[1.0, 0.0, 0.0, 1.0], true);
        for (value, sign) in got.iter().zip([1.0, -1.0, -1.0, 1.0]) {
            assert!((value - sign * expected).abs() < 1e-12, "{got:?}");
        }
        assert_eq!(group_advantages(&[1.0, 0.0, 0.0, 1.0], false), [0.5, -0.5, -0.5, 0.5]);
    }

    #[test]
    fn groups_without_spread_have_advantages_of_exactly_zero() {
        assert_eq!(group_advantages(&[], true), Vec::<f64>::new());
        assert_eq!(group_advantages(&[0.7], true), [0.0]);
        // The mean of three times 0.1 is not 0.1 in binary.
        assert_eq!(group_advantages(&[0.1; 3], true), [0.0; 3]);
        assert_eq!(group_advantages(&[0.1; 3], false), [0.0; 3]);
    }

    proptest! {
        #[test]
        fn groups_are_independent(
            items in prop::collection::vec((0u8..6, -2.0f64..2.0), 0..40),
            normalize: bool,
        ) {
            let all = grouped_advantages(items.iter().map(|(g, r)| (g, *r)), normalize);
            prop_assert_eq!(all.values.len(), items.len());
            let mut groups = 0;
            for group in 0u8..6 {
                let rewards: Vec<f64> = items.iter().filter(|i| i.0 == group).map(|i| i.1).collect();
                let got: Vec<f64> = items
                    .iter()
                    .zip(&all.values)
                    .filter(|(i, _)| i.0 == group)
                    .map(|(_, a)| *a)
                    .collect();
                prop_assert_eq!(&got, &group_advantages(&rewards, normalize));
                groups += usize::from(!rewards.is_empty());
            }
            prop_assert_eq!(all.groups, groups);
        }

        #[test]
        fn advantages_are_centred_and_of_unit_spread(rewards in prop::collection::vec(-3.0f64..3.0, 2..16)) {
            let n = rewards.len() as f64;
            let got = group_advantages(&rewards, true);
            prop_assert!((got.iter().sum::<f64>() / n).abs() < 1e-9);
            let spread = (got.iter().map(|a| a * a).sum::<f64>() / (n - 1.0)).sqrt();
            prop_assert!(spread <= 1.0 + 1e-9);
            // A better reward never has a lower advantage.
            for (r1, a1) in rewards.iter().zip(&got) {
                for (r2, a2) in rewards.iter().zip(&got) {
                    prop_assert!(r1 <= r2 || a1 >= a2);
                }
            }
        }

        #[test]
        fn a_shift_of_all_rewards_changes_nothing(
            rewards in prop::collection::vec(-3i32..4, 1..12),
            shift in -8i32..8,
        ) {
            let plain: Vec<f64> = rewards.iter().map(|&r| f64::from(r)).collect();
            let shifted: Vec<f64> = rewards.iter().map(|&r| f64::from(r + shift)).collect();
            for (a, b) in group_advantages(&plain, true).iter().zip(group_advantages(&shifted, true)) {
                prop_assert!((a - b).abs() < 1e-9);
            }
        }
    }
}
