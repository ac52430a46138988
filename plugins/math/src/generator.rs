//! Generated word problems in levels: an endless sequence, and always the same for equal requests.
//!
//! The hash of a question decides its split, so train and test share no question by construction, for any
//! seeds, levels and indices.

mod draw;
mod harder;
mod simple;

use pl_sdk::prelude::*;
use serde_json::json;

use draw::{Draw, Template};

/// Percentages of questions in the splits `test` and `validation`.
const TEST_SHARE: u64 = 20;
const VALIDATION_SHARE: u64 = 10;

/// Maximum number of attempts to draw a question of a split. One attempt misses the smallest split in nine of
/// ten cases; all of them miss with a probability of 10^-23.
const MAX_DRAWS: u64 = 500;

/// Templates of the levels.
const LEVELS: [&[Template]; 5] =
    [&simple::ONE_STEP, &simple::ONE_LARGER_STEP, &simple::TWO_STEPS, &harder::THREE_STEPS, &harder::SHARES];

/// Returns the tasks of a request. `seed` selects the set of problems.
///
/// # Errors
/// [`Error::settings`] for an unknown level or split.
pub fn tasks(seed: u64, request: &TaskRequest) -> Result<Vec<Task>> {
    let TaskRequest { split, start, count, level } = request;
    let templates =
        (*level as usize).checked_sub(1).and_then(|index| LEVELS.get(index)).ok_or_else(|| {
            Error::settings(format!("problems are generated in levels 1 to {}, not {level}", LEVELS.len()))
        })?;
    if !matches!(split.as_str(), "train" | "validation" | "test") {
        return Err(Error::settings(format!(
            "problems are generated in the splits train, validation and test, not `{split}`"
        )));
    }
    let indices = *start..start.saturating_add(u64::from(*count));
    indices.map(|index| task(seed, split, *level, index, templates)).collect()
}

fn task(seed: u64, split: &str, level: u32, index: u64, templates: &[Template]) -> Result<Task> {
    for draw in 0..MAX_DRAWS {
        let key = format!("{seed} {split} {level} {index} {draw}");
        let mut random = Draw::new(hash(&key));
        let (question, gold) = random.pick(templates)(&mut random);
        if split_of(&question) == split {
            let data = json!({"question": question, "gold": gold.to_string(), "level": level});
            return Task::new(format!("{split}-{level}-{index}"), &data);
        }
    }
    Err(Error::internal(format!("no problem of split {split} came up for task {index} of level {level}")))
}

fn split_of(question: &str) -> &'static str {
    match hash(question) % 100 {
        share if share < TEST_SHARE => "test",
        share if share < TEST_SHARE + VALIDATION_SHARE => "validation",
        _ => "train",
    }
}

/// FNV-1a (Fowler, Noll and Vo), with its bits mixed so that the low ones are as random as the high ones.
fn hash(text: &str) -> u64 {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    draw::mix(hash)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::Value;

    use super::*;

    fn ask(split: &str, start: u64, count: u32, level: u32) -> Vec<(String, String)> {
        let request = TaskRequest { split: split.to_owned(), start, count, level };
        let tasks = tasks(1, &request).unwrap();
        let read = |task: &Task| {
            let data: Value = task.read().unwrap();
            (data["question"].as_str().unwrap().to_owned(), data["gold"].as_str().unwrap().to_owned())
        };
        tasks.iter().map(read).collect()
    }

    #[test]
    fn tasks_do_not_depend_on_the_size_of_requests() {
        let whole = ask("train", 0, 20, 3);
        assert_eq!(whole, [ask("train", 0, 7, 3), ask("train", 7, 13, 3)].concat());
        assert_ne!(whole, ask("train", 20, 20, 3));
    }

    #[test]
    fn splits_share_no_question() {
        for level in 1..=5 {
            let questions =
                |split, count| ask(split, 0, count, level).into_iter().map(|(question, _)| question);
            let train: HashSet<_> = questions("train", 3000).collect();
            assert!(questions("test", 500).all(|question| !train.contains(&question)), "level {level}");
            assert!(questions("validation", 200).all(|question| !train.contains(&question)), "level {level}");
            assert!(train.len() > 1500, "level {level} has {} questions in 3000", train.len());
        }
    }

    #[test]
    fn every_problem_is_complete_and_has_a_sensible_answer() {
        for level in 1..=5 {
            for (question, gold) in ask("train", 0, 1000, level) {
                let gold: i64 = gold.parse().unwrap();
                assert!(gold >= 0, "{question} {gold}");
                assert!(level > 1 || gold <= 20, "{question} {gold}");
                assert!(question.ends_with(['?', '.']), "{question}");
                assert!(!question.contains(['{', '}']), "{question}");
            }
        }
    }

    #[test]
    fn unknown_levels_and_splits_are_refused() {
        let refusal = |split: &str, level| {
            let request = TaskRequest { split: split.to_owned(), start: 0, count: 1, level };
            tasks(0, &request).unwrap_err().message
        };
        assert_eq!(refusal("train", 0), "problems are generated in levels 1 to 5, not 0");
        assert_eq!(refusal("train", 6), "problems are generated in levels 1 to 5, not 6");
        assert!(refusal("dev", 1).ends_with("not `dev`"));
    }

    #[test]
    fn stories() {
        let mut problems = String::new();
        for (level, templates) in (1..).zip(LEVELS) {
            for (index, template) in templates.iter().enumerate() {
                let (question, gold) = template(&mut Draw::new(index as u64));
                problems.push_str(&format!("{level}: {question} {gold}\n"));
            }
        }
        // Check the answer by hand when a template changes.
        insta::assert_snapshot!(problems);
    }
}
