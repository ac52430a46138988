//! A domain for tests. Its agent performs the WASI call that the view names and reports the result; it
//! prints, panics or loops on request. Its environment records the readings of the WASI clocks and random
//! numbers.
#![cfg(target_arch = "wasm32")]

mod wasi;

use pl_sdk::prelude::*;

/// A request to the agent.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Probe {
    /// Read a file.
    Read(String),
    /// Create a file.
    Write(String),
    /// Send an HTTP request: authority, path, true for HTTPS.
    Ask(String, String, bool),
    /// Read environment variables and arguments, resolve a name, connect a socket.
    World,
    /// Read each clock twice with a sleep in between, and draw two random numbers.
    Time,
    /// Write to stdout and to stderr.
    Print(String, String),
    /// Keep a number of resources of a kind.
    Hoard(String, u32),
    /// Panic in a function of its own.
    Panic(String),
    /// Loop forever in a function of its own.
    Loop,
}

struct Visitor;

impl Agent for Visitor {
    const NAME: &'static str = "visitor";
    const DOC: &'static str = "Performs WASI calls.";
    type Settings = NoSettings;
    type View = Probe;
    type Action = String;

    fn prompt(_: &NoSettings, probe: &Probe, _: &Turn) -> Result<Option<Request>> {
        Ok(Some(Request::user(match probe {
            Probe::Read(path) => wasi::read(path),
            Probe::Write(path) => wasi::write(path),
            Probe::Ask(authority, path, encrypted) => wasi::http_get(authority, path, *encrypted),
            Probe::World => wasi::surroundings(),
            Probe::Time => wasi::time(),
            Probe::Print(out, err) => wasi::print(out, err),
            Probe::Hoard(kind, count) => wasi::hoard(kind, *count),
            Probe::Panic(message) => panic_with(message),
            Probe::Loop => loop_forever(),
        })))
    }

    fn parse(_: &NoSettings, _: &Probe, completion: &Completion) -> Result<String> {
        Ok(completion.text.clone())
    }
}

#[inline(never)]
fn panic_with(message: &str) -> String {
    panic!("{message}")
}

#[inline(never)]
fn loop_forever() -> String {
    let mut count = 0_u64;
    loop {
        count = std::hint::black_box(count.wrapping_add(1));
    }
}

/// Readings of the clocks and random numbers in each turn so far.
#[derive(Serialize, Deserialize)]
struct ClockLog(Vec<String>);

#[derive(Serialize, Deserialize, JsonSchema)]
struct TurnFacts {
    /// Number of turns, counting the start.
    turns: u32,
}

impl Environment for ClockLog {
    const NAME: &'static str = "hall";
    const DOC: &'static str = "Records clock readings.";
    type Settings = NoSettings;
    type View = (Vec<String>, String);
    type Action = ();
    type Facts = TurnFacts;
    type Evidence = ();

    fn start(_: &NoSettings, _: &Task, _: u64) -> Result<Self> {
        Ok(Self(vec![wasi::time()]))
    }

    fn view(&self, _: &NoSettings, _: &str) -> Result<Self::View> {
        Ok((self.0.clone(), wasi::time()))
    }

    fn apply(&mut self, _: &NoSettings, _: &[Action<()>]) -> Result<Outcome<TurnFacts, ()>> {
        self.0.push(wasi::time());
        let facts = TurnFacts { turns: self.0.len() as u32 };
        Ok(Outcome { done: false, truncated: false, facts, evidence: () })
    }
}

pl_sdk::export! { environments: [ClockLog], agents: [Visitor] }
