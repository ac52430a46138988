//! Episodes: the turn graph interpreter, flat and tree sampling.
//!
//! A visit of a node (`node_visit`) is where all the work happens: views, prompts, completions, parsing, the
//! step of the environment, the reward. `flat` plays one visit after the other, `tree` draws several
//! candidates at each of them, `batch` plays many episodes at once. A [`Trace`] records every attempt, and
//! [`replay`](fn@replay) plays it again.

mod attempt;
mod batch;
mod bootstrap;
mod components;
mod context;
mod continuation;
mod environment_copy;
mod error;
mod events;
mod fault;
mod flat;
mod long_prompts;
mod node_visit;
mod plugin_components;
mod replay;
mod result;
mod setup;
mod spans;
mod tasks;
mod tool_calls;
mod trace;
mod tree;
mod turns;
mod walk;

pub use attempt::{Attempt, play_episode};
pub use batch::{LongPrompts, PlayEpisodes, RolloutBatch, RolloutPlan, RolloutProgress, play_batch};
pub use components::{Agent, Environment, Episode, PromptEncoder, Reward, TaskGenerator};
pub use context::EpisodeContext;
pub use continuation::{Continuation, continue_episode};
pub use error::{EpisodeFailure, Error};
pub use events::{AgentStep, EpisodeEvent};
pub use fault::Fault;
pub use replay::{
    Agreement, ComparedEvent, Difference, DisabledGenerator, ExternalCall, ReplayResult, replay,
};
pub use result::{EpisodeResult, EpisodeSummary};
pub use setup::{AgentRuntime, EpisodeSetup};
pub use spans::SPAN_TARGET;
pub use tasks::{TaskFile, TaskSource};
pub use trace::answers::RecordedAnswers;
pub use trace::{CandidateAttempt, EpisodeEnd, EventKind, EventPosition, Trace, TraceEvent};
