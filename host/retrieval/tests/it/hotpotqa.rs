//! Recall of the passages that answer HotpotQA's questions.

use pl_retrieval::{CorpusFile, CorpusIndex, Fields, Language};
use serde_json::Value;

/// Share of the supporting titles among the first `count` passages, over all questions.
fn recall(index: &CorpusIndex, questions: &[Value], count: usize) -> (f64, f64) {
    let (mut found, mut total, mut whole) = (0, 0, 0);
    for question in questions {
        let mut titles: Vec<&str> = question["supporting_facts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|fact| fact[0].as_str().unwrap())
            .collect();
        titles.sort_unstable();
        titles.dedup();
        let passages = index.search(question["question"].as_str().unwrap(), count).unwrap();
        let hits = titles.iter().filter(|title| passages.iter().any(|one| one.id == **title)).count();
        (found, total, whole) =
            (found + hits, total + titles.len(), whole + usize::from(hits == titles.len()));
    }
    (found as f64 / total as f64, whole as f64 / questions.len() as f64)
}

#[test]
fn supporting_passages_of_hotpotqa_are_found() {
    let Some(path) = pl_testing::data("search_corpus/hotpotqa_train_corpus.json") else { return };
    let Some(questions) = pl_testing::data("search_corpus/hotpotqa_train.json") else { return };
    let questions: Vec<Value> = serde_json::from_slice(&std::fs::read(questions).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let corpus = CorpusFile { path: path.into(), fields: Fields::default() };
    CorpusIndex::build(&corpus, Language::English, folder.path(), &mut |_, _| {}).unwrap();
    let index = CorpusIndex::open("wiki", Language::English, folder.path()).unwrap();
    for count in [1, 2, 5, 10, 20] {
        let (recall, whole) = recall(&index, &questions, count);
        println!(
            "{} passages, {} questions, k = {count}: {recall:.3}, all {whole:.3}",
            index.len(),
            questions.len()
        );
    }
    // The whole question is the query; the second hop needs words of the first passage.
    let (recall, _) = recall(&index, &questions, 5);
    assert!(recall > 0.6, "{recall}");
}
