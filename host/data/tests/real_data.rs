//! The catalogue against the files of real data sets, in the folder that `PL_HOST_DATA` names.

// clippy.toml excuses test functions, but not what they call.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use pl_data::{CATALOGUE, find};
use serde_json::Value;

fn folders() -> Option<Vec<PathBuf>> {
    let folder = std::env::var_os("PL_HOST_DATA").map(PathBuf::from).filter(|folder| folder.is_dir());
    if folder.is_none() {
        eprintln!("skipped: PL_HOST_DATA names no folder of data sets");
    }
    folder.map(|folder| vec![folder])
}

#[test]
fn splits_that_are_there_are_read() {
    let Some(folders) = folders() else { return };
    for (name, split, records) in [
        ("gsm8k", "train", 7473),
        ("gsm8k", "test", 1319),
        ("math", "test", 500),
        ("aime", "2024", 30),
        ("aime", "2025", 30),
        ("amc", "2023", 40),
        ("humaneval", "test", 164),
        ("mbpp", "train", 374),
        ("mbpp", "test", 500),
        ("mbpp", "validation", 90),
        ("code_contests", "test", 165),
        ("boxoban", "hard", 1000),
        ("hotpotqa", "test", 500),
        ("bamboogle", "test", 125),
    ] {
        let (data, split) = find(name, split).unwrap();
        let Some(files) = split.find(data, &folders).unwrap() else {
            eprintln!("skipped: {name} is not there");
            continue;
        };
        let tasks = split.read(data, &files).unwrap();
        assert_eq!(tasks.len(), records, "{name}:{}", split.name);
        for field in split.fields.iter().filter(|field| field.required) {
            let texts = tasks.iter().filter(|task| task.get(field.to).is_some_and(|value| !value.is_null()));
            assert_eq!(texts.count(), records, "{name}:{}, {}", split.name, field.to);
        }
    }
}

#[test]
fn collections_of_sudokus_are_read() {
    let Some(folders) = folders() else { return };
    for (name, puzzles) in [
        ("sudoku-easy50.txt", 50),
        ("sudoku-top95.txt", 95),
        ("sudoku10k.txt", 10_000),
        ("sudokus_17.txt", 49_151),
    ] {
        let file = folders[0].join("sudoku").join(name);
        match file.is_file() {
            true => assert_eq!(pl_data::read_file(&file).unwrap().len(), puzzles, "{name}"),
            false => eprintln!("skipped: {name} is not there"),
        }
    }
}

#[test]
fn every_split_that_is_there_can_be_read() {
    let Some(folders) = folders() else { return };
    for data in CATALOGUE {
        for split in data.splits {
            if let Some(files) = split.find(data, &folders).unwrap() {
                let tasks = split.read(data, &files).unwrap();
                assert!(tasks.iter().all(|task| task.values().any(|value| value != &Value::Null)));
            }
        }
    }
}
