//! The agent: writes a program, and repairs it after a failure.
//!
//! Its instruction is part of the question, not a system message: chat templates have their own default
//! system message, which the model knows from its training.

use pl_sdk::prelude::*;

use crate::blocks::{blocks, history, mismatches};
use crate::problems::{Action, View};

/// Settings of the agent.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Replaces the instruction before the problem. With an empty one the prompt is the problem only.
    pub instruction: Option<String>,
}

/// Writes the program that the problem asks for.
pub struct Coder;

impl Agent for Coder {
    const NAME: &'static str = "coder";
    const DOC: &'static str = "Writes a Python program, and repairs it if its tests fail.";
    type Settings = Settings;
    type View = View;
    type Action = Action;

    fn prompt(settings: &Settings, view: &View, _turn: &Turn) -> Result<Option<Request>> {
        let instruction = settings.instruction.clone().unwrap_or_else(|| instruction(view));
        let mut text = match instruction.as_str() {
            "" => view.problem.clone(),
            instruction => format!("{instruction}\n\n{}", view.problem),
        };
        if let Some(attempt) = &view.attempt {
            text.push_str(&format!("\n\nYour last program:\n```python\n{}\n```\n", attempt.program));
            let disagreement = view.comparisons.last().filter(|compared| !compared.mismatches.is_empty());
            text.push_str(&match (&attempt.error, disagreement) {
                (Some(error), None) => format!("It failed:\n```\n{error}\n```\nRepair it."),
                (Some(error), Some(compared)) => format!(
                    "It failed:\n```\n{error}\n```\nAnother agent wrote tests, which may be wrong themselves. {}\n{}Repair it.",
                    mismatches(compared),
                    history(&view.comparisons)
                ),
                (None, Some(compared)) => format!(
                    "Another agent wrote tests, which may be wrong themselves. {}\n{}Compare each with the problem. If the \
                     program is wrong, repair it. Otherwise repeat it.",
                    mismatches(compared),
                    history(&view.comparisons)
                ),
                (None, None) if attempt.tally.passed() || !view.comparisons.is_empty() => {
                    "It passed the tests. Write it better.".to_owned()
                }
                (None, None) => "Read the problem again, and write it better.".to_owned(),
            });
        }
        Ok(Some(Request::user(text)))
    }

    fn parse(_settings: &Settings, _view: &View, completion: &Completion) -> Result<Action> {
        let program = program(&completion.text);
        Ok(if program.is_empty() { Action::None("no program".to_owned()) } else { Action::Python(program) })
    }
}

/// Returns the instruction before the problem.
fn instruction(view: &View) -> String {
    let wanted = if view.functions.is_empty() { "program" } else { "function" };
    format!(
        "Write a complete, self-contained Python {wanted}. Answer with one ```python block that holds all of it."
    )
}

/// Returns the last fenced block that defines something: blocks after it are mostly examples of its use or
/// output, blocks before it are discarded ideas. If none defines anything, returns the first block, or the
/// whole text without blocks.
fn program(text: &str) -> String {
    let blocks = blocks(text);
    let defining = blocks.iter().rfind(|block| block.lines().any(defines));
    let program = defining.or(blocks.first()).map_or(text, String::as_str);
    // The indentation of the first line counts.
    program.trim_end().trim_start_matches(['\n', '\r']).to_owned()
}

fn defines(line: &str) -> bool {
    ["def ", "class ", "async def "].iter().any(|word| line.trim_start().starts_with(word))
}

#[cfg(test)]
mod tests {
    use pl_sdk::Finish;

    use super::*;
    use crate::attempt::{ProgramRun, Tally};
    use crate::written::{Comparison, Mismatch};

    fn view(attempt: Option<ProgramRun>) -> View {
        let problem = "Add two numbers.".to_owned();
        View { problem, attempt, functions: vec!["add".to_owned()], ..View::default() }
    }

    fn prompt(settings: &Settings, attempt: Option<ProgramRun>) -> String {
        prompt_of(settings, &view(attempt))
    }

    fn prompt_of(settings: &Settings, view: &View) -> String {
        let turn = Turn { agent: "coder".to_owned(), visit: 0 };
        let request = Coder::prompt(settings, view, &turn).unwrap().unwrap();
        request.messages.iter().map(|message| format!("[{:?}]\n{}\n", message.role, message.text())).collect()
    }

    fn parse(text: &str) -> Action {
        let view = View::default();
        let completion = Completion { text: text.to_owned(), tool_calls: Vec::new(), finish: Finish::Stop };
        Coder::parse(&Settings::default(), &view, &completion).unwrap()
    }

    fn python(program: &str) -> Action {
        Action::Python(program.to_owned())
    }

    #[test]
    fn prompts() {
        insta::assert_snapshot!("first", prompt(&Settings::default(), None));
        let failed = ProgramRun {
            program: "def add(a, b):\n    return a - b".to_owned(),
            ran: true,
            tally: Tally { held: 0, total: 1 },
            error: Some("A hidden test failed.\nAssertionError".to_owned()),
        };
        insta::assert_snapshot!("again", prompt(&Settings::default(), Some(failed)));
        let program = ProgramRun {
            program: "def add(a, b):\n    return a - b".to_owned(),
            ran: true,
            tally: Tally::default(),
            error: None,
        };
        let mut view = view(Some(program));
        assert!(
            prompt_of(&Settings::default(), &view)
                .ends_with("Read the problem again, and write it better.\n")
        );
        let mismatch = |input: &str, expected: &str, printed: &str| Mismatch {
            input: input.to_owned(),
            expected: expected.to_owned(),
            printed: printed.to_owned(),
        };
        let one = mismatch("add(1, 2)", "3", "-1");
        let other = mismatch("add(2, 2)", "5", "0");
        view.comparisons = vec![
            Comparison { held: 0, total: 1, mismatches: vec![mismatch("add(0, 1)", "1", "NameError")] },
            Comparison { held: 1, total: 3, mismatches: vec![one, other] },
        ];
        insta::assert_snapshot!("disagreement", prompt_of(&Settings::default(), &view));
        let bare = Settings { instruction: Some(String::new()) };
        assert_eq!(prompt(&bare, None), "[Role::User]\nAdd two numbers.\n");
    }

    #[test]
    fn a_program_is_asked_for_where_there_is_no_function() {
        let first_line =
            |view: &View| prompt_of(&Settings::default(), view).lines().nth(1).map(str::to_owned);
        let line = |wanted: &str| {
            let start = format!("Write a complete, self-contained Python {wanted}.");
            Some(start + " Answer with one ```python block that holds all of it.")
        };
        assert_eq!(first_line(&View::default()), line("program"));
        assert_eq!(first_line(&view(None)), line("function"));
    }

    #[test]
    fn a_program_is_found_in_prose() {
        let add = "def add(a, b):\n    return a + b";
        assert_eq!(parse(&format!("```python\n{add}\n```")), python(add));
        assert_eq!(parse(&format!("Sure!\n\n```py\n{add}\n```\nIt adds.")), python(add));
        // Neither an example of its use nor the output of that is the function.
        let used = format!("```python\n{add}\n```\nUse it:\n```python\nprint(add(1, 2))\n```\n```\n3\n```");
        assert_eq!(parse(&used), python(add));
        // An improved version comes last.
        let twice = format!("```python\ndef add(a, b):\n    pass\n```\nBetter:\n```python\n{add}\n```");
        assert_eq!(parse(&twice), python(add));
        assert_eq!(
            parse("```\nadd = lambda a, b: a + b\n```\n```\n3\n```"),
            python("add = lambda a, b: a + b")
        );
    }

    #[test]
    fn a_program_is_found_in_odd_text() {
        let add = "def add(a, b):\n    return a + b";
        assert_eq!(parse(&format!("\n{add}\n")), python(add), "no fence at all");
        assert_eq!(parse(&format!("```python\n{add}")), python(add), "cut off");
        let listed = "1. First:\n   ```python\n   def add(a, b):\n       return a + b\n   ```";
        assert_eq!(parse(listed), python(add), "in a list");
        assert_eq!(parse("    return a + b\n"), python("    return a + b"), "indentation counts");
        assert_eq!(parse(&format!("```python\r\n{}\r\n```", add.replace('\n', "\r\n"))), python(add));
        for nothing in ["", " \n ", "```python\n```", "```"] {
            assert_eq!(parse(nothing), Action::None("no program".to_owned()), "{nothing:?}");
        }
    }

    proptest::proptest! {
        /// Any completion is an action, even if it is cut off.
        #[test]
        fn any_text_is_an_action(parts in proptest::collection::vec("```|python|\n|  |é|def f\\(\\):|x = 1", 0..24)) {
            let text = parts.concat();
            let parsed = parse(&text);
            if let Action::Python(program) = &parsed {
                proptest::prop_assert!(!program.trim().is_empty());
            }
        }
    }
}
