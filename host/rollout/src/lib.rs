//! Episodes: the turn graph interpreter, flat and tree sampling.
//!
//! A stop of the turn cursor (`stop`) is where all the work happens: views, prompts, completions, parsing,
//! the step of the environment, the reward. `flat` strings stops into episodes, `tree` branches at each
//! of them, `batch` plays many at once.

mod batch;
mod cast;
mod fault;
mod flat;
mod plugged;
mod record;
mod stop;
mod stream;
mod tasks;
mod tree;
mod turns;

pub use batch::{Batch, Plan, Progress, play_batch};
pub use cast::{Agent, Cast, Encode, Environment, Episode, Player, Reward};
pub use fault::{Error, Failure, Fault};
pub use flat::play_flat;
pub use record::{Context, Heard, Played, Said, Summary};
pub use stream::{Phase, Place};
pub use tasks::{Generator, TaskFile, TaskSource};
pub use tree::play_tree;
pub use turns::{Cursor, LastReward, Next};
