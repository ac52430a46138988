//! Returns of completions beside those of their groups, for records of an update.

use std::collections::BTreeMap;

use pl_types::Credit;

use crate::advantage::mean_and_deviation;

/// Credit of a return that is compared with no other.
pub(crate) fn alone(value: f64) -> Credit {
    Credit { value, group_size: 0, group_mean: 0.0, group_deviation: 0.0 }
}

/// Credits of returns within their groups, in the given order. Members of a group are equal in `G`.
pub(crate) fn grouped<G: Ord>(returns: impl IntoIterator<Item = (G, f64)>) -> Vec<Credit> {
    let mut groups: BTreeMap<G, Vec<(usize, f64)>> = BTreeMap::new();
    let mut credits = Vec::new();
    for (index, (group, value)) in returns.into_iter().enumerate() {
        groups.entry(group).or_default().push((index, value));
        credits.push(alone(value));
    }
    for members in groups.into_values() {
        let values: Vec<f64> = members.iter().map(|&(_, value)| value).collect();
        let (group_mean, group_deviation) = mean_and_deviation(&values);
        for (index, value) in members {
            credits[index] = Credit { value, group_size: values.len() as u32, group_mean, group_deviation };
        }
    }
    credits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_return_has_the_mean_and_the_deviation_of_its_own_group() {
        let credits = grouped([("a", 1.0), ("b", 5.0), ("a", 3.0)]);
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
