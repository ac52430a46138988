//! Passages that an episode has found.

use std::collections::BTreeSet;

use pl_sdk::prelude::*;
use pl_sdk::retrieval::Passage;

use crate::matching::{mentions, normalize};
use crate::record::Question;

/// Longest title in characters. A longer first line is text.
const LONGEST_TITLE: usize = 150;

/// A passage as agents see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// Its title. Empty if it has none.
    pub title: String,
    /// The beginning of its text.
    pub text: String,
}

/// A passage that agents see, and its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    id: String,
    passage: Shown,
}

/// Passages of an episode.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passages {
    /// Passages that agents see, oldest first.
    shown: Vec<Entry>,
    /// Ids of all passages that were found.
    ids: BTreeSet<String>,
    /// Indices of the supporting titles that were found.
    supporting: BTreeSet<usize>,
    /// True if a passage that mentions a right answer was found.
    mentioned: bool,
}

impl Passages {
    /// Number of different passages that were found.
    pub fn count(&self) -> usize {
        self.ids.len()
    }

    /// Returns the passages that agents see, oldest first.
    pub fn shown(&self) -> impl Iterator<Item = &Shown> {
        self.shown.iter().map(|entry| &entry.passage)
    }

    /// Adds passages, and returns the share of the question's evidence among them that was not found before: of its
    /// supporting passages, or all of it for the first mention of a right answer if these are unknown. Over an episode,
    /// the shares sum up to at most 1.
    pub fn add(&mut self, question: &Question, found: &[Passage]) -> f64 {
        let mut share = 0.0;
        for passage in found {
            if self.ids.insert(passage.id.clone()) {
                share += self.credit(question, passage);
            }
        }
        share
    }

    /// Shows the passages of a search as the newest ones, also those that were shown before. Those that agents see already
    /// stay in their places. If there are more than `limit`, the oldest of other searches leave first. `length` is the number
    /// of characters of a text that agents see.
    pub fn show(&mut self, found: &[Passage], limit: usize, length: usize) {
        for passage in found {
            if self.shown.iter().any(|entry| entry.id == passage.id) {
                continue;
            }
            let (title, text) = split(&passage.text);
            let shown = Shown { title: title.to_owned(), text: text.chars().take(length).collect() };
            self.shown.push(Entry { id: passage.id.clone(), passage: shown });
        }
        while self.shown.len() > limit {
            let is_of_another_search = |entry: &Entry| found.iter().all(|passage| passage.id != entry.id);
            let leaving = self.shown.iter().position(is_of_another_search).unwrap_or(0);
            self.shown.remove(leaving);
        }
    }

    /// Returns the share of the evidence that a new passage has.
    fn credit(&mut self, question: &Question, passage: &Passage) -> f64 {
        if question.supporting.is_empty() {
            let first = !self.mentioned && mentions(&passage.text, &question.answers);
            self.mentioned |= first;
            return f64::from(u8::from(first));
        }
        let (title, _) = split(&passage.text);
        let names = [title, passage.id.as_str()];
        let same = |supporting: &String| {
            let normalized = normalize(supporting);
            // A title of articles alone is empty after normalisation, like that of a passage without one.
            let equal =
                |name: &str| name == supporting || !normalized.is_empty() && normalize(name) == normalized;
            names.into_iter().any(equal)
        };
        let Some(index) = question.supporting.iter().position(same) else { return 0.0 };
        // Several passages may be of one article.
        if self.supporting.insert(index) { 1.0 / question.supporting.len() as f64 } else { 0.0 }
    }
}

/// Splits a passage into its title, which is its first line, and its text. Corpora of Search-R1 quote titles.
fn split(text: &str) -> (&str, &str) {
    match text.split_once('\n') {
        Some((title, rest)) if title.chars().count() <= LONGEST_TITLE => {
            (title.trim().trim_matches('"'), rest.trim())
        }
        _ => ("", text.trim()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passage(id: &str, text: &str) -> Passage {
        Passage { id: id.to_owned(), text: text.to_owned(), score: 1.0 }
    }

    fn question(answer: &str, supporting: &[&str]) -> Question {
        Question {
            question: "q".to_owned(),
            answers: vec![answer.to_owned()],
            supporting: supporting.iter().map(|title| (*title).to_owned()).collect(),
        }
    }

    #[test]
    fn each_supporting_title_is_credited_once() {
        let question = question("x", &["The Cat", "Dog (animal)"]);
        let mut passages = Passages::default();
        assert_eq!(
            passages.add(&question, &[passage("1", "Cat\nIt purrs."), passage("2", "Owl\nIt hoots.")]),
            0.5
        );
        assert_eq!(passages.add(&question, &[passage("1", "Cat\nIt purrs.")]), 0.0);
        assert_eq!(passages.add(&question, &[passage("3", "\"The Cat\"\nAnother part.")]), 0.0);
        assert_eq!(passages.add(&question, &[passage("Dog (animal)", "It barks at a cat.")]), 0.5);
        assert_eq!(passages.count(), 4);
    }

    #[test]
    fn a_title_of_articles_is_not_that_of_a_passage_without_one() {
        let question = question("x", &["The The"]);
        let mut passages = Passages::default();
        assert_eq!(passages.add(&question, &[passage("1", "No title.")]), 0.0);
        assert_eq!(passages.add(&question, &[passage("2", "The The\nA band.")]), 1.0);
    }

    #[test]
    fn the_first_mention_of_an_answer_is_credited_without_titles() {
        let question = question("Rome", &[]);
        let mut passages = Passages::default();
        assert_eq!(passages.add(&question, &[passage("1", "Paris"), passage("2", "In Rome.")]), 1.0);
        assert_eq!(passages.add(&question, &[passage("3", "Rome again")]), 0.0);
    }

    #[test]
    fn the_newest_passages_are_shown_with_the_beginning_of_their_text() {
        let long = format!("{}\nb", "t".repeat(LONGEST_TITLE + 1));
        let found = [passage("1", "A\nfirst"), passage("2", "\"B\"\nsecond"), passage("3", &long)];
        let shown = |limit| {
            let mut passages = Passages::default();
            passages.show(&found, limit, 3);
            passages.shown().map(|one| (one.title.clone(), one.text.clone())).collect::<Vec<_>>()
        };
        let both = [("B", "sec"), ("", "ttt")].map(|(title, text)| (title.to_owned(), text.to_owned()));
        assert_eq!(shown(2), both);
        assert_eq!((shown(9).len(), shown(0).len()), (3, 0));
    }

    #[test]
    fn a_search_shows_what_it_finds_also_if_it_was_shown_before() {
        let mut passages = Passages::default();
        let mut shown = |found: &[&str]| {
            let found: Vec<Passage> =
                found.iter().map(|title| passage(title, &format!("{title}\ntext"))).collect();
            passages.show(&found, 2, 99);
            passages.shown().map(|one| one.title.clone()).collect::<Vec<_>>()
        };
        assert_eq!(shown(&["a", "b"]), ["a", "b"]);
        assert_eq!(shown(&["c"]), ["b", "c"]);
        assert_eq!(shown(&["a"]), ["c", "a"], "it had left");
        assert_eq!(shown(&["c"]), ["c", "a"], "it stays in its place");
        assert_eq!(shown(&["d", "c"]), ["c", "d"], "the other one leaves");
        assert_eq!(shown(&[]), ["c", "d"]);
        assert_eq!(shown(&["b", "b"]), ["d", "b"]);
        assert_eq!(shown(&["d", "a", "b"]), ["b", "a"], "not all of them fit");
    }
}
