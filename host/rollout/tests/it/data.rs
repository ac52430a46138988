//! The data cursor: a position stands for the same task in every run, so that a resumed run continues with
//! the next one.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use pl_dsl::workflow::Target;
use pl_plugin::Task;
use pl_rollout::{EpisodeSetup, Error, Fault, TaskFile, TaskGenerator, TaskSource};
use tempfile::NamedTempFile;

use crate::common::{Script, World, line};

fn setup() -> Arc<EpisodeSetup> {
    let script = Script {
        start: Arc::new(|task| match task.data.contains("question") {
            true => Ok(()),
            false => Err(Fault::new("start", "a record has a question")),
        }),
        ..Script::default()
    };
    World::new(script).setup(1, line(1, &[&[0]], Target::End))
}

fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::with_suffix(".jsonl").unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

async fn read(path: &Path, shuffle: Option<u64>) -> Result<TaskSource, Error> {
    Ok(TaskSource::File(Arc::new(TaskFile::read(path, setup().environment.as_ref(), shuffle).await?)))
}

async fn ids(source: &TaskSource, start: u64, count: u32) -> Vec<String> {
    source.take(start, count).await.unwrap().iter().map(|task| task.id.clone()).collect()
}

fn records(count: usize) -> String {
    (0..count).map(|n| format!("{{\"question\": {n}}}\n")).collect()
}

#[tokio::test]
async fn a_resumed_cursor_continues_where_the_run_stopped() {
    let file = file(&records(7));
    for shuffle in [None, Some(11)] {
        let whole = ids(&read(file.path(), shuffle).await.unwrap(), 0, 30).await;
        // Another run reads the file again, in steps of other sizes, across passes.
        for step in [1, 3, 7, 16] {
            let resumed = read(file.path(), shuffle).await.unwrap();
            let mut taken = Vec::new();
            while taken.len() < 30 {
                let count = step.min(30 - taken.len() as u32);
                taken.extend(ids(&resumed, taken.len() as u64, count).await);
            }
            assert_eq!(taken, whole, "steps of {step}");
        }
        let passes: Vec<Vec<String>> = whole.chunks_exact(7).map(<[String]>::to_vec).collect();
        for pass in &passes {
            let mut once = pass.clone();
            once.sort();
            once.dedup();
            assert_eq!(once.len(), 7, "every task once a pass");
        }
        assert_eq!(
            shuffle.is_some(),
            passes.iter().any(|pass| *pass != passes[0]),
            "each pass has its order"
        );
    }
}

#[tokio::test]
async fn another_seed_is_another_order() {
    let file = file(&records(20));
    let one = ids(&read(file.path(), Some(1)).await.unwrap(), 0, 20).await;
    assert_ne!(one, ids(&read(file.path(), Some(2)).await.unwrap(), 0, 20).await);
}

/// A generator whose task n is n. It returns this many tasks too many.
struct Numbers(i64);

#[async_trait]
impl TaskGenerator for Numbers {
    async fn tasks(&self, split: &str, start: u64, count: u32, level: u32) -> Result<Vec<Task>, Fault> {
        let task = |n| Task { id: format!("{split}:{level}:{n}"), data: String::new() };
        let end = start.saturating_add(u64::from(count)).saturating_add_signed(self.0);
        Ok((start..end).map(task).collect())
    }
}

fn generated(missing: i64) -> TaskSource {
    TaskSource::Generated {
        environment: "problems".to_owned(),
        generator: Arc::new(Numbers(missing)),
        split: "train".to_owned(),
        level: 2,
    }
}

#[tokio::test]
async fn generated_tasks_have_positions_too() {
    let source = generated(0);
    assert_eq!(source.size(), None);
    let whole = ids(&source, 0, 10).await;
    assert_eq!(whole[4], "train:2:4");
    assert_eq!(ids(&generated(0), 4, 6).await, whole[4..]);
}

#[tokio::test]
async fn a_generator_that_returns_too_few_tasks_is_named() {
    let error = generated(-1).take(0, 3).await.unwrap_err().to_string();
    assert_eq!(error, "environment problems: the task generator returned 2 of 3 tasks");
}

#[tokio::test]
async fn a_bad_record_is_named_by_file_and_line() {
    let cut = format!("{}\n{{\"question\": \"what", records(2));
    let file_of = |text: &str| file(text);
    let not_json = file_of(&cut);
    let refused = file_of("{\"question\": 1}\n{\"answer\": 2}\n");
    // Line 3 of the text is empty: it is not a record, but it counts as a line.
    for (file, place, words) in
        [(&not_json, "4:18", "EOF while parsing a string"), (&refused, "2", "a record has a question")]
    {
        let error = read(file.path(), None).await.err().unwrap();
        let start = format!("{}:{place}: {words}", file.path().display());
        assert!(error.to_string().starts_with(&start), "{error}");
    }
}

#[tokio::test]
async fn a_task_file_is_read_like_other_files_of_records() {
    let marked = file("\u{feff}{\"question\": 1}\n");
    assert_eq!(read(marked.path(), None).await.unwrap().size(), Some(1));
    // Rounded, a wrong answer would be right.
    let long = file("{\"question\": 1}\n{\"question\": 12345678901234567890123}\n");
    let error = read(long.path(), None).await.err().unwrap().to_string();
    let start = format!("{}:2: a whole number of 23 digits has more than 64 bits", long.path().display());
    assert!(error.starts_with(&start), "{error}");
    for path in [marked.path(), long.path()] {
        let read_as_data = pl_data::read_file(path).map(drop).map_err(|error| error.to_string());
        let read_as_tasks = read(path, None).await.map(drop).map_err(|error| error.to_string());
        assert_eq!(read_as_data, read_as_tasks);
    }
}

#[tokio::test]
async fn a_file_without_tasks_and_a_missing_file_are_errors() {
    let empty = file("\n  \n");
    let error = read(empty.path(), None).await.err().unwrap();
    assert!(matches!(&error, Error::NoTasks { path } if path == empty.path()), "{error}");
    let gone = read(Path::new("gone.jsonl"), None).await.err().unwrap();
    assert!(gone.to_string().starts_with("cannot read gone.jsonl: "), "{gone}");
}
