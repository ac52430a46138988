//! Task records: the formats of maths data sets.

use pl_sdk::prelude::*;
use serde_json::{Map, Value};

use crate::grader::extract;

/// A problem and its right answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The question. Empty if only answers are graded.
    pub question: String,
    /// The right answer, as the record has it. Empty if it is unknown: then no answer is right.
    pub gold: String,
}

impl Problem {
    /// Reads GSM8K's records (`question`, and `answer` ending in `#### 42`), MATH's (`problem`, and `answer`
    /// or a `solution` that boxes it), and bare ones (`gold`, with or without `question`). A person's own task
    /// may have only a `question`: its answer is unknown.
    ///
    /// # Errors
    /// [`Error::task`] that names the missing or invalid field.
    pub fn read(task: &Task) -> Result<Self> {
        let record: Map<String, Value> = task.read()?;
        let text = |name: &str| match record.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(other) => Err(Error::task(format!("task {}: `{name}` is not a text: {other}", task.id))),
        };
        let gold = match (text("gold")?, text("answer")?, text("solution")?) {
            (Some(gold), _, _) => gold,
            (None, Some(answer), _) => match answer.rsplit_once("####") {
                Some((_, gold)) => gold.to_owned(),
                None => answer,
            },
            (None, None, Some(solution)) => extract::answer(&solution).unwrap_or_default(),
            (None, None, None) => String::new(),
        };
        let gold = gold.trim().to_owned();
        let by_hand = task.is_given() && record.len() == 1 && record.contains_key("question");
        if gold.is_empty() && !by_hand {
            let is_empty =
                |value: &Value| value.is_null() || value.as_str().is_some_and(|text| text.trim().is_empty());
            let fields = record.iter().map(|(name, value)| match is_empty(value) {
                true => format!("{name} (empty)"),
                false => name.clone(),
            });
            let fields = fields.collect::<Vec<_>>().join(", ");
            return Err(Error::task(format!(
                "task {} has no right answer: a record has `question` and `answer` (GSM8K), `problem` and `answer` \
                 or `solution` (MATH), or `gold`; this one has: {fields}",
                task.id
            )));
        }
        let question = match (text("question")?, text("problem")?) {
            (Some(question), _) | (None, Some(question)) => question.trim().to_owned(),
            (None, None) if record.contains_key("gold") => String::new(),
            (None, None) => {
                return Err(Error::task(format!("task {} has neither `question` nor `problem`", task.id)));
            }
        };
        Ok(Self { question, gold })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(data: &Value) -> Result<Problem> {
        Problem::read(&Task::new("7", data).unwrap())
    }

    #[test]
    fn every_form_is_read() {
        let problem =
            |question: &str, gold: &str| Problem { question: question.to_owned(), gold: gold.to_owned() };
        let gsm8k = json!({"question": "q", "answer": "1 + 1 = <<1+1=2>>2\n#### 1,002"});
        assert_eq!(read(&gsm8k), Ok(problem("q", "1,002")));
        assert_eq!(
            read(&json!({"problem": "p", "answer": r"\frac{1}{2}", "level": 1})),
            Ok(problem("p", r"\frac{1}{2}"))
        );
        assert_eq!(read(&json!({"problem": "p", "solution": r"so \boxed{3}."})), Ok(problem("p", "3")));
        assert_eq!(read(&json!({"question": "q", "answer": 204})), Ok(problem("q", "204")));
        assert_eq!(read(&json!({"gold": "5", "pred": "5"})), Ok(problem("", "5")));
        let by_hand = Task::new("given", &json!({"question": "by hand?"})).unwrap();
        assert_eq!(Problem::read(&by_hand), Ok(problem("by hand?", "")));
    }

    #[test]
    fn what_is_missing_is_named() {
        let message = |data: &Value| read(data).unwrap_err().message;
        assert!(
            message(&json!({"question": "q", "target": "5"})).ends_with("this one has: question, target")
        );
        assert!(message(&json!({"question": "q", "answer": "#### "})).contains("no right answer"));
        assert!(message(&json!({"gold": " ", "pred": "5"})).ends_with("this one has: gold (empty), pred"));
        // Of a task file: each episode would fail.
        let lacking = message(&json!({"question": "q"}));
        assert!(
            lacking.starts_with("task 7 has no right answer") && lacking.ends_with("has: question"),
            "{lacking}"
        );
        assert!(message(&json!({"answer": "5"})).contains("neither `question` nor `problem`"));
        assert!(message(&json!({"gold": [1]})).contains("`gold` is not a text: [1]"));
        assert!(message(&json!("text")).starts_with("task 7: "));
        assert_eq!(read(&json!({})).unwrap_err().kind, pl_sdk::ErrorKind::Task);
    }
}
