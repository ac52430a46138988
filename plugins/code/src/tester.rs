//! The agent: writes tests of the programs that the problem asks for.
//!
//! The problem tells a coder what to write, so the tester's instruction comes after it. A worked example comes before, as an
//! earlier exchange: a small model follows the form of its own last answer, and hardly anything else.

use pl_sdk::prelude::*;

use crate::blocks::{blocks, history, mismatches};
use crate::problems::{Action, View};
use crate::written::{MAX_TESTS, ShownTest, TestText};

/// Worked example about a function: problem and tests.
const FUNCTION_EXAMPLE: (&str, &str) = (
    "Write a function to return the last letter of a word.\nA call of the function:\n```python\nlast_letter('pear')\n```",
    "```python\nassert last_letter('kiwi') == 'i'\nassert last_letter('x') == 'x'\n```",
);

/// Worked example about a whole program: problem and tests.
const PROGRAM_EXAMPLE: (&str, &str) = (
    "Read a word. Print its last letter.",
    "**Test Input:**\n```\nkiwi\n```\n**Test Output:**\n```\ni\n```\n\n**Test Input:**\n```\nx\n```\n**Test Output:**\n```\nx\n```",
);

/// Settings of the agent.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Replaces the instruction after the problem. With an empty one the prompt is the problem only.
    pub instruction: Option<String>,
    /// True to show a worked example before the problem. Small models need it, large ones do without.
    pub example: bool,
    /// True to show the newest program, which tests may be written against.
    pub program: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { instruction: None, example: true, program: false }
    }
}

/// Writes tests: assert statements about a function, or inputs and outputs of a whole program.
pub struct Tester;

impl Agent for Tester {
    const NAME: &'static str = "tester";
    const DOC: &'static str = "Writes tests of the program: inputs with the outputs that it expects.";
    type Settings = Settings;
    type View = View;
    type Action = Action;

    fn prompt(settings: &Settings, view: &View, _turn: &Turn) -> Result<Option<Request>> {
        let mut text = view.problem.clone();
        if let (true, Some(attempt)) = (settings.program, &view.attempt) {
            text.push_str(&format!(
                "\n\nA program for it, which may be wrong:\n```python\n{}\n```",
                attempt.program
            ));
        }
        if !view.tests.is_empty() {
            text.push_str(&format!("\n\nYour last tests:\n{}", written(view)));
        }
        if view.unread > 0 {
            text.push_str(&format!("\n\n{} of your last tests did not have the right form.", view.unread));
        }
        if let Some(compared) = view.comparisons.last() {
            text.push_str("\n\nAnother agent wrote a program, which may be wrong itself. ");
            text.push_str(&match compared.mismatches.is_empty() {
                true => "All tests hold.".to_owned(),
                false => mismatches(compared),
            });
            text.push('\n');
            text.push_str(history(&view.comparisons).trim_end());
        }
        let instruction = settings.instruction.clone().unwrap_or_else(|| instruction(view, view.wanted));
        if !instruction.is_empty() {
            text = format!("{}\n\n{instruction}", text.trim_end());
        }
        let request = Request::user(text);
        if !settings.example {
            return Ok(Some(request));
        }
        let (problem, tests) = if view.functions.is_empty() { PROGRAM_EXAMPLE } else { FUNCTION_EXAMPLE };
        let question = match settings.instruction.as_deref() {
            Some("") => problem.to_owned(),
            Some(own) => format!("{problem}\n\n{own}"),
            None => format!("{problem}\n\n{}", example_instruction(view)),
        };
        Ok(Some(request.with_example(question, tests)))
    }

    fn parse(_settings: &Settings, view: &View, completion: &Completion) -> Result<Action> {
        let mut tests =
            if view.functions.is_empty() { cases(&completion.text) } else { asserts(&completion.text) };
        tests.truncate(MAX_TESTS as usize);
        Ok(if tests.is_empty() { Action::None("no tests".to_owned()) } else { Action::Tests(tests) })
    }
}

fn instruction(view: &View, count: u32) -> String {
    let again = if view.tests.is_empty() {
        ""
    } else {
        " Repair tests that are wrong, and replace those that are too easy."
    };
    let tests = if count == 1 { "1 test".to_owned() } else { format!("{count} different tests") };
    match view.functions.first() {
        None => format!(
            "Don't solve it. Write {tests} for such a program, none of them from the text above, and work out each output \
             with care.{again} Use this form for each:\n\n**Test Input:**\n```\ninput\n```\n**Test Output:**\n```\noutput\n```"
        ),
        Some(function) => format!(
            "Don't write it. Write {tests} for it, none of them from the text above, and work out each result with \
             care.{again} Each is a line `assert {function}(...) == ...` with plain values. Answer with one ```python block."
        ),
    }
}

/// Returns the instruction of the worked example, which has two tests.
fn example_instruction(view: &View) -> String {
    let functions = if view.functions.is_empty() { Vec::new() } else { vec!["last_letter".to_owned()] };
    instruction(&View { functions, ..View::default() }, 2)
}

/// Returns the newest tests in the form in which they are written.
fn written(view: &View) -> String {
    let case = |ShownTest { input, output }: &ShownTest| {
        format!("**Test Input:**\n```\n{input}\n```\n**Test Output:**\n```\n{output}\n```")
    };
    let assert = |ShownTest { input, output }: &ShownTest| format!("assert {input} == {output}");
    match view.functions.is_empty() {
        true => view.tests.iter().map(case).collect::<Vec<_>>().join("\n\n"),
        false => format!("```python\n{}\n```", view.tests.iter().map(assert).collect::<Vec<_>>().join("\n")),
    }
}

/// Returns the assert statements of a text, whether in a block or not. One may go on over lines while a bracket is open.
fn asserts(text: &str) -> Vec<TestText> {
    let mut found: Vec<String> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        let line = line.trim();
        let starts = line.strip_prefix("assert").is_some_and(|rest| rest.starts_with([' ', '(']));
        match (starts, open, found.last_mut()) {
            (true, ..) => found.push(line.to_owned()),
            (false, true, Some(last)) if !line.starts_with("```") => {
                last.push('\n');
                last.push_str(line);
            }
            _ => {
                open = false;
                continue;
            }
        }
        open = found.last().is_some_and(|last| depth(last) > 0);
    }
    found.into_iter().map(TestText::Assert).collect()
}

/// Returns the number of brackets that a text opens and does not close, without regard to strings.
fn depth(text: &str) -> i64 {
    let step = |letter: char| match letter {
        '(' | '[' | '{' => 1,
        ')' | ']' | '}' => -1,
        _ => 0,
    };
    text.chars().map(step).sum()
}

/// Returns the pairs of an input and an output, each a block, or without one the text up to the next heading.
fn cases(text: &str) -> Vec<TestText> {
    let mut found = Vec::new();
    let mut input: Option<String> = None;
    let mut heading: Option<Heading> = None;
    let mut body: Vec<&str> = Vec::new();
    for line in text.lines().map(Some).chain([None]) {
        let next = line.and_then(Heading::read);
        if next.is_none() && line.is_some() {
            body.extend(line);
            continue;
        }
        let content = content(&body.join("\n"));
        match (heading, input.take()) {
            (Some(Heading::Input), _) => input = Some(content),
            (Some(Heading::Output), Some(input)) => found.push(TestText::Case { input, output: content }),
            (Some(Heading::Output) | None, _) => {}
        }
        heading = next.map(|(heading, _)| heading);
        body = next.map(|(_, rest)| rest).into_iter().filter(|rest| !rest.is_empty()).collect();
    }
    found
}

/// Heading of a part of a test.
#[derive(Debug, Clone, Copy)]
enum Heading {
    Input,
    Output,
}

impl Heading {
    /// Returns the heading of a line and what stands after it.
    fn read(line: &str) -> Option<(Self, &str)> {
        let plain = line.trim().trim_start_matches(['*', '#', ' ']);
        let start =
            |name: &str| plain.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        [(Self::Input, "Test Input"), (Self::Output, "Test Output")].into_iter().find_map(
            |(heading, name)| {
                let rest = start(name).then(|| plain.get(name.len()..)).flatten()?;
                // A number of the test may follow.
                let (number, rest) = rest.split_once(':')?;
                let numbered = number.chars().all(|letter| letter.is_ascii_digit() || " #*".contains(letter));
                numbered.then(|| (heading, rest.trim_matches(['*', ' '])))
            },
        )
    }
}

/// Returns the first block of a text, or the whole text without one.
fn content(text: &str) -> String {
    let content = blocks(text).into_iter().next().unwrap_or_else(|| text.trim().to_owned());
    if content.is_empty() || content.ends_with('\n') { content } else { content + "\n" }
}

#[cfg(test)]
mod tests {
    use pl_sdk::Finish;

    use super::*;
    use crate::attempt::{ProgramRun, Tally};
    use crate::written::{Comparison, Mismatch};

    fn function_view() -> View {
        let problem =
            "Write a function to add.\nA call of the function:\n```python\nadd(1, 2)\n```".to_owned();
        View { problem, functions: vec!["add".to_owned()], wanted: 3, ..View::default() }
    }

    fn program_view() -> View {
        View { problem: "Read two numbers. Print the sum.".to_owned(), wanted: 3, ..View::default() }
    }

    fn prompt(settings: &Settings, view: &View) -> String {
        let turn = Turn { agent: "tester".to_owned(), visit: 0 };
        let request = Tester::prompt(settings, view, &turn).unwrap().unwrap();
        request.messages.iter().map(|message| format!("[{:?}]\n{}\n", message.role, message.text())).collect()
    }

    fn parse(view: &View, text: &str) -> Action {
        let completion = Completion { text: text.to_owned(), tool_calls: Vec::new(), finish: Finish::Stop };
        Tester::parse(&Settings::default(), view, &completion).unwrap()
    }

    fn asserted(texts: &[&str]) -> Action {
        Action::Tests(texts.iter().map(|text| TestText::Assert((*text).to_owned())).collect())
    }

    fn cased(pairs: &[(&str, &str)]) -> Action {
        let case = |(input, output): &(&str, &str)| TestText::Case {
            input: (*input).to_owned(),
            output: (*output).to_owned(),
        };
        Action::Tests(pairs.iter().map(case).collect())
    }

    #[test]
    fn prompts() {
        insta::assert_snapshot!("function_first", prompt(&Settings::default(), &function_view()));
        insta::assert_snapshot!("program_first", prompt(&Settings::default(), &program_view()));
        let test =
            |input: &str, output: &str| ShownTest { input: input.to_owned(), output: output.to_owned() };
        let mismatch =
            Mismatch { input: "add(2, 2)".to_owned(), expected: "5".to_owned(), printed: "4".to_owned() };
        let program =
            ProgramRun { program: "add = sum".to_owned(), ran: true, tally: Tally::default(), error: None };
        let later = View {
            tests: vec![test("add(2, 2)", "5"), test("add(0, 1)", "1")],
            unread: 1,
            attempt: Some(program),
            comparisons: vec![Comparison { held: 1, total: 2, mismatches: vec![mismatch] }],
            ..function_view()
        };
        insta::assert_snapshot!("function_again", prompt(&Settings::default(), &later));
        let shown = Settings { program: true, example: false, instruction: Some("Test it.".to_owned()) };
        let text = prompt(&shown, &later);
        assert!(
            text.contains("add = sum") && text.ends_with("Test it.\n") && !text.contains("last_letter"),
            "{text}"
        );
        let bare = Settings { instruction: Some(String::new()), example: false, program: false };
        assert_eq!(prompt(&bare, &program_view()), "[Role::User]\nRead two numbers. Print the sum.\n");
    }

    #[test]
    fn asserts_are_found() {
        let found = |text: &str| parse(&function_view(), text);
        let two = asserted(&["assert add(1, 2) == 3", "assert add(0, 0) == 0, 'zero'"]);
        assert_eq!(
            found("Sure:\n```python\nassert add(1, 2) == 3\nassert add(0, 0) == 0, 'zero'\n```\nDone."),
            two
        );
        assert_eq!(found("assert add(1, 2) == 3\n  assert add(0, 0) == 0, 'zero'"), two);
        assert_eq!(
            found("```\nassert add(\n    1,\n    2,\n) == 3\nprint(1)\n```"),
            asserted(&["assert add(\n1,\n2,\n) == 3"])
        );
        assert_eq!(found("assert add([1"), asserted(&["assert add([1"]));
        assert_eq!(found("assertion: add(1, 2)"), Action::None("no tests".to_owned()));
        assert_eq!(found("**Test Input:**\n1\n**Test Output:**\n2"), Action::None("no tests".to_owned()));
        let Action::Tests(many) = found(&"assert add(1, 2) == 3\n".repeat(50)) else { panic!("no tests") };
        assert_eq!(many.len(), MAX_TESTS as usize);
    }

    #[test]
    fn cases_are_found() {
        let found = |text: &str| parse(&program_view(), text);
        let pairs = cased(&[("1 2\n", "3\n"), ("4\n5\n", "9\n")]);
        let fenced = "**Test Input:**\n```\n1 2\n```\n**Test Output:**\n```\n3\n```\n\nAnd:\n\n**Test Input:**\n```\n4\n5\n```\n\n\
                      **Test Output:**\n```\n9\n```\nThat's all.";
        assert_eq!(found(fenced), pairs);
        assert_eq!(
            found("### Test Input 1:\n1 2\n### Test Output 1:\n3\ntest input 2: 4\n5\nTest output 2: 9"),
            pairs
        );
        // An output without an input, and an input without an output.
        assert_eq!(found("**Test Output:**\n3\n**Test Input:**\n1\n"), Action::None("no tests".to_owned()));
        for nothing in ["", "1 2 3", "assert add(1, 2) == 3", "The test input: 5"] {
            assert_eq!(found(nothing), Action::None("no tests".to_owned()), "{nothing:?}");
        }
    }

    proptest::proptest! {
        /// Any completion is an action, even if it is cut off.
        #[test]
        fn any_text_is_an_action(
            parts in proptest::collection::vec("```|\n|  |é|assert f\\(|\\)|== 1|\\*\\*Test |Input|Output|:|\\[|\\{", 0..32)
        ) {
            let text = parts.concat();
            parse(&function_view(), &text);
            parse(&program_view(), &text);
        }
    }
}
