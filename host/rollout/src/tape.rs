//! The recording of an attempt while it is played, and the copies of an environment whose calls go on it.

use std::sync::Arc;

use pl_plugin::journal::{Event, Journal};
use pl_plugin::{Outcome, Snapshot};

use crate::record::Context;
use crate::recorded::{Asker, CopyId, Recorded};
use crate::trace::{Candidate, Entry, Position, What};
use crate::{Cast, Episode, Fault};

/// What the interpreter notes. What goes on side by side has a tape each, put together in a fixed order.
#[derive(Debug, Default)]
pub(crate) struct Tape {
    stop: u32,
    candidate: Option<Candidate>,
    entries: Vec<Entry>,
    /// A replay: what plugins are answered with.
    recorded: Option<Arc<Recorded>>,
}

impl Tape {
    /// An empty tape.
    pub fn new(recorded: Option<Arc<Recorded>>) -> Tape {
        Tape { recorded, ..Tape::default() }
    }

    /// An empty tape at the same place.
    pub fn beside(&self) -> Tape {
        let Tape { stop, candidate, .. } = *self;
        Tape { stop, candidate, ..Tape::new(self.recorded.clone()) }
    }

    /// An empty tape for one of the stop's candidates.
    pub fn of_candidate(&self, branch: u32, retry: u32) -> Tape {
        Tape { candidate: Some(Candidate { branch, retry }), ..self.beside() }
    }

    /// What follows is of this stop.
    pub fn at(&mut self, stop: u32) {
        self.stop = stop;
    }

    pub fn stop(&self) -> u32 {
        self.stop
    }

    pub fn note(&mut self, agent: Option<&str>, what: What) {
        let at = self.position(agent);
        self.entries.push(Entry { at, what });
    }

    fn position(&self, agent: Option<&str>) -> Position {
        Position { stop: self.stop, candidate: self.candidate, agent: agent.map(str::to_owned) }
    }

    /// The journal of a call that keeps nothing: of an agent, or the reward.
    pub fn journal(&self, agent: Option<&str>, function: &str) -> Journal {
        self.journal_of(|| Asker::Call(self.position(agent), function.to_owned()))
    }

    fn journal_of(&self, asker: impl FnOnce() -> Asker) -> Journal {
        self.recorded.as_ref().map_or_else(Journal::default, |recorded| recorded.journal(&asker()))
    }

    pub fn fault(&mut self, fault: &Fault) {
        self.note(fault.agent.as_deref(), What::fault(fault));
    }

    /// Takes in what a plugin did while one of its functions was called.
    pub fn did(&mut self, agent: Option<&str>, function: &str, journal: &Journal) {
        let events = journal.take();
        if !events.is_empty() {
            self.note(agent, What::Did { function: function.to_owned(), events });
        }
    }

    /// Whether a plugin asked a host: what came of it is the world's doing.
    pub fn asked(&self) -> bool {
        let events = self.entries.iter().flat_map(|entry| match &entry.what {
            What::Did { events, .. } => events.as_slice(),
            _ => &[],
        });
        events.into_iter().any(|event| matches!(event, Event::Http { .. }))
    }

    pub fn append(&mut self, other: Tape) {
        self.entries.extend(other.entries);
    }

    pub fn into_entries(self) -> Vec<Entry> {
        self.entries
    }
}

/// A copy of an environment, with the journal that its plugin writes.
pub(crate) struct Live {
    episode: Box<dyn Episode>,
    journal: Journal,
}

impl Cast {
    /// The copy that an episode starts with.
    pub(crate) async fn start(&self, context: &Context, tape: &mut Tape) -> Result<Live, Fault> {
        let (place, journal) = (&context.place, tape.journal_of(|| Asker::Copy(CopyId::First)));
        let started =
            self.environment.start(&context.task, place.start_seed(), place.environment(), &journal).await;
        tape.did(None, "start", &journal);
        Ok(Live { episode: started?, journal })
    }

    /// A copy that goes on from a state, for the tape's stop or candidate.
    pub(crate) async fn restore(&self, state: &Snapshot, tape: &mut Tape) -> Result<Live, Fault> {
        let journal = tape.journal_of(|| Asker::Copy(CopyId::Later(tape.stop, tape.candidate)));
        let restored = self.environment.restore(state, &journal).await;
        tape.did(None, "restore", &journal);
        Ok(Live { episode: restored?, journal })
    }
}

impl Live {
    pub async fn view(&mut self, agent: &str, tape: &mut Tape) -> Result<String, Fault> {
        let view = self.episode.view(agent).await;
        tape.did(Some(agent), "view", &self.journal);
        view
    }

    pub async fn apply(&mut self, actions: &[(String, String)], tape: &mut Tape) -> Result<Outcome, Fault> {
        let outcome = self.episode.apply(actions).await;
        tape.did(None, "apply", &self.journal);
        outcome
    }

    pub async fn snapshot(&mut self, tape: &mut Tape) -> Result<Snapshot, Fault> {
        let state = self.episode.snapshot().await;
        tape.did(None, "snapshot", &self.journal);
        state
    }

    pub async fn rest(&mut self, tape: &mut Tape) -> Result<(), Fault> {
        let rests = self.episode.rest().await;
        tape.did(None, "rest", &self.journal);
        rests
    }

    pub fn reproducible(&self) -> bool {
        self.episode.reproducible()
    }
}
