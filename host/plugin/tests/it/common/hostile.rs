//! The hostile guest of `guests/hostile.wat`: a component per deed and place, and an episode that comes by every
//! place.

use pl_plugin::{Agent, Completion, Environment, Error, Plugin, PluginSpec, Reward, Scores, Stream, Task, Turn};
use pl_types::Finish;
use pl_wasm::Engine;
use serde_json::Map;

use super::{component, services};

const GUEST: &str = include_str!("../../guests/hostile.wat");

/// Where a deed is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
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
    /// The allocator that the host calls to hand something over.
    Allocate = 11,
    /// What is called after `parse` has been read.
    CleanUp = 12,
}

pub const PLACES: [Place; 13] = [
    Place::Describe,
    Place::Start,
    Place::Restore,
    Place::Snapshot,
    Place::View,
    Place::Apply,
    Place::Tasks,
    Place::Prompt,
    Place::Parse,
    Place::Score,
    Place::Begin,
    Place::Allocate,
    Place::CleanUp,
];

impl Place {
    /// The contract's function that an error names.
    pub fn function(self) -> &'static str {
        match self {
            Self::Describe | Self::Begin => "describe",
            Self::Start => "start",
            Self::Restore => "restore",
            Self::Snapshot => "snapshot",
            Self::View => "view",
            Self::Apply => "apply",
            // The first that is handed anything.
            Self::Tasks | Self::Allocate => "tasks",
            Self::Prompt => "prompt",
            Self::Parse | Self::CleanUp => "parse",
            Self::Score => "score",
        }
    }

    /// Whether the call is not an episode's.
    pub fn is_stateless(self) -> bool {
        !matches!(self, Self::Start | Self::Restore | Self::Snapshot | Self::View | Self::Apply)
    }

    /// Whether the component model lets nothing out of the guest there: the host is in the middle of handing something
    /// over.
    pub fn is_shut(self) -> bool {
        matches!(self, Self::Allocate | Self::CleanUp)
    }

    /// What an error says of a spoilt return; none where there is nothing to spoil.
    pub fn spoilt(self, deed: Deed) -> Option<&'static str> {
        use Place::{
            Allocate, Apply, Begin, CleanUp, Describe, Parse, Prompt, Restore, Score, Snapshot, Start, Tasks,
            View,
        };
        match (self, deed) {
            (Begin | CleanUp, _) => None,
            (Allocate, Deed::Nowhere) => Some("realloc return: beyond end of memory"),
            (Allocate, _) => None,
            (Snapshot, Deed::NoCase | Deed::NotUtf8) => None,
            (_, Deed::NoCase) => Some("discriminant"),
            // What is spoilt is the handle.
            (Start | Restore, Deed::Nowhere) => Some("unknown handle index"),
            (Start | Restore, Deed::NotUtf8 | Deed::Deep) => None,
            (_, Deed::Nowhere) => Some("out of bounds of memory"),
            (_, Deed::NotUtf8) => Some("utf-8"),
            (Describe | Tasks | View | Apply | Parse, Deed::Deep) => Some("nests too deeply"),
            // Neither is JSON.
            (Prompt | Score | Snapshot, Deed::Deep) => None,
            (_, Deed::Askew) => Some("not aligned"),
            (_, Deed::Beyond) => Some("out of bounds of memory"),
            _ => None,
        }
    }
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
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

impl Deed {
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

    /// Whether it calls anything outside of the guest.
    pub fn calls_out(self) -> bool {
        self.shows_memory() || matches!(self, Self::Random | Self::Handles)
    }

    /// Whether it calls a function of the host that reads the guest's memory. A component can't before its start
    /// function has run.
    pub fn shows_memory(self) -> bool {
        matches!(self, Self::Log | Self::LongLog | Self::Retrieve | Self::Jobs)
    }
}

pub fn component_of(place: Place, deed: Deed) -> Vec<u8> {
    guest(&(place as u32).to_string(), &(deed as u32).to_string())
}

/// The same guest on its best behaviour.
pub fn harmless() -> Vec<u8> {
    guest("99", "0")
}

fn guest(place: &str, deed: &str) -> Vec<u8> {
    component(&GUEST.replace("WHERE", place).replace("WHAT", deed), "domain")
}

/// An episode that calls everything that a domain exports.
pub async fn play(engine: &Engine, bytes: &[u8], spec: PluginSpec) -> Result<Scores, Error> {
    let plugin = Plugin::load(engine, spec, bytes).await?;
    let environment = Environment::new(&plugin, "problems", Map::new(), services())?;
    let agent = Agent::new(&plugin, "agent", Map::new())?;
    let reward = Reward::new(&plugin, "score", Map::new())?;
    let task: Task = environment.tasks("train", 0, 1, 1).await?.remove(0);
    // One copy at a time: others may be waiting for the seat.
    let before = environment.start(&task, 0, Stream::new([0; 32])).await?.snapshot().await?;
    let mut episode = environment.restore(&before).await?;
    let view = episode.view("one").await?;
    agent.prompt(&view, &Turn { agent: "one".to_owned(), visit: 0 }).await?;
    let action = agent.parse(&view, &Completion::new("", Finish::Stop)).await?;
    let actions = vec![("one".to_owned(), action)];
    let outcome = episode.apply(actions.clone()).await?;
    reward.score(&task, &actions, &outcome).await
}
