//! One visit of a node of the turn graph: its agents are prompted, their policies generate, they act together
//! and are scored.
//!
//! Flat and tree sampling both consist of these pieces.

use std::sync::Arc;

use pl_dsl::workflow::Node;
use pl_plugin::{Message, Outcome, Scores, Task, Tool, Turn};
use pl_types::{Completion, Request};
use serde_json::{Map, Value};
use tokio::sync::mpsc::unbounded_channel;
use tracing::Instrument;

use crate::environment_copy::EnvironmentCopy;
use crate::events::EpisodeEvent;
use crate::fault::Fault;
use crate::long_prompts::FittedPrompt;
use crate::setup::EpisodeSetup;
use crate::spans::{SPAN_TARGET, call_span};
use crate::trace::EventKind;
use crate::trace::recorder::TraceRecorder;
use crate::turns::{LastReward, TurnCursor};

/// The prompt of one agent at a node visit.
#[derive(Debug, Clone)]
pub(crate) struct AgentPrompt {
    /// Index into the setup's agents.
    pub agent: usize,
    /// Number of the agent's earlier visits.
    pub visit: u32,
    pub view: String,
    pub messages: Vec<Message>,
    /// Tools that the model may call.
    pub tools: Vec<Tool>,
    /// Token ids.
    pub tokens: Arc<[u32]>,
    /// Strings that end a completion.
    pub stop: Arc<[String]>,
}

/// One call of the model within a turn.
#[derive(Debug, Clone)]
pub(crate) struct ModelCall {
    /// Token ids.
    pub prompt: Arc<[u32]>,
    pub completion: Completion,
    /// True if the prompt with the results of its tool calls is too long for the model, so that the episode ends with
    /// the turn.
    pub follow_up_too_long: bool,
}

impl ModelCall {
    /// The call that answers a prompt.
    pub fn new(prompt: &AgentPrompt, completion: Completion) -> ModelCall {
        ModelCall { prompt: Arc::clone(&prompt.tokens), completion, follow_up_too_long: false }
    }
}

/// Returns the number of sampled tokens.
pub(crate) fn sampled_tokens(calls: &[ModelCall]) -> u64 {
    calls.iter().map(|call| call.completion.tokens.len() as u64).sum()
}

/// One agent's turn.
#[derive(Clone, Copy)]
pub(crate) struct AgentTurn<'a> {
    pub prompt: &'a AgentPrompt,
    /// Calls of the model, in order.
    pub calls: &'a [ModelCall],
    /// Action that the last completion stands for, JSON.
    pub action: &'a str,
}

impl<'a> AgentTurn<'a> {
    /// The turns of a node visit. Each list has one element per prompt.
    pub fn all(
        prompts: &'a [AgentPrompt],
        calls: &'a [Vec<ModelCall>],
        actions: &'a [String],
    ) -> Vec<AgentTurn<'a>> {
        let turns = prompts.iter().zip(calls).zip(actions);
        turns.map(|((prompt, calls), action)| AgentTurn { prompt, calls, action }).collect()
    }
}

/// The prompts of a node's agents.
pub(crate) enum NodePrompts {
    /// Those of the agents that don't skip the turn.
    Ready(Vec<AgentPrompt>),
    /// A prompt is too long for its model, so that the episode ends.
    TooLong,
}

/// Rewards of one agent's turn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TurnReward {
    pub team: f64,
    pub local: f64,
    /// Weighted sum of the two, or the penalty.
    pub total: f64,
    pub success: bool,
}

impl TurnReward {
    /// The reward of a completion that caused a fault.
    pub fn penalty(amount: f64) -> TurnReward {
        TurnReward { team: 0.0, local: 0.0, total: -amount, success: false }
    }
}

/// The outcome of a joint action and its scores.
#[derive(Debug, Clone)]
pub(crate) struct ScoredStep {
    pub outcome: Outcome,
    pub scores: Scores,
}

impl EpisodeSetup {
    /// Reads the views of a node's agents, all from one state, and builds their prompts. An agent that skips
    /// the turn has no prompt. A prompt longer than the model's context follows the agent's rule for long prompts.
    pub(crate) async fn prompt_agents(
        &self,
        environment: &mut EnvironmentCopy,
        node: &Node,
        cursor: &TurnCursor,
        recorder: &mut TraceRecorder,
    ) -> Result<NodePrompts, Fault> {
        let mut prompts = Vec::with_capacity(node.agents.len());
        for &index in &node.agents {
            let Some(runtime) = self.agents.get(index) else { continue };
            let name = Some(runtime.name.as_str());
            let attribute = |fault: Fault| fault.with_agent(&runtime.name);
            let view = environment.view(&runtime.name, recorder).await.map_err(attribute)?;
            let turn = Turn { agent: runtime.name.clone(), visit: cursor.visits(index) };
            let call_log = recorder.call_log(name, "prompt");
            let span = call_span("prompt", &runtime.name);
            let request = runtime.agent.prompt(&view, &turn, &call_log).instrument(span).await;
            recorder.record_calls(name, "prompt", &call_log);
            let Some(request) = request.map_err(attribute)? else {
                recorder.record(name, EventKind::Skipped);
                continue;
            };
            let tokens = runtime.encoder.encode(runtime.policy, &request.messages, &request.tools);
            let tokens = match runtime.fit_prompt(tokens.map_err(attribute)?) {
                FittedPrompt::Fits(tokens) => tokens,
                FittedPrompt::TooLong { tokens, context } => {
                    self.record_long_prompt(&runtime.name, tokens, context, recorder);
                    return Ok(NodePrompts::TooLong);
                }
            };
            recorder.record(name, EventKind::Prompted { visit: turn.visit, prompt: tokens.clone() });
            let mut stop = request.stop;
            stop.extend(runtime.stop.iter().filter(|own| !stop.contains(own)).cloned().collect::<Vec<_>>());
            prompts.push(AgentPrompt {
                agent: index,
                visit: turn.visit,
                view,
                messages: request.messages,
                tools: request.tools,
                tokens: tokens.into(),
                stop: stop.into(),
            });
        }
        Ok(NodePrompts::Ready(prompts))
    }

    /// Records a prompt that is too long for its model, and tells the observer.
    pub(crate) fn record_long_prompt(
        &self,
        agent: &str,
        tokens: usize,
        context: usize,
        recorder: &mut TraceRecorder,
    ) {
        recorder.record(Some(agent), EventKind::PromptTooLong { tokens, context });
        if let Some(observer) = &self.observer {
            // The observer may have closed the channel.
            let _ = observer.send(EpisodeEvent::PromptTooLong { agent: agent.to_owned(), tokens, context });
        }
    }

    /// Samples one completion per seed.
    pub(crate) async fn complete(
        &self,
        prompt: &AgentPrompt,
        seeds: Vec<[u8; 32]>,
    ) -> Result<Vec<Completion>, Fault> {
        let runtime = &self.agents[prompt.agent];
        let wanted = seeds.len();
        let listener = self.observer.as_ref().map(|observer| {
            let (sender, text) = unbounded_channel();
            let (agent, visit, messages) = (runtime.name.clone(), prompt.visit, prompt.messages.clone());
            // The observer may have closed the channel.
            let _ = observer.send(EpisodeEvent::Prompted { agent, visit, messages, text });
            sender
        });
        let request = Request {
            policy: runtime.policy,
            prompt: Arc::clone(&prompt.tokens),
            seeds,
            max_tokens: runtime.max_tokens,
            sampling: runtime.sampling.clone(),
            stop: Arc::clone(&prompt.stop),
            stop_ids: Arc::new([]),
            top_logprobs: 0,
            listener,
        };
        let fault = |cause: String| Fault::for_agent(&runtime.name, "generation", cause);
        let span = tracing::info_span!(
            target: SPAN_TARGET, "generate", agent = runtime.name, policy = runtime.policy, completions = wanted,
            prompt_tokens = prompt.tokens.len(), completion_tokens = tracing::field::Empty
        );
        let completions = self.generator.generate(request).instrument(span.clone()).await;
        let completions = completions.map_err(|error| fault(error.to_string()))?;
        span.record("completion_tokens", completions.iter().map(|c| c.tokens.len()).sum::<usize>());
        if completions.len() != wanted {
            return Err(fault(format!("the engine returned {} of {wanted} completions", completions.len())));
        }
        Ok(completions)
    }

    /// Samples one completion and records it.
    pub(crate) async fn complete_once(
        &self,
        prompt: &AgentPrompt,
        seed: [u8; 32],
        recorder: &mut TraceRecorder,
    ) -> Result<ModelCall, Fault> {
        let completion = self.complete(prompt, vec![seed]).await?.pop().ok_or_else(|| {
            let agent = &self.agents[prompt.agent].name;
            Fault::for_agent(agent, "generation", "the engine returned no completion")
        })?;
        self.record_completion(prompt, &completion, recorder);
        Ok(ModelCall::new(prompt, completion))
    }

    pub(crate) fn record_completion(
        &self,
        prompt: &AgentPrompt,
        completion: &Completion,
        recorder: &mut TraceRecorder,
    ) {
        let Completion { text, finish, tokens, .. } = completion;
        let kind = EventKind::Completion { text: text.clone(), finish: *finish, tokens: tokens.clone() };
        recorder.record(Some(&self.agents[prompt.agent].name), kind);
        if !self.generator.is_reproducible(self.agents[prompt.agent].policy) {
            recorder.mark_irreproducible();
        }
    }

    /// Parses a completion into an action with the agent's plugin.
    pub(crate) async fn parse(
        &self,
        prompt: &AgentPrompt,
        completion: &pl_plugin::Completion,
        recorder: &mut TraceRecorder,
    ) -> Result<String, Fault> {
        let runtime = &self.agents[prompt.agent];
        let name = Some(runtime.name.as_str());
        let call_log = recorder.call_log(name, "parse");
        let span = call_span("parse", &runtime.name);
        let action = runtime.agent.parse(&prompt.view, completion, &call_log).instrument(span).await;
        recorder.record_calls(name, "parse", &call_log);
        let action = action.map_err(|fault| fault.with_agent(&runtime.name))?;
        recorder.record(name, EventKind::Action(action.clone()));
        Ok(action)
    }

    /// Applies the joint action and scores it at once, before anything else changes the environment. The step is the
    /// episode's last, as a truncated one, if a prompt within one of the turns was too long.
    pub(crate) async fn apply_and_score(
        &self,
        environment: &mut EnvironmentCopy,
        task: &Task,
        joint: &[AgentTurn<'_>],
        recorder: &mut TraceRecorder,
    ) -> Result<ScoredStep, Fault> {
        let actions: Vec<(String, String)> = joint
            .iter()
            .map(|turn| (self.agents[turn.prompt.agent].name.clone(), turn.action.to_owned()))
            .collect();
        let mut outcome = environment.apply(&actions, recorder).await?;
        // Before the scores: a reward for the end of an episode must know that this is the end.
        if joint.iter().flat_map(|turn| turn.calls).any(|call| call.follow_up_too_long) {
            outcome.done = true;
            outcome.truncated = true;
        }
        recorder.record(None, EventKind::Outcome(outcome.clone()));
        let call_log = recorder.call_log(None, "score");
        let scoring = self.reward.score(task, &actions, &outcome, &call_log);
        let scores = scoring.instrument(call_span("score", "")).await;
        recorder.record_calls(None, "score", &call_log);
        let scores = scores?;
        recorder.record(None, EventKind::Scores(scores.clone()));
        self.record_drawing(environment, recorder).await?;
        Ok(ScoredStep { outcome, scores })
    }
}

impl ScoredStep {
    /// Reward of one agent: team weight times team part plus local weight times local part.
    pub fn reward(&self, setup: &EpisodeSetup, agent: usize) -> f64 {
        setup.team_weight * self.scores.team + setup.local_weight * self.local_reward(setup, agent)
    }

    /// Rewards and success of one agent.
    pub fn turn_reward(&self, setup: &EpisodeSetup, agent: usize) -> TurnReward {
        TurnReward {
            team: self.scores.team,
            local: self.local_reward(setup, agent),
            total: self.reward(setup, agent),
            success: self.success(setup, agent),
        }
    }

    /// Local part of one agent's reward; 0 if the reward gave it none.
    fn local_reward(&self, setup: &EpisodeSetup, agent: usize) -> f64 {
        self.score_for(setup, agent).map_or(0.0, |score| score.reward)
    }

    pub fn success(&self, setup: &EpisodeSetup, agent: usize) -> bool {
        self.score_for(setup, agent).is_some_and(|score| score.success)
    }

    fn score_for(&self, setup: &EpisodeSetup, agent: usize) -> Option<&pl_plugin::AgentScore> {
        let name = &setup.agents[agent].name;
        self.scores.local.iter().find(|score| score.agent == *name)
    }

    /// The values of `reward.*` in conditions after this step, in which the agents of `prompts` acted.
    pub fn last_reward(&self, setup: &EpisodeSetup, prompts: &[AgentPrompt]) -> LastReward {
        let reward = |prompt: &AgentPrompt| {
            (setup.agents[prompt.agent].name.clone(), Value::from(self.reward(setup, prompt.agent)))
        };
        LastReward {
            team: self.scores.team,
            success: self.scores.success,
            agents: prompts.iter().map(reward).collect::<Map<_, _>>(),
        }
    }
}
