//! An agent: two functions, `prompt` and `parse`.

use pl_sdk::prelude::*;

/// Settings in the workflow. `pl-host explain` and `pl-host plugin inspect` show their doc comments.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The instruction before the question.
    pub instruction: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self { instruction: "Solve the problem. End with the answer, a number.".to_owned() }
    }
}

/// The part of the environment's view that this agent reads.
#[derive(Deserialize)]
pub struct View {
    question: String,
}

/// The agent's action, in the form that the environment reads.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    Answer(String),
    /// Invalid text, with the reason.
    None(String),
}

pub struct Solver;

impl Agent for Solver {
    const NAME: &'static str = "solver";
    const DOC: &'static str = "Answers with the last number in its text.";
    type Settings = Settings;
    type View = View;
    type Action = Action;

    fn prompt(settings: &Settings, view: &View, _turn: &Turn) -> Result<Option<Request>> {
        Ok(Some(Request::user(&view.question).with_system(&settings.instruction)))
    }

    fn parse(_: &Settings, _: &View, completion: &Completion) -> Result<Action> {
        let numbers = completion.text.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
        Ok(match numbers.last() {
            Some(number) => Action::Answer(number.to_owned()),
            None => Action::None("no number".to_owned()),
        })
    }
}

pl_sdk::export! { agents: [Solver] }

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> View {
        View { question: "What is 2 + 3?".to_owned() }
    }

    fn parse(text: &str) -> Action {
        let completion = Completion { text: text.to_owned(), tool_calls: Vec::new(), finish: Finish::Stop };
        Solver::parse(&Settings::default(), &view(), &completion).unwrap()
    }

    #[test]
    fn the_question_is_asked() {
        let turn = Turn { agent: "solve".to_owned(), visit: 0 };
        let request = Solver::prompt(&Settings::default(), &view(), &turn).unwrap().unwrap();
        assert_eq!(request.messages[1].text(), "What is 2 + 3?");
    }

    #[test]
    fn the_last_number_is_the_answer() {
        assert_eq!(parse("2 + 3 = 5."), Action::Answer("5".to_owned()));
        assert_eq!(parse("Who knows?"), Action::None("no number".to_owned()));
    }
}
