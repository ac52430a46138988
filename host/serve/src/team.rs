//! A team as one model: its turns are played, and the last agent's completion is the response.

use async_trait::async_trait;
use serde::Serialize;
use tokio::sync::mpsc::UnboundedSender;

/// A team that works on tasks.
#[async_trait]
pub trait Team: Send + Sync {
    /// Plays one episode on a task, given in words or as a JSON record. Its events go to `events` as it is played. `seed`
    /// determines all random draws. Dropping the future ends the episode.
    ///
    /// # Errors
    /// [`TeamError`] if the episode failed.
    async fn play(
        &self,
        task: &str,
        seed: u64,
        events: UnboundedSender<TeamEvent>,
    ) -> Result<TeamResult, TeamError>;
}

/// Event of an episode.
#[derive(Debug, Clone, PartialEq)]
pub enum TeamEvent {
    /// An agent was prompted: the turn that ended last was not the last one of the episode.
    Prompted,
    /// A turn has ended.
    Turn(TeamTurn),
}

/// One turn of an episode.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TeamTurn {
    pub agent: String,
    /// Text of the completion.
    pub content: String,
    /// The action that the agent's plugin made of it, as JSON.
    pub action: String,
    /// Number of tokens of the prompts of the turn, one for each model call.
    pub prompt_tokens: usize,
    /// Number of tokens of its completions.
    pub tokens: usize,
}

/// The end of an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TeamResult {
    /// True if the episode ended at a limit instead of by itself.
    pub truncated: bool,
}

/// Failure of an episode in all of its attempts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TeamError {
    /// The environment can't start with the task: another one is needed.
    #[error("the team's environment refuses this task: {0}")]
    Task(String),
    /// Failure elsewhere.
    #[error("the team could not play this task: {0}")]
    Episode(String),
}
