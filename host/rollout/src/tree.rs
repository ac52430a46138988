//! Tree sampling: every node visit draws candidates from one state, each on its own copy of the environment;
//! the episode continues from the best.
//!
//! Between calls a state is a snapshot. No tree holds one copy of the environment while it waits for another,
//! so that trees can't deadlock on a full pool.

use futures::future::{join_all, try_join_all};
use pl_plugin::Snapshot;
use pl_types::Completion;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::context::EpisodeContext;
use crate::fault::Fault;
use crate::node_visit::{AgentPrompt, AgentTurn, ModelCall, NodePrompts, ScoredStep, sampled_tokens};
use crate::result::{EpisodeResult, NodePosition};
use crate::setup::EpisodeSetup;
use crate::trace::recorder::TraceRecorder;
use crate::trace::{CandidateAttempt, EventKind};
use crate::walk::GraphWalk;

/// Attempts at one candidate before its group continues without it.
const CANDIDATE_ATTEMPTS: u32 = 3;

/// A candidate that was applied.
struct Candidate {
    branch: u32,
    /// Model calls, one list per prompt.
    calls: Vec<Vec<ModelCall>>,
    applied: AppliedAction,
}

/// A joint action that was applied to its own copy of the node's state.
struct AppliedAction {
    /// One per prompt, JSON.
    actions: Vec<String>,
    step: ScoredStep,
    /// State after the step.
    state: Snapshot,
    /// For each prompt, the agent's prompt in that state, if its value is needed.
    next_prompts: Vec<Option<Vec<u32>>>,
}

/// Completions of a joint action that caused a fault.
struct Penalized {
    branch: u32,
    /// One list per prompt.
    calls: Vec<Vec<ModelCall>>,
    fault: Fault,
    penalty: f64,
}

/// Samples of a node visit.
struct NodeSamples {
    /// Sorted by branch. Empty only if all samples are penalised.
    candidates: Vec<Candidate>,
    penalized: Vec<Penalized>,
}

/// Plays one tree into `result`, with every candidate of every node visit and the failures of single
/// candidates.
///
/// # Errors
/// The fault that ended it, at the recorder's node visit: one of the shared path, or the last fault of a node
/// visit whose candidates all failed.
pub(crate) async fn play_tree(
    setup: &EpisodeSetup,
    context: &EpisodeContext,
    result: &mut EpisodeResult,
    recorder: &mut TraceRecorder,
) -> Result<(), Fault> {
    let mut walk = GraphWalk::new(setup);
    let mut state = setup.start(context, recorder).await?.snapshot(recorder).await?;
    while let Some((index, node)) = walk.next_node(&mut result.summary, recorder) {
        let mut shared = setup.restore(&state, recorder).await?;
        let prompts = setup.prompt_agents(&mut shared, node, &walk.cursor, recorder).await?;
        drop(shared);
        let NodePrompts::Ready(prompts) = prompts else {
            result.summary.truncated = true;
            break;
        };
        walk.count_visit(index);
        if prompts.is_empty() {
            continue;
        }
        let NodeSamples { candidates, penalized } =
            sample_candidates(&walk, context, &state, &prompts, result, recorder).await?;
        let node_visit = recorder.node_visit();
        let hash = state.hash();
        for Penalized { branch, calls, fault, penalty } in penalized {
            let position =
                NodePosition { node_visit, branch, state: Some(&hash), chosen: false, next_prompt: None };
            result.push_penalized(setup, context, (&prompts, &calls), (&fault, penalty), &position);
            if candidates.is_empty() {
                result.end_with_penalty(&prompts, penalty);
            }
        }
        if candidates.is_empty() {
            break;
        }
        let best = choose(setup, &prompts, &candidates, context.key.tie(node_visit));
        recorder.record(None, EventKind::Chosen(best));
        for Candidate { branch, calls, applied } in &candidates {
            let AppliedAction { actions, step, next_prompts, .. } = applied;
            let (branch, chosen) = (*branch, *branch == best);
            for (turn, next_prompt) in AgentTurn::all(&prompts, calls, actions).iter().zip(next_prompts) {
                let next_prompt = next_prompt.as_deref().filter(|_| !chosen);
                let position = NodePosition { node_visit, branch, state: Some(&hash), chosen, next_prompt };
                result.push_transition(setup, context, turn, step, &position);
            }
        }
        let Some(winner) = candidates.into_iter().find(|c| c.branch == best) else { break };
        let AppliedAction { actions, step, state: next_state, .. } = winner.applied;
        result.record_step(setup, &AgentTurn::all(&prompts, &winner.calls, &actions), &step);
        state = next_state;
        if !walk.continue_from(&step, &prompts) {
            break;
        }
    }
    result.summary.turns = walk.cursor.node_visits();
    Ok(())
}

/// Samples, applies and scores the candidates of a node visit. A candidate that fails is penalised or sampled
/// again, as the setup says; after [`CANDIDATE_ATTEMPTS`] the group continues without it.
async fn sample_candidates(
    walk: &GraphWalk<'_>,
    context: &EpisodeContext,
    state: &Snapshot,
    prompts: &[AgentPrompt],
    result: &mut EpisodeResult,
    recorder: &mut TraceRecorder,
) -> Result<NodeSamples, Fault> {
    let (setup, node_visit) = (walk.setup, recorder.node_visit());
    let mut candidates = Vec::new();
    let mut penalized = Vec::new();
    let mut missing: Vec<u32> = (0..context.candidates).collect();
    let mut last_fault = None;
    for retry in 0..CANDIDATE_ATTEMPTS {
        if missing.is_empty() {
            break;
        }
        let completions = try_join_all(prompts.iter().map(|prompt| {
            let seed = |&branch| context.key.completion(node_visit, prompt.agent as u32, branch, retry, 0);
            setup.complete(prompt, missing.iter().map(seed).collect())
        }))
        .await?;
        let first_calls = |index: usize| -> Vec<Vec<ModelCall>> {
            let first = |(prompt, own): (&AgentPrompt, &Vec<Completion>)| {
                vec![ModelCall::new(prompt, own[index].clone())]
            };
            prompts.iter().zip(&completions).map(first).collect()
        };
        let attempts = missing.iter().enumerate().map(async |(index, &branch)| {
            let mut fork = recorder.fork_for_candidate(branch, retry);
            let mut calls = first_calls(index);
            let tried = try_candidate(walk, context, state, prompts, &mut calls, &mut fork).await;
            (fork, calls, tried)
        });
        let attempts = join_all(attempts).await;
        let mut failed = Vec::new();
        for (branch, (fork, calls, tried)) in missing.iter().copied().zip(attempts) {
            recorder.append(fork);
            result.summary.tokens += calls.iter().map(|calls| sampled_tokens(calls)).sum::<u64>();
            let fault = match tried {
                Ok(applied) => {
                    candidates.push(Candidate { branch, calls, applied });
                    continue;
                }
                Err(fault) => fault,
            };
            result.failures.push(context.failure(&fault, node_visit, Some(branch)));
            match setup.fault_penalty.filter(|_| fault.is_caused_by_completions()) {
                Some(penalty) => {
                    penalized.push(Penalized { branch, calls, fault, penalty });
                }
                None => {
                    last_fault = Some(fault);
                    failed.push(branch);
                }
            }
        }
        missing = failed;
    }
    candidates.sort_by_key(|candidate| candidate.branch);
    match last_fault {
        Some(fault) if candidates.is_empty() && penalized.is_empty() => Err(fault),
        _ => Ok(NodeSamples { candidates, penalized }),
    }
}

/// Ends the turns that `calls` has the first model calls of, applies the joint action to a copy of `state` and scores it.
/// A completion that makes the agent's plugin fail costs this candidate alone, like an action that makes the environment
/// fail.
async fn try_candidate(
    walk: &GraphWalk<'_>,
    context: &EpisodeContext,
    state: &Snapshot,
    prompts: &[AgentPrompt],
    calls: &mut [Vec<ModelCall>],
    recorder: &mut TraceRecorder,
) -> Result<AppliedAction, Fault> {
    let setup = walk.setup;
    let CandidateAttempt { branch, retry } = recorder.candidate().unwrap_or_default();
    // Record all of them first: a replay needs every completion, also those after one that could not be
    // parsed.
    for (prompt, call) in prompts.iter().zip(calls.iter().flatten()) {
        setup.record_completion(prompt, &call.completion, recorder);
    }
    let tried = async {
        let mut actions = Vec::with_capacity(prompts.len());
        for (prompt, calls) in prompts.iter().zip(calls.iter_mut()) {
            let (node_visit, agent) = (recorder.node_visit(), prompt.agent as u32);
            let seed = |call: u32| context.key.completion(node_visit, agent, branch, retry, call);
            actions.push(setup.finish_turn(prompt, calls, seed, recorder).await?);
        }
        let mut environment = setup.restore(state, recorder).await?;
        let joint = AgentTurn::all(prompts, calls, &actions);
        let step = setup.apply_and_score(&mut environment, &context.task, &joint, recorder).await?;
        let state = environment.snapshot(recorder).await?;
        // After the snapshot, which must not depend on whether a policy has a critic.
        let next_prompts = setup.next_prompts(&mut environment, walk, prompts, &step, recorder).await?;
        Ok(AppliedAction { actions, step, state, next_prompts })
    }
    .await;
    if let Err(fault) = &tried {
        recorder.record_fault(fault);
    }
    tried
}

/// The branch with the highest mean reward of the agents that acted. A random stream decides ties.
fn choose(setup: &EpisodeSetup, prompts: &[AgentPrompt], candidates: &[Candidate], tie: [u8; 32]) -> u32 {
    let total =
        |c: &Candidate| prompts.iter().map(|prompt| c.applied.step.reward(setup, prompt.agent)).sum::<f64>();
    let best = candidates.iter().map(total).fold(f64::NEG_INFINITY, f64::max);
    let tied: Vec<u32> = candidates.iter().filter(|c| total(c) >= best).map(|c| c.branch).collect();
    let mut stream = ChaCha8Rng::from_seed(tie);
    match tied.len() {
        0 => 0,
        count => tied[(stream.next_u64() % count as u64) as usize],
    }
}
