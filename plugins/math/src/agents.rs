//! The agents: one writes a program, one reasons in words. Prompts are short and direct, and worked examples
//! come before the question as earlier exchanges: a model of a hundred million parameters follows the form of
//! its own last answers, and hardly anything else.

use pl_sdk::prelude::*;

use crate::grader::extract;
use crate::problems::{Action, View};

/// Reason of a tool's completion without a program. The reference's rewards punish it.
pub(crate) const NO_PROGRAM: &str = "no program";

/// Maximum length of an answer in bytes.
const MAX_ANSWER: usize = 4000;

/// Worked examples: question, calculation, result. The generator makes none of these questions.
const EXAMPLES: [(&str, &str, &str); 4] = [
    ("Sam has 2 pens. He buys 3 more. How many pens does Sam have now?", "2 + 3", "5"),
    ("Kim has 9 cups and breaks 4. How many cups does Kim have left?", "9 - 4", "5"),
    ("There are 6 hats on one shelf and 8 hats on another. How many hats are there in all?", "6 + 8", "14"),
    ("Max has 12 fish. Pia has 7 fish. How many more fish does Max have than Pia?", "12 - 7", "5"),
];

/// Settings of both agents.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Replaces the instruction in the system message. An empty one sends no system message.
    pub instruction: Option<String>,
    /// Worked examples before the question, at most 4. Small models need them, large ones do without.
    #[schemars(range(max = 4))]
    pub examples: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { instruction: None, examples: 4 }
    }
}

impl Settings {
    /// Builds the request for `question`. `answer` formats an example's calculation and result as the agent
    /// would.
    fn request(
        &self,
        instruction: &str,
        question: String,
        answer: fn(&str, &str) -> String,
    ) -> Result<Request> {
        let examples = EXAMPLES.get(..self.examples as usize).ok_or_else(|| {
            Error::settings(format!("examples = {}, but there are {} of them", self.examples, EXAMPLES.len()))
        })?;
        let request = examples.iter().fold(Request::user(question), |request, (question, sum, result)| {
            request.with_example(*question, answer(sum, result))
        });
        let instruction = self.instruction.as_deref().unwrap_or(instruction);
        Ok(if instruction.is_empty() { request } else { request.with_system(instruction) })
    }

    /// Builds the request of an agent that answers in a box.
    pub(crate) fn boxed_request(&self, question: String) -> Result<Request> {
        let boxed = |sum: &str, result: &str| format!("{sum} = \\boxed{{{result}}}");
        self.request("Put the final answer in \\boxed{}.", question, boxed)
    }
}

/// Returns the answer of a completion, or the reason why there is none.
pub(crate) fn answer_of(completion: &Completion) -> std::result::Result<String, &'static str> {
    match extract::answer(&completion.text) {
        Some(answer) if answer.len() <= MAX_ANSWER => Ok(answer),
        Some(_) => Err("the answer is too long"),
        None => Err("no answer"),
    }
}

/// Writes a Python program that prints the answer.
pub struct Tool;

impl Agent for Tool {
    const NAME: &'static str = "tool";
    const DOC: &'static str = "Writes a Python program that prints the answer.";
    type Settings = Settings;
    type View = View;
    type Action = Action;

    fn prompt(settings: &Settings, view: &View, _turn: &Turn) -> Result<Option<Request>> {
        let mut text = view.question.clone();
        if let Some(run) = &view.tool {
            let result = match (&run.error, &run.answer) {
                (Some(error), _) => format!("failed: {error}"),
                (None, Some(answer)) => format!("printed {answer}, which may be wrong"),
                (None, None) => "printed nothing".to_owned(),
            };
            text.push_str(&format!("\nYour last program:\n```python\n{}\n```\nIt {result}.", run.code));
            if let Some(given) = view.answers.last() {
                text.push_str(&format!(" Someone else answers {}.", given.answer));
            }
            text.push_str(" Write a better program.");
        }
        let program = |sum: &str, _: &str| format!("```python\nprint({sum})\n```");
        settings.request("Write a Python program that prints the answer.", text, program).map(Some)
    }

    fn parse(_settings: &Settings, _view: &View, completion: &Completion) -> Result<Action> {
        let code = code_block(&completion.text);
        Ok(if code.trim().is_empty() { Action::None(NO_PROGRAM.to_owned()) } else { Action::Python(code) })
    }
}

/// Returns the first fenced block, or the whole text if there is none.
fn code_block(text: &str) -> String {
    let Some((_, after)) = text.split_once("```") else {
        return text.trim().to_owned();
    };
    let inside = after.split_once("```").map_or(after, |(inside, _)| inside);
    // The language is on the line of the fence.
    let first = inside.lines().next().unwrap_or("").trim();
    let named = matches!(first, "" | "python" | "py" | "python3" | "Python");
    let code = if named { inside.split_once('\n').map_or("", |(_, code)| code) } else { inside };
    code.trim_matches('\n').trim_end().to_owned()
}

/// Answers in words. Its prompt shows the output of the newest program.
pub struct Reasoner;

impl Agent for Reasoner {
    const NAME: &'static str = "reasoner";
    const DOC: &'static str = "Reasons in words and puts the final answer in a box.";
    type Settings = Settings;
    type View = View;
    type Action = Action;

    fn prompt(settings: &Settings, view: &View, _turn: &Turn) -> Result<Option<Request>> {
        let mut text = view.question.clone();
        if let Some(answer) = view.tool.as_ref().and_then(|run| run.answer.as_ref()) {
            text.push_str(&format!("\nA program printed {answer}, which may be wrong."));
        }
        if let Some(given) = view.answers.last() {
            text.push_str(&format!("\nAn earlier answer was {}, which may be wrong.", given.answer));
        }
        settings.boxed_request(text).map(Some)
    }

    fn parse(_settings: &Settings, _view: &View, completion: &Completion) -> Result<Action> {
        Ok(answer_of(completion).map_or_else(|reason| Action::None(reason.to_owned()), Action::Answer))
    }
}

#[cfg(test)]
mod tests {
    use pl_sdk::Finish;

    use super::*;
    use crate::problems::{AgentAnswer, ProgramRun};

    fn completion(text: &str) -> Completion {
        Completion { text: text.to_owned(), tool_calls: Vec::new(), finish: Finish::Stop }
    }

    fn view() -> View {
        View { question: "What is 3 + 4?".to_owned(), round: 0, tool: None, answers: Vec::new() }
    }

    fn later_view() -> View {
        let run = ProgramRun {
            code: "print(3 - 4)".to_owned(),
            output: "-1".to_owned(),
            error: None,
            answer: Some("-1".to_owned()),
        };
        let given = AgentAnswer { agent: "reason".to_owned(), answer: "7".to_owned(), work: None };
        View { round: 2, tool: Some(run), answers: vec![given], ..view() }
    }

    fn prompt<A: Agent<Settings = Settings, View = View>>(view: &View) -> String {
        let turn = Turn { agent: "a".to_owned(), visit: 0 };
        let request = A::prompt(&Settings::default(), view, &turn).unwrap().unwrap();
        request.messages.iter().map(|message| format!("[{:?}]\n{}\n", message.role, message.text())).collect()
    }

    #[test]
    fn prompts() {
        insta::assert_snapshot!("tool_first", prompt::<Tool>(&view()));
        insta::assert_snapshot!("tool_again", prompt::<Tool>(&later_view()));
        insta::assert_snapshot!("reasoner_first", prompt::<Reasoner>(&view()));
        insta::assert_snapshot!("reasoner_again", prompt::<Reasoner>(&later_view()));
    }

    #[test]
    fn settings_change_the_prompt() {
        let turn = Turn { agent: "a".to_owned(), visit: 0 };
        let bare = Settings { instruction: Some(String::new()), examples: 0 };
        let request = Tool::prompt(&bare, &view(), &turn).unwrap().unwrap();
        assert_eq!(request.messages.iter().map(Message::text).collect::<Vec<_>>(), ["What is 3 + 4?"]);
        let many = Settings { examples: 5, ..Settings::default() };
        let error = Reasoner::prompt(&many, &view(), &turn).unwrap_err();
        assert_eq!(error.message, "examples = 5, but there are 4 of them");
    }

    #[test]
    fn a_program_is_found() {
        let parse = |text: &str| Tool::parse(&Settings::default(), &view(), &completion(text)).unwrap();
        let python = |code: &str| Action::Python(code.to_owned());
        assert_eq!(parse("```python\nx = 1\nprint(x)\n```"), python("x = 1\nprint(x)"));
        assert_eq!(parse("Here it is:\n```py\nprint(1)\n```\nand\n```\n2\n```"), python("print(1)"));
        assert_eq!(parse("```\nif 1:\n    print(1)"), python("if 1:\n    print(1)"));
        assert_eq!(parse("```print(1)```"), python("print(1)"));
        assert_eq!(parse(" print(1) "), python("print(1)"));
        assert_eq!(parse(" \n"), Action::None("no program".to_owned()));
        assert_eq!(parse("```python\n```"), Action::None("no program".to_owned()));
    }

    #[test]
    fn an_answer_is_found() {
        let parse = |text: &str| Reasoner::parse(&Settings::default(), &view(), &completion(text)).unwrap();
        assert_eq!(parse("3 + 4 = 7. The answer is \\boxed{7}."), Action::Answer("7".to_owned()));
        assert_eq!(parse("So there are 7 apples."), Action::Answer("7".to_owned()));
        assert_eq!(parse(""), Action::None("no answer".to_owned()));
        let long = format!("\\boxed{{{}}}", "1".repeat(MAX_ANSWER + 1));
        assert_eq!(parse(&long), Action::None("the answer is too long".to_owned()));
    }
}
