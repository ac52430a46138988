//! Task records: the formats of data sets of questions.

use pl_sdk::prelude::*;
use serde_json::{Map, Value};

/// Fields of the right answers, in the order in which they are looked for.
const ANSWERS: [&str; 4] = ["golden_answers", "answers", "answer", "gold"];

/// A question, its right answers, and the titles of the passages that it needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The question.
    pub question: String,
    /// Right answers, each as good as the others. Empty if they are unknown: then no answer is right.
    pub answers: Vec<String>,
    /// Titles of the passages that hold the answer's parts, without repetitions. Empty if they are unknown.
    pub supporting: Vec<String>,
}

impl Question {
    /// Reads HotpotQA's and 2WikiMultihopQA's records (`question`, `answer`, `supporting_facts`), R1-Searcher's and
    /// Bamboogle's (`question`, `answer`), and those of Search-R1 and FlashRAG (`question`, `golden_answers`). An answer
    /// is a text, a number, or a list of them. A person's own task may have only a
    /// `question`: its answer is unknown.
    ///
    /// # Errors
    /// [`Error::task`] that names the missing or invalid field.
    pub fn read(task: &Task) -> Result<Self> {
        let record: Map<String, Value> = task.read()?;
        let refuse = |problem: String| Error::task(format!("task {}: {problem}", task.id));
        let question = match record.get("question") {
            Some(Value::String(text)) if !text.trim().is_empty() => text.trim().to_owned(),
            Some(_) => return Err(refuse("`question` is not a text".to_owned())),
            None => return Err(refuse("it has no `question`".to_owned())),
        };
        let named = ANSWERS.iter().find_map(|name| Some((*name, record.get(*name)?)));
        let answers = match named {
            Some((name, value)) => texts(value)
                .ok_or_else(|| refuse(format!("`{name}` is neither a text nor a list of texts")))?,
            None if task.is_given() && record.len() == 1 => Vec::new(),
            None => {
                let fields = record.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                return Err(refuse(format!(
                    "it has no right answer: a record has `question` and `answer`, `answers` or `golden_answers`; this \
                     one has: {fields}"
                )));
            }
        };
        if let (Some((name, _)), true) = (named, answers.is_empty()) {
            return Err(refuse(format!("`{name}` is empty")));
        }
        let supporting = match record.get("supporting_facts") {
            None | Some(Value::Null) => Vec::new(),
            Some(facts) => titles(facts).ok_or_else(|| {
                refuse("`supporting_facts` is not a list of titles with sentence numbers".to_owned())
            })?,
        };
        Ok(Self { question, answers, supporting })
    }
}

/// Reads one answer or a list of them. Returns `None` if it is neither.
fn texts(value: &Value) -> Option<Vec<String>> {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.trim().to_owned()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let found: Option<Vec<String>> = match value {
        Value::Array(values) => values.iter().map(text).collect(),
        single => text(single).map(|text| vec![text]),
    };
    found.map(|texts| texts.into_iter().filter(|text| !text.is_empty()).collect())
}

/// Reads `[[TITLE, SENTENCE], …]` or `{"title": [TITLE, …], …}`, as HotpotQA's file and its Hugging Face form have it.
fn titles(facts: &Value) -> Option<Vec<String>> {
    let list: Vec<&Value> = match facts {
        Value::Array(facts) => facts.iter().map(|fact| fact.get(0)).collect::<Option<_>>()?,
        Value::Object(fields) => fields.get("title")?.as_array()?.iter().collect(),
        _ => return None,
    };
    let mut titles: Vec<String> = Vec::new();
    for title in list {
        let title = title.as_str()?.to_owned();
        if !titles.contains(&title) {
            titles.push(title);
        }
    }
    Some(titles)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(data: &Value) -> Result<Question> {
        Question::read(&Task::new("7", data).unwrap())
    }

    #[test]
    fn every_form_is_read() {
        let form = |data: Value| {
            let Question { question, answers, supporting } = read(&data).unwrap();
            (question, answers.join("|"), supporting.join("|"))
        };
        let expected = |question: &str, answers: &str, titles: &str| {
            (question.to_owned(), answers.to_owned(), titles.to_owned())
        };
        let hotpot = json!({"_id": "5a", "question": " q? ", "answer": "yes",
            "supporting_facts": [["A", 0], ["B", 1], ["A", 2]], "context": []});
        assert_eq!(form(hotpot), expected("q?", "yes", "A|B"));
        let on_hub = json!({"question": "q", "answer": "x",
            "supporting_facts": {"title": ["A", "B"], "sent_id": [0, 1]}});
        assert_eq!(form(on_hub), expected("q", "x", "A|B"));
        let r1 = json!({"idx": 1, "question": "q", "answer": "Titan IIIE", "gen_text_store": "", "pred_anses": [""]});
        assert_eq!(form(r1), expected("q", "Titan IIIE", ""));
        assert_eq!(
            form(json!({"id": "t", "question": "q", "golden_answers": ["a", " b ", ""]})),
            expected("q", "a|b", "")
        );
        assert_eq!(form(json!({"question": "q", "answers": ["a"], "answer": "b"})), expected("q", "a", ""));
        assert_eq!(form(json!({"question": "q", "answer": 1969})), expected("q", "1969", ""));
        let by_hand = Task::new("given", &json!({"question": "by hand?"})).unwrap();
        assert!(Question::read(&by_hand).unwrap().answers.is_empty());
    }

    #[test]
    fn what_is_missing_is_named() {
        let message = |data: Value| read(&data).unwrap_err().message;
        assert_eq!(message(json!({"answer": "x"})), "task 7: it has no `question`");
        assert_eq!(message(json!({"question": 1, "answer": "x"})), "task 7: `question` is not a text");
        assert!(message(json!({"question": "q", "target": "x"})).ends_with("this one has: question, target"));
        assert!(message(json!({"question": "q"})).ends_with("this one has: question"));
        assert_eq!(message(json!({"question": "q", "answers": []})), "task 7: `answers` is empty");
        assert!(message(json!({"question": "q", "answer": {}})).contains("`answer` is neither"));
        assert!(
            message(json!({"question": "q", "answer": "x", "supporting_facts": [1]}))
                .contains("not a list of titles")
        );
        assert_eq!(read(&json!("q")).unwrap_err().kind, pl_sdk::ErrorKind::Task);
    }
}
