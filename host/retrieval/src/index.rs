//! BM25 over a corpus (Robertson and Zaragoza 2009; `k1 = 1.2`, `b = 0.75`, as Lucene and tantivy have them).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use pl_types::{Passage, Retrieve, RetrieveError};
use tantivy::collector::TopDocs;
use tantivy::directory::MmapDirectory;
use tantivy::indexer::NoMergePolicy;
use tantivy::query::{BooleanQuery, BoostQuery, Occur, Query, TermQuery};
use tantivy::schema::{
    FAST, Field, IndexRecordOption, STORED, Schema, TextFieldIndexing, TextOptions, Value as _,
};
use tantivy::tokenizer::TextAnalyzer;
use tantivy::{Index, IndexSettings, IndexWriter, ReloadPolicy, Searcher, TantivyDocument, Term};

use crate::analysis::{Language, analyzer, words};
use crate::error::Error;
use crate::file::{CorpusFile, Record};

/// Memory of the words that are not on disk yet.
const WRITER_MEMORY: usize = 128 << 20;

/// Records between two reports of progress.
const RECORDS_PER_REPORT: u64 = 1000;

/// Name under which the index finds its analyzer.
const ANALYZER: &str = "corpus";

/// Fields of the index.
#[derive(Clone, Copy)]
struct IndexFields {
    id: Field,
    text: Field,
    /// Position of the record in the file.
    position: Field,
}

/// An index on disk, memory-mapped. Cheap to clone.
#[derive(Clone)]
pub struct CorpusIndex {
    name: Arc<str>,
    searcher: Searcher,
    fields: IndexFields,
    analyzer: TextAnalyzer,
}

impl CorpusIndex {
    /// Builds the index of `corpus` in an empty folder. `progress` receives the bytes read and those of the file.
    ///
    /// # Errors
    /// If the corpus has an invalid record, or a file can't be read or written.
    pub fn build(
        corpus: &CorpusFile,
        language: Language,
        folder: &Path,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), Error> {
        build(corpus, language, folder, WRITER_MEMORY, progress)
    }

    /// Opens the index in a folder. `name` is for messages.
    ///
    /// # Errors
    /// [`Error::Index`].
    pub fn open(name: &str, language: Language, folder: &Path) -> Result<Self, Error> {
        let failed = Error::index(folder);
        let index = Index::open_in_dir(folder).map_err(&failed)?;
        let schema = index.schema();
        let field = |name: &str| schema.get_field(name).map_err(&failed);
        let fields = IndexFields { id: field("id")?, text: field("text")?, position: field("position")? };
        // The folder never changes once it is complete.
        let reader = index.reader_builder().reload_policy(ReloadPolicy::Manual).try_into();
        let reader: tantivy::IndexReader = reader.map_err(&failed)?;
        Ok(Self { name: name.into(), searcher: reader.searcher(), fields, analyzer: analyzer(language) })
    }

    /// Number of passages.
    pub fn len(&self) -> u64 {
        self.searcher.num_docs()
    }

    /// True if the corpus has no passages.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns at most `count` passages that have a word of the query, best first, and equal ones in the order of the
    /// file. Everything in a query is text: there are no operators.
    ///
    /// # Errors
    /// If the index can't be read.
    pub fn search(&self, query: &str, count: usize) -> Result<Vec<Passage>, tantivy::TantivyError> {
        let Some(query) = self.query(query).filter(|_| count > 0) else { return Ok(Vec::new()) };
        let found = self.searcher.search(&query, &TopDocs::with_limit(count).order_by_score())?;
        found
            .into_iter()
            .map(|(score, address)| {
                let stored: TantivyDocument = self.searcher.doc(address)?;
                let text = |field| {
                    let value = stored.get_first(field).and_then(|value| value.as_str());
                    value.map(str::to_owned).unwrap_or_default()
                };
                let (id, text) = (text(self.fields.id), text(self.fields.text));
                Ok(Passage { id, text, score: f64::from(score) })
            })
            .collect()
    }

    /// Returns the query of a text's words. Returns `None` if it has none.
    fn query(&self, text: &str) -> Option<BooleanQuery> {
        let mut counts: BTreeMap<String, u16> = BTreeMap::new();
        for word in words(&mut self.analyzer.clone(), text) {
            let count = counts.entry(word).or_default();
            *count = count.saturating_add(1);
        }
        if counts.is_empty() {
            return None;
        }
        let clauses = counts.into_iter().map(|(word, count)| {
            let term = Term::from_field_text(self.fields.text, &word);
            let one = Box::new(TermQuery::new(term, IndexRecordOption::WithFreqs));
            let query: Box<dyn Query> = match count {
                1 => one,
                count => Box::new(BoostQuery::new(one, f32::from(count))),
            };
            (Occur::Should, query)
        });
        Some(BooleanQuery::new(clauses.collect()))
    }
}

#[async_trait]
impl Retrieve for CorpusIndex {
    async fn retrieve(&self, query: &str, count: usize) -> Result<Vec<Passage>, RetrieveError> {
        let (index, query) = (self.clone(), query.to_owned());
        // A query over a million passages takes milliseconds, and waits for the disk at first.
        let searched = tokio::task::spawn_blocking(move || index.search(&query, count)).await;
        let failed = |reason: String| RetrieveError { corpus: self.name.to_string(), reason };
        match searched {
            Ok(found) => found.map_err(|error| failed(format!("its index can't be read: {error}"))),
            Err(panicked) => Err(failed(format!("the search failed: {panicked}"))),
        }
    }

    fn is_reproducible(&self) -> bool {
        true
    }
}

fn build(
    corpus: &CorpusFile,
    language: Language,
    folder: &Path,
    memory: usize,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Error> {
    let failed = Error::index(folder);
    let (schema, fields) = schema();
    let directory = MmapDirectory::open(folder).map_err(|error| failed(error.into()))?;
    let index = Index::create(directory, schema, IndexSettings::default()).map_err(&failed)?;
    index.tokenizers().register(ANALYZER, analyzer(language));
    // One thread, because several would share the records out by chance.
    let mut writer: IndexWriter = index.writer_with_num_threads(1, memory).map_err(&failed)?;
    writer.set_merge_policy(Box::new(NoMergePolicy));
    let (size, mut position) = (corpus.size()?, 0);
    let mut add = |record: Record, bytes: u64| {
        let mut document = TantivyDocument::default();
        document.add_text(fields.id, record.id);
        document.add_text(fields.text, record.text);
        document.add_u64(fields.position, position);
        position += 1;
        writer.add_document(document).map_err(&failed)?;
        if position % RECORDS_PER_REPORT == 0 {
            progress(bytes.min(size), size);
        }
        Ok(())
    };
    corpus.read(&mut add)?;
    writer.commit().map_err(&failed)?;
    merge(&index, &mut writer, fields).map_err(&failed)?;
    writer.wait_merging_threads().map_err(&failed)?;
    progress(size, size);
    Ok(())
}

/// Merges all segments to one, in the order of their records: equal scores are ordered by the number of a document in
/// its segment.
fn merge(index: &Index, writer: &mut IndexWriter, fields: IndexFields) -> Result<(), tantivy::TantivyError> {
    let schema = index.schema();
    let position = schema.get_field_name(fields.position);
    let searcher = index.reader()?.searcher();
    let mut segments = Vec::new();
    for segment in searcher.segment_readers() {
        let first = segment.fast_fields().u64(position)?.min_value();
        segments.push((first, segment.segment_id()));
    }
    if segments.len() > 1 {
        segments.sort_unstable_by_key(|(first, _)| *first);
        let ids: Vec<_> = segments.into_iter().map(|(_, id)| id).collect();
        writer.merge(&ids).wait()?;
        // Removes the files of the segments that were merged.
        writer.garbage_collect_files().wait()?;
    }
    Ok(())
}

fn schema() -> (Schema, IndexFields) {
    let mut schema = Schema::builder();
    let indexing =
        TextFieldIndexing::default().set_tokenizer(ANALYZER).set_index_option(IndexRecordOption::WithFreqs);
    let fields = IndexFields {
        id: schema.add_text_field("id", STORED),
        text: schema
            .add_text_field("text", TextOptions::default().set_indexing_options(indexing).set_stored()),
        position: schema.add_u64_field("position", FAST),
    };
    (schema.build(), fields)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::file::Fields;

    fn corpus(folder: &Path, content: &str) -> CorpusFile {
        let path: PathBuf = folder.join("corpus.jsonl");
        std::fs::write(&path, content).unwrap();
        CorpusFile { path: path.into(), fields: Fields::default() }
    }

    fn index(content: &str) -> (tempfile::TempDir, CorpusIndex) {
        let folder = tempfile::tempdir().unwrap();
        let corpus = corpus(folder.path(), content);
        let index = folder.path().join("index");
        std::fs::create_dir(&index).unwrap();
        CorpusIndex::build(&corpus, Language::English, &index, &mut |_, _| {}).unwrap();
        let opened = CorpusIndex::open("wiki", Language::English, &index).unwrap();
        (folder, opened)
    }

    fn ids(index: &CorpusIndex, query: &str, count: usize) -> Vec<String> {
        index.search(query, count).unwrap().into_iter().map(|passage| passage.id).collect()
    }

    const ANIMALS: &str = "{\"id\": \"cat\", \"title\": \"Cats\", \"text\": \"A cat purrs and sleeps.\"}\n\
                           {\"id\": \"dog\", \"title\": \"Dogs\", \"text\": \"A dog barks at a cat.\"}\n\
                           {\"id\": \"owl\", \"title\": \"Owls\", \"text\": \"An owl hoots.\"}\n";

    #[test]
    fn the_best_passage_comes_first() {
        let (_folder, index) = index(ANIMALS);
        assert_eq!((index.len(), index.is_empty()), (3, false));
        assert_eq!(ids(&index, "Which cats are purring?", 5), ["cat", "dog"]);
        assert_eq!(ids(&index, "cats", 1), ["cat"]);
        let found = index.search("hooting", 5).unwrap();
        assert_eq!((found[0].text.as_str(), found.len()), ("Owls\nAn owl hoots.", 1));
        assert!(found[0].score > 0.0);
    }

    #[test]
    fn a_query_has_no_operators() {
        let (_folder, index) = index(ANIMALS);
        assert_eq!(ids(&index, "-cat +\"owl OR (hoots AND title:[* TO", 1), ["owl"]);
        assert_eq!(ids(&index, "barks barks cat", 1), ["dog"]);
        for empty in ["", "   ", "?!", "zebra"] {
            assert!(ids(&index, empty, 5).is_empty(), "{empty}");
        }
        assert!(ids(&index, "cat", 0).is_empty());
    }

    #[test]
    fn scores_are_those_of_bm25() {
        let (_folder, index) = index("{\"text\": \"alpha beta\"}\n{\"text\": \"alpha alpha gamma delta\"}\n");
        // Two passages of 2 and 4 words, 3 on average. `alpha` is in both: idf = ln(1 + 0.5 / 2.5).
        let idf = (1.0_f64 + 0.5 / 2.5).ln();
        let bm25 = |frequency: f64, length: f64| {
            idf * frequency * 2.2 / (frequency + 1.2 * (0.25 + 0.75 * length / 3.0))
        };
        let found = index.search("alpha", 2).unwrap();
        assert_eq!(found.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["1", "0"]);
        assert!((found[0].score - bm25(2.0, 4.0)).abs() < 1e-5, "{}", found[0].score);
        assert!((found[1].score - bm25(1.0, 2.0)).abs() < 1e-5, "{}", found[1].score);
    }

    #[test]
    fn equal_scores_have_the_order_of_the_file_in_an_index_of_several_segments() {
        let folder = tempfile::tempdir().unwrap();
        // Words of its own in each passage fill the memory of the writer, 15 MB at least.
        let lines = (0..60_000).map(|number: u32| {
            let words: Vec<String> = (0..12).map(|word| format!("w{number}x{word}")).collect();
            format!("{{\"text\": \"same {}\"}}\n", words.join(" "))
        });
        let corpus = corpus(folder.path(), &lines.collect::<String>());
        let path = folder.path().join("index");
        std::fs::create_dir(&path).unwrap();
        let mut reports = Vec::new();
        let mut report = |done, total| reports.push((done, total));
        build(&corpus, Language::None, &path, 15_000_000, &mut report).unwrap();
        assert!(reports.len() > 10 && reports.is_sorted() && reports.last().is_some_and(|(a, b)| a == b));
        let index = CorpusIndex::open("wiki", Language::None, &path).unwrap();
        assert_eq!(index.searcher.segment_readers().len(), 1);
        let expected: Vec<String> = (0..20).map(|number: u32| number.to_string()).collect();
        assert_eq!(ids(&index, "same", 20), expected);
        assert_eq!(ids(&index, "w59999x3 w30000x11", 5), ["30000", "59999"]);
    }

    #[test]
    fn a_damaged_index_is_named() {
        let (folder, _index) = index(ANIMALS);
        let path = folder.path().join("index");
        std::fs::write(path.join("meta.json"), "{").unwrap();
        let message = CorpusIndex::open("wiki", Language::English, &path).err().unwrap().to_string();
        assert!(
            message.contains(&path.display().to_string()) && message.contains("delete the folder"),
            "{message}"
        );
    }

    #[test]
    fn a_refused_record_ends_the_build() {
        let folder = tempfile::tempdir().unwrap();
        let corpus = corpus(folder.path(), "{\"text\": \"x\"}\n{}\n");
        let path = folder.path().join("index");
        std::fs::create_dir(&path).unwrap();
        let refused = CorpusIndex::build(&corpus, Language::English, &path, &mut |_, _| {}).unwrap_err();
        assert!(refused.to_string().contains("corpus.jsonl, line 2: it has no `text`"), "{refused}");
    }
}
