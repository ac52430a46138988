//! Queries over a corpus of made words whose frequencies fall as those of a language do (Zipf).

#![allow(clippy::expect_used, reason = "a benchmark that does not start has nothing to report")]

use std::fmt::Write as _;

use divan::Bencher;
use divan::counter::ItemsCount;
use pl_retrieval::{CorpusFile, CorpusIndex, Fields, Language};

/// Number of words of a passage, as Search-R1's Wikipedia has them.
const WORDS: usize = 100;

fn main() {
    divan::main();
}

/// Linear congruential generator (Knuth's MMIX), and the words that it draws.
struct Words(u64);

impl Words {
    fn next(&mut self) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let uniform = (self.0 >> 11) as f64 / (1_u64 << 53) as f64;
        // The inverse of the distribution with density 1 / rank up to 50,000 words.
        50_000_f64.powf(uniform) as usize
    }

    fn text(&mut self, count: usize) -> String {
        let mut text = String::new();
        for _ in 0..count {
            let _ = write!(text, "w{} ", self.next());
        }
        text
    }
}

fn index(folder: &std::path::Path, passages: usize) -> CorpusIndex {
    let mut words = Words(1);
    let mut lines = String::new();
    for id in 0..passages {
        let _ = writeln!(lines, "{{\"id\": \"{id}\", \"text\": \"{}\"}}", words.text(WORDS));
    }
    let (path, place) = (folder.join("corpus.jsonl"), folder.join("index"));
    std::fs::write(&path, lines).expect("a file");
    std::fs::create_dir(&place).expect("a folder");
    let corpus = CorpusFile { path: path.into(), fields: Fields::default() };
    CorpusIndex::build(&corpus, Language::English, &place, &mut |_, _| {}).expect("an index");
    CorpusIndex::open("made", Language::English, &place).expect("an index")
}

/// Searches with ten words for five passages.
#[divan::bench(args = [1_000, 100_000])]
fn search(bencher: Bencher<'_, '_>, passages: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let index = index(folder.path(), passages);
    let mut words = Words(2);
    bencher
        .counter(ItemsCount::new(1_usize))
        .with_inputs(|| words.text(10))
        .bench_local_refs(|query| index.search(query, 5).expect("passages"));
}

/// Builds an index.
#[divan::bench(args = [1_000, 10_000], sample_count = 5, sample_size = 1)]
fn build(bencher: Bencher<'_, '_>, passages: usize) {
    bencher.counter(ItemsCount::new(passages)).bench_local(|| {
        let folder = tempfile::tempdir().expect("a folder");
        index(folder.path(), passages).len()
    });
}
