//! Episodes that go on from a turn of a recorded attempt: the turns before it are played again on the recorded
//! completions, those from it on with a model.
//!
//! Plugins and the sandbox run again, so that the environment is in the state in which it was. A prompt
//! that differs from the recorded one ends the episode: the state could not be reached again.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use pl_dsl::workflow::Rollout;
use pl_types::{Completion, Generate, GenerateError, PartHasher, Request};

use crate::attempt::{Attempt, play_episode};
use crate::context::EpisodeContext;
use crate::setup::EpisodeSetup;
use crate::trace::{CandidateAttempt, EventKind, Trace, recorded_completion};

/// Turn of a recorded attempt from which an episode goes on.
#[derive(Debug, Clone, Default)]
pub struct Continuation {
    /// Number of node visits that are played again.
    pub node_visit: u32,
    /// Token ids that take the place of prompts at that visit, by agent.
    pub prompts: HashMap<String, Vec<u32>>,
    /// Number of the draw: 0 has the recorded random streams, others have streams of their own.
    pub draw: u64,
    /// Versions of all policies.
    pub versions: Arc<[u64]>,
}

/// Goes on from a recorded attempt, of an episode or along the path that a tree took, as an episode. A penalty for
/// faults in `setup` has the effect that it has in any episode.
pub async fn continue_episode(setup: &EpisodeSetup, trace: &Trace, from: &Continuation) -> Attempt {
    let generator = Arc::new(Continued::new(setup, trace, from));
    let setup = EpisodeSetup { generator, ..setup.clone() };
    let context = EpisodeContext {
        key: trace.key.clone(),
        task: Arc::new(trace.task.clone()),
        versions: Arc::clone(&from.versions),
        mode: Rollout::Flat,
        candidates: 1,
        suspends: false,
        answers: None,
    };
    play_episode(&setup, &context).await
}

/// A completion with the prompt that it answers.
struct RecordedTurn {
    prompt: Vec<u32>,
    completion: Completion,
}

/// Generator that answers with recorded completions before a turn, and asks another one from it on.
struct Continued {
    /// By the seed of the completion in an episode.
    recorded: HashMap<[u8; 32], RecordedTurn>,
    /// Prompts that take the place of others, by the seed of the completion.
    edited: HashMap<[u8; 32], Arc<[u32]>>,
    draw: u64,
    live: Arc<dyn Generate>,
}

impl Continued {
    fn new(setup: &EpisodeSetup, trace: &Trace, from: &Continuation) -> Continued {
        let index = |name: &str| setup.agents.iter().position(|agent| agent.name == name);
        let seed = |node_visit: u32, agent: usize, call: usize| {
            trace.key.completion(node_visit, agent as u32, 0, 0, call as u32)
        };
        let mut recorded = HashMap::new();
        for visit in 0..from.node_visit {
            for (agent, calls) in recorded_turns(trace, visit) {
                let Some(agent) = index(&agent) else { continue };
                let seeded = calls.into_iter().enumerate();
                recorded.extend(seeded.map(|(call, turn)| (seed(visit, agent, call), turn)));
            }
        }
        let edited = from.prompts.iter().filter_map(|(agent, prompt)| {
            Some((seed(from.node_visit, index(agent)?, 0), Arc::from(prompt.as_slice())))
        });
        Continued { recorded, edited: edited.collect(), draw: from.draw, live: Arc::clone(&setup.generator) }
    }
}

/// Returns the model calls of a node visit by agent: of a tree, those of the branch that it took. Of several attempts at
/// a candidate, the last was taken.
fn recorded_turns(trace: &Trace, node_visit: u32) -> HashMap<String, Vec<RecordedTurn>> {
    let events = || trace.events.iter().filter(|event| event.position.node_visit == node_visit);
    let chosen = events().find_map(|event| match event.kind {
        EventKind::Chosen(branch) => Some(branch),
        _ => None,
    });
    // Candidates share their first prompt, and have later ones of their own after tool calls.
    let mut prompts: HashMap<(&str, Option<CandidateAttempt>), &Vec<u32>> = HashMap::new();
    let mut turns: HashMap<String, (Option<CandidateAttempt>, Vec<RecordedTurn>)> = HashMap::new();
    for event in events() {
        let Some(agent) = event.position.agent.as_deref() else { continue };
        match &event.kind {
            EventKind::Prompted { prompt, .. } => {
                prompts.insert((agent, event.position.candidate), prompt);
            }
            EventKind::Completion { text, finish, tokens }
                if event.position.candidate.map(|candidate| candidate.branch) == chosen =>
            {
                let completion = recorded_completion(text, *finish, tokens);
                let attempt = event.position.candidate;
                let prompt = prompts.get(&(agent, attempt)).or_else(|| prompts.get(&(agent, None)));
                let prompt = prompt.map(|prompt| (*prompt).clone()).unwrap_or_default();
                let (own, calls) = turns.entry(agent.to_owned()).or_default();
                if *own != attempt {
                    (*own, *calls) = (attempt, Vec::new());
                }
                calls.push(RecordedTurn { prompt, completion });
            }
            _ => {}
        }
    }
    turns.into_iter().map(|(agent, (_, calls))| (agent, calls)).collect()
}

#[async_trait]
impl Generate for Continued {
    async fn generate(&self, mut request: Request) -> Result<Vec<Completion>, GenerateError> {
        let Some(seed) = request.seeds.first().copied() else { return self.live.generate(request).await };
        if let Some(turn) = self.recorded.get(&seed) {
            if *turn.prompt != *request.prompt {
                let reason = "the recorded turns can't be played again: a prompt differs from the recorded one, because \
                              a plugin, a program or a search has answered otherwise";
                return Err(GenerateError::Failed { policy: request.policy, reason: reason.to_owned() });
            }
            turn.completion.send_whole(0, request.listener.as_ref());
            return Ok(vec![turn.completion.clone()]);
        }
        if let Some(prompt) = self.edited.get(&seed) {
            request.prompt = Arc::clone(prompt);
        }
        if self.draw > 0 {
            for seed in &mut request.seeds {
                *seed = PartHasher::derive_key("pl-host continuation v1").fixed(seed).u64(self.draw).seed();
            }
        }
        self.live.generate(request).await
    }
}
