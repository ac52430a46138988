//! Search for teams without training: a designer proposes, its designs are checked and played, and it sees the results.
//!
//! A round begins with one prompt, which shows the best designs so far and the mistakes of others, as in ADAS (Hu et al.
//! 2024, arXiv:2408.08435). Round 0 has no prompt: it plays the scenario's own turns and the hand-made patterns. Every
//! design is a line of `designs.jsonl`, so that a search that was stopped anywhere goes on from there: the same seed gives
//! the same designs.

mod brief;
mod episode;
mod execute;
mod files;
mod numbers;
mod prompt;
mod propose;
mod record;
mod scenario;
mod search;
mod subject;
mod team;
mod view;

pub(crate) use self::episode::design_of;
pub(crate) use self::numbers::{designer_number, executor_numbers};
pub(crate) use self::record::hash_of;
pub(crate) use self::scenario::ScenarioDesigner;
pub(crate) use self::team::{Assessment, files_of_designs};

pub use self::record::{Archive, DesignRecord, Outcome, read_designs};
pub use self::search::{SearchEnding, SearchOptions, search};
