//! A domain for tests. Agents append lines to a board and are rewarded for the share of lower-case vowels in
//! them: even a tiny random model gets a positive reward and can improve it. For tests of faults and of
//! randomness, the environment can be set to trap and draws from the episode's random stream. For tests of
//! tool calls, an agent has a tool that counts vowels.

use pl_sdk::prelude::*;
use pl_sdk::{Tool, ToolCall};

/// The lines so far, and the numbers drawn so far.
#[derive(Serialize, Deserialize)]
pub struct Board {
    topic: String,
    lines: Vec<String>,
    draws: Vec<u64>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// Probability that a step traps, drawn from the episode's stream.
    trap: f64,
    /// Number of lines after which the environment ends the episode; 0: never.
    end: u32,
    /// Probability that a step ends the episode, drawn from the episode's stream.
    early: f64,
}

#[derive(Serialize, Deserialize)]
pub struct BoardView {
    topic: String,
    lines: Vec<String>,
}

#[derive(Deserialize)]
struct Record {
    topic: String,
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Facts {
    /// Number of lines on the board.
    lines: u32,
    /// True if the last line has more vowels than other characters.
    singing: bool,
}

/// Share of lower-case vowels of each line of the last step, in the order of the actions.
#[derive(Serialize, Deserialize)]
pub struct Shares(Vec<f64>);

/// Draws a number in [0, 1) from the episode's stream.
fn draw() -> f64 {
    (random::next() >> 11) as f64 / (1u64 << 53) as f64
}

/// Returns the number of lower-case vowels.
fn count_vowels(text: &str) -> usize {
    text.chars().filter(|c| "aeiou".contains(*c)).count()
}

fn share(line: &str) -> f64 {
    count_vowels(line) as f64 / line.chars().count().max(1) as f64
}

impl Environment for Board {
    const NAME: &'static str = "board";
    const DOC: &'static str = "A board to write lines on.";
    const SNAPSHOTS: Form = Form::Postcard;
    type Settings = Rules;
    type View = BoardView;
    type Action = String;
    type Facts = Facts;
    type Evidence = Shares;

    fn start(_: &Rules, task: &Task, seed: u64) -> Result<Self> {
        let record: Record = task.read()?;
        Ok(Self { topic: record.topic, lines: Vec::new(), draws: vec![seed] })
    }

    fn view(&self, _: &Rules, _agent: &str) -> Result<BoardView> {
        Ok(BoardView { topic: self.topic.clone(), lines: self.lines.clone() })
    }

    fn apply(&mut self, rules: &Rules, actions: &[Action<String>]) -> Result<Outcome<Facts, Shares>> {
        self.draws.push(random::next());
        assert!(draw() >= rules.trap, "told to trap");
        self.lines.extend(actions.iter().map(|a| a.action.clone()));
        let shares: Vec<f64> = actions.iter().map(|a| share(&a.action)).collect();
        let count = self.lines.len() as u32;
        let singing = shares.last().is_some_and(|s| *s > 0.5);
        let done = (rules.end > 0 && count >= rules.end) || draw() < rules.early;
        Ok(Outcome {
            done,
            truncated: false,
            facts: Facts { lines: count, singing },
            evidence: Shares(shares),
        })
    }

    fn tasks(_: &Rules, request: &TaskRequest) -> Result<Vec<Task>> {
        let split = &request.split;
        (request.start..request.start + u64::from(request.count))
            .map(|n| {
                Task::new(format!("{split}-{n}"), &serde_json::json!({ "topic": format!("{split} {n}") }))
            })
            .collect()
    }
}

/// Agent that writes a line.
pub struct Writer;

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WriterSettings {
    /// The agent skips every turn from this visit on; 0: never skips.
    silent_from: u32,
}

impl Agent for Writer {
    const NAME: &'static str = "writer";
    const DOC: &'static str = "Writes a line.";
    type Settings = WriterSettings;
    type View = BoardView;
    type Action = String;

    fn prompt(settings: &WriterSettings, view: &BoardView, turn: &Turn) -> Result<Option<Request>> {
        if settings.silent_from > 0 && turn.visit >= settings.silent_from {
            return Ok(None);
        }
        let lines = view.lines.join("|");
        Ok(Some(Request::user(format!("{} {} {lines}", turn.agent, view.topic))))
    }

    fn parse(_: &WriterSettings, _: &BoardView, completion: &Completion) -> Result<String> {
        Ok(completion.text.clone())
    }
}

/// Agent that writes a line, and has a tool for it.
pub struct Counter;

/// Arguments of the tool `vowels`.
#[derive(Deserialize)]
struct CountArguments {
    of: String,
}

/// Schema of [`CountArguments`].
const COUNT_ARGUMENTS: &str =
    r#"{"type": "object", "properties": {"of": {"type": "string"}}, "required": ["of"]}"#;

impl Agent for Counter {
    const NAME: &'static str = "counter";
    const DOC: &'static str = "Writes a line, with a tool that counts the vowels of a text.";
    type Settings = NoSettings;
    type View = BoardView;
    type Action = String;

    fn prompt(_: &NoSettings, view: &BoardView, turn: &Turn) -> Result<Option<Request>> {
        let mut request = Request::user(format!("{} {}", turn.agent, view.topic));
        request.tools.push(Tool {
            name: "vowels".to_owned(),
            description: "Counts the vowels of a text.".to_owned(),
            parameters: COUNT_ARGUMENTS.to_owned(),
        });
        Ok(Some(request))
    }

    fn call_tools(_: &NoSettings, _: &BoardView, calls: &[ToolCall]) -> Result<Option<Vec<String>>> {
        let result = |call: &ToolCall| match serde_json::from_str::<CountArguments>(&call.arguments) {
            Ok(arguments) if call.name == "vowels" => count_vowels(&arguments.of).to_string(),
            _ => format!("there is no tool {} with these arguments", call.name),
        };
        Ok(Some(calls.iter().map(result).collect()))
    }

    fn parse(_: &NoSettings, _: &BoardView, completion: &Completion) -> Result<String> {
        Ok(completion.text.clone())
    }
}

/// Reward for vowels.
pub struct Vowels;

impl Reward for Vowels {
    const NAME: &'static str = "vowels";
    const DOC: &'static str = "Share of vowels in the latest lines.";
    type Settings = NoSettings;
    type Action = String;
    type Facts = Facts;
    type Evidence = Shares;

    fn score(_: &NoSettings, step: &Transition<String, Facts, Shares>) -> Result<Scores> {
        let Shares(shares) = &step.evidence;
        let local = step
            .actions
            .iter()
            .zip(shares)
            .map(|(action, &reward)| AgentScore {
                agent: action.agent.clone(),
                reward,
                success: reward > 0.5,
            })
            .collect();
        let team = shares.iter().sum::<f64>() / shares.len().max(1) as f64;
        Ok(Scores { team, local, success: step.facts.singing })
    }
}

/// Reward for the last line of a board.
pub struct Finale;

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-scores" = "end"))]
pub struct FinaleSettings {
    /// Number of lines of a whole board.
    lines: u32,
}

impl Reward for Finale {
    const NAME: &'static str = "finale";
    const DOC: &'static str = "Share of vowels in the last line of a whole board; 0 before.";
    type Settings = FinaleSettings;
    type Action = String;
    type Facts = Facts;
    type Evidence = Shares;

    fn score(settings: &FinaleSettings, step: &Transition<String, Facts, Shares>) -> Result<Scores> {
        let Shares(shares) = &step.evidence;
        let last = shares.last().copied().filter(|_| step.facts.lines >= settings.lines);
        let team = last.map_or(0.0, |share| 0.1 + share);
        let success = last.is_some_and(|share| share > 0.5);
        let score =
            |action: &Action<String>| AgentScore { agent: action.agent.clone(), reward: team, success };
        Ok(Scores { team, local: step.actions.iter().map(score).collect(), success })
    }
}

pl_sdk::export! { environments: [Board], agents: [Writer, Counter], rewards: [Vowels, Finale] }
