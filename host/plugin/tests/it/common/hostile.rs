//! The hostile guest of `guests/hostile.wat`: a component per attack and entry point, and an episode that
//! calls every entry point.

use pl_plugin::{
    Agent, Completion, DrawingForm, Environment, Error, Plugin, PluginSpec, RandomStream, Reward, Scores,
    Task, ToolCall, Turn,
};
use pl_types::Finish;
use pl_wasm::Engine;
use serde_json::Map;

use super::{component, services};

const GUEST: &str = include_str!("../../guests/hostile.wat");

/// Entry point in which the guest attacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryPoint {
    Describe = 0,
    Start = 1,
    Restore = 2,
    Snapshot = 3,
    View = 4,
    Apply = 5,
    Tasks = 6,
    Prompt = 7,
    Parse = 8,
    Score = 9,
    /// The module's start function.
    Begin = 10,
    /// The allocator that the host calls to pass arguments.
    Allocate = 11,
    /// The clean-up function after `parse`.
    CleanUp = 12,
    Oracle = 13,
    Draw = 14,
    CallTools = 15,
}

pub const ENTRY_POINTS: [EntryPoint; 16] = [
    EntryPoint::Describe,
    EntryPoint::Start,
    EntryPoint::Restore,
    EntryPoint::Snapshot,
    EntryPoint::View,
    EntryPoint::Apply,
    EntryPoint::Tasks,
    EntryPoint::Prompt,
    EntryPoint::Parse,
    EntryPoint::Score,
    EntryPoint::Begin,
    EntryPoint::Allocate,
    EntryPoint::CleanUp,
    EntryPoint::Oracle,
    EntryPoint::Draw,
    EntryPoint::CallTools,
];

impl EntryPoint {
    /// The contract's function that an error names.
    pub fn function(self) -> &'static str {
        match self {
            Self::Describe | Self::Begin => "describe",
            Self::Start => "start",
            Self::Restore => "restore",
            Self::Snapshot => "snapshot",
            Self::View => "view",
            Self::Apply => "apply",
            // The first call with arguments.
            Self::Tasks | Self::Allocate => "tasks",
            Self::Prompt => "prompt",
            Self::Parse | Self::CleanUp => "parse",
            Self::Score => "score",
            Self::Oracle => "oracle",
            Self::Draw => "draw",
            Self::CallTools => "call_tools",
        }
    }

    /// Returns `true` if the call may use the sandbox and the corpora.
    pub fn has_services(self) -> bool {
        matches!(self, Self::Start | Self::Restore | Self::Snapshot | Self::View | Self::Apply)
    }

    /// Returns `true` if the component model forbids calls to the host, because arguments or results are
    /// being transferred.
    pub fn forbids_host_calls(self) -> bool {
        matches!(self, Self::Allocate | Self::CleanUp)
    }

    /// Returns the expected error of an invalid return value. Returns `None` if the attack does not apply.
    pub fn expected_error(self, attack: Attack) -> Option<&'static str> {
        use EntryPoint::{
            Allocate, Apply, Begin, CallTools, CleanUp, Describe, Draw, Oracle, Parse, Prompt, Restore,
            Score, Snapshot, Start, Tasks, View,
        };
        match (self, attack) {
            (Begin | CleanUp, _) => None,
            (Allocate, Attack::Nowhere) => Some("realloc return: beyond end of memory"),
            (Allocate, _) => None,
            (Snapshot, Attack::NoCase | Attack::NotUtf8) => None,
            (_, Attack::NoCase) => Some("discriminant"),
            // The handle is invalid.
            (Start | Restore, Attack::Nowhere) => Some("unknown handle index"),
            (Start | Restore, Attack::NotUtf8 | Attack::Deep) => None,
            (_, Attack::Nowhere) => Some("out of bounds of memory"),
            (_, Attack::NotUtf8) => Some("utf-8"),
            (Describe | Tasks | View | Apply | Parse | Oracle, Attack::Deep) => Some("nests too deeply"),
            // None of them is JSON.
            (Prompt | Score | Snapshot | Draw | CallTools, Attack::Deep) => None,
            (_, Attack::Askew) => Some("not aligned"),
            (_, Attack::Beyond) => Some("out of bounds of memory"),
            _ => None,
        }
    }
}

/// Kind of attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attack {
    Loop = 1,
    Trap = 2,
    Grow = 3,
    GrowAgain = 4,
    Table = 5,
    Nest = 6,
    Random = 7,
    Log = 8,
    LongLog = 9,
    Retrieve = 10,
    Jobs = 11,
    Fill = 12,
    Divide = 13,
    Outside = 14,
    Null = 15,
    Handles = 16,
    /// A variant without such a case.
    NoCase = 20,
    /// A list outside of the memory.
    Nowhere = 21,
    NotUtf8 = 22,
    Gigabyte = 23,
    Deep = 24,
    /// A result at an odd address.
    Askew = 25,
    /// A result outside of the memory.
    Beyond = 26,
    /// An error of its own.
    Refuse = 27,
}

impl Attack {
    pub const ON_ENTRY: [Self; 16] = [
        Self::Loop,
        Self::Trap,
        Self::Grow,
        Self::GrowAgain,
        Self::Table,
        Self::Nest,
        Self::Random,
        Self::Log,
        Self::LongLog,
        Self::Retrieve,
        Self::Jobs,
        Self::Fill,
        Self::Divide,
        Self::Outside,
        Self::Null,
        Self::Handles,
    ];

    pub const ON_RETURN: [Self; 6] =
        [Self::NoCase, Self::Nowhere, Self::NotUtf8, Self::Deep, Self::Askew, Self::Beyond];

    /// Returns `true` if it calls the host.
    pub fn calls_out(self) -> bool {
        self.shows_memory() || matches!(self, Self::Random | Self::Handles)
    }

    /// Returns `true` if it calls a host function that reads the guest's memory. A component can't do so
    /// before its start function has returned.
    pub fn shows_memory(self) -> bool {
        matches!(self, Self::Log | Self::LongLog | Self::Retrieve | Self::Jobs)
    }
}

pub fn component_of(entry: EntryPoint, attack: Attack) -> Vec<u8> {
    guest(&(entry as u32).to_string(), &(attack as u32).to_string())
}

/// The same guest without an attack.
pub fn harmless() -> Vec<u8> {
    guest("99", "0")
}

/// The same guest without an attack, whose reward has a schema of its settings.
pub fn with_reward_schema(schema: &str) -> Vec<u8> {
    const NO_SETTINGS: &str = r#""\40\00\00\00\02\00\00\00""#;
    let (items, reward) = GUEST.split_once("(data (i32.const 328)").unwrap();
    let own = format!(r#""\00\10\00\00\{:02x}\00\00\00""#, schema.len());
    let reward = reward.replacen(NO_SETTINGS, &own, 1);
    let source = format!("{items}(data (i32.const 4096) {schema:?})\n  (data (i32.const 328){reward}");
    component(&source.replace("WHERE", "99").replace("WHAT", "0"), "domain")
}

fn guest(entry: &str, attack: &str) -> Vec<u8> {
    component(&GUEST.replace("WHERE", entry).replace("WHAT", attack), "domain")
}

/// An episode that calls everything that a domain exports.
pub async fn play(engine: &Engine, bytes: &[u8], spec: PluginSpec) -> Result<Scores, Error> {
    let plugin = Plugin::load(engine, spec, bytes).await?;
    let environment = Environment::new(&plugin, "problems", Map::new(), services())?;
    let agent = Agent::new(&plugin, "agent", Map::new())?;
    let reward = Reward::new(&plugin, "score", Map::new())?;
    let task: Task = environment.tasks("train", 0, 1, 1).await?.remove(0);
    // One copy at a time: others may be waiting for the permit.
    let before = environment.start(&task, 0, RandomStream::new([0; 32])).await?.snapshot().await?;
    let mut episode = environment.restore(&before).await?;
    let view = episode.view("one").await?;
    agent.prompt(&view, &Turn { agent: "one".to_owned(), visit: 0 }).await?;
    episode.oracle("one").await?;
    episode.draw(DrawingForm::Svg).await?;
    let call = ToolCall { name: "add".to_owned(), arguments: "{}".to_owned() };
    agent.call_tools(&view, &[call]).await?;
    let action = agent.parse(&view, &Completion::new("", Finish::Stop)).await?;
    let actions = vec![("one".to_owned(), action)];
    let outcome = episode.apply(actions.clone()).await?;
    reward.score(&task, &actions, &outcome).await
}
