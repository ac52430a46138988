//! Episodes that are played from the page, one at a time.
//!
//! The program that starts the viewer plays them ([`Player`]): the viewer knows no models. A page asks for the events
//! after those that it has.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;

use crate::episode::EpisodeDetails;
use crate::error::Error;
use crate::workflow::Unavailable;

/// Largest number of events of an episode that are kept. An event may be a single token.
const MOST_EVENTS: usize = 1 << 18;

/// Time for which a request waits for new events.
const WAIT: Duration = Duration::from_secs(2);

/// Request to play an episode.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlayRequest {
    /// Run, by its name.
    pub run: String,
    /// Name of a checkpoint among those of [`Player::checkpoints`]. `None` for the newest.
    #[serde(default)]
    pub checkpoint: Option<String>,
    pub start: PlayStart,
}

/// Start of an episode.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum PlayStart {
    /// A task: a record as JSON, or a question in words. `None` for the first task of the environment.
    Task(Option<String>),
    /// A turn of a recorded episode.
    Turn {
        episode: String,
        /// Number of node visits that are played again.
        node_visit: u32,
        /// Texts that take the place of the prompts at that visit, by agent.
        #[serde(default)]
        prompts: HashMap<String, String>,
        /// Number of the draw; 0 has the recorded random streams.
        #[serde(default)]
        draw: u64,
    },
}

/// Event of an episode.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PlayEvent {
    /// The models are loaded, if they are not in memory.
    Loading,
    /// An agent was prompted. Its completion has the number `turn`.
    Prompted { turn: u32, agent: String, visit: u32, messages: Vec<PlayMessage> },
    /// Text of a completion since the event before.
    Text { turn: u32, text: String },
    /// An agent acted.
    Acted { agent: String, action: String, reward: f64, success: bool, tokens: usize },
}

/// Message of a prompt.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlayMessage {
    pub role: String,
    pub text: String,
}

/// Player of episodes.
pub trait Player: Send + Sync {
    /// Returns the names of a run's checkpoints, the newest first.
    ///
    /// # Errors
    /// If they can't be read.
    fn checkpoints(&self, run: &Path) -> Result<Vec<String>, Unavailable>;

    /// Starts an episode of a run and returns at once. Its events and its end go to `episode`.
    ///
    /// # Errors
    /// If no episode can be played any more.
    fn start(&self, run: &Path, request: PlayRequest, episode: LiveEpisode) -> Result<(), Unavailable>;
}

/// Receiver of the events of an episode that is played. Clones are of the same episode.
#[derive(Clone)]
pub struct LiveEpisode(Arc<Live>);

struct Live {
    events: Mutex<Events>,
    /// Counts changes, for requests that wait.
    changed: watch::Sender<u64>,
    cancelled: watch::Sender<bool>,
}

#[derive(Default)]
struct Events {
    list: Vec<PlayEvent>,
    end: Option<PlayEnd>,
}

/// End of an episode.
#[derive(Clone)]
enum PlayEnd {
    /// Trace, JSON.
    Played(Arc<Value>),
    Failed(String),
    Cancelled,
}

impl LiveEpisode {
    fn new() -> LiveEpisode {
        let (changed, cancelled) = (watch::Sender::new(0), watch::Sender::new(false));
        LiveEpisode(Arc::new(Live { events: Mutex::default(), changed, cancelled }))
    }

    /// Adds an event.
    pub fn push(&self, event: PlayEvent) {
        self.change(|events| {
            if events.list.len() < MOST_EVENTS {
                events.list.push(event);
            }
        });
    }

    /// Ends the episode with its trace, JSON.
    pub fn played(&self, trace: Value) {
        self.end(PlayEnd::Played(Arc::new(trace)));
    }

    /// Ends the episode with the reason for which it can't be played.
    pub fn failed(&self, reason: String) {
        self.end(PlayEnd::Failed(reason));
    }

    /// Returns true if the user has cancelled the episode.
    pub fn is_cancelled(&self) -> bool {
        *self.0.cancelled.borrow()
    }

    /// Waits until the user cancels the episode.
    pub async fn cancelled(&self) {
        // The sender is part of `self`.
        let _ = self.0.cancelled.subscribe().wait_for(|cancelled| *cancelled).await;
    }

    /// Cancels the episode.
    pub fn cancel(&self) {
        self.0.cancelled.send_replace(true);
    }

    /// The first end counts.
    fn end(&self, end: PlayEnd) {
        let end = if self.is_cancelled() { PlayEnd::Cancelled } else { end };
        self.change(|events| {
            events.end.get_or_insert(end);
        });
    }

    fn change(&self, change: impl FnOnce(&mut Events)) {
        change(&mut self.0.events.lock());
        self.0.changed.send_modify(|count| *count += 1);
    }

    fn is_over(&self) -> bool {
        self.0.events.lock().end.is_some()
    }

    /// Returns the events after the first `after`, and the end.
    fn read(&self, after: usize) -> (Vec<PlayEvent>, Option<PlayEnd>) {
        let events = self.0.events.lock();
        (events.list.iter().skip(after).cloned().collect(), events.end.clone())
    }
}

/// The player and the episode that it played last.
pub(crate) struct Plays {
    player: Arc<dyn Player>,
    last: Mutex<Option<Play>>,
}

#[derive(Clone)]
struct Play {
    id: u64,
    run: String,
    episode: LiveEpisode,
}

/// Events of the episode that was played last.
#[derive(Serialize)]
pub(crate) struct PlayProgress {
    id: u64,
    run: String,
    events: Vec<PlayEvent>,
    /// Number of events up to here.
    next: usize,
    over: bool,
    /// The whole episode, once it is over.
    episode: Option<EpisodeDetails>,
    /// Reason for which there is no episode.
    failure: Option<String>,
}

impl Plays {
    pub(crate) fn new(player: Arc<dyn Player>) -> Plays {
        Plays { player, last: Mutex::default() }
    }

    pub(crate) fn checkpoints(&self, run: &Path) -> Result<Vec<String>, Unavailable> {
        self.player.checkpoints(run)
    }

    /// Starts an episode and returns its number.
    pub(crate) fn start(&self, run: &Path, request: PlayRequest) -> Result<u64, Error> {
        let mut last = self.last.lock();
        if let Some(play) = last.as_ref().filter(|play| !play.episode.is_over()) {
            return Err(Error::Playing { run: play.run.clone() });
        }
        let id = last.as_ref().map_or(1, |play| play.id + 1);
        let (name, episode) = (request.run.clone(), LiveEpisode::new());
        self.player.start(run, request, episode.clone())?;
        *last = Some(Play { id, run: name, episode });
        Ok(id)
    }

    pub(crate) fn cancel(&self) {
        if let Some(play) = self.last() {
            play.episode.cancel();
        }
    }

    fn last(&self) -> Option<Play> {
        self.last.lock().clone()
    }

    /// Waits for events after the first `after` of an episode. `arrange` makes an episode of a trace.
    pub(crate) async fn progress(
        &self,
        id: u64,
        after: usize,
        arrange: impl FnOnce(&str, &Value) -> Result<EpisodeDetails, Error>,
    ) -> Result<PlayProgress, Error> {
        let play = self.last().filter(|play| play.id == id).ok_or(Error::UnknownPlay)?;
        let mut changes = play.episode.0.changed.subscribe();
        let (mut events, mut end) = play.episode.read(after);
        if events.is_empty() && end.is_none() {
            // An end of the time is an answer without events.
            let _ = tokio::time::timeout(WAIT, changes.changed()).await;
            (events, end) = play.episode.read(after);
        }
        let (mut episode, mut failure) = (None, None);
        match &end {
            // Reads the model's tokenizer, at least the first time.
            Some(PlayEnd::Played(trace)) => {
                episode = Some(tokio::task::block_in_place(|| arrange(&play.run, trace))?);
            }
            Some(PlayEnd::Failed(reason)) => failure = Some(reason.clone()),
            Some(PlayEnd::Cancelled) => failure = Some("cancelled".to_owned()),
            None => {}
        }
        let next = after + events.len();
        Ok(PlayProgress { id, run: play.run, events, next, over: end.is_some(), episode, failure })
    }
}
