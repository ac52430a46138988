//! The data sets that workflows name.

use crate::error::Error;
use crate::split::{DataSet, Field, HubFiles, Split};

const QUESTION: Field = required("question", &["question", "problem"]);
const ANSWER: Field = required("answer", &["answer", "final_answer", "reward_model.ground_truth"]);

/// Fields of word problems with an answer.
const MATHS: &[Field] = &[QUESTION, ANSWER];

/// Fields of word problems with an answer, or with a solution that holds it.
const SOLVED_MATHS: &[Field] = &[QUESTION, Field { instead: Some("solution"), ..ANSWER }];

/// Fields of questions to be searched for.
const SEARCH: &[Field] = &[
    required("question", &["question"]),
    required("answers", &["golden_answers", "answers", "answer"]),
    Field { required: false, ..required("supporting_facts", &["supporting_facts"]) },
];

/// The records as they are.
const UNCHANGED: &[Field] = &[];

const fn required(to: &'static str, from: &'static [&'static str]) -> Field {
    Field { to, from, instead: None, required: true }
}

const fn hub(repo: &'static str, prefix: &'static str) -> Option<HubFiles> {
    Some(HubFiles { repo, prefix })
}

const fn split(
    name: &'static str,
    files: &'static [&'static str],
    hub: Option<HubFiles>,
    fields: &'static [Field],
) -> Split {
    Split { name, files, hub, fields, only: None }
}

/// Split of a file that holds several, told apart by the field `task_id`.
const fn numbered(split: Split, first: i64, last: i64) -> Split {
    Split { only: Some(("task_id", first, last)), ..split }
}

/// All data sets, by domain.
pub const CATALOGUE: &[DataSet] = &[
    DataSet {
        name: "gsm8k",
        title: "grade school word problems",
        environment: "maths.problems",
        published: "https://huggingface.co/datasets/openai/gsm8k",
        licence: "MIT",
        splits: &[
            split("train", &["gsm8k/train"], hub("openai/gsm8k", "main/train-"), MATHS),
            split("test", &["gsm8k/test"], hub("openai/gsm8k", "main/test-"), MATHS),
        ],
    },
    DataSet {
        name: "math",
        title: "competition problems of seven subjects; the test split is MATH-500",
        environment: "maths.problems",
        published: "https://huggingface.co/datasets/HuggingFaceH4/MATH-500",
        licence: "MIT",
        splits: &[
            split("train", &["math/train", "math/math_train"], None, SOLVED_MATHS),
            split(
                "test",
                &["math/test", "math/math500"],
                hub("HuggingFaceH4/MATH-500", "test"),
                SOLVED_MATHS,
            ),
        ],
    },
    DataSet {
        name: "aime",
        title: "American Invitational Mathematics Examination, by year",
        environment: "maths.problems",
        published: "https://huggingface.co/datasets/HuggingFaceH4/aime_2024",
        licence: "problems (c) MAA",
        splits: &[
            split("train", &["aime/train", "aime/aime_1983_2023"], None, MATHS),
            split(
                "2024",
                &["aime/2024", "aime/aime24."],
                hub("HuggingFaceH4/aime_2024", "data/train-"),
                MATHS,
            ),
            split("2025", &["aime/2025", "aime/aime25."], hub("math-ai/aime25", "test"), MATHS),
        ],
    },
    DataSet {
        name: "amc",
        title: "American Mathematics Competitions: 40 problems of 2023, or 83 of 2022 and 2023",
        environment: "maths.problems",
        published: "https://huggingface.co/datasets/AI-MO/aimo-validation-amc",
        licence: "problems (c) MAA",
        splits: &[
            split("2023", &["amc/2023", "amc/amc23."], None, MATHS),
            split(
                "test",
                &["amc/test", "amc/amc_83."],
                hub("AI-MO/aimo-validation-amc", "data/train-"),
                MATHS,
            ),
        ],
    },
    DataSet {
        name: "olympiadbench",
        title: "open questions of mathematical olympiads, in English and without pictures",
        environment: "maths.problems",
        published: "https://huggingface.co/datasets/Hothan/OlympiadBench",
        licence: "Apache-2.0",
        splits: &[split(
            "test",
            &["olympiadbench/test", "olympiadbench/OE_TO_maths_en_COMP"],
            hub("Hothan/OlympiadBench", "OE_TO_maths_en_COMP/"),
            MATHS,
        )],
    },
    DataSet {
        name: "polaris",
        title: "53 thousand problems, chosen for reinforcement learning by their difficulty",
        environment: "maths.problems",
        published: "https://huggingface.co/datasets/POLARIS-Project/Polaris-Dataset-53K",
        licence: "Apache-2.0",
        splits: &[split(
            "train",
            &["polaris/train", "polaris/polaris"],
            hub("POLARIS-Project/Polaris-Dataset-53K", ""),
            MATHS,
        )],
    },
    DataSet {
        name: "humaneval",
        title: "164 functions to write from their docstrings",
        environment: "code.problems",
        published: "https://huggingface.co/datasets/openai/openai_humaneval",
        licence: "MIT",
        splits: &[split(
            "test",
            &["humaneval/test", "humaneval/HumanEval."],
            hub("openai/openai_humaneval", "openai_humaneval/test-"),
            UNCHANGED,
        )],
    },
    DataSet {
        name: "mbpp",
        title: "974 short Python problems, in the splits of the paper",
        environment: "code.problems",
        published: "https://huggingface.co/datasets/google-research-datasets/mbpp",
        licence: "CC-BY-4.0",
        splits: &[
            numbered(
                split(
                    "train",
                    &["mbpp/train", "mbpp/mbpp."],
                    hub("google-research-datasets/mbpp", "full/train-"),
                    UNCHANGED,
                ),
                601,
                974,
            ),
            numbered(
                split(
                    "test",
                    &["mbpp/test", "mbpp/mbpp."],
                    hub("google-research-datasets/mbpp", "full/test-"),
                    UNCHANGED,
                ),
                11,
                510,
            ),
            numbered(
                split(
                    "validation",
                    &["mbpp/validation", "mbpp/mbpp."],
                    hub("google-research-datasets/mbpp", "full/validation-"),
                    UNCHANGED,
                ),
                511,
                600,
            ),
        ],
    },
    DataSet {
        name: "code_contests",
        title: "problems of programming contests, with hidden tests",
        environment: "code.problems",
        published: "https://huggingface.co/datasets/deepmind/code_contests",
        licence: "CC-BY-4.0",
        splits: &[
            split("train", &["code_contests/train"], hub("deepmind/code_contests", "data/train-"), UNCHANGED),
            split(
                "test",
                &["code_contests/test", "code_contests/code_contests_test"],
                hub("deepmind/code_contests", "data/test-"),
                UNCHANGED,
            ),
        ],
    },
    DataSet {
        name: "apps",
        title: "programs and functions from programming contests, with hidden tests",
        environment: "code.problems",
        published: "https://huggingface.co/datasets/codeparrot/apps",
        licence: "MIT",
        splits: &[
            split("train", &["apps/train"], None, UNCHANGED),
            split("test", &["apps/test"], None, UNCHANGED),
        ],
    },
    DataSet {
        name: "livecodebench",
        title: "problems of recent programming contests, with hidden tests",
        environment: "code.problems",
        published: "https://huggingface.co/datasets/livecodebench/code_generation_lite",
        licence: "CC",
        splits: &[split("test", &["livecodebench/test"], None, UNCHANGED)],
    },
    DataSet {
        name: "boxoban",
        title: "Sokoban levels of 10x10 cells with four boxes",
        environment: "planning.sokoban",
        published: "https://github.com/google-deepmind/boxoban-levels",
        licence: "Apache-2.0",
        splits: &[
            split("train", &["boxoban/unfiltered_train_", "boxoban/unfiltered/train/"], None, UNCHANGED),
            split("validation", &["boxoban/unfiltered_valid_", "boxoban/unfiltered/valid/"], None, UNCHANGED),
            split("test", &["boxoban/unfiltered_test_", "boxoban/unfiltered/test/"], None, UNCHANGED),
            split("medium_train", &["boxoban/medium_train_", "boxoban/medium/train/"], None, UNCHANGED),
            split("medium_validation", &["boxoban/medium_valid_", "boxoban/medium/valid/"], None, UNCHANGED),
            split("hard", &["boxoban/hard_", "boxoban/hard/"], None, UNCHANGED),
        ],
    },
    DataSet {
        name: "hotpotqa",
        title: "questions whose answers combine two passages of Wikipedia",
        environment: "search.questions",
        published: "https://huggingface.co/datasets/hotpotqa/hotpot_qa",
        licence: "CC-BY-SA-4.0",
        splits: &[
            split(
                "train",
                &["hotpotqa/train", "search_corpus/hotpotqa_train."],
                hub("hotpotqa/hotpot_qa", "distractor/train-"),
                SEARCH,
            ),
            split(
                "test",
                &["hotpotqa/test", "search_qa/hotpotqa_500", "hotpotqa/validation"],
                hub("hotpotqa/hotpot_qa", "distractor/validation-"),
                SEARCH,
            ),
        ],
    },
    DataSet {
        name: "bamboogle",
        title: "125 questions that a search engine does not answer at once",
        environment: "search.questions",
        published: "https://github.com/RUCAIBox/R1-Searcher",
        licence: "MIT",
        splits: &[split("test", &["bamboogle/test", "search_qa/bamboogle"], None, SEARCH)],
    },
];

fn find_set(name: &str) -> Result<&'static DataSet, Error> {
    CATALOGUE.iter().find(|data| data.name == name).ok_or_else(|| Error::UnknownData {
        name: name.to_owned(),
        known: CATALOGUE.iter().map(|data| data.name).collect(),
    })
}

/// Finds a split of a data set.
///
/// # Errors
/// [`Error::UnknownData`], [`Error::UnknownSplit`].
pub fn find(name: &str, split: &str) -> Result<(&'static DataSet, &'static Split), Error> {
    let data = find_set(name)?;
    let found = data.splits.iter().find(|own| own.name == split);
    found.map(|split| (data, split)).ok_or_else(|| Error::UnknownSplit {
        data: data.name,
        split: split.to_owned(),
        splits: data.splits.iter().map(|own| own.name).collect(),
    })
}

/// Finds the splits of `NAME`, or the one of `NAME:SPLIT`.
///
/// # Errors
/// [`Error::UnknownData`], [`Error::UnknownSplit`].
pub fn find_splits(name: &str) -> Result<Vec<(&'static DataSet, &'static Split)>, Error> {
    if let Some((data, split)) = name.split_once(':') {
        return Ok(vec![find(data, split)?]);
    }
    let data = find_set(name)?;
    Ok(data.splits.iter().map(|split| (data, split)).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn rows_are_complete_and_unique() {
        let names: BTreeSet<&str> = CATALOGUE.iter().map(|data| data.name).collect();
        assert_eq!(names.len(), CATALOGUE.len());
        for data in CATALOGUE {
            let splits: BTreeSet<&str> = data.splits.iter().map(|split| split.name).collect();
            assert!(!splits.is_empty() && splits.len() == data.splits.len(), "{}", data.name);
            for split in data.splits {
                assert!(!split.files.is_empty(), "{}:{}", data.name, split.name);
                assert!(split.hub.as_ref().is_none_or(|hub| hub.repo.matches('/').count() == 1));
            }
        }
    }

    #[test]
    fn unknown_names_list_those_that_there_are() {
        let message = |name: &str, split: &str| find(name, split).unwrap_err().to_string();
        assert!(message("gsm", "test").contains("gsm8k, math, aime"));
        assert_eq!(message("gsm8k", "dev"), "gsm8k has no split dev; it has train, test");
    }

    #[test]
    fn a_name_stands_for_all_splits_or_for_one() {
        let names = |name: &str| -> Vec<&str> {
            find_splits(name).unwrap().iter().map(|(_, split)| split.name).collect()
        };
        assert_eq!(names("gsm8k"), ["train", "test"]);
        assert_eq!(names("gsm8k:test"), ["test"]);
        let message = |name: &str| find_splits(name).unwrap_err().to_string();
        assert_eq!(message("gsm8k:foo"), "gsm8k has no split foo; it has train, test");
        assert!(message("gsm:test").starts_with("there is no data set gsm;"));
    }
}
