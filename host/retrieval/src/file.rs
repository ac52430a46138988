//! Files of passages, read record by record.
//!
//! A file `*.json` is one JSON object that maps titles to texts or to lists of sentences, as HotpotQA's corpora have
//! it. Every other file is JSONL: one JSON object per line, with an optional id, an optional title and the text.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use pl_types::{PartHasher, SourcePath};
use serde::de::{Deserializer as _, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::analysis::Language;
use crate::error::{Error, Place, RecordProblem};

/// Version of what an index holds. It is part of the key under which an index is cached, so that another version of
/// this program, or of tantivy, builds its own.
const INDEX_VERSION: &str = "1-tantivy-0.27";

/// Longest line of a JSONL file, in bytes. A line without an end would fill the memory.
const LONGEST_LINE: u64 = 16 << 20;

/// Longest passage, title included, in bytes. It has to fit into the memory of a plugin many times over.
const LONGEST_PASSAGE: usize = 256 << 10;

/// Names of the fields of a JSONL corpus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fields {
    /// Field of the id, a text or a whole number. A record without it is named by its number, from 0.
    pub id: String,
    /// Field of the title, which a record may lack.
    pub title: String,
    /// Field of the text. `None` for `text`, or `contents` in records that lack `text`.
    pub text: Option<String>,
}

impl Default for Fields {
    fn default() -> Self {
        Self { id: "id".to_owned(), title: "title".to_owned(), text: None }
    }
}

/// A file of passages.
#[derive(Debug, Clone)]
pub struct CorpusFile {
    /// Path of the file.
    pub path: SourcePath,
    /// Names of its fields, if it is JSONL.
    pub fields: Fields,
}

/// A passage of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// Name within the corpus.
    pub id: String,
    /// The text after the title, if there is one.
    pub text: String,
}

/// Receiver of records. The second argument is the number of bytes read so far; of an object, those of its titles and
/// texts.
type Sink<'s> = &'s mut dyn FnMut(Record, u64) -> Result<(), Error>;

impl CorpusFile {
    /// Returns a hash of everything that an index of the file depends on: its content, the form that its name says, the
    /// settings, and the version of this program's indexes.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub fn index_key(&self, language: Language) -> Result<String, Error> {
        let mut content = blake3::Hasher::new();
        let file = self.path.open().map_err(Error::read(self.path.path()))?;
        content.update_reader(file).map_err(Error::read(self.path.path()))?;
        let Fields { id, title, text } = &self.fields;
        let form = if self.is_object() { "object" } else { "lines" };
        let parts = [id, title, text.as_deref().unwrap_or_default(), form];
        let key = PartHasher::content().text(INDEX_VERSION).bytes(content.finalize().as_bytes());
        let key = parts.iter().fold(key, |key, part| key.text(part));
        Ok(key.text(&format!("{language:?}")).hex())
    }

    /// True if the file is one JSON object.
    fn is_object(&self) -> bool {
        self.path.path().extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"))
    }

    /// Returns the size of the file in bytes.
    pub(crate) fn size(&self) -> Result<u64, Error> {
        self.path.path().metadata().map(|file| file.len()).map_err(Error::read(self.path.path()))
    }

    /// Passes all records to `sink`, in their order. One record is in memory at a time, and a hash of every id.
    pub(crate) fn read(&self, sink: Sink<'_>) -> Result<(), Error> {
        let file = self.path.open().map_err(Error::read(self.path.path()))?;
        let mut ids = Ids { path: self.path.path(), seen: HashMap::new(), sink };
        if self.is_object() {
            self.read_object(file, &mut ids)?;
        } else {
            self.read_lines(file, &mut ids)?;
        }
        if ids.seen.is_empty() { Err(Error::Empty { path: self.path.path().to_path_buf() }) } else { Ok(()) }
    }

    fn read_lines(&self, file: File, ids: &mut Ids<'_, '_>) -> Result<(), Error> {
        let mut reader = BufReader::with_capacity(1 << 20, file);
        let (mut line, mut bytes, mut done) = (Vec::new(), 0, 0);
        for number in 1.. {
            line.clear();
            let read = reader.by_ref().take(LONGEST_LINE + 1).read_until(b'\n', &mut line);
            bytes += match read.map_err(Error::read(self.path.path()))? {
                0 => break,
                read => read as u64,
            };
            let refuse = |problem| self.refuse(Place::Line(number), problem);
            if line.len() as u64 > LONGEST_LINE {
                return Err(refuse(RecordProblem::LongLine { limit: LONGEST_LINE }));
            }
            let content = line.trim_ascii();
            if content.is_empty() {
                continue;
            }
            let found: Map<String, Value> = serde_json::from_slice(content)
                .map_err(|error| refuse(RecordProblem::NotALine { error: error.to_string() }))?;
            let record = self.fields.record(found, done).map_err(refuse)?;
            ids.pass(record, Place::Line(number), bytes)?;
            done += 1;
        }
        Ok(())
    }

    fn read_object(&self, file: File, ids: &mut Ids<'_, '_>) -> Result<(), Error> {
        let mut json = serde_json::Deserializer::from_reader(BufReader::with_capacity(1 << 20, file));
        let mut failure = None;
        let visitor = Passages { ids, path: self.path.path(), failure: &mut failure };
        let read = json.deserialize_map(visitor).and_then(|()| json.end());
        match (read, failure) {
            (Ok(()), _) => Ok(()),
            (Err(_), Some(failure)) => Err(failure),
            (Err(error), None) => {
                let problem = RecordProblem::NotAnObject { error: error.to_string() };
                Err(self.refuse(Place::Line(error.line() as u64), problem))
            }
        }
    }

    fn refuse(&self, place: Place, problem: RecordProblem) -> Error {
        Error::Record { path: self.path.path().to_path_buf(), place, problem }
    }
}

impl Fields {
    fn record(&self, mut found: Map<String, Value>, number: u64) -> Result<Record, RecordProblem> {
        let not_text = |field: &str| RecordProblem::NotText { field: field.to_owned() };
        let id = match found.remove(&self.id) {
            None | Some(Value::Null) => number.to_string(),
            Some(Value::String(id)) if id.trim().is_empty() => {
                return Err(RecordProblem::EmptyId { field: self.id.clone() });
            }
            Some(Value::String(id)) => id,
            Some(Value::Number(id)) if !id.is_f64() => id.to_string(),
            Some(_) => return Err(RecordProblem::InvalidId { field: self.id.clone() }),
        };
        let title = match found.remove(&self.title) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(title)) => title,
            Some(_) => return Err(not_text(&self.title)),
        };
        let names: &[&str] = match &self.text {
            Some(name) => &[name.as_str()],
            None => &["text", "contents"],
        };
        let named = names.iter().find_map(|name| Some((*name, found.get(*name)?)));
        let text = match named {
            Some((_, Value::String(text))) => text,
            Some((name, _)) => return Err(not_text(name)),
            None => {
                let names = names.iter().map(|name| (*name).to_owned()).collect();
                return Err(RecordProblem::NoText { names, others: found.keys().cloned().collect() });
            }
        };
        Record::new(id, &title, text)
    }
}

impl Record {
    fn new(id: String, title: &str, text: &str) -> Result<Record, RecordProblem> {
        // The title is one line: it ends at the line break.
        let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
        let text = text.trim();
        let text = if title.is_empty() { text.to_owned() } else { format!("{title}\n{text}") };
        if text.trim().is_empty() {
            return Err(RecordProblem::Empty);
        }
        if text.len() > LONGEST_PASSAGE || id.len() > LONGEST_PASSAGE {
            return Err(RecordProblem::LongPassage { limit: LONGEST_PASSAGE });
        }
        Ok(Record { id, text })
    }
}

/// Refuses repeated ids. Remembers a hash of each: those of a million take 32 MB.
struct Ids<'p, 's> {
    path: &'p Path,
    seen: HashMap<[u8; 16], u64>,
    sink: Sink<'s>,
}

impl Ids<'_, '_> {
    fn pass(&mut self, record: Record, place: Place, bytes: u64) -> Result<(), Error> {
        let mut hash = [0; 16];
        blake3::Hasher::new().update(record.id.as_bytes()).finalize_xof().fill(&mut hash);
        let position = match place {
            Place::Line(line) => line,
            Place::Key(_) => self.seen.len() as u64 + 1,
        };
        match self.seen.entry(hash) {
            Entry::Vacant(free) => free.insert(position),
            Entry::Occupied(first) => {
                let unit = if matches!(place, Place::Line(_)) { "line" } else { "passage" };
                let problem = RecordProblem::RepeatedId { id: record.id, unit, position: *first.get() };
                return Err(Error::Record { path: self.path.to_path_buf(), place, problem });
            }
        };
        (self.sink)(record, bytes)
    }
}

/// Visitor of `{"TITLE": ["SENTENCE", …], …}`. Its own errors go to `failure`: serde's carry only text.
struct Passages<'v, 'p, 's> {
    ids: &'v mut Ids<'p, 's>,
    path: &'v Path,
    failure: &'v mut Option<Error>,
}

/// Text of a passage.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a passage is a text or a list of sentences")]
enum PassageText {
    Whole(String),
    Sentences(Vec<String>),
}

impl<'de> Visitor<'de> for Passages<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of passages by title")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { ids, path, failure } = self;
        let mut bytes = 0;
        while let Some(title) = map.next_key::<String>()? {
            let text = match map.next_value::<PassageText>()? {
                PassageText::Whole(text) => text,
                // Sentences of HotpotQA begin with their space.
                PassageText::Sentences(sentences) => sentences.concat(),
            };
            bytes += (title.len() + text.len()) as u64;
            let place = Place::Key(title.clone());
            let passed = match Record::new(title.clone(), &title, &text) {
                Ok(record) => ids.pass(record, place, bytes),
                Err(problem) => Err(Error::Record { path: path.to_path_buf(), place, problem }),
            };
            if let Err(error) = passed {
                *failure = Some(error);
                return Err(A::Error::custom("a passage was refused"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, content: &str, fields: Fields) -> Result<Vec<(String, String)>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        let mut records = Vec::new();
        let mut sink = |record: Record, _| {
            records.push((record.id, record.text));
            Ok(())
        };
        let read = CorpusFile { path: path.into(), fields }.read(&mut sink);
        let shown = |error: Error| error.to_string().replace(&format!("{}/", folder.path().display()), "");
        read.map_err(shown).map(|()| records)
    }

    fn lines(content: &str) -> Result<Vec<(String, String)>, String> {
        read("c.jsonl", content, Fields::default())
    }

    fn pairs(records: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
        Ok(records.iter().map(|(id, text)| ((*id).to_owned(), (*text).to_owned())).collect())
    }

    #[test]
    fn lines_are_read_with_and_without_ids_and_titles() {
        let content = "{\"id\": \"a\", \"title\": \"Some\\n title\", \"text\": \" One. \"}\n\n\
                       {\"id\": 7, \"contents\": \"\\\"Two\\\"\\nTwo.\"}\n{\"text\": \"Three.\"}";
        assert_eq!(
            lines(content),
            pairs(&[("a", "Some title\nOne."), ("7", "\"Two\"\nTwo."), ("2", "Three.")])
        );
        let fields =
            Fields { id: "_id".to_owned(), title: "name".to_owned(), text: Some("passage".to_owned()) };
        let content = "{\"_id\": \"x\", \"name\": \"N\", \"passage\": \"P\", \"text\": 1}";
        assert_eq!(read("c.txt", content, fields), pairs(&[("x", "N\nP")]));
    }

    #[test]
    fn an_object_of_sentences_is_read() {
        let content = "{\"A b\": [\"One.\", \" Two.\"], \"C\": \"Three.\"}";
        let found = read("c.json", content, Fields::default());
        assert_eq!(found, pairs(&[("A b", "A b\nOne. Two."), ("C", "C\nThree.")]));
    }

    #[test]
    fn a_bad_record_names_file_and_line() {
        let begins = |content: &str, start: &str| {
            let message = lines(content).unwrap_err();
            assert!(message.starts_with(start), "{message}");
        };
        let good = "{\"id\": \"a\", \"text\": \"x\"}\n";
        begins(&format!("{good}{{\"id\""), "c.jsonl, line 2: EOF while parsing");
        begins(&format!("{good}[1]"), "c.jsonl, line 2: invalid type: sequence");
        begins(&format!("{good}\n{good}"), "c.jsonl, line 3: the id \"a\" is that of line 1 already");
        begins(
            "{\"id\": \"a\", \"body\": \"x\"}",
            "c.jsonl, line 1: it has no `text` or `contents`; name the field with `text = \"…\"` in the corpus block \
             (the others are: body)",
        );
        let message = lines("{\"id\": \"a\"}").unwrap_err();
        assert!(message.ends_with("(there are no others)"), "{message}");
        begins("{\"id\": [], \"text\": \"x\"}", "c.jsonl, line 1: `id` is neither a text nor a whole number");
        begins("{\"id\": \"\", \"text\": \"x\"}", "c.jsonl, line 1: `id` is empty");
        begins("{\"title\": 1, \"text\": \"x\"}", "c.jsonl, line 1: `title` is not a text");
        begins("{\"text\": [\"x\"]}", "c.jsonl, line 1: `text` is not a text");
        begins("{\"text\": \" \"}", "c.jsonl, line 1: it has neither a title nor a text");
        let long = format!("{{\"text\": \"{}\"}}", "x".repeat(LONGEST_PASSAGE + 1));
        begins(&long, "c.jsonl, line 1: it is longer than 256 KiB; split it into passages");
        begins("\n \n", "c.jsonl has no passages");
    }

    #[test]
    fn a_bad_object_names_the_passage() {
        let refused = |content: &str| read("c.json", content, Fields::default()).unwrap_err();
        assert_eq!(
            refused("{\"A\": \"x\", \"A\": \"y\"}"),
            "c.json, passage \"A\": the id \"A\" is that of passage 1 already"
        );
        assert!(refused("{\"\": \" \"}").starts_with("c.json, passage \"\": it has neither"));
        assert!(
            refused("{\"A\":\n 1}").starts_with("c.json, line 2: a passage is a text or a list of sentences")
        );
        assert!(refused("{\"A\": \"x\"}\n{").starts_with("c.json, line 2: trailing characters"));
        assert!(refused("{}").starts_with("c.json has no passages"));
        assert!(lines("missing").is_err());
    }

    #[test]
    fn an_index_key_depends_on_everything_that_an_index_does() {
        let folder = tempfile::tempdir().unwrap();
        let key = |name: &str, content: &str, title: &str, language| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            let fields = Fields { title: title.to_owned(), ..Fields::default() };
            CorpusFile { path: path.into(), fields }.index_key(language).unwrap()
        };
        let first = key("a.jsonl", "x", "title", Language::English);
        assert_eq!(first, key("b.jsonl", "x", "title", Language::English));
        let others = [
            key("a.json", "x", "title", Language::English),
            key("a.jsonl", "y", "title", Language::English),
            key("a.jsonl", "x", "name", Language::English),
            key("a.jsonl", "x", "title", Language::None),
        ];
        assert!(!others.contains(&first), "{others:?}");
    }

    #[test]
    fn a_missing_file_is_named() {
        let missing = CorpusFile { path: "/nowhere/c.jsonl".into(), fields: Fields::default() };
        let message = missing.index_key(Language::English).unwrap_err().to_string();
        assert!(message.starts_with("cannot read /nowhere/c.jsonl: "), "{message}");
    }
}
