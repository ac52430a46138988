//! Differences of means over tasks that come in clusters: tasks that repeat, or share what makes them hard, are not
//! independent tries, as the interval of two proportions takes them to be.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::finished::TaskSuccesses;
use super::intervals::Difference;

/// Key of the cluster of a task, from the task's data. `None` if no such task has the data.
pub type ClusterKey = fn(&str) -> Option<String>;

/// Number of draws of the bootstrap: with other seeds, the bounds for some ten clusters move by about a point.
const DRAWS: usize = 10_000;

/// Number of draws outside each bound of a 95 % interval.
const OUTSIDE: usize = DRAWS / 40;

/// Seed of the draws: a table is the same whenever it is printed.
const SEED: u64 = 1;

/// Difference of the mean successes over the different tasks with its 95 % interval, from a bootstrap of the clusters.
///
/// # Errors
/// If the evaluations have different tasks or none, or a task has no cluster.
pub fn difference(own: &TaskSuccesses, control: &TaskSuccesses, key: ClusterKey) -> Result<Difference> {
    if !own.keys().eq(control.keys()) {
        bail!("it was evaluated on other tasks than its control");
    }
    let mut clusters: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for ((data, own), control) in own.iter().zip(control.values()) {
        let cluster = key(data).with_context(|| format!("the task {data} has no cluster"))?;
        clusters.entry(cluster).or_default().push(own.share() - control.share());
    }
    let clusters: Vec<Vec<f64>> = clusters.into_values().collect();
    clustered_mean(&clusters).context("its evaluation has no tasks")
}

/// Mean of the values of all clusters with its 95 % interval: percentiles of the means of as many clusters, drawn
/// whole and with replacement (Davison and Hinkley 1997, section 3.8). `None` without a cluster.
fn clustered_mean(clusters: &[Vec<f64>]) -> Option<Difference> {
    let sums: Vec<(f64, f64)> =
        clusters.iter().map(|values| (values.iter().sum::<f64>(), values.len() as f64)).collect();
    let mut generator = ChaCha8Rng::seed_from_u64(SEED);
    let mut draw = || mean((0..sums.len()).filter_map(|_| sums.choose(&mut generator)));
    let mut means: Vec<f64> = (0..DRAWS).map(|_| draw()).collect();
    means.sort_by(f64::total_cmp);
    (!sums.is_empty()).then_some(Difference {
        value: mean(sums.iter()),
        low: *means.get(OUTSIDE)?,
        high: *means.get(DRAWS - 1 - OUTSIDE)?,
    })
}

/// Mean of all values of clusters, from the sum and the number of those of each.
fn mean<'a>(clusters: impl Iterator<Item = &'a (f64, f64)>) -> f64 {
    let (sum, count) = clusters.fold((0.0, 0.0), |(sum, count), own| (sum + own.0, count + own.1));
    sum / count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::intervals::Proportion;

    /// If half of ten clusters have only ones, the number with ones in a draw is binomial: at most 1 in 1.1 %
    /// of the draws and at most 2 in 5.5 %.
    #[test]
    fn the_interval_of_equal_values_in_a_cluster_is_the_one_of_the_clusters() {
        let clusters: Vec<Vec<f64>> = (0..10).map(|n| vec![f64::from(n % 2); 10]).collect();
        let Difference { value, low, high } = clustered_mean(&clusters).unwrap();
        assert!((value - 0.5).abs() < 1e-12);
        assert!((low - 0.2).abs() < 1e-12 && (high - 0.8).abs() < 1e-12, "{low} {high}");
    }

    /// As above with 100 clusters: at most 39 in 1.8 % of the draws and at most 40 in 2.8 %.
    #[test]
    fn the_interval_of_independent_values_is_narrower() {
        let clusters: Vec<Vec<f64>> = (0..100).map(|n| vec![f64::from(n % 2)]).collect();
        let Difference { low, high, .. } = clustered_mean(&clusters).unwrap();
        assert!((low - 0.4).abs() < 0.015 && (high - 0.6).abs() < 0.015, "{low} {high}");
        assert_eq!(clustered_mean(&[]), None);
    }

    #[test]
    fn each_task_counts_once_however_often_it_was_tried() {
        let tasks = |successes: [u64; 2], counts: [u64; 2]| -> TaskSuccesses {
            let proportion = |index: usize| Proportion { successes: successes[index], count: counts[index] };
            [("a1".to_owned(), proportion(0)), ("b1".to_owned(), proportion(1))].into()
        };
        let (own, control) = (tasks([9, 1], [9, 1]), tasks([0, 1], [9, 1]));
        let first: ClusterKey = |data| data.get(..1).map(str::to_owned);
        let found = difference(&own, &control, first).unwrap();
        assert_eq!(found, Difference { value: 0.5, low: 0.0, high: 1.0 });
        let all: ClusterKey = |_| Some(String::new());
        let found = difference(&own, &control, all).unwrap();
        assert_eq!(found, Difference { value: 0.5, low: 0.5, high: 0.5 });
        let error = |control: &TaskSuccesses, key: ClusterKey| {
            difference(&own, control, key).unwrap_err().to_string()
        };
        assert_eq!(error(&TaskSuccesses::new(), first), "it was evaluated on other tasks than its control");
        let none: ClusterKey = |_| None;
        assert_eq!(error(&control, none), "the task a1 has no cluster");
    }
}
