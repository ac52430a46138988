//! An environment: a struct that holds the episode's state, and the functions that change it.

use std::collections::BTreeMap;

use pl_sdk::prelude::*;

/// One episode. Its snapshot is its serialized form: all state must be in fields.
#[derive(Serialize, Deserialize)]
pub struct Sums {
    problem: Problem,
    /// Latest answer of each agent.
    latest: BTreeMap<String, String>,
}

/// A task's record, read from a line of a task file or made by `tasks`.
#[derive(Serialize, Deserialize)]
pub struct Problem {
    question: String,
    answer: String,
}

/// View of an agent.
#[derive(Serialize)]
pub struct View {
    question: String,
}

/// Action of an agent.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SumsAction {
    Answer(String),
    /// Invalid text, with the reason.
    None(String),
}

/// Facts, which the workflow's `when` conditions read as `env.…`.
#[derive(Serialize, JsonSchema)]
pub struct Facts {
    /// The latest answer is right.
    right: bool,
}

/// Evidence, which only the reward sees, in the form that `maths.score` reads.
#[derive(Serialize)]
pub struct Evidence {
    gold: String,
    /// Latest answer.
    answer: Option<String>,
    latest: BTreeMap<String, String>,
}

impl Environment for Sums {
    const NAME: &'static str = "sums";
    const DOC: &'static str = "Sums of two numbers.";
    type Settings = NoSettings;
    type View = View;
    type Action = SumsAction;
    type Facts = Facts;
    type Evidence = Evidence;

    fn start(_: &NoSettings, task: &Task, _seed: u64) -> Result<Self> {
        Ok(Self { problem: task.read()?, latest: BTreeMap::new() })
    }

    fn view(&self, _: &NoSettings, _agent: &str) -> Result<View> {
        Ok(View { question: self.problem.question.clone() })
    }

    fn apply(&mut self, _: &NoSettings, actions: &[Action<SumsAction>]) -> Result<Outcome<Facts, Evidence>> {
        let mut answer = None;
        for Action { agent, action } in actions {
            if let SumsAction::Answer(text) = action {
                answer = Some(text.clone());
                self.latest.insert(agent.clone(), text.clone());
            }
        }
        let gold = self.problem.answer.clone();
        let facts = Facts { right: answer.as_ref() == Some(&gold) };
        let evidence = Evidence { gold, answer, latest: self.latest.clone() };
        Ok(Outcome { done: false, truncated: false, facts, evidence })
    }

    /// Train and test have no task in common: the first number is even in one and odd in the other.
    fn tasks(_: &NoSettings, request: &TaskRequest) -> Result<Vec<Task>> {
        let odd = match request.split.as_str() {
            "train" => 0,
            "test" => 1,
            other => return Err(Error::settings(format!("sums has the splits train and test, and no {other}"))),
        };
        let indices = request.start..request.start + u64::from(request.count);
        indices.map(|index| {
            let (a, b) = (2 * (index % 50) + odd, index / 50 % 100);
            let problem = Problem { question: format!("What is {a} + {b}?"), answer: (a + b).to_string() };
            Task::new(format!("{}-{index}", request.split), &problem)
        }).collect()
    }
}

pl_sdk::export! { environments: [Sums] }

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks(split: &str) -> Result<Vec<Task>> {
        Sums::tasks(&NoSettings {}, &TaskRequest { split: split.to_owned(), start: 0, count: 3, level: 1 })
    }

    #[test]
    fn the_right_answer_is_found_right() {
        let task = Task::new("1", &Problem { question: "What is 2 + 3?".into(), answer: "5".into() }).unwrap();
        let mut sums = Sums::start(&NoSettings {}, &task, 0).unwrap();
        assert_eq!(sums.view(&NoSettings {}, "a").unwrap().question, "What is 2 + 3?");
        for (text, right) in [("4", false), ("5", true)] {
            let action = Action { agent: "a".to_owned(), action: SumsAction::Answer(text.to_owned()) };
            let outcome = sums.apply(&NoSettings {}, &[action]).unwrap();
            assert_eq!(outcome.facts.right, right);
            assert_eq!(outcome.evidence.latest["a"], text);
        }
    }

    #[test]
    fn splits_share_no_task() {
        let (train, test) = (tasks("train").unwrap(), tasks("test").unwrap());
        assert!(train.iter().all(|task| test.iter().all(|other| other.data != task.data)));
        assert!(tasks("holidays").is_err());
    }
}
