//! A recorded attempt played again: the same interpreter and components, on the completions, verdicts and answers of
//! the recording. What they do now is held against what they did then, entry by entry.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use pl_inference::{Chunk, Completion, Error as GenerateError, Finish, Generate, Request};
use pl_plugin::journal::Event;

use crate::Cast;
use crate::attempt::{Attempt, play};
use crate::difference::{Difference, Moment, Sent};
use crate::record::Context;
use crate::recorded::Recorded;
use crate::trace::{Entry, Trace, What};

/// What came of a replay.
#[derive(Debug)]
pub struct Replayed {
    /// The attempt as it went now, with its own trace.
    pub now: Attempt,
    pub agreement: Agreement,
}

/// How a replay compares with its recording.
#[derive(Debug, Clone, PartialEq)]
pub enum Agreement {
    /// Every prompt token, action, outcome, score, job and request is the recorded one, and so is the end.
    Whole,
    /// All is equal up to where a wall clock ended a call when it was recorded, which is not to be repeated.
    UpToClock,
    Differs(Box<Difference>),
}

/// Plays a recorded attempt again and compares. No model is asked, no code runs in a sandbox, and plugins that ask hosts
/// get the answers that were recorded.
pub async fn replay(cast: &Cast, trace: &Trace) -> Replayed {
    let cast = Cast { generator: Arc::new(Recording::of(cast, trace)), ..cast.clone() };
    let context = Context {
        place: trace.place.clone(),
        task: Arc::new(trace.task.clone()),
        versions: Arc::new([]),
        mode: trace.mode,
        candidates: trace.candidates,
        rests: trace.rests,
        recorded: Some(Arc::new(Recorded::of(trace))),
    };
    let now = play(&cast, &context).await;
    let agreement = compare(trace, &now.trace);
    Replayed { now, agreement }
}

/// A model that says nothing: of a cast that only plays recordings.
pub struct NoModel;

#[async_trait]
impl Generate for NoModel {
    async fn generate(&self, request: Request) -> Result<Vec<Completion>, GenerateError> {
        Err(GenerateError::Failed { policy: request.policy, reason: "no model is loaded".to_owned() })
    }
}

/// The completions of a trace, by the seeds that they were drawn with.
struct Recording(HashMap<[u8; 32], Completion>);

impl Recording {
    fn of(cast: &Cast, trace: &Trace) -> Recording {
        let said = trace.entries.iter().filter_map(|entry| {
            let What::Said { text, finish, tokens } = &entry.what else { return None };
            let agent =
                cast.players.iter().position(|player| Some(&player.name) == entry.at.agent.as_ref())?;
            let (branch, retry) = entry.at.candidate.map_or((0, 0), |c| (c.branch, c.retry));
            let completion = Completion {
                tokens: tokens.clone(),
                // Nothing is learnt from a replay.
                logprobs: Vec::new(),
                kept: None,
                top: Vec::new(),
                text: text.clone(),
                finish: match finish {
                    pl_plugin::Finish::Length => Finish::Length,
                    pl_plugin::Finish::Stop | pl_plugin::Finish::ToolCalls => Finish::Stop,
                },
                version: 0,
            };
            Some((trace.place.completion(entry.at.stop, agent as u32, branch, retry), completion))
        });
        Recording(said.collect())
    }
}

#[async_trait]
impl Generate for Recording {
    async fn generate(&self, request: Request) -> Result<Vec<Completion>, GenerateError> {
        let mut completions = Vec::with_capacity(request.seeds.len());
        for (index, seed) in request.seeds.iter().enumerate() {
            let Some(completion) = self.0.get(seed) else {
                let reason = "the recording has no completion here".to_owned();
                return Err(GenerateError::Failed { policy: request.policy, reason });
            };
            if let Some(listener) = &request.listener {
                let (tokens, text) = (completion.tokens.clone(), completion.text.clone());
                // Whoever went away misses nothing.
                let _ = listener.send(Chunk { index, tokens, text, last: true });
            }
            completions.push(completion.clone());
        }
        Ok(completions)
    }
}

/// Holds two traces of one attempt against each other.
fn compare(recorded: &Trace, now: &Trace) -> Agreement {
    let (mut then, mut today) = (moments(recorded), moments(now));
    loop {
        match (then.next(), today.next()) {
            (None, None) => return Agreement::Whole,
            (Some(a), Some(b)) if a.equals(&b) => {}
            (Some(Moment::Entry(entry)), _) if by_clock(&entry) => return Agreement::UpToClock,
            (a, b) => {
                let (place, task_id) = (recorded.place.clone(), recorded.task.id.clone());
                return Agreement::Differs(Box::new(Difference { place, task_id, recorded: a, now: b }));
            }
        }
    }
}

fn by_clock(entry: &Entry) -> bool {
    matches!(entry.what, What::Fault { reproducible: false, .. })
}

/// What is compared, in order. What the model said is given, and what plugins log or print is theirs to change.
fn moments(trace: &Trace) -> impl Iterator<Item = Moment> + '_ {
    trace.entries.iter().flat_map(|entry| match &entry.what {
        What::Said { .. } => Vec::new(),
        What::Did { function, events } => {
            let (at, function) = (&entry.at, function);
            let moment = |sent| Moment::Sent { at: at.clone(), function: function.clone(), sent };
            let sent = events.iter().filter_map(|event| match event {
                Event::Sandbox { jobs, .. } => Some(Sent::Jobs(jobs.clone())),
                Event::Http { request, hash, .. } => {
                    Some(Sent::Request { request: request.clone(), hash: hash.clone() })
                }
                Event::Log { .. } | Event::Output { .. } | Event::Cut { .. } => None,
            });
            sent.map(moment).collect()
        }
        _ => vec![Moment::Entry(entry.clone())],
    })
}
