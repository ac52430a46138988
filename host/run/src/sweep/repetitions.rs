//! Repetitions in what a sweep is asked for: they would count one run several times, or under a wrong name.

use std::collections::BTreeSet;

use super::GridAxis;
use crate::error::repetition::Repetition;

/// Checks that all runs of a sweep differ.
///
/// # Errors
/// The first repetition.
pub(super) fn refuse_repetitions(seeds: &[u64], grid: &[GridAxis]) -> Result<(), Repetition> {
    let mut known = BTreeSet::new();
    let seeds: BTreeSet<u64> = seeds.iter().copied().filter(|seed| !known.insert(*seed)).collect();
    if !seeds.is_empty() {
        return Err(Repetition::Seeds { seeds });
    }
    for (index, GridAxis { path, values }) in grid.iter().enumerate() {
        if grid.iter().take(index).any(|earlier| earlier.path == *path) {
            return Err(Repetition::Path { path: path.clone() });
        }
        for (index, second) in values.iter().enumerate() {
            if let Some(first) = values.iter().take(index).find(|first| is_same(first, second)) {
                let (path, first, second) = (path.clone(), first.clone(), second.clone());
                return Err(Repetition::Values { path, first, second });
            }
        }
    }
    Ok(())
}

/// Returns true for equal texts, and for numbers that are written differently: `1e-4` and `0.0001`.
fn is_same(first: &str, second: &str) -> bool {
    let number = |text: &str| text.parse::<f64>().ok();
    first == second || number(first).is_some_and(|first| number(second) == Some(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_seeds_values_and_paths_are_refused_by_name() {
        let refusal = |seeds: &[u64], grid: &[&str]| {
            let grid: Vec<GridAxis> = grid.iter().map(|axis| axis.parse().unwrap()).collect();
            refuse_repetitions(seeds, &grid).err().map(|repetition| repetition.to_string())
        };
        let starts = |text: Option<String>, with: &str| assert!(text.unwrap().starts_with(with), "{with}");
        starts(refusal(&[1, 2, 1, 3, 3, 3], &[]), "--seeds: 1, 3 is repeated");
        starts(refusal(&[1], &["x=[1e-4, 2, 1e-4]"]), "--grid x: the values 1e-4 and 1e-4 are the same");
        starts(refusal(&[1], &["x=[1e-4, 0.0001]"]), "--grid x: the values 1e-4 and 0.0001 are the same");
        starts(refusal(&[1], &["x=[1, 2]", "y=[a]", "x=[3]"]), "--grid x is repeated");
        assert_eq!(refusal(&[1, 2], &["x=[1e-4, 2e-4]", r#"y=["1", 1, [1], 10]"#]), None);
    }
}
