//! The replay of a recorded attempt: the same interpreter and components run again, with the completions,
//! verdicts and HTTP responses of the recording. Their events are compared with the recorded ones.

mod diff;

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use pl_types::{Completion, Generate, GenerateError, Request};

use crate::attempt::{Attempt, play_episode};
use crate::context::EpisodeContext;
use crate::setup::EpisodeSetup;
use crate::trace::answers::RecordedAnswers;
use crate::trace::{EventKind, EventPosition, Trace, recorded_completion};

pub use diff::{Agreement, ComparedEvent, Difference, ExternalCall};

/// The result of a replay.
#[derive(Debug)]
pub struct ReplayResult {
    /// The attempt as it was played now, with its own trace.
    pub attempt: Attempt,
    pub agreement: Agreement,
}

/// Plays a recorded attempt again and compares. No model generates, no code runs in a sandbox, and HTTP
/// requests of plugins get the recorded responses.
pub async fn replay(setup: &EpisodeSetup, trace: &Trace) -> ReplayResult {
    let generator = Arc::new(RecordedCompletions::from_trace(setup, trace));
    let setup = EpisodeSetup { generator, drawings: false, ..setup.clone() };
    let context = EpisodeContext {
        key: trace.key.clone(),
        task: Arc::new(trace.task.clone()),
        versions: Arc::new([]),
        mode: trace.mode,
        candidates: trace.candidates,
        suspends: trace.suspends,
        answers: Some(Arc::new(RecordedAnswers::from_trace(trace))),
    };
    let attempt = play_episode(&setup, &context).await;
    let agreement = diff::compare(trace, &attempt.trace);
    ReplayResult { attempt, agreement }
}

/// A generator that fails every request, for setups that only replay.
pub struct DisabledGenerator;

#[async_trait]
impl Generate for DisabledGenerator {
    async fn generate(&self, request: Request) -> Result<Vec<Completion>, GenerateError> {
        Err(GenerateError::Failed { policy: request.policy, reason: "no model is loaded".to_owned() })
    }
}

/// The completions of a trace, by the seeds that they were drawn with.
struct RecordedCompletions(HashMap<[u8; 32], Completion>);

impl RecordedCompletions {
    fn from_trace(setup: &EpisodeSetup, trace: &Trace) -> RecordedCompletions {
        // Number of completions so far in each turn.
        let mut calls: HashMap<&EventPosition, u32> = HashMap::new();
        let completions = trace.events.iter().filter_map(|event| {
            let EventKind::Completion { text, finish, tokens } = &event.kind else { return None };
            let position = &event.position;
            let agent =
                setup.agents.iter().position(|runtime| Some(&runtime.name) == position.agent.as_ref())?;
            let (branch, retry) = position.candidate.map_or((0, 0), |c| (c.branch, c.retry));
            let call = calls.entry(position).or_default();
            let seed = trace.key.completion(position.node_visit, agent as u32, branch, retry, *call);
            *call += 1;
            Some((seed, recorded_completion(text, *finish, tokens)))
        });
        RecordedCompletions(completions.collect())
    }
}

#[async_trait]
impl Generate for RecordedCompletions {
    async fn generate(&self, request: Request) -> Result<Vec<Completion>, GenerateError> {
        let mut completions = Vec::with_capacity(request.seeds.len());
        for (index, seed) in request.seeds.iter().enumerate() {
            let Some(completion) = self.0.get(seed) else {
                let reason = "the recording has no completion for this prompt".to_owned();
                return Err(GenerateError::Failed { policy: request.policy, reason });
            };
            completion.send_whole(index, request.listener.as_ref());
            completions.push(completion.clone());
        }
        Ok(completions)
    }
}
