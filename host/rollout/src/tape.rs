//! The recording of an attempt while it is played, and the copies of an environment whose calls go on it.

use std::collections::HashMap;

use mas_dsl::workflow::Rollout;
use pl_plugin::journal::{Event, Journal, Judged};
use pl_plugin::{Outcome, Snapshot};

use crate::record::Context;
use crate::trace::{Candidate, Entry, Position, Trace, What};
use crate::{Cast, Episode, Fault};

/// What the interpreter notes. What goes on side by side has a tape each, put together in a fixed order.
#[derive(Debug, Default)]
pub(crate) struct Tape {
    stop: u32,
    candidate: Option<Candidate>,
    entries: Vec<Entry>,
}

impl Tape {
    /// An empty tape at the same place.
    pub fn beside(&self) -> Tape {
        Tape { entries: Vec::new(), ..*self }
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
        let at = Position { stop: self.stop, candidate: self.candidate, agent: agent.map(str::to_owned) };
        self.entries.push(Entry { at, what });
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
        let (place, journal) = (&context.place, context.journal(CopyId::First));
        let started =
            self.environment.start(&context.task, place.start_seed(), place.environment(), &journal).await;
        tape.did(None, "start", &journal);
        Ok(Live { episode: started?, journal })
    }

    /// A copy that goes on from a state, for the tape's stop or candidate.
    pub(crate) async fn restore(
        &self,
        context: &Context,
        state: &Snapshot,
        tape: &mut Tape,
    ) -> Result<Live, Fault> {
        let journal = context.journal(CopyId::Later(tape.stop, tape.candidate));
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

/// Tells the copies of an environment within an attempt apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum CopyId {
    /// Flat: there is no other.
    First,
    /// Tree: of a stop, or of one of its candidates.
    Later(u32, Option<Candidate>),
}

/// The sandbox's verdicts of an attempt: of each copy of the environment, call by call.
#[derive(Debug, Default)]
pub struct Verdicts(HashMap<CopyId, Vec<Vec<Judged>>>);

impl Verdicts {
    /// Those of a recorded attempt.
    pub fn of(trace: &Trace) -> Verdicts {
        let mut verdicts = Verdicts::default();
        for entry in &trace.entries {
            let What::Did { function, events } = &entry.what else { continue };
            let copy = match (trace.mode, entry.at.candidate, function.as_str()) {
                // Only the copy that a tree starts with has its state taken outside of a candidate.
                (Rollout::Flat, ..) | (Rollout::Tree, None, "start" | "snapshot") => CopyId::First,
                (Rollout::Tree, candidate, _) => CopyId::Later(entry.at.stop, candidate),
            };
            let calls = events.iter().filter_map(|event| match event {
                Event::Sandbox { verdicts, .. } => Some(verdicts.clone()),
                _ => None,
            });
            verdicts.0.entry(copy).or_default().extend(calls);
        }
        verdicts
    }

    /// A journal that answers the sandbox's calls of one copy.
    pub(crate) fn journal(&self, copy: CopyId) -> Journal {
        Journal::replaying(self.0.get(&copy).into_iter().flatten().cloned())
    }
}
