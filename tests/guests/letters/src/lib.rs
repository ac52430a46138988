//! A domain for tests. Agents add lines to a board and earn by the share of lower-case vowels in what they
//! wrote: even a tiny random model earns something, and can learn to earn more. The environment can be told to
//! fail, and draws from the episode's random stream, so that tests see whether both are handled.

use pl_sdk::prelude::*;

/// What has been written, and the draws made so far.
#[derive(Serialize, Deserialize)]
pub struct Board {
    topic: String,
    lines: Vec<String>,
    draws: Vec<u64>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// Share of steps that trap, by the episode's stream.
    trap: f64,
    /// Lines after which the environment ends the episode; 0: never.
    end: u32,
    /// Share of episodes that end early, by the episode's stream.
    early: f64,
}

#[derive(Serialize, Deserialize)]
pub struct Seen {
    topic: String,
    lines: Vec<String>,
}

#[derive(Deserialize)]
struct Record {
    topic: String,
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Facts {
    /// How many lines stand on the board.
    lines: u32,
    /// Whether the last line has more vowels than other characters.
    singing: bool,
}

/// Share of lower-case vowels of each line of the last step, in the order of the actions.
#[derive(Serialize, Deserialize)]
pub struct Shares(Vec<f64>);

/// A number below 1 from the episode's stream.
fn draw() -> f64 {
    (random::next() >> 11) as f64 / (1u64 << 53) as f64
}

fn share(line: &str) -> f64 {
    let vowels = line.chars().filter(|c| "aeiou".contains(*c)).count();
    vowels as f64 / line.chars().count().max(1) as f64
}

impl Environment for Board {
    const NAME: &'static str = "board";
    const DOC: &'static str = "A board to write lines on.";
    const SNAPSHOTS: Form = Form::Postcard;
    type Settings = Rules;
    type View = Seen;
    type Action = String;
    type Facts = Facts;
    type Evidence = Shares;

    fn start(_: &Rules, task: &Task, seed: u64) -> Result<Self> {
        let record: Record = task.read()?;
        Ok(Self { topic: record.topic, lines: Vec::new(), draws: vec![seed] })
    }

    fn view(&self, _: &Rules, _agent: &str) -> Result<Seen> {
        Ok(Seen { topic: self.topic.clone(), lines: self.lines.clone() })
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

/// Asked for a line.
pub struct Writer;

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Manner {
    /// The agent skips every turn from this visit on; 0: none.
    silent_from: u32,
}

impl Agent for Writer {
    const NAME: &'static str = "writer";
    const DOC: &'static str = "Writes a line.";
    type Settings = Manner;
    type View = Seen;
    type Action = String;

    fn prompt(manner: &Manner, seen: &Seen, turn: &Turn) -> Result<Option<Request>> {
        if manner.silent_from > 0 && turn.visit >= manner.silent_from {
            return Ok(None);
        }
        let lines = seen.lines.join("|");
        Ok(Some(Request::user(format!("{} {} {lines}", turn.agent, seen.topic))))
    }

    fn parse(_: &Manner, _: &Seen, completion: &Completion) -> Result<String> {
        Ok(completion.text.clone())
    }
}

/// Pays for vowels.
pub struct Vowels;

impl Reward for Vowels {
    const NAME: &'static str = "vowels";
    const DOC: &'static str = "The share of vowels in what was just written.";
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

pl_sdk::export! { environments: [Board], agents: [Writer], rewards: [Vowels] }
