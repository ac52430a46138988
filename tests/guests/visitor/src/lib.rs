//! A domain for tests. Its agent tries the doors of WASI that a view names and says what is behind each; it prints,
//! panics and loops when it is told to. Its environment writes down what WASI's clocks and randomness say.
#![cfg(target_arch = "wasm32")]

mod doors;

use pl_sdk::prelude::*;

/// What the agent is to try.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Errand {
    /// Read a file.
    Read(String),
    /// Create a file.
    Write(String),
    /// Ask a host: authority, path, whether encrypted.
    Ask(String, String, bool),
    /// Environment, arguments, sockets, name look-up.
    World,
    /// Two looks at each clock with a sleep between, and two random numbers.
    Time,
    /// Write to stdout and to stderr.
    Print(String, String),
    /// Panic in a function of its own.
    Panic(String),
    /// Loop for ever in a function of its own.
    Loop,
}

struct Visitor;

impl Agent for Visitor {
    const NAME: &'static str = "visitor";
    const DOC: &'static str = "Tries doors.";
    type Settings = NoSettings;
    type View = Errand;
    type Action = String;

    fn prompt(_: &NoSettings, errand: &Errand, _: &Turn) -> Result<Option<Request>> {
        Ok(Some(Request::user(match errand {
            Errand::Read(path) => doors::read(path),
            Errand::Write(path) => doors::write(path),
            Errand::Ask(authority, path, encrypted) => doors::ask(authority, path, *encrypted),
            Errand::World => doors::world(),
            Errand::Time => doors::time(),
            Errand::Print(out, err) => doors::print(out, err),
            Errand::Panic(words) => fall(words),
            Errand::Loop => run_in_circles(),
        })))
    }

    fn parse(_: &NoSettings, _: &Errand, completion: &Completion) -> Result<String> {
        Ok(completion.text.clone())
    }
}

#[inline(never)]
fn fall(words: &str) -> String {
    panic!("{words}")
}

#[inline(never)]
fn run_in_circles() -> String {
    let mut at = 0_u64;
    loop {
        at = std::hint::black_box(at.wrapping_add(1));
    }
}

/// What WASI said in each turn so far.
#[derive(Serialize, Deserialize)]
struct Hall(Vec<String>);

#[derive(Serialize, Deserialize, JsonSchema)]
struct Told {
    /// Turns and the start.
    turns: u32,
}

impl Environment for Hall {
    const NAME: &'static str = "hall";
    const DOC: &'static str = "A hall with a clock.";
    type Settings = NoSettings;
    type View = (Vec<String>, String);
    type Action = ();
    type Facts = Told;
    type Evidence = ();

    fn start(_: &NoSettings, _: &Task, _: u64) -> Result<Self> {
        Ok(Self(vec![doors::time()]))
    }

    fn view(&self, _: &NoSettings, _: &str) -> Result<Self::View> {
        Ok((self.0.clone(), doors::time()))
    }

    fn apply(&mut self, _: &NoSettings, _: &[Action<()>]) -> Result<Outcome<Told, ()>> {
        self.0.push(doors::time());
        let facts = Told { turns: self.0.len() as u32 };
        Ok(Outcome { done: false, truncated: false, facts, evidence: () })
    }
}

pl_sdk::export! { environments: [Hall], agents: [Visitor] }
