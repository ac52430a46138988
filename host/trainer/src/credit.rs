//! Returns of completions beside those of their groups, for records of an update.

use std::collections::BTreeMap;

use pl_types::Credit;

use crate::advantage::{GroupStatistics, TurnReturn};

/// Credit of a return that is compared with no other.
pub(crate) fn alone(value: f64) -> Credit {
    Credit { value, group_size: 0, group_mean: 0.0, group_deviation: 0.0 }
}

/// Credits of returns within their groups, in the given order. Members of a group are equal in `G`.
pub(crate) fn grouped<G: Ord>(returns: impl IntoIterator<Item = (G, TurnReturn)>) -> Vec<Credit> {
    let mut groups: BTreeMap<G, Vec<(usize, TurnReturn)>> = BTreeMap::new();
    let mut credits = Vec::new();
    for (index, (group, turn)) in returns.into_iter().enumerate() {
        groups.entry(group).or_default().push((index, turn));
        credits.push(alone(turn.value));
    }
    for members in groups.into_values() {
        let turns: Vec<TurnReturn> = members.iter().map(|&(_, turn)| turn).collect();
        let group = GroupStatistics::new(&turns);
        for (index, TurnReturn { value, .. }) in members {
            credits[index] = Credit {
                value,
                group_size: group.size() as u32,
                group_mean: group.mean,
                group_deviation: group.deviation,
            };
        }
    }
    credits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_return_has_the_mean_and_the_deviation_of_its_own_group() {
        let turn = |episode, value| TurnReturn { episode, value };
        let credits = grouped([("a", turn(0, 1.0)), ("b", turn(1, 5.0)), ("a", turn(2, 3.0))]);
        let deviation = 2f64.sqrt();
        assert_eq!(
            credits,
            [
                Credit { value: 1.0, group_size: 2, group_mean: 2.0, group_deviation: deviation },
                Credit { value: 5.0, group_size: 1, group_mean: 5.0, group_deviation: 0.0 },
                Credit { value: 3.0, group_size: 2, group_mean: 2.0, group_deviation: deviation },
            ]
        );
    }
}
