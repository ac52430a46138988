//! The result of an attempt: transitions for the learner, a summary for the metrics, failures for the run
//! folder.

use pl_types::{Finish, Group, Key, Transition};
use serde::{Deserialize, Serialize};

use crate::context::EpisodeContext;
use crate::error::EpisodeFailure;
use crate::events::{AgentStep, EpisodeEvent};
use crate::fault::Fault;
use crate::node_visit::{AgentPrompt, AgentTurn, ModelCall, ScoredStep, TurnReward, sampled_tokens};
use crate::setup::EpisodeSetup;

/// The action of a completion that none was parsed from, JSON.
const NO_ACTION: &str = "null";

/// Summary of an episode (flat) or of the path that a tree took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpisodeSummary {
    pub task: u32,
    pub task_id: String,
    pub sample: u32,
    /// The team's success after the last step.
    pub success: bool,
    /// Reward and success of each agent's last step, by agent index. `None` for an agent that never acted.
    pub agents: Vec<Option<(f64, bool)>>,
    /// Number of node visits.
    pub turns: u32,
    /// Number of tokens sampled, including those of candidates that were not chosen.
    pub tokens: u64,
    pub truncated: bool,
    /// False if a wall clock or an HTTP response to a plugin, not the code, decided something.
    pub reproducible: bool,
}

/// The result of an attempt at an episode or tree, up to its failure if it failed.
#[derive(Debug, Clone)]
pub struct EpisodeResult {
    pub transitions: Vec<Transition>,
    pub summary: EpisodeSummary,
    /// Failures of single candidates that the tree continued without.
    pub failures: Vec<EpisodeFailure>,
}

/// The position of a transition within its episode.
pub(crate) struct NodePosition<'a> {
    pub node_visit: u32,
    pub branch: u32,
    /// Tree: hash of the state before the turn; groups are then per node visit.
    pub state: Option<&'a str>,
    pub chosen: bool,
    /// The agent's prompt in the state after the turn, if its value is needed.
    pub next_prompt: Option<&'a [u32]>,
}

impl EpisodeResult {
    pub(crate) fn new(context: &EpisodeContext, agents: usize) -> EpisodeResult {
        EpisodeResult {
            transitions: Vec::new(),
            summary: EpisodeSummary {
                task: context.key.task,
                task_id: context.task.id.clone(),
                sample: context.key.sample,
                success: false,
                agents: vec![None; agents],
                turns: 0,
                tokens: 0,
                truncated: false,
                reproducible: true,
            },
            failures: Vec::new(),
        }
    }

    /// Adds the transitions of one agent's turn.
    pub(crate) fn push_transition(
        &mut self,
        setup: &EpisodeSetup,
        context: &EpisodeContext,
        turn: &AgentTurn<'_>,
        step: &ScoredStep,
        position: &NodePosition<'_>,
    ) {
        let reward = step.turn_reward(setup, turn.prompt.agent);
        self.push(setup, context, turn, reward, position);
    }

    /// Adds the transitions of completions that caused a fault, with a penalty as their reward.
    /// If the plugin of one agent failed, the others have no part in it and no transition.
    pub(crate) fn push_penalized(
        &mut self,
        setup: &EpisodeSetup,
        context: &EpisodeContext,
        (prompts, calls): (&[AgentPrompt], &[Vec<ModelCall>]),
        (fault, penalty): (&Fault, f64),
        position: &NodePosition<'_>,
    ) {
        let is_responsible = |agent: usize| {
            fault
                .agent
                .as_ref()
                .is_none_or(|name| setup.agents.get(agent).is_some_and(|own| own.name == *name))
        };
        let turns = prompts.iter().zip(calls);
        for (prompt, calls) in turns.filter(|(prompt, _)| is_responsible(prompt.agent)) {
            let turn = AgentTurn { prompt, calls, action: NO_ACTION };
            self.push(setup, context, &turn, TurnReward::penalty(penalty), position);
        }
    }

    fn push(
        &mut self,
        setup: &EpisodeSetup,
        context: &EpisodeContext,
        AgentTurn { prompt, calls, action }: &AgentTurn<'_>,
        reward: TurnReward,
        position: &NodePosition<'_>,
    ) {
        let agent = &setup.agents[prompt.agent];
        let key = Key {
            step: context.key.step,
            task: context.key.task,
            sample: context.key.sample,
            node_visit: position.node_visit,
            agent: agent.number,
            branch: position.branch,
            call: 0,
        };
        let group = Group {
            step: key.step,
            task: key.task,
            agent: key.agent,
            turn: prompt.visit,
            node_visit: position.state.map(|_| position.node_visit),
        };
        let transition = |(call, ModelCall { prompt: asked, completion, .. }): (usize, &ModelCall)| {
            let final_call = call + 1 == calls.len();
            Transition {
                group: group.clone(),
                key: Key { call: call as u32, ..key.clone() },
                task_id: context.task.id.clone(),
                agent: agent.name.clone(),
                policy: agent.policy as u32,
                turn: prompt.visit,
                prompt: asked.to_vec(),
                completion: completion.tokens.clone(),
                logprobs: completion.logprobs.clone(),
                support: completion.support.clone(),
                temperature: agent.sampling.temperature,
                max_tokens: agent.max_tokens,
                cut_off: completion.finish == Finish::Length,
                final_call,
                versions: context.versions.to_vec(),
                version: completion.version,
                version_changes: completion.version_changes.clone(),
                team_reward: reward.team,
                local_reward: reward.local,
                reward: reward.total,
                success: reward.success,
                chosen: position.chosen,
                action: if final_call { action } else { NO_ACTION }.to_owned(),
                state: position.state.unwrap_or_default().to_owned(),
                next_prompt: position.next_prompt.filter(|_| final_call).map(<[u32]>::to_vec),
                values: completion.values.clone(),
            }
        };
        self.transitions.extend(calls.iter().enumerate().map(transition));
    }

    /// Ends the episode without success, because all completions of its last node visit caused faults.
    pub(crate) fn end_with_penalty(&mut self, prompts: &[AgentPrompt], penalty: f64) {
        self.summary.success = false;
        for prompt in prompts {
            self.summary.agents[prompt.agent] = Some((-penalty, false));
        }
    }

    /// Credits the end to the last turn of every agent that did not act in the last step: the reward scores nothing else.
    /// These agents have no scores of their own there, so that the team's part and the team's success are theirs.
    pub(crate) fn credit_end(&mut self, setup: &EpisodeSetup, acted: &[AgentPrompt], end: &ScoredStep) {
        let scores = &end.scores;
        for agent in (0..setup.agents.len()).filter(|agent| acted.iter().all(|own| own.agent != *agent)) {
            let own = |t: &Transition| t.key.agent == setup.agents[agent].number;
            let Some(visit) = self.transitions.iter().rev().find(|t| own(t)).map(|t| t.key.node_visit) else {
                continue;
            };
            for last in self.transitions.iter_mut().filter(|t| own(t) && t.key.node_visit == visit) {
                last.team_reward += scores.team;
                last.reward += setup.team_weight * scores.team;
                last.success = scores.success;
                self.summary.agents[agent] = Some((last.reward, last.success));
            }
        }
    }

    /// Updates the summary with the step that the episode continues from, and notifies the observer.
    pub(crate) fn record_step(&mut self, setup: &EpisodeSetup, joint: &[AgentTurn<'_>], step: &ScoredStep) {
        self.summary.success = step.scores.success;
        self.summary.truncated = step.outcome.truncated;
        for AgentTurn { prompt, calls, action } in joint {
            let (reward, success) = (step.reward(setup, prompt.agent), step.success(setup, prompt.agent));
            self.summary.agents[prompt.agent] = Some((reward, success));
            if let Some(observer) = &setup.observer {
                let acted = AgentStep {
                    agent: setup.agents[prompt.agent].name.clone(),
                    action: (*action).to_owned(),
                    reward,
                    success,
                    prompt_tokens: calls.iter().map(|call| call.prompt.len()).sum(),
                    tokens: sampled_tokens(calls) as usize,
                };
                // The observer may have closed the channel.
                let _ = observer.send(EpisodeEvent::Acted(acted));
            }
        }
    }
}
