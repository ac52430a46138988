//! Playing of episodes for the viewer, one after the other, on a thread that keeps the models of the last run.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};

use parking_lot::Mutex;
use pl_plugin::{Message, Part, Role};
use pl_rollout::{AgentStep, EpisodeEvent};
use pl_run::play_run::{PlayStart, PlayableRun, checkpoint_names};
use pl_run::{DevicePreference, Host, select_device};
use pl_types::Chunk;
use pl_viewer::{LiveEpisode, PlayEvent, PlayMessage, PlayRequest, Player, Unavailable};
use tokio::sync::mpsc::UnboundedReceiver;

/// Receiving end of the requests: the worker.
pub struct PlayWorker {
    jobs: Receiver<Job>,
    device: DevicePreference,
    trust: bool,
}

/// Sending end of the requests, for the viewer.
pub struct PlayQueue {
    sender: Mutex<Sender<Job>>,
    /// Episode that was requested last.
    last: Mutex<Option<LiveEpisode>>,
}

/// An episode to play, or the end of the worker.
enum Job {
    Play { run: PathBuf, request: PlayRequest, episode: LiveEpisode },
    End,
}

/// Run whose models are in memory.
struct Loaded {
    run: PathBuf,
    checkpoint: Option<String>,
    playable: PlayableRun,
}

/// Reason for which an episode ended early.
enum PlayError {
    Run(pl_run::Error),
    Cancelled,
}

impl From<pl_run::Error> for PlayError {
    fn from(error: pl_run::Error) -> PlayError {
        PlayError::Run(error)
    }
}

/// Creates the worker and its queue. With `trust`, runs of somebody else may be played.
pub fn play_worker(device: DevicePreference, trust: bool) -> (PlayQueue, PlayWorker) {
    let (sender, jobs) = channel();
    let queue = PlayQueue { sender: Mutex::new(sender), last: Mutex::default() };
    (queue, PlayWorker { jobs, device, trust })
}

impl PlayQueue {
    /// Cancels the episode that is played and ends the worker.
    pub fn end(&self) {
        if let Some(episode) = self.last.lock().as_ref() {
            episode.cancel();
        }
        // A worker that has ended needs no request to.
        let _ = self.send(Job::End);
    }

    fn send(&self, job: Job) -> Result<(), Unavailable> {
        let sender = self.sender.lock();
        sender.send(job).map_err(|_| Unavailable("the viewer is about to end".to_owned()))
    }
}

impl Player for PlayQueue {
    fn checkpoints(&self, run: &Path) -> Result<Vec<String>, Unavailable> {
        checkpoint_names(run).map_err(|error| Unavailable(error.to_string()))
    }

    fn start(&self, run: &Path, request: PlayRequest, episode: LiveEpisode) -> Result<(), Unavailable> {
        *self.last.lock() = Some(episode.clone());
        self.send(Job::Play { run: run.to_path_buf(), request, episode })
    }
}

impl PlayWorker {
    /// Plays until the queue ends.
    pub fn run(self, host: &Host) {
        let mut loaded: Option<Loaded> = None;
        while let Ok(Job::Play { run, request, episode }) = self.jobs.recv() {
            match self.play(host, &run, request, &episode, &mut loaded) {
                Ok(trace) => episode.played(trace),
                Err(PlayError::Run(error)) => episode.failed(error.to_string()),
                Err(PlayError::Cancelled) => episode.failed("cancelled".to_owned()),
            }
        }
    }

    fn play(
        &self,
        host: &Host,
        run: &Path,
        request: PlayRequest,
        episode: &LiveEpisode,
        loaded: &mut Option<Loaded>,
    ) -> Result<serde_json::Value, PlayError> {
        let newest = || checkpoint_names(run).map(|names| names.into_iter().next());
        let checkpoint = request.checkpoint.map_or_else(newest, |name| Ok(Some(name)))?;
        let is_same = |own: &Loaded| own.run == run && own.checkpoint == checkpoint;
        if !loaded.as_ref().is_some_and(is_same) {
            episode.push(PlayEvent::Loading);
            // The old models make room first.
            *loaded = None;
            let device = select_device(host, self.device)?;
            let playable = PlayableRun::open(host, run, checkpoint.as_deref(), device, self.trust)?;
            *loaded = Some(Loaded { run: run.to_path_buf(), checkpoint, playable });
        }
        let Some(Loaded { playable, .. }) = loaded else { return Err(PlayError::Cancelled) };
        if episode.is_cancelled() {
            return Err(PlayError::Cancelled);
        }
        let start = start_of(request.start, run)?;
        let trace = playable.play(host, start, async |events| {
            tokio::select! {
                () = watch(events, episode) => Ok(()),
                () = episode.cancelled() => Err(PlayError::Cancelled),
            }
        })?;
        serde_json::to_value(trace)
            .map_err(|source| PlayError::Run(pl_run::Error::State { path: run.to_path_buf(), source }))
    }
}

fn start_of(start: pl_viewer::PlayStart, run: &Path) -> Result<PlayStart, PlayError> {
    Ok(match start {
        pl_viewer::PlayStart::Task(text) => PlayStart::Task(text),
        pl_viewer::PlayStart::Turn { episode, node_visit, prompts, draw } => {
            let missing = || {
                PlayError::Run(pl_run::Error::NoEpisode {
                    run: run.to_path_buf(),
                    missing: format!("episode {episode}"),
                })
            };
            PlayStart::Turn { episode: episode.parse().map_err(|_| missing())?, node_visit, prompts, draw }
        }
    })
}

/// Hands the events of an episode on until it ends. Agents of one node write at the same time.
async fn watch(mut events: UnboundedReceiver<EpisodeEvent>, episode: &LiveEpisode) {
    let mut turns = 0..;
    let mut texts = tokio::task::JoinSet::new();
    while let Some(event) = events.recv().await {
        match event {
            EpisodeEvent::Prompted { agent, visit, messages, text } => {
                let Some(turn) = turns.next() else { break };
                let messages = messages.iter().map(message).collect();
                episode.push(PlayEvent::Prompted { turn, agent, visit, messages });
                texts.spawn(write(turn, text, episode.clone()));
            }
            EpisodeEvent::Acted(step) => {
                // An agent acts after all of its text.
                while texts.join_next().await.is_some() {}
                let AgentStep { agent, action, reward, success, tokens, .. } = step;
                episode.push(PlayEvent::Acted { agent, action, reward, success, tokens });
            }
            // The page shows the drawings of recorded episodes, and the faults of the one that was played.
            EpisodeEvent::Drawn(_) | EpisodeEvent::Restarted(_) | EpisodeEvent::PromptTooLong { .. } => {}
        }
    }
    while texts.join_next().await.is_some() {}
}

async fn write(turn: u32, mut text: UnboundedReceiver<Chunk>, episode: LiveEpisode) {
    while let Some(chunk) = text.recv().await {
        if !chunk.text.is_empty() {
            episode.push(PlayEvent::Text { turn, text: chunk.text });
        }
    }
}

fn message(message: &Message) -> PlayMessage {
    let role = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let part = |part: &Part| match part {
        Part::Text(text) => text.clone(),
        Part::Image { .. } => "(image)".to_owned(),
        Part::Data { .. } => "(data)".to_owned(),
    };
    PlayMessage { role: role.to_owned(), text: message.parts.iter().map(part).collect() }
}
