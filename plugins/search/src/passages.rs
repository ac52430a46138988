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

/// Passages of an episode.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passages {
    /// Passages that agents see, oldest first.
    shown: Vec<Shown>,
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

    /// Returns the newest passages, at most `limit`, oldest first.
    pub fn newest(&self, limit: usize) -> &[Shown] {
        self.shown.get(self.shown.len().saturating_sub(limit)..).unwrap_or_default()
    }

    /// Adds passages, and returns the share of the question's evidence among them that was not found before: of its
    /// supporting passages, or all of it for the first mention of a right answer if these are unknown. Over an episode,
    /// the shares sum up to at most 1. `length` is the number of characters of a text that agents see.
    pub fn add(&mut self, question: &Question, found: &[Passage], length: usize) -> f64 {
        let mut share = 0.0;
        for passage in found {
            if !self.ids.insert(passage.id.clone()) {
                continue;
            }
            let (title, text) = split(&passage.text);
            share += self.credit(question, passage, title);
            let text = text.chars().take(length).collect();
            self.shown.push(Shown { title: title.to_owned(), text });
        }
        share
    }

    /// Returns the share of the evidence that a new passage has.
    fn credit(&mut self, question: &Question, passage: &Passage, title: &str) -> f64 {
        if question.supporting.is_empty() {
            let first = !self.mentioned && mentions(&passage.text, &question.answers);
            self.mentioned |= first;
            return f64::from(u8::from(first));
        }
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
            passages.add(&question, &[passage("1", "Cat\nIt purrs."), passage("2", "Owl\nIt hoots.")], 99),
            0.5
        );
        assert_eq!(passages.add(&question, &[passage("1", "Cat\nIt purrs.")], 99), 0.0);
        assert_eq!(passages.add(&question, &[passage("3", "\"The Cat\"\nAnother part.")], 99), 0.0);
        assert_eq!(passages.add(&question, &[passage("Dog (animal)", "It barks at a cat.")], 99), 0.5);
        assert_eq!(passages.count(), 4);
    }

    #[test]
    fn a_title_of_articles_is_not_that_of_a_passage_without_one() {
        let question = question("x", &["The The"]);
        let mut passages = Passages::default();
        assert_eq!(passages.add(&question, &[passage("1", "No title.")], 99), 0.0);
        assert_eq!(passages.add(&question, &[passage("2", "The The\nA band.")], 99), 1.0);
    }

    #[test]
    fn the_first_mention_of_an_answer_is_credited_without_titles() {
        let question = question("Rome", &[]);
        let mut passages = Passages::default();
        assert_eq!(passages.add(&question, &[passage("1", "Paris"), passage("2", "In Rome.")], 99), 1.0);
        assert_eq!(passages.add(&question, &[passage("3", "Rome again")], 99), 0.0);
    }

    #[test]
    fn the_newest_passages_are_shown_with_the_beginning_of_their_text() {
        let question = question("x", &[]);
        let mut passages = Passages::default();
        let long = format!("{}\nb", "t".repeat(LONGEST_TITLE + 1));
        let found = [passage("1", "A\nfirst"), passage("2", "\"B\"\nsecond"), passage("3", &long)];
        passages.add(&question, &found, 3);
        let shown: Vec<(&str, &str)> =
            passages.newest(2).iter().map(|one| (one.title.as_str(), one.text.as_str())).collect();
        assert_eq!(shown, [("B", "sec"), ("", "ttt")]);
        assert_eq!((passages.newest(9).len(), passages.newest(0).len()), (3, 0));
    }
}
