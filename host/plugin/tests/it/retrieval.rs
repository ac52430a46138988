//! Searches of the search domain: an environment's corpus, its record, and its replay.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use pl_plugin::call_log::{CallLog, Event, ReplayAnswers};
use pl_plugin::{Environment, Error, Plugin, PluginSpec, RandomStream, Services, Task};
use pl_types::{Passage, Retrieve, RetrieveError};
use serde_json::{Map, Value, json};

use crate::common::{self, built, load};

/// A corpus that finds its query, and counts.
struct Mirror {
    queries: AtomicU32,
    reproducible: bool,
    /// Bytes of each passage.
    size: usize,
}

#[async_trait]
impl Retrieve for Mirror {
    async fn retrieve(&self, query: &str, count: usize) -> Result<Vec<Passage>, RetrieveError> {
        let number = self.queries.fetch_add(1, Ordering::Relaxed);
        if query == "broken" {
            let (corpus, reason) = ("wiki".to_owned(), "no route".to_owned());
            return Err(RetrieveError { corpus, reason });
        }
        let text = format!("{query}\n{}", "x".repeat(self.size));
        let passage = |rank| Passage { id: format!("{number}.{rank}"), text: text.clone(), score: 1.0 };
        Ok((0..count).map(passage).collect())
    }

    fn is_reproducible(&self) -> bool {
        self.reproducible
    }
}

fn mirror(reproducible: bool, size: usize) -> Arc<Mirror> {
    Arc::new(Mirror { queries: AtomicU32::new(0), reproducible, size })
}

async fn environment(plugin: &Plugin, settings: Value, corpus: Option<Arc<dyn Retrieve>>) -> Environment {
    let settings: Map<String, Value> = settings.as_object().unwrap().clone();
    let corpora = corpus.map(|corpus| ("wiki".to_owned(), corpus)).into_iter().collect();
    let services = Services { corpora, ..common::services() };
    Environment::new(plugin, "questions", settings, services).unwrap()
}

fn task() -> Task {
    let data = json!({"question": "Who?", "answer": "Ida", "supporting_facts": [["Quill", 0]]}).to_string();
    Task { id: "one".to_owned(), data }
}

fn search(query: &str) -> Vec<(String, String)> {
    vec![("find".to_owned(), json!({ "search": query }).to_string())]
}

fn stream() -> RandomStream {
    RandomStream::from_parts(&[b"test"])
}

async fn plugin() -> Plugin {
    load(&built("search.wasm"), PluginSpec::new("search")).await
}

#[tokio::test]
async fn searches_are_recorded_and_replayed_without_a_corpus() {
    let plugin = plugin().await;
    let corpus = mirror(false, 10);
    let call_log = CallLog::default();
    let recording =
        environment(&plugin, json!({ "passages": 2 }), Some(corpus.clone())).await.with_call_log(&call_log);
    let mut episode = recording.start(&task(), 0, stream()).await.unwrap();
    let outcome = episode.apply(search("Quill")).await.unwrap();
    assert_eq!((&outcome.facts["found"], &outcome.facts["searches"]), (&json!(2), &json!(1)));
    let evidence: Value = serde_json::from_str(&outcome.evidence).unwrap();
    assert_eq!(evidence["found"]["find"], 1.0);
    assert!(!episode.reproducible(), "the corpus depends on a server");
    let events = call_log.take();
    let [Event::Retrieval { corpus: None, query, count, answer }] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!((query.as_str(), *count, answer.passages.as_ref().unwrap().len()), ("Quill", 2, 2));

    let mut answers = ReplayAnswers::default();
    answers.extend(&events);
    let replay = CallLog::replaying(answers);
    let replaying = environment(&plugin, json!({ "passages": 2 }), None).await.with_call_log(&replay);
    let mut again = replaying.start(&task(), 0, stream()).await.unwrap();
    assert_eq!(again.apply(search("Quill")).await.unwrap(), outcome);
    assert_eq!((replay.take(), corpus.queries.load(Ordering::Relaxed)), (events, 1));
}

#[tokio::test]
async fn an_index_keeps_an_episode_reproducible() {
    let plugin = plugin().await;
    let environment = environment(&plugin, json!({}), Some(mirror(true, 10))).await;
    let mut episode = environment.start(&task(), 0, stream()).await.unwrap();
    episode.apply(search("Quill")).await.unwrap();
    assert!(episode.reproducible());
    // A restored copy searches with the same services.
    let mut copy = environment.restore(&episode.snapshot().await.unwrap()).await.unwrap();
    assert_eq!(copy.apply(search("x")).await.unwrap().facts["searches"], 2);
}

#[tokio::test]
async fn a_failed_search_names_its_reason() {
    let plugin = plugin().await;
    let message = async |corpus: Option<Arc<dyn Retrieve>>, settings: Value, query: &str| {
        let environment = environment(&plugin, settings, corpus).await;
        let mut episode = environment.start(&task(), 0, stream()).await.unwrap();
        let Error::Call(error) = episode.apply(search(query)).await.unwrap_err() else { panic!() };
        error.to_string()
    };
    let none = message(None, json!({}), "x").await;
    assert!(none.contains("the environment has no corpus; declare one"), "{none}");
    let broken = message(Some(mirror(false, 1)), json!({}), "broken").await;
    assert!(broken.contains("corpus `wiki`: no route"), "{broken}");
    let many = message(Some(mirror(true, 1)), json!({ "passages": 101 }), "x").await;
    assert!(many.contains("101 passages in one call; the limit is 100"), "{many}");
    let large = message(Some(mirror(true, 1 << 20)), json!({ "passages": 5 }), "x").await;
    assert!(large.contains("bytes; the limit is 4194304"), "{large}");
}
