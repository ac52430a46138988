//! The table of an experiment in Markdown: a row for each arm, a column for each seed. Shares are in percent.

use std::fmt;

use super::intervals::{Difference, Proportion};

/// A row of the table.
pub struct Row {
    pub name: String,
    /// Successes of all seeds before training. `None` if they were not counted.
    pub untrained: Option<Proportion>,
    /// Successes of each seed. `None` for runs that have not finished.
    pub seeds: Vec<Option<Proportion>>,
    /// Difference to the control. `None` for the control itself, and without finished runs.
    pub difference: Option<Difference>,
    /// Number of tokens that each finished run sampled in training.
    pub tokens: Vec<u64>,
}

/// Returns the first two lines of a table.
pub fn heading(seeds: &[u64]) -> String {
    let columns: String = seeds.iter().map(|seed| format!(" seed {seed} |")).collect();
    let rule = "---|".repeat(seeds.len() + 5);
    format!("| arm | untrained |{columns} pooled | difference to the control | tokens sampled |\n|{rule}\n")
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |one: Proportion| percent(one.share());
        let pooled = Proportion::pooled(self.seeds.iter().flatten().copied());
        let seeds = self.seeds.iter().copied().chain([pooled]);
        let difference = |Difference { value, low, high }| {
            format!("{} ({} to {})", percent(value), percent(low), percent(high))
        };
        let mut cells = vec![self.name.clone(), self.untrained.map(share).unwrap_or_default()];
        cells.extend(seeds.map(|one| one.map_or("-".to_owned(), share)));
        cells.extend([self.difference.map(difference).unwrap_or_default(), range(&self.tokens)]);
        f.write_str("|")?;
        for cell in cells {
            let space = if cell.is_empty() { "" } else { " " };
            write!(f, "{space}{cell} |")?;
        }
        f.write_str("\n")
    }
}

fn percent(share: f64) -> String {
    format!("{:.0}", 100.0 * share)
}

/// Returns the smallest and the largest of some numbers, rounded to hundreds.
fn range(numbers: &[u64]) -> String {
    let rounded = |number: &u64| grouped((number + 50) / 100 * 100);
    match (numbers.iter().min().map(rounded), numbers.iter().max().map(rounded)) {
        (Some(least), Some(most)) if least == most => least,
        (Some(least), Some(most)) => format!("{least} to {most}"),
        _ => String::new(),
    }
}

/// Returns a number with a comma before each three digits.
fn grouped(number: u64) -> String {
    if number < 1000 {
        return number.to_string();
    }
    format!("{},{:03}", grouped(number / 1000), number % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_columns_of_its_heading() {
        let proportion = |successes: u64| Some(Proportion { successes, count: 100 });
        let row = Row {
            name: "`L2`".to_owned(),
            untrained: proportion(17),
            seeds: vec![proportion(33), None, proportion(31)],
            difference: Some(Difference { value: 0.244, low: 0.139, high: 0.432 }),
            tokens: vec![24_539, 1_022_760],
        };
        let text = format!("{}{row}", heading(&[1, 2, 3]));
        let expected = "\
            | arm | untrained | seed 1 | seed 2 | seed 3 | pooled | difference to the control | tokens sampled |\n\
            |---|---|---|---|---|---|---|---|\n\
            | `L2` | 17 | 33 | - | 31 | 32 | 24 (14 to 43) | 24,500 to 1,022,800 |\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn cells_without_a_value_are_empty() {
        let row = |tokens: &[u64]| Row {
            name: "`control`".to_owned(),
            untrained: None,
            seeds: vec![None],
            difference: None,
            tokens: tokens.to_vec(),
        };
        assert_eq!(row(&[]).to_string(), "| `control` | | - | - | | |\n");
        assert_eq!(row(&[949, 851]).to_string(), "| `control` | | - | - | | 900 |\n");
    }
}
