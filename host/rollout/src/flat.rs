//! Flat sampling: an episode from start to end, one completion per agent and turn.

use futures::future::join_all;

use crate::context::EpisodeContext;
use crate::environment_copy::EnvironmentCopy;
use crate::fault::Fault;
use crate::node_visit::{AgentPrompt, AgentTurn, ModelCall, NodePrompts, ScoredStep, sampled_tokens};
use crate::result::{EpisodeResult, NodePosition};
use crate::setup::EpisodeSetup;
use crate::trace::recorder::TraceRecorder;
use crate::walk::GraphWalk;

/// Plays one episode into `result`.
///
/// # Errors
/// The fault that ended it, at the recorder's node visit.
pub(crate) async fn play_flat(
    setup: &EpisodeSetup,
    context: &EpisodeContext,
    result: &mut EpisodeResult,
    recorder: &mut TraceRecorder,
) -> Result<(), Fault> {
    let mut walk = GraphWalk::new(setup);
    let mut environment = setup.start(context, recorder).await?;
    // The last step, with the prompts of the agents that acted.
    let mut last = None;
    while let Some((index, node)) = walk.next_node(&mut result.summary, recorder) {
        let prompts = setup.prompt_agents(&mut environment, node, &walk.cursor, recorder).await?;
        let NodePrompts::Ready(prompts) = prompts else {
            result.summary.truncated = true;
            break;
        };
        if context.suspends && !prompts.is_empty() {
            environment.suspend(recorder).await?;
        }
        let turns = complete_all(setup, context, &prompts, recorder).await?;
        walk.count_visit(index);
        if turns.is_empty() {
            continue;
        }
        let node_visit = recorder.node_visit();
        let position = NodePosition { node_visit, branch: 0, state: None, chosen: true, next_prompt: None };
        let (calls, actions): (Vec<Vec<ModelCall>>, Vec<_>) = turns.into_iter().unzip();
        result.summary.tokens += calls.iter().map(|calls| sampled_tokens(calls)).sum::<u64>();
        let step = apply_all(setup, context, &mut environment, (&prompts, &calls), actions, recorder).await;
        let (actions, step) = match (step, setup.fault_penalty) {
            (Ok(step), _) => step,
            (Err(fault), Some(penalty)) if fault.is_caused_by_completions() => {
                recorder.record_fault(&fault);
                result.failures.push(context.failure(&fault, node_visit, None));
                result.push_penalized(setup, context, (&prompts, &calls), (&fault, penalty), &position);
                result.end_with_penalty(&prompts, penalty);
                last = None;
                break;
            }
            (Err(fault), _) => return Err(fault),
        };
        let joint = AgentTurn::all(&prompts, &calls, &actions);
        for turn in &joint {
            result.push_transition(setup, context, turn, &step, &position);
        }
        result.record_step(setup, &joint, &step);
        setup.show_drawing(&mut environment).await?;
        let continues = walk.continue_from(&step, &prompts);
        last = Some((prompts, step));
        if !continues {
            break;
        }
    }
    if let Some((prompts, step)) = last.filter(|_| setup.scores_end) {
        result.credit_end(setup, &prompts, &step);
    }
    result.summary.turns = walk.cursor.node_visits();
    Ok(())
}

/// The model calls of a turn, and the action (JSON) that the agent's plugin parsed.
type CompletedTurn = (Vec<ModelCall>, Result<String, Fault>);

/// Completes and parses all prompts concurrently. Every agent finishes before a fault of another one counts,
/// so that the reported fault does not depend on timing.
async fn complete_all(
    setup: &EpisodeSetup,
    context: &EpisodeContext,
    prompts: &[AgentPrompt],
    recorder: &mut TraceRecorder,
) -> Result<Vec<CompletedTurn>, Fault> {
    let shared = &*recorder;
    let completing = prompts.iter().map(async |prompt| {
        let mut fork = shared.fork();
        let completed = complete_one(setup, context, prompt, &mut fork).await;
        (fork, completed)
    });
    let completed = join_all(completing).await;
    let (forks, turns): (Vec<TraceRecorder>, Vec<_>) = completed.into_iter().unzip();
    forks.into_iter().for_each(|fork| recorder.append(fork));
    turns.into_iter().collect()
}

/// Applies and scores the joint action. The first fault of a completion that could not be parsed is the step's.
async fn apply_all(
    setup: &EpisodeSetup,
    context: &EpisodeContext,
    environment: &mut EnvironmentCopy,
    (prompts, calls): (&[AgentPrompt], &[Vec<ModelCall>]),
    actions: Vec<Result<String, Fault>>,
    recorder: &mut TraceRecorder,
) -> Result<(Vec<String>, ScoredStep), Fault> {
    let actions = actions.into_iter().collect::<Result<Vec<_>, Fault>>()?;
    let joint = AgentTurn::all(prompts, calls, &actions);
    let step = setup.apply_and_score(environment, &context.task, &joint, recorder).await?;
    Ok((actions, step))
}

async fn complete_one(
    setup: &EpisodeSetup,
    context: &EpisodeContext,
    prompt: &AgentPrompt,
    recorder: &mut TraceRecorder,
) -> Result<CompletedTurn, Fault> {
    let node_visit = recorder.node_visit();
    let seed = |call: u32| context.key.completion(node_visit, prompt.agent as u32, 0, 0, call);
    let mut calls = vec![setup.complete_once(prompt, seed(0), recorder).await?];
    let action = setup.finish_turn(prompt, &mut calls, seed, recorder).await;
    Ok((calls, action))
}
