//! Advantages of completions.
//!
//! Relative to a group of comparable completions with returns `r_1 … r_n`:
//!
//! ```text
//! A_i = (r_i - baseline_i) / scale
//! baseline   mean: mean(r)         leave_one_out: (sum(r) - r_i) / (n - 1)         none: 0
//! scale      group: std(r) + EPSILON         none: 1
//! ```
//!
//! GRPO (Shao et al. 2024, arXiv:2402.03300) is `mean` and `group`; AT-GRPO (Zhao et al. 2025, arXiv:2510.11062)
//! is that with groups by agent and turn; Dr. GRPO (Liu et al. 2025, arXiv:2503.20783) has no scale; RLOO
//! (Ahmadian et al. 2024, arXiv:2402.14740) is `leave_one_out` without a scale. `std` is the sample standard
//! deviation (divisor n - 1). A group of one, or of equal returns, says nothing about its members: relative to a
//! baseline, and in units of its deviation, its advantages are exactly 0. (For a group of one, verl keeps the
//! return itself.)
//!
//! An agent's turns of one episode may belong to the same group. Together they count as one of its `n` members: an episode
//! with more turns does not weigh more, and `leave_one_out` leaves out the whole episode.
//!
//! `batch` whitens the advantages of all tokens of the policy's batch ([`whiten`]; verl's `masked_whiten`). TRL's
//! `batch` divides by the deviation of the batch's rewards instead.
//!
//! EMA advantages are relative to a moving average per agent ([`ema_advantages`]; "role-conditioned advantage
//! estimation", Liu et al. 2025, arXiv:2506.24119).

use std::collections::BTreeMap;

use pl_dsl::workflow::objective::{Baseline, GroupBy, Scale};
use pl_types::{Credit, Group};
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// Keeps the quotient finite; small compared with any meaningful spread of rewards.
pub const EPSILON: f64 = 1e-6;

/// Keeps the quotient of whitened advantages finite; added to the variance.
pub const VARIANCE_EPSILON: f64 = 1e-8;

/// Share of the old average that an exponential moving average keeps in a step.
pub const EMA_DECAY: f64 = 0.95;

/// Advantages relative to groups.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupedAdvantages {
    /// One per return, in the order given.
    pub values: Vec<f64>,
    /// Each return beside those of its group, in the order given.
    pub credits: Vec<Credit>,
    /// Number of groups.
    pub groups: usize,
    /// Number of groups with one member or equal returns, which say nothing about their members.
    pub flat_groups: usize,
}

/// Return of a turn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TurnReturn {
    /// Equal for the turns of an agent in one episode.
    pub episode: usize,
    pub value: f64,
}

/// Statistics of the returns of a group, in which each episode counts once.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GroupStatistics {
    /// Sum of the returns of each episode and their number.
    episodes: BTreeMap<usize, (f64, f64)>,
    /// Sum of the means of the episodes.
    sum: f64,
    /// Mean of the episodes.
    pub mean: f64,
    /// Sample standard deviation (divisor n - 1). A single episode deviates by 0.
    pub deviation: f64,
    /// True if the group says nothing about its members: they are of one episode, or equal. The deviation does not
    /// tell: the mean of equal numbers can differ from them by rounding.
    pub is_flat: bool,
}

impl GroupStatistics {
    pub fn new(returns: &[TurnReturn]) -> Self {
        let mut episodes: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
        for turn in returns {
            let (sum, turns) = episodes.entry(turn.episode).or_default();
            *sum += turn.value;
            *turns += 1.0;
        }
        let n = episodes.len() as f64;
        let weighted = |of: &dyn Fn(f64) -> f64| -> f64 {
            returns.iter().map(|turn| of(turn.value) / episodes[&turn.episode].1).sum()
        };
        let sum = weighted(&|value| value);
        let mean = sum / n;
        let squares = weighted(&|value| (value - mean).powi(2));
        let deviation = (squares / (n - 1.0).max(1.0)).sqrt();
        let is_flat = returns.windows(2).all(|pair| pair[0].episode == pair[1].episode)
            || returns.windows(2).all(|pair| pair[0].value == pair[1].value);
        Self { episodes, sum, mean, deviation, is_flat }
    }

    /// Number of episodes.
    pub fn size(&self) -> usize {
        self.episodes.len()
    }

    /// Credit of a return of the group.
    fn credit(&self, value: f64) -> Credit {
        Credit {
            value,
            group_size: self.size() as u32,
            group_mean: self.mean,
            group_deviation: self.deviation,
        }
    }

    /// Returns the mean of the episodes but one.
    fn mean_without(&self, episode: usize) -> f64 {
        let own = self.episodes.get(&episode).map_or(0.0, |(sum, turns)| sum / turns);
        (self.sum - own) / (self.size() as f64 - 1.0)
    }

    /// Returns the advantages of the group's returns, in their order.
    fn advantages(&self, returns: &[TurnReturn], baseline: Baseline, scale: Scale) -> Vec<f64> {
        if self.is_flat && (baseline != Baseline::None || scale == Scale::Group) {
            return vec![0.0; returns.len()];
        }
        let divisor = match scale {
            Scale::Group => self.deviation + EPSILON,
            Scale::Batch | Scale::None => 1.0,
        };
        let relative = |turn: &TurnReturn| match baseline {
            Baseline::Mean => turn.value - self.mean,
            Baseline::LeaveOneOut => turn.value - self.mean_without(turn.episode),
            Baseline::None => turn.value,
        };
        returns.iter().map(|turn| relative(turn) / divisor).collect()
    }
}

/// Advantages within one group, in the order of `returns`. [`Scale::Batch`] is [`whiten`]'s part: here it is
/// the same as [`Scale::None`].
pub fn group_advantages(returns: &[TurnReturn], baseline: Baseline, scale: Scale) -> Vec<f64> {
    GroupStatistics::new(returns).advantages(returns, baseline, scale)
}

/// Credit of a return that is compared with no other.
pub(crate) fn credit_alone(value: f64) -> Credit {
    Credit { value, group_size: 0, group_mean: 0.0, group_deviation: 0.0 }
}

/// Advantages of `returns`, each relative to its group. Members of a group are equal in `G`; they need not be
/// adjacent.
pub fn grouped_advantages<G: Ord>(
    returns: impl IntoIterator<Item = (G, TurnReturn)>,
    baseline: Baseline,
    scale: Scale,
) -> GroupedAdvantages {
    let mut members: BTreeMap<G, Vec<(usize, TurnReturn)>> = BTreeMap::new();
    let mut credits = Vec::new();
    for (index, (group, turn)) in returns.into_iter().enumerate() {
        members.entry(group).or_default().push((index, turn));
        credits.push(credit_alone(turn.value));
    }
    let (mut values, mut flat_groups) = (vec![0.0; credits.len()], 0);
    for group in members.values() {
        let returns: Vec<TurnReturn> = group.iter().map(|&(_, turn)| turn).collect();
        let statistics = GroupStatistics::new(&returns);
        flat_groups += usize::from(statistics.is_flat);
        let advantages = statistics.advantages(&returns, baseline, scale);
        for (&(index, turn), advantage) in group.iter().zip(advantages) {
            values[index] = advantage;
            credits[index] = statistics.credit(turn.value);
        }
    }
    GroupedAdvantages { values, credits, groups: members.len(), flat_groups }
}

/// The group of a transition among those that agree in the properties of `group_by`.
pub fn group_of(group: &Group, group_by: GroupBy) -> Group {
    Group {
        agent: if group_by.agent { group.agent } else { 0 },
        turn: if group_by.turn { group.turn } else { 0 },
        node_visit: group.node_visit.filter(|_| group_by.turn),
        ..group.clone()
    }
}

/// Subtracts the mean of all elements and divides by their standard deviation. Each list has the advantages of
/// one completion's tokens; completions weigh by their length. Equal elements become exactly 0.
///
/// The variance has the divisor n - 1, and [`VARIANCE_EPSILON`] is added to it.
pub fn whiten(advantages: &mut [Vec<f64>]) {
    let all = || advantages.iter().flatten().copied();
    let Some(first) = all().next() else { return };
    let n = all().count() as f64;
    let is_flat = all().all(|value| value == first);
    let mean = all().sum::<f64>() / n;
    let variance = all().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let deviation = (variance + VARIANCE_EPSILON).sqrt();
    for value in advantages.iter_mut().flatten() {
        *value = if is_flat { 0.0 } else { (*value - mean) / deviation };
    }
}

/// Returns minus the moving average of their agent before the step, which starts at 0.
///
/// Afterwards each average is `decay · average + (1 - decay) · mean of the agent's returns`.
pub fn ema_advantages<'a>(
    returns: impl Iterator<Item = (&'a str, f64)>,
    averages: &mut BTreeMap<String, f64>,
) -> Vec<f64> {
    let mut sums: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    let advantages = returns
        .map(|(agent, value)| {
            let (sum, count) = sums.entry(agent).or_default();
            *sum += value;
            *count += 1.0;
            value - averages.get(agent).copied().unwrap_or(0.0)
        })
        .collect();
    for (agent, (sum, count)) in sums {
        let average = averages.entry(agent.to_owned()).or_default();
        *average = EMA_DECAY * *average + (1.0 - EMA_DECAY) * (sum / count);
    }
    advantages
}

/// Positions from which returns are taken in the control experiment for any claim of learning: a permutation
/// within each group, drawn from `seed`. Groups keep their mean and their spread, but the link between a
/// completion and its return is lost.
pub fn shuffled_positions<G: Ord>(groups: impl IntoIterator<Item = G>, seed: [u8; 32]) -> Vec<usize> {
    let mut rng = ChaCha8Rng::from_seed(seed);
    let mut members: BTreeMap<G, Vec<usize>> = BTreeMap::new();
    let mut count = 0;
    for (index, group) in groups.into_iter().enumerate() {
        members.entry(group).or_default().push(index);
        count = index + 1;
    }
    let mut sources = vec![0; count];
    for indices in members.values() {
        let mut permuted = indices.clone();
        permuted.shuffle(&mut rng);
        for (&index, &source) in indices.iter().zip(&permuted) {
            sources[index] = source;
        }
    }
    sources
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GRPO: (Baseline, Scale) = (Baseline::Mean, Scale::Group);
    const BASELINES: [Baseline; 3] = [Baseline::Mean, Baseline::LeaveOneOut, Baseline::None];

    /// Returns of different episodes.
    fn apart(returns: &[f64]) -> Vec<TurnReturn> {
        returns.iter().enumerate().map(|(episode, &value)| TurnReturn { episode, value }).collect()
    }

    fn grpo(returns: &[f64]) -> Vec<f64> {
        group_advantages(&apart(returns), GRPO.0, GRPO.1)
    }

    #[test]
    fn an_episode_counts_once_however_many_turns_it_has() {
        let turn = |episode, value| TurnReturn { episode, value };
        // One turn with the return 1, four turns of another episode with 0.
        let returns = [turn(0, 1.0), turn(1, 0.0), turn(1, 0.0), turn(1, 0.0), turn(1, 0.0)];
        let plain = |returns: &[TurnReturn], baseline| group_advantages(returns, baseline, Scale::None);
        assert_eq!(plain(&returns, Baseline::LeaveOneOut), [1.0, -1.0, -1.0, -1.0, -1.0]);
        assert_eq!(plain(&returns, Baseline::Mean), [0.5, -0.5, -0.5, -0.5, -0.5]);
        let scaled = group_advantages(&returns, Baseline::Mean, Scale::Group);
        assert_eq!(scaled[..2], grpo(&[1.0, 0.0])[..]);
        // Turns with different returns: the means of the episodes are 2 and 0, the squares (9 + 1) / 2 and 1.
        let discounted = [turn(0, 4.0), turn(0, 0.0), turn(1, 0.0)];
        assert_eq!(plain(&discounted, Baseline::LeaveOneOut), [4.0, 0.0, -2.0]);
        assert_eq!(GroupStatistics::new(&discounted).mean, 1.0);
        assert_eq!(GroupStatistics::new(&discounted).deviation, (0.5 * (9.0 + 1.0) + 1.0f64).sqrt());
        // Turns of one episode are not compared with each other.
        assert_eq!(plain(&discounted[..2], Baseline::Mean), [0.0, 0.0]);
    }

    #[test]
    fn a_credit_has_the_mean_and_the_deviation_of_its_own_group() {
        let turn = |episode, value| TurnReturn { episode, value };
        let returns = [("a", turn(0, 1.0)), ("b", turn(1, 5.0)), ("a", turn(2, 3.0))];
        let deviation = 2f64.sqrt();
        assert_eq!(
            grouped_advantages(returns, GRPO.0, GRPO.1).credits,
            [
                Credit { value: 1.0, group_size: 2, group_mean: 2.0, group_deviation: deviation },
                Credit { value: 5.0, group_size: 1, group_mean: 5.0, group_deviation: 0.0 },
                Credit { value: 3.0, group_size: 2, group_mean: 2.0, group_deviation: deviation },
            ]
        );
    }

    #[test]
    fn groups_of_one_episode_or_of_equal_returns_are_flat() {
        let turn = |episode, value| TurnReturn { episode, value };
        let returns = [
            ("one episode", turn(0, 1.0)),
            ("one episode", turn(0, 2.0)),
            ("equal", turn(0, 0.1)),
            ("equal", turn(1, 0.1)),
            ("equal", turn(2, 0.1)),
            ("apart", turn(0, 1.0)),
            ("apart", turn(1, 2.0)),
        ];
        let grouped = grouped_advantages(returns, Baseline::Mean, Scale::None);
        assert_eq!((grouped.groups, grouped.flat_groups), (3, 2));
        assert_eq!(grouped.values, [0.0, 0.0, 0.0, 0.0, 0.0, -0.5, 0.5]);
    }

    #[test]
    fn shuffled_returns_stay_in_their_groups() {
        let shuffled = || shuffled_positions((0..40).map(|n| n / 8), [1; 32]);
        let sources = shuffled();
        assert_eq!(sources, shuffled());
        assert!(sources.iter().enumerate().filter(|(index, source)| index != *source).count() > 20);
        for (group, sources) in sources.chunks(8).enumerate() {
            let mut sorted = sources.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, (group * 8..group * 8 + 8).collect::<Vec<_>>());
        }
    }

    #[test]
    fn advantages_of_a_worked_example() {
        // Mean 0.5, squares 4 × 0.25, sample std sqrt(1 / 3).
        let returns = [1.0, 0.0, 0.0, 1.0];
        let expected = 0.5 / ((1.0f64 / 3.0).sqrt() + EPSILON);
        for (value, sign) in grpo(&returns).iter().zip([1.0, -1.0, -1.0, 1.0]) {
            assert!((value - sign * expected).abs() < 1e-12);
        }
        let plain = |baseline| group_advantages(&apart(&returns), baseline, Scale::None);
        assert_eq!(plain(Baseline::Mean), [0.5, -0.5, -0.5, 0.5]);
        assert_eq!(plain(Baseline::None), returns);
        let (up, down) = (1.0 - 1.0 / 3.0, -2.0 / 3.0);
        assert_eq!(plain(Baseline::LeaveOneOut), [up, down, down, up]);
    }

    #[test]
    fn groups_without_spread_have_advantages_of_exactly_zero() {
        assert_eq!(grpo(&[]), Vec::<f64>::new());
        for baseline in [Baseline::Mean, Baseline::LeaveOneOut] {
            for scale in [Scale::Group, Scale::Batch, Scale::None] {
                assert_eq!(group_advantages(&apart(&[0.7]), baseline, scale), [0.0]);
                // The mean of three times 0.1 is not 0.1 in binary.
                assert_eq!(group_advantages(&apart(&[0.1; 3]), baseline, scale), [0.0; 3]);
            }
        }
        assert_eq!(group_advantages(&apart(&[0.1; 3]), Baseline::None, Scale::Group), [0.0; 3]);
        assert_eq!(group_advantages(&apart(&[0.1; 3]), Baseline::None, Scale::None), [0.1; 3]);
    }

    #[test]
    fn groups_follow_the_named_properties() {
        let group = |agent, turn, node_visit| Group { step: 1, task: 2, agent, turn, node_visit };
        let (a, b) = (group(0, 1, Some(3)), group(1, 1, Some(3)));
        let by = |agent, turn| GroupBy { agent, turn };
        assert_eq!(group_of(&a, by(true, true)), a);
        assert_eq!(group_of(&a, by(true, false)), group_of(&group(0, 2, Some(5)), by(true, false)));
        assert_ne!(group_of(&a, by(true, false)), group_of(&b, by(true, false)));
        assert_eq!(group_of(&a, by(false, true)), group_of(&b, by(false, true)));
        assert_eq!(group_of(&a, by(false, false)), group_of(&group(1, 7, None), by(false, false)));
    }

    #[test]
    fn whitened_advantages_weigh_completions_by_length() {
        let mut advantages = vec![vec![1.0; 3], vec![-1.0; 1], Vec::new()];
        whiten(&mut advantages);
        // Mean 0.5, squares 3 × 0.25 + 2.25, variance 1.
        let deviation = (1.0f64 + VARIANCE_EPSILON).sqrt();
        assert_eq!(advantages, [vec![0.5 / deviation; 3], vec![-1.5 / deviation], Vec::new()]);
        let mut equal = vec![vec![0.1; 2], vec![0.1; 1]];
        whiten(&mut equal);
        assert_eq!(equal, [vec![0.0; 2], vec![0.0; 1]]);
    }

    #[test]
    fn ema_advantages_are_relative_to_the_average_before_the_step() {
        let mut averages = BTreeMap::new();
        let step = |averages: &mut _| {
            let returns = [("a", 1.0), ("b", 4.0), ("a", 3.0)];
            ema_advantages(returns.into_iter(), averages)
        };
        assert_eq!(step(&mut averages), [1.0, 4.0, 3.0]);
        let first = 1.0 - EMA_DECAY;
        assert_eq!(averages["a"], first * 2.0);
        assert_eq!(averages["b"], first * 4.0);
        assert_eq!(step(&mut averages), [1.0 - first * 2.0, 4.0 - first * 4.0, 3.0 - first * 2.0]);
        assert_eq!(averages["a"], EMA_DECAY * (first * 2.0) + first * 2.0);
    }

    proptest! {
        #[test]
        fn groups_are_independent(
            items in prop::collection::vec((0u8..6, -2.0f64..2.0), 0..40),
            baseline in prop::sample::select(BASELINES.to_vec()),
            scaled: bool,
        ) {
            let scale = if scaled { Scale::Group } else { Scale::None };
            let turns = apart(&items.iter().map(|item| item.1).collect::<Vec<_>>());
            let all = grouped_advantages(items.iter().map(|item| item.0).zip(turns), baseline, scale);
            prop_assert_eq!(all.values.len(), items.len());
            let mut groups = 0;
            for group in 0u8..6 {
                let returns: Vec<f64> = items.iter().filter(|i| i.0 == group).map(|i| i.1).collect();
                let got: Vec<f64> = items
                    .iter()
                    .zip(&all.values)
                    .filter(|(i, _)| i.0 == group)
                    .map(|(_, a)| *a)
                    .collect();
                prop_assert_eq!(&got, &group_advantages(&apart(&returns), baseline, scale));
                groups += usize::from(!returns.is_empty());
            }
            prop_assert_eq!(all.groups, groups);
        }

        #[test]
        fn advantages_are_centred_and_of_unit_spread(returns in prop::collection::vec(-3.0f64..3.0, 2..16)) {
            let n = returns.len() as f64;
            let got = grpo(&returns);
            prop_assert!((got.iter().sum::<f64>() / n).abs() < 1e-9);
            let spread = (got.iter().map(|a| a * a).sum::<f64>() / (n - 1.0)).sqrt();
            prop_assert!(spread <= 1.0 + 1e-9);
            // A better return never has a lower advantage.
            for (r1, a1) in returns.iter().zip(&got) {
                for (r2, a2) in returns.iter().zip(&got) {
                    prop_assert!(r1 <= r2 || a1 >= a2);
                }
            }
        }

        #[test]
        fn a_shift_of_all_returns_changes_nothing(
            returns in prop::collection::vec(-3i32..4, 1..12),
            shift in -8i32..8,
            baseline in prop::sample::select(BASELINES[..2].to_vec()),
        ) {
            let plain: Vec<f64> = returns.iter().map(|&r| f64::from(r)).collect();
            let shifted: Vec<f64> = returns.iter().map(|&r| f64::from(r + shift)).collect();
            let advantages = |returns: &[f64]| group_advantages(&apart(returns), baseline, Scale::Group);
            for (a, b) in advantages(&plain).iter().zip(advantages(&shifted)) {
                prop_assert!((a - b).abs() < 1e-9);
            }
        }
    }
}
