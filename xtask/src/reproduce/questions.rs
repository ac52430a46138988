//! Questions about passages of an encyclopedia in English, for the experiment with search: what a passage says of its subject
//! in one of a few common forms, such as "directed by Tim Burton", is asked for. So each question has one right answer,
//! which is a name or a year, and one passage that has it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use regex_lite::Regex;
use serde_json::{Map, Value, json};

/// Number of questions for tests. No passage has questions for training too.
const TEST: usize = 100;

/// Characters at the beginning of a passage that are looked at, and that agents see.
pub const BEGINNING: usize = 240;

/// Words of a name: initials, and words that begin with a capital, with small words between them.
const NAME: &str = r#"((?:(?:[A-Z]\.|[A-Z][^\s,.;:()"]*|de|van|von|of|the) )*[A-Z][^\s,.;:()"]+)"#;

/// Years since 1500, and up to three words of a date before them.
const YEAR: &str = r"(?:[A-Za-z0-9]+,? ){0,3}(1[5-9]\d\d|20[0-2]\d)\b";

/// Forms of what is asked for, and their questions. `NAME` and `YEAR` stand for the answer, `{}` for the subject.
const FORMS: [(&str, &str); 13] = [
    (r"\bdirected by NAME", "Who directed {}?"),
    (r"\bwritten (?:and directed )?by NAME", "Who wrote {}?"),
    (r"\bproduced by NAME", "Who produced {}?"),
    (r"\bstarring NAME", "Who starred in {}?"),
    (r"\bpublished by NAME", "Who published {}?"),
    (r"\bdeveloped by NAME", "Who developed {}?"),
    // The words before the name, as in "by American singer Ida Moor", tell a name from a nationality.
    (
        r"\b(?:song|album|single|EP|novel|book|opera|poem) by (?:[A-Z][a-z]+ )?(?:[a-z-]+ )+NAME",
        "Whose work is {}?",
    ),
    (r"\blocated in (?:the [a-z]+ of )?NAME", "Where is {} located?"),
    (r"\b(?:based|headquartered) in NAME", "Where is {} based?"),
    (r"\bborn YEAR", "In which year was {} born?"),
    (r"\b(?:founded|established|formed|created) (?:in|on) YEAR", "In which year was {} founded?"),
    (r"\breleased (?:in|on) YEAR", "In which year was {} released?"),
    (r"\bopened (?:in|on) YEAR", "In which year was {} opened?"),
];

/// Writes the questions about a corpus of the form `{TITLE: [SENTENCE, …], …}` into `train.jsonl` and `test.jsonl` of a
/// folder, unless they are there already. Returns their paths.
///
/// # Errors
/// If the corpus can't be read or has too few questions, or a file can't be written.
pub fn write(corpus: &Path, folder: &Path) -> Result<[PathBuf; 2]> {
    let paths = ["train.jsonl", "test.jsonl"].map(|name| folder.join(name));
    if paths.iter().all(|path| path.is_file()) {
        return Ok(paths);
    }
    let read = || -> Result<Map<String, Value>> { Ok(serde_json::from_slice(&fs::read(corpus)?)?) };
    let passages = read().with_context(|| format!("corpus {}", corpus.display()))?;
    let questions = questions(&passages)?;
    if questions.len() <= TEST {
        bail!("corpus {} gives {} questions: {TEST} are for tests alone", corpus.display(), questions.len());
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let (test, train) = questions.split_at(TEST);
    for (path, tasks) in paths.iter().zip([train, test]) {
        let lines: String = tasks.iter().map(|task| format!("{task}\n")).collect();
        fs::write(path, lines).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(paths)
}

/// Returns at most one question about each passage, in an order that their titles decide.
fn questions(passages: &Map<String, Value>) -> Result<Vec<Value>> {
    let form = |(form, question): &(&str, &'static str)| {
        Ok((Regex::new(&form.replace("NAME", NAME).replace("YEAR", YEAR))?, *question))
    };
    let forms: Vec<(Regex, &str)> = FORMS.iter().map(form).collect::<Result<_>>()?;
    let mut asked: Vec<_> = passages
        .iter()
        .filter_map(|(title, sentences)| {
            let hash = blake3::hash(title.as_bytes());
            Some((*hash.as_bytes(), question(&forms, title, sentences, hash.as_bytes()[0])?))
        })
        .collect();
    asked.sort_by_key(|(hash, _)| *hash);
    Ok(asked.into_iter().map(|(_, question)| question).collect())
}

/// Makes a question about a passage. `choice` chooses among those that it answers.
fn question(forms: &[(Regex, &str)], title: &str, sentences: &Value, choice: u8) -> Option<Value> {
    let text: String = sentences.as_array()?.iter().filter_map(Value::as_str).collect();
    let beginning: String = text.trim().chars().take(BEGINNING).collect();
    // What tells articles with the same name apart is no part of it: "Ed Wood (film)".
    let subject = title.split(" (").next()?;
    let found = forms.iter().filter_map(|(form, question)| {
        let answer = form.captures(&beginning)?.get(1)?.as_str();
        (!title.contains(answer)).then(|| (question.replace("{}", subject), answer.to_owned()))
    });
    let found: Vec<_> = found.collect();
    let (question, answer) = found.get(usize::from(choice) % found.len().max(1))?;
    Some(json!({ "id": title, "question": question, "answer": answer, "supporting_facts": [[title, 0]] }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(title: &str, text: &str) -> Option<(String, String)> {
        let passages = json!({ title: [text] });
        let found = questions(passages.as_object().unwrap()).unwrap().pop()?;
        let text = |key: &str| found[key].as_str().unwrap().to_owned();
        assert_eq!(found["supporting_facts"], json!([[title, 0]]));
        Some((text("question"), text("answer")))
    }

    #[test]
    fn names_and_years_are_asked_for() {
        let table = [
            (
                "Ed Wood (film)",
                "Ed Wood is a film directed by Tim Burton.",
                "Who directed Ed Wood?",
                "Tim Burton",
            ),
            ("Tove", "Tove is an album by the band Quill. It sold well.", "Whose work is Tove?", "Quill"),
            (
                "Lund",
                "Lund is a song by Danish singer Nora Finch, of 1952.",
                "Whose work is Lund?",
                "Nora Finch",
            ),
            (
                "Harn",
                "Harn is a game developed by J. K. de Vries, Inc.",
                "Who developed Harn?",
                "J. K. de Vries",
            ),
            (
                "Ida Moor",
                "Ida Moor (born 6 May 1965) is a painter.",
                "In which year was Ida Moor born?",
                "1965",
            ),
            (
                "Brisk",
                "Brisk was founded in May, 1931 by sailors.",
                "In which year was Brisk founded?",
                "1931",
            ),
            ("Milne", "Milne is a hamlet located in the town of Élan Vale.", "", ""),
        ];
        for (title, text, question, answer) in table {
            let expected = (!question.is_empty()).then(|| (question.to_owned(), answer.to_owned()));
            assert_eq!(asked(title, text), expected, "{text}");
        }
    }

    #[test]
    fn answers_that_the_title_gives_and_late_ones_are_not_asked_for() {
        assert_eq!(asked("Songs of Ida Moor", "It is an album by Ida Moor."), None);
        let late = format!("{}directed by Tim Burton.", "It is a long film. ".repeat(15));
        assert_eq!(asked("Ed Wood", &late), None);
    }

    #[test]
    fn files_are_written_once_and_share_no_passage() {
        let folder = tempfile::tempdir().unwrap();
        let corpus = folder.path().join("corpus.json");
        let passages = |count: u32| -> Map<String, Value> {
            (0..count)
                .map(|n| (format!("T{n}"), json!([format!("It is a film directed by Ida Moor{n}.")])))
                .collect()
        };
        fs::write(&corpus, Value::Object(passages(100)).to_string()).unwrap();
        let error = format!("{:#}", write(&corpus, folder.path()).unwrap_err());
        assert!(error.ends_with("gives 100 questions: 100 are for tests alone"), "{error}");
        fs::write(&corpus, Value::Object(passages(130)).to_string()).unwrap();
        let [train, test] = write(&corpus, folder.path()).unwrap();
        let lines = |path: &Path| -> Vec<String> {
            fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
        };
        assert_eq!((lines(&train).len(), lines(&test).len()), (30, 100));
        assert!(lines(&train).iter().all(|line| !lines(&test).contains(line)));
        // Runs that continue have the questions that they began with.
        fs::write(&train, "kept\n").unwrap();
        write(&corpus, folder.path()).unwrap();
        assert_eq!(lines(&train), ["kept"]);
    }
}
