//! The agents of every game: one moves, one writes a program. Prompts are short, and worked examples come before the
//! state as earlier exchanges: a model of a hundred million parameters follows the form of its own last answers, and
//! hardly anything else.

use pl_sdk::prelude::*;

use crate::environment::{Action, View};
use crate::game::StateForm;
use crate::program::ProgramRun;
use crate::prompts::Texts;

/// Characters shown of a program's output that has no plan.
const MAX_OUTPUT: usize = 300;

/// Characters shown of a program to the agent that plays.
const MAX_CODE: usize = 2000;

/// Parts of the newest program that a prompt shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProgramContext {
    /// The plan that it printed, or else the reason why there is none. An agent that programs sees its code too.
    #[default]
    Plan,
    /// Its code, its output and its plan, as in the reference (PettingLLMs).
    Full,
}

/// Settings of both agents.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Replaces the rules and the instruction in the system message. An empty one sends no system message.
    pub instruction: Option<String>,
    /// Worked examples before the state, at most 2. Small models need them, large ones reason better without.
    #[schemars(range(max = 2))]
    pub examples: u32,
    /// Parts of the newest program that the prompt shows: `plan`, or `full` for its code and its output besides.
    pub context: ProgramContext,
}

impl Default for Settings {
    fn default() -> Self {
        Self { instruction: None, examples: 2, context: ProgramContext::Plan }
    }
}

impl Settings {
    /// Builds the request for a state. `answer` writes an example's plan as the agent would.
    fn request(
        &self,
        texts: &Texts,
        instruction: &str,
        state: String,
        answer: impl Fn(&str) -> String,
    ) -> Result<Request> {
        let examples = texts.examples.get(..self.examples as usize).ok_or_else(|| {
            let count = texts.examples.len();
            Error::settings(format!("examples = {}, but there are {count} of them", self.examples))
        })?;
        let request = examples
            .iter()
            .fold(Request::user(state), |request, (state, plan)| request.with_example(*state, answer(plan)));
        Ok(match self.instruction.as_deref() {
            Some("") => request,
            Some(own) => request.with_system(own),
            None => request.with_system(format!("{} {instruction}", texts.rules)),
        })
    }
}

/// Plays a plan. Its prompt shows what the newest program printed, if there is one: alone it is a single agent.
pub struct Planner;

impl Agent for Planner {
    const NAME: &'static str = "planner";
    const DOC: &'static str = "Plays a plan: a list of moves after ####.";
    type Settings = Settings;
    type View = View;
    type Action = Action;

    fn prompt(settings: &Settings, view: &View, _turn: &Turn) -> Result<Option<Request>> {
        let texts = view.game.texts(view.form);
        let mut state = view.state.clone();
        state.push_str(&last_plan(view));
        if let Some(program) = &view.program {
            let noun = view.form.noun();
            let is_shown = settings.context == ProgramContext::Full && !program.code.is_empty();
            state.push_str(&match (&program.plan, &program.error) {
                _ if is_shown => {
                    let listing = listing(program, &start(&program.code, MAX_CODE), settings.context, noun);
                    format!("\nA program, which may be wrong, was to find a {noun}:\n{listing}")
                }
                (Some(plan), _) => format!("\nA program printed the {noun} {plan}, which may be wrong."),
                (None, Some(error)) => format!("\nA program that was to find a {noun} failed: {error}."),
                (None, None) => {
                    format!("\nA program printed no {noun}, but: {}", start(&program.output, MAX_OUTPUT))
                }
            });
        }
        settings.request(texts, &texts.to_move(), state, |plan| texts.moves(plan)).map(Some)
    }

    fn parse(_settings: &Settings, view: &View, completion: &Completion) -> Result<Action> {
        Ok(match view.game.find_plan(&completion.text) {
            Some(plan) => Action::Answer(plan.to_owned()),
            None => Action::None("no plan".to_owned()),
        })
    }
}

/// Writes a Python program that prints a plan.
pub struct Tool;

impl Agent for Tool {
    const NAME: &'static str = "tool";
    const DOC: &'static str = "Writes a Python program that prints a plan.";
    type Settings = Settings;
    type View = View;
    type Action = Action;

    fn prompt(settings: &Settings, view: &View, _turn: &Turn) -> Result<Option<Request>> {
        let texts = view.game.texts(view.form);
        let mut state = view.state.clone();
        state.push_str(&last_plan(view));
        if let Some(program) = &view.program {
            state.push_str(&match program.code.as_str() {
                "" => "\nYour last answer had no program.".to_owned(),
                code => {
                    let listing = listing(program, code, settings.context, view.form.noun());
                    format!("\nYour last program:\n{listing}\nWrite a better one.")
                }
            });
        }
        settings.request(texts, &texts.to_program(), state, |plan| texts.program(plan)).map(Some)
    }

    fn parse(_settings: &Settings, _view: &View, completion: &Completion) -> Result<Action> {
        let code = code_block(&completion.text);
        Ok(Action::Python(code.to_owned()))
    }
}

/// Describes the newest plan that was played, for the agent that acts next.
fn last_plan(view: &View) -> String {
    match &view.plan {
        Some(played) if view.form == StateForm::Words => match (played.plan.as_str(), played.first_invalid) {
            ("", _) => "\nThe last answer was no move.".to_owned(),
            (moves, Some(_)) => format!("\nThe last move, {moves}, was impossible."),
            (moves, None) => format!("\nThe last move, {moves}, led here."),
        },
        None => String::new(),
        Some(played) if played.plan.is_empty() => "\nThe last answer had no plan.".to_owned(),
        Some(played) => match played.first_invalid {
            Some(place) => format!("\nIn the last plan, {}, move {place} was impossible.", played.plan),
            None => format!("\nThe last plan, {}, led here.", played.plan),
        },
    }
}

/// Shows a program, of which `code` is the part to show, with its result. `noun` is what it was to print.
fn listing(program: &ProgramRun, code: &str, context: ProgramContext, noun: &str) -> String {
    let output = match (context, program.output.as_str()) {
        (ProgramContext::Plan, _) | (ProgramContext::Full, "") => String::new(),
        (ProgramContext::Full, output) => format!("Its output:\n```\n{output}\n```\n"),
    };
    let result = match (&program.plan, &program.error, context) {
        (Some(plan), ..) => format!("printed the {noun} {plan}"),
        (None, Some(error), _) => format!("failed: {error}"),
        (None, None, ProgramContext::Plan) => {
            format!("printed no {noun}, but: {}", start(&program.output, MAX_OUTPUT))
        }
        (None, None, ProgramContext::Full) => format!("printed no {noun}"),
    };
    format!("```python\n{code}\n```\n{output}It {result}.")
}

/// Returns the first characters of a text.
fn start(text: &str, characters: usize) -> String {
    text.chars().take(characters).collect()
}

/// Returns the last block of Python, else the last fenced block, which may be cut off, else the whole text.
fn code_block(text: &str) -> &str {
    let mut blocks = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("```") {
        let (inside, next) = after.split_once("```").unwrap_or((after, ""));
        let (label, code) = inside.split_once('\n').unwrap_or(("", inside));
        match label.trim() {
            label @ ("" | "python" | "py" | "python3" | "Python") => blocks.push((!label.is_empty(), code)),
            // The first line is code, or names another language.
            _ => blocks.push((false, inside)),
        }
        rest = next;
    }
    let python = blocks.iter().rfind(|(is_python, _)| *is_python);
    let code = python.or(blocks.last()).map_or(text, |(_, code)| code);
    // The indentation of the first line counts.
    code.trim_end().trim_start_matches(['\n', '\r'])
}

#[cfg(test)]
mod tests {
    use pl_sdk::Finish;

    use super::*;
    use crate::environment::PlayedPlan;
    use crate::game::GameKind;

    const KINDS: [GameKind; 5] =
        [GameKind::PlanPath, GameKind::Sokoban, GameKind::Sudoku, GameKind::Queens, GameKind::Blocksworld];

    fn view(game: GameKind) -> View {
        let form = StateForm::Board;
        View { game, state: "(the state)".to_owned(), form, round: 0, program: None, plan: None }
    }

    fn later_view() -> View {
        let program = ProgramRun {
            code: "print(solve())".to_owned(),
            output: "[\"U\", \"R\"]".to_owned(),
            error: None,
            plan: Some("[\"U\", \"R\"]".to_owned()),
        };
        let plan = PlayedPlan { plan: "[\"D\"]".to_owned(), first_invalid: Some(1) };
        View { round: 2, program: Some(program), plan: Some(plan), ..view(GameKind::PlanPath) }
    }

    fn prompt<A: Agent<Settings = Settings, View = View>>(settings: &Settings, view: &View) -> String {
        let turn = Turn { agent: "a".to_owned(), visit: 0 };
        let request = A::prompt(settings, view, &turn).unwrap().unwrap();
        request.messages.iter().map(|message| format!("[{:?}]\n{}\n", message.role, message.text())).collect()
    }

    #[test]
    fn prompts() {
        let settings = Settings::default();
        let all = |prompt: fn(&Settings, &View) -> String| {
            KINDS.map(|game| format!("{game:?}\n{}\n", prompt(&settings, &view(game)))).concat()
        };
        insta::assert_snapshot!("planner_first", all(prompt::<Planner>));
        insta::assert_snapshot!("tool_first", all(prompt::<Tool>));
        let bare = Settings { instruction: Some(String::new()), examples: 0, ..Settings::default() };
        insta::assert_snapshot!("planner_again", prompt::<Planner>(&bare, &later_view()));
        insta::assert_snapshot!("tool_again", prompt::<Tool>(&bare, &later_view()));
    }

    #[test]
    fn failed_programs_are_described() {
        let bare = Settings { instruction: Some(String::new()), examples: 0, ..Settings::default() };
        let mut view = later_view();
        view.plan = Some(PlayedPlan { plan: String::new(), first_invalid: None });
        let program = view.program.as_mut().unwrap();
        program.plan = None;
        assert_eq!(
            prompt::<Planner>(&bare, &view),
            "[Role::User]\n(the state)\nThe last answer had no plan.\nA program printed no plan, but: [\"U\", \"R\"]\n"
        );
        view.program.as_mut().unwrap().error = Some("NameError: x".to_owned());
        assert!(prompt::<Planner>(&bare, &view).contains("failed: NameError: x."));
        assert!(prompt::<Tool>(&bare, &view).contains("It failed: NameError: x."));
        view.program = Some(ProgramRun::missing());
        assert!(prompt::<Planner>(&bare, &view).contains("failed: there is no program."));
        assert!(prompt::<Tool>(&bare, &view).ends_with("\nYour last answer had no program.\n"));
    }

    #[test]
    fn the_whole_program_is_shown_on_request() {
        let context = ProgramContext::Full;
        let full = Settings { instruction: Some(String::new()), examples: 0, context };
        let state = "[Role::User]\n(the state)\nIn the last plan, [\"D\"], move 1 was impossible.\n";
        let shown = "```python\nprint(solve())\n```\nIts output:\n```\n[\"U\", \"R\"]\n```\n";
        let mut view = later_view();
        let is = "A program, which may be wrong, was to find a plan:";
        let printed = "It printed the plan [\"U\", \"R\"].";
        assert_eq!(prompt::<Planner>(&full, &view), format!("{state}{is}\n{shown}{printed}\n"));
        assert_eq!(
            prompt::<Tool>(&full, &view),
            format!("{state}Your last program:\n{shown}{printed}\nWrite a better one.\n")
        );
        let program = view.program.as_mut().unwrap();
        program.plan = None;
        assert!(prompt::<Planner>(&full, &view).ends_with("```\nIt printed no plan.\n"));
        let program = view.program.as_mut().unwrap();
        program.error = Some("NameError: x".to_owned());
        program.output = String::new();
        program.code = "é".repeat(5000);
        let code = "é".repeat(MAX_CODE);
        let expected = format!("{state}{is}\n```python\n{code}\n```\nIt failed: NameError: x.\n");
        assert_eq!(prompt::<Planner>(&full, &view), expected);
        view.program = Some(ProgramRun::missing());
        assert!(prompt::<Planner>(&full, &view).contains("failed: there is no program."));
        let read: Settings = serde_json::from_str("{\"context\": \"full\"}").unwrap();
        assert_eq!((read.context, read.examples), (ProgramContext::Full, 2));
    }

    #[test]
    fn settings_change_the_prompt() {
        let own = Settings { instruction: Some("Go.".to_owned()), examples: 1, ..Settings::default() };
        assert!(
            prompt::<Planner>(&own, &view(GameKind::Queens))
                .starts_with("[Role::System]\nGo.\n[Role::User]\n.Q..\n")
        );
        let many = Settings { examples: 3, ..Settings::default() };
        let turn = Turn { agent: "a".to_owned(), visit: 0 };
        let error = Tool::prompt(&many, &view(GameKind::Sudoku), &turn).unwrap_err();
        assert_eq!(error.message, "examples = 3, but there are 2 of them");
    }

    #[test]
    fn one_move_is_asked_for_where_the_state_is_in_words() {
        let view = View {
            form: StateForm::Words,
            state: "Free directions: up. Goal: 1 up.".to_owned(),
            ..view(GameKind::PlanPath)
        };
        let settings = Settings { examples: 1, ..Settings::default() };
        assert_eq!(
            prompt::<Planner>(&settings, &view),
            "[Role::System]\nWalk to the goal, one step at a time. Answer with one word: up, down, left or right.\n\
             [Role::User]\nFree directions: down, right. Goal: 40 right.\n[Role::Assistant]\nright\n\
             [Role::User]\nFree directions: up. Goal: 1 up.\n"
        );
        assert_eq!(
            prompt::<Tool>(&settings, &view),
            "[Role::System]\nWalk to the goal, one step at a time. Write a Python program in a ```python block. It finds the next \
             move and prints one word: up, down, left or right.\n\
             [Role::User]\nFree directions: down, right. Goal: 40 right.\n[Role::Assistant]\n```python\nprint(\"right\")\n```\n\
             [Role::User]\nFree directions: up. Goal: 1 up.\n"
        );
        let bare = Settings { instruction: Some(String::new()), examples: 0, ..Settings::default() };
        let after = |plan: &str, first_invalid| {
            let plan = Some(PlayedPlan { plan: plan.to_owned(), first_invalid });
            prompt::<Planner>(&bare, &View { plan, ..view.clone() })
        };
        let state = "[Role::User]\nFree directions: up. Goal: 1 up.";
        assert_eq!(after("up", None), format!("{state}\nThe last move, up, led here.\n"));
        assert_eq!(after("left", Some(1)), format!("{state}\nThe last move, left, was impossible.\n"));
        assert_eq!(after("", None), format!("{state}\nThe last answer was no move.\n"));
        let printed = |plan: Option<&str>| ProgramRun {
            code: "print(solve())".to_owned(),
            output: "up".to_owned(),
            error: None,
            plan: plan.map(str::to_owned),
        };
        let with = |plan| View { program: Some(printed(plan)), ..view.clone() };
        assert_eq!(
            prompt::<Planner>(&bare, &with(Some("up"))),
            format!("{state}\nA program printed the move up, which may be wrong.\n")
        );
        assert!(prompt::<Planner>(&bare, &with(None)).ends_with("\nA program printed no move, but: up\n"));
        assert!(prompt::<Tool>(&bare, &with(Some("up"))).contains("\nIt printed the move up.\n"));
    }

    fn completion(text: &str) -> Completion {
        Completion { text: text.to_owned(), tool_calls: Vec::new(), finish: Finish::Stop }
    }

    #[test]
    fn a_plan_is_found() {
        let parse =
            |game, text: &str| match Planner::parse(&Settings::default(), &view(game), &completion(text))
                .unwrap()
            {
                Action::Answer(plan) => Some(plan),
                _ => None,
            };
        let path = |text: &str| parse(GameKind::PlanPath, text);
        let plan = |text: &str| Some(text.to_owned());
        assert_eq!(
            path("At [0, 0]. First [\"U\"], no: #### [\"R\", \"R\"] not [\"D\"]"),
            plan("[\"R\", \"R\"]")
        );
        assert_eq!(path("I go ['U'], then ['R']."), plan("['R']"), "the last list without a mark");
        assert_eq!(path("#### [\"X\"] I mean ['R']"), plan("['R']"), "only a list of moves is a plan");
        assert_eq!(path("['R'] is the plan ####"), plan("['R']"), "nothing after the mark");
        assert_eq!(path("```json\n[\"R\",\n \"D\"]\n```"), plan("[\"R\",\n \"D\"]"));
        assert_eq!(path("\\boxed{[\"R\"]}"), plan("[\"R\"]"));
        assert_eq!(path("#### R, R, D"), plan(" R, R, D"), "rows without brackets");
        for nothing in ["", "no", "[]", "#### []", "[\"U\", \"Q\"]"] {
            assert_eq!(path(nothing), None, "{nothing}");
        }
        assert_eq!(parse(GameKind::Queens, "#### [1, 3, 0, 2]"), plan("[1, 3, 0, 2]"));
        assert_eq!(
            parse(GameKind::Sudoku, "1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1"),
            plan("1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1")
        );
        assert_eq!(parse(GameKind::Blocksworld, "#### [A, table]"), plan("[A, table]"));
    }

    #[test]
    fn a_program_is_found() {
        let parse = |text: &str| {
            Tool::parse(&Settings::default(), &view(GameKind::Sudoku), &completion(text)).unwrap()
        };
        let python = |code: &str| Action::Python(code.to_owned());
        assert_eq!(parse("```python\nx = 1\n```"), python("x = 1"));
        assert_eq!(parse("```py\nx = 1\n```\nBetter:\n```python\nx = 2\n```\n```\n2\n```"), python("x = 2"));
        assert_eq!(parse("```\nx = 1\n```\n```\nx = 2\n```"), python("x = 2"));
        assert_eq!(parse("```python\nif 1:\n    x = 1"), python("if 1:\n    x = 1"), "cut off");
        assert_eq!(parse("```print(1)```"), python("print(1)"));
        assert_eq!(parse("print(1)\n"), python("print(1)"), "no fence at all");
        for nothing in ["", " \n", "```python\n```"] {
            assert_eq!(parse(nothing), python(""), "{nothing:?}");
        }
    }

    proptest::proptest! {
        /// Any completion is an action, for every game.
        #[test]
        fn any_text_is_an_action(parts in proptest::collection::vec("\\PC{0,3}|####|```|python|\n|\\[|\\]|[0-9],|\"[UDLR]\"|\\{\"move\":", 0..40)) {
            let completion = completion(&parts.concat());
            for game in KINDS {
                Planner::parse(&Settings::default(), &view(game), &completion).unwrap();
                Tool::parse(&Settings::default(), &view(game), &completion).unwrap();
            }
        }
    }
}
