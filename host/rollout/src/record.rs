//! What is kept of an episode: transitions for the learner and a summary for the metrics; and what people hear of
//! it meanwhile.

use std::sync::Arc;

use pl_dsl::workflow::Rollout;
use pl_inference::Chunk;
use pl_plugin::{Message, Task};
use pl_record::{Group, Key, Transition};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::recorded::Recorded;
use crate::stop::{Answer, Question, Step};
use crate::{Cast, Failure, Fault, Place};

/// What became of an episode (flat) or of the path that a tree took.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    pub task: u32,
    pub task_id: String,
    pub sample: u32,
    /// The team's success after the last step.
    pub success: bool,
    /// By agent index: reward and success of its last step; none where it never acted.
    pub agents: Vec<Option<(f64, bool)>>,
    /// Stops of the turn cursor.
    pub turns: u32,
    /// Tokens sampled, those of candidates not chosen included.
    pub tokens: u64,
    pub truncated: bool,
    /// False where a wall clock or a host that a plugin asked, not the code, decided something.
    pub reproducible: bool,
}

/// What came of an agent's turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    pub agent: String,
    /// JSON.
    pub action: String,
    pub reward: f64,
    pub success: bool,
    pub tokens: usize,
}

/// What a listener hears of episodes while they are played.
#[derive(Debug)]
pub enum Heard {
    /// An agent was asked, and answers.
    Asked {
        agent: String,
        visit: u32,
        messages: Vec<Message>,
        /// The completions as they come.
        text: UnboundedReceiver<Chunk>,
    },
    /// What came of an answer that the episode goes on from.
    Done(Said),
}

/// What was played of an episode or tree.
#[derive(Debug, Clone)]
pub struct Played {
    pub transitions: Vec<Transition>,
    pub summary: Summary,
    /// Candidates that failed alone.
    pub failures: Vec<Failure>,
}

/// What stays the same over an episode.
#[derive(Debug, Clone)]
pub struct Context {
    pub place: Place,
    pub task: Arc<Task>,
    /// Versions of all policies when the episode started.
    pub versions: Arc<[u64]>,
    pub mode: Rollout,
    /// Tree: candidates per node. Flat: ignored.
    pub candidates: u32,
    /// Flat: the environment makes room for others while a model is asked. Tree: ignored, since states are snapshots
    /// between calls.
    pub rests: bool,
    /// A replay: what plugins are answered with.
    pub recorded: Option<Arc<Recorded>>,
}

/// Where in the episode a transition stands.
pub(crate) struct Spot<'a> {
    pub node_visit: u32,
    pub branch: u32,
    /// Tree: the state's hash; groups are then per node.
    pub state: Option<&'a str>,
    pub chosen: bool,
}

impl Context {
    pub(crate) fn transition(
        &self,
        cast: &Cast,
        question: &Question,
        answer: &Answer,
        step: &Step,
        spot: &Spot<'_>,
    ) -> Transition {
        let player = &cast.players[question.agent];
        let key = Key {
            step: self.place.step,
            task: self.place.task,
            sample: self.place.sample,
            node_visit: spot.node_visit,
            agent: question.agent as u32,
            branch: spot.branch,
        };
        Transition {
            group: Group {
                step: key.step,
                task: key.task,
                agent: key.agent,
                turn: question.visit,
                node_visit: spot.state.map(|_| spot.node_visit),
            },
            key,
            task_id: self.task.id.clone(),
            agent: player.name.clone(),
            policy: player.policy as u32,
            turn: question.visit,
            prompt: question.prompt.to_vec(),
            completion: answer.completion.tokens.clone(),
            logprobs: answer.completion.logprobs.clone(),
            kept: answer.completion.kept.clone(),
            temperature: player.sampling.temperature,
            versions: self.versions.to_vec(),
            version: answer.completion.version,
            team_reward: step.scores.team,
            local_reward: step.local(cast, question.agent),
            reward: step.reward(cast, question.agent),
            success: step.success(cast, question.agent),
            chosen: spot.chosen,
            action: answer.action.clone(),
            state: spot.state.unwrap_or_default().to_owned(),
        }
    }

    pub(crate) fn failure(&self, fault: &Fault, node_visit: u32, branch: Option<u32>) -> Failure {
        Failure {
            episode: self.place.id(),
            step: self.place.step,
            task: self.place.task,
            task_id: self.task.id.clone(),
            sample: self.place.sample,
            attempt: self.place.attempt,
            node_visit,
            branch,
            agent: fault.agent.clone(),
            stage: fault.stage.to_owned(),
            cause: fault.cause.clone(),
            reproducible: fault.reproducible,
        }
    }

    pub(crate) fn begin(&self, cast: &Cast) -> Played {
        Played {
            transitions: Vec::new(),
            summary: Summary {
                task: self.place.task,
                task_id: self.task.id.clone(),
                sample: self.place.sample,
                success: false,
                agents: vec![None; cast.players.len()],
                turns: 0,
                tokens: 0,
                truncated: false,
                reproducible: true,
            },
            failures: Vec::new(),
        }
    }
}

impl Played {
    /// Enters the step that the episode goes on from.
    pub(crate) fn follow(&mut self, cast: &Cast, joint: &[(&Question, &Answer)], step: &Step) {
        self.summary.success = step.scores.success;
        self.summary.truncated = step.outcome.truncated;
        for (question, answer) in joint {
            let (reward, success) = (step.reward(cast, question.agent), step.success(cast, question.agent));
            self.summary.agents[question.agent] = Some((reward, success));
            if let Some(listener) = &cast.listener {
                let said = Said {
                    agent: cast.players[question.agent].name.clone(),
                    action: answer.action.clone(),
                    reward,
                    success,
                    tokens: answer.completion.tokens.len(),
                };
                // Nobody may be there any more to hear it.
                let _ = listener.send(Heard::Done(said));
            }
        }
    }
}
