//! Words of passages and queries, as the index compares them.

use std::str::FromStr;

use serde::de::IntoDeserializer;
use serde::{Deserialize, Serialize};
use tantivy::tokenizer::{
    AsciiFoldingFilter, Language as Stems, LowerCaser, RemoveLongFilter, SimpleTokenizer, Stemmer,
    TextAnalyzer, TokenStream as _,
};

use crate::error::Error;

/// Longest word that is indexed, in bytes. Longer ones are addresses and encoded data.
const LONGEST_WORD: usize = 80;

/// Language whose endings are removed from words before they are compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// Words are compared as they are.
    None,
    #[default]
    English,
    Danish,
    Dutch,
    Finnish,
    French,
    German,
    Hungarian,
    Italian,
    Norwegian,
    Portuguese,
    Romanian,
    Russian,
    Spanish,
    Swedish,
    Turkish,
}

impl FromStr for Language {
    type Err = Error;

    /// # Errors
    /// [`Error::UnknownLanguage`].
    fn from_str(word: &str) -> Result<Self, Error> {
        Self::deserialize(word.into_deserializer())
            .map_err(|_: serde::de::value::Error| Error::UnknownLanguage { word: word.to_owned() })
    }
}

impl Language {
    fn stems(self) -> Option<Stems> {
        Some(match self {
            Language::None => return None,
            Language::English => Stems::English,
            Language::Danish => Stems::Danish,
            Language::Dutch => Stems::Dutch,
            Language::Finnish => Stems::Finnish,
            Language::French => Stems::French,
            Language::German => Stems::German,
            Language::Hungarian => Stems::Hungarian,
            Language::Italian => Stems::Italian,
            Language::Norwegian => Stems::Norwegian,
            Language::Portuguese => Stems::Portuguese,
            Language::Romanian => Stems::Romanian,
            Language::Russian => Stems::Russian,
            Language::Spanish => Stems::Spanish,
            Language::Swedish => Stems::Swedish,
            Language::Turkish => Stems::Turkish,
        })
    }
}

/// Returns the analyzer of passages and queries: words between punctuation, in lower case, without endings and then
/// without accents. Stemmers know the accents of their language.
pub(crate) fn analyzer(language: Language) -> TextAnalyzer {
    let words = TextAnalyzer::builder(SimpleTokenizer::default())
        .filter(RemoveLongFilter::limit(LONGEST_WORD + 1))
        .filter(LowerCaser);
    match language.stems() {
        Some(stems) => words.filter(Stemmer::new(stems)).filter(AsciiFoldingFilter).build(),
        None => words.filter(AsciiFoldingFilter).build(),
    }
}

/// Returns the words of a text in order.
pub(crate) fn words(analyzer: &mut TextAnalyzer, text: &str) -> Vec<String> {
    let mut words = Vec::new();
    analyzer.token_stream(text).process(&mut |token| words.push(token.text.clone()));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_read_from_words() {
        assert_eq!("german".parse::<Language>().unwrap(), Language::German);
        let message = "klingon".parse::<Language>().unwrap_err().to_string();
        assert_eq!(message, "no stemmer for the language \"klingon\"; use `none`");
    }

    #[test]
    fn words_are_compared_without_case_endings_and_accents() {
        let words = |language, text: &str| words(&mut analyzer(language), text);
        assert_eq!(words(Language::English, "The CAFÉS' running, Alû!"), ["the", "cafe", "run", "alu"]);
        assert_eq!(words(Language::English, "cafes run"), ["cafe", "run"]);
        assert_eq!(words(Language::None, "The CAFÉS' running"), ["the", "cafes", "running"]);
        assert_eq!(words(Language::German, "Häuser Hauses"), ["haus", "haus"]);
        assert!(words(Language::English, &format!("{} \"+-:", "x".repeat(LONGEST_WORD + 1))).is_empty());
    }
}
