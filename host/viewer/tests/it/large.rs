//! Runs with many episodes: the work of a request is bounded, and done once.

use pl_record::{TraceFile, Traces};
use pl_viewer::{EpisodePage, EpisodeQuery, SortKey};

use crate::recorded::{create, flat, viewer};

const STEPS: u64 = 100;
const EPISODES: u32 = 1000;

#[test]
fn a_run_of_a_hundred_thousand_episodes_is_paged_without_reading_all_of_it() {
    let runs = tempfile::tempdir().unwrap();
    let (root, _folder) = create(runs.path(), "long", 0);
    let traces = Traces::for_run(&root);
    for step in 1..=STEPS {
        let reward = |task: u32| f64::from(task) + step as f64 / 1000.0;
        let lines: Vec<_> =
            (0..EPISODES).map(|task| flat("train", step, task, 0, "six", reward(task))).collect();
        traces.write(&TraceFile { step, evaluation: None }, &lines).unwrap();
    }
    let viewer = viewer(runs.path());
    let page = |query: &EpisodeQuery| viewer.episodes("long", query).unwrap();

    let newest = EpisodeQuery { descending: true, limit: Some(50), ..EpisodeQuery::default() };
    let first = page(&newest);
    assert_eq!(first.rows[0].episode, "100.999.0#0");
    assert!(first.more && first.unread == 0);
    let best =
        EpisodeQuery { sort: SortKey::Reward, descending: true, limit: Some(3), ..EpisodeQuery::default() };
    let sorted = page(&best);
    assert_eq!((sorted.unread, sorted.total), (0, Some(100_000)));
    assert_eq!(names(&sorted), ["100.999.0#0", "99.999.0#0", "98.999.0#0"]);
    let next = page(&EpisodeQuery { offset: 99_999, ..best.clone() });
    assert_eq!((names(&next), next.more), (vec!["1.0.0#0".to_owned()], false));
    let solved = page(&EpisodeQuery { sort: SortKey::End, ..best });
    assert_eq!(names(&solved), ["1.0.0#0", "1.1.0#0", "1.2.0#0"], "of equal ones, the first");
    assert_eq!(viewer.episode("long", "37.500.0").unwrap().task_id, "train-500");
    assert_eq!(viewer.reads(), 0, "the rows are read without the traces");
}

#[test]
fn trace_files_without_rows_are_read_piece_by_piece_and_once() {
    let runs = tempfile::tempdir().unwrap();
    let (root, _folder) = create(runs.path(), "earlier", 0);
    let traces = Traces::for_run(&root);
    for step in 1..=20 {
        let mut text = "{\"format\":2}\n".to_owned();
        for task in 0..10 {
            text.push_str(
                &flat("train", step, task, 0, "six", f64::from(task) + step as f64 / 1000.0).to_string(),
            );
            text.push('\n');
        }
        let path = traces.path(&TraceFile { step, evaluation: None });
        std::fs::write(path, zstd::encode_all(text.as_bytes(), 0).unwrap()).unwrap();
    }
    let viewer = viewer(runs.path());
    let page = |query: &EpisodeQuery| viewer.episodes("earlier", query).unwrap();

    let newest = EpisodeQuery { descending: true, limit: Some(5), ..EpisodeQuery::default() };
    assert_eq!(page(&newest).rows[0].episode, "20.9.0#0");
    assert_eq!(viewer.reads(), 1, "the first page is in the last file");
    page(&EpisodeQuery { offset: 3, ..newest });
    assert_eq!(viewer.reads(), 1, "its index is kept");

    // Sorting needs every file: several requests, none of which reads more than a few.
    let best =
        EpisodeQuery { sort: SortKey::Reward, descending: true, limit: Some(3), ..EpisodeQuery::default() };
    let (mut requests, mut before) = (0, viewer.reads());
    let sorted: EpisodePage = loop {
        let sorted = page(&best);
        requests += 1;
        assert!(viewer.reads() - before <= 8, "one request has read {} files", viewer.reads() - before);
        before = viewer.reads();
        if sorted.unread == 0 {
            break sorted;
        }
    };
    assert_eq!((requests, viewer.reads(), sorted.total), (3, 20, Some(200)));
    assert_eq!(names(&sorted), ["20.9.0#0", "19.9.0#0", "18.9.0#0"]);
    page(&best);
    assert_eq!(viewer.reads(), 20, "every file was read once");
}

fn names(page: &EpisodePage) -> Vec<String> {
    page.rows.iter().map(|row| row.episode.clone()).collect()
}
