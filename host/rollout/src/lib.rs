//! Episodes: the turn graph interpreter, flat and tree sampling.
//!
//! A stop of the turn cursor (`stop`) is where all the work happens: views, prompts, completions, parsing,
//! the step of the environment, the reward. `flat` strings stops into episodes, `tree` branches at each
//! of them, `batch` plays many at once. All that happens goes on a `tape`; a `trace` is what is kept of it, and `replay`
//! plays it again.

mod attempt;
mod batch;
mod cast;
mod difference;
mod fault;
mod flat;
mod plugged;
mod record;
mod recorded;
mod replay;
mod stop;
mod stream;
mod tape;
mod tasks;
mod trace;
mod tree;
mod turns;

pub use attempt::{Attempt, play};
pub use batch::{Batch, Plan, Progress, play_batch};
pub use cast::{Agent, Cast, Encode, Environment, Episode, Player, Reward};
pub use difference::{Difference, Moment, Sent};
pub use fault::{Error, Failure, Fault};
pub use record::{Context, Heard, Played, Said, Summary};
pub use recorded::Recorded;
pub use replay::{Agreement, NoModel, Replayed, replay};
pub use stream::{Phase, Place};
pub use tasks::{Generator, TaskFile, TaskSource};
pub use trace::{Candidate, End, Entry, EpisodeId, Position, Trace, What};
pub use turns::{Cursor, LastReward, Next};
