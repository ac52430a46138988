//! Flat sampling: an episode from start to end, one completion per agent and turn.

use futures::future::join_all;

use crate::context::EpisodeContext;
use crate::fault::Fault;
use crate::node_visit::{AgentPrompt, ParsedCompletion};
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
    while let Some((index, node)) = walk.next_node(&mut result.summary, recorder) {
        let prompts = setup.prompt_agents(&mut environment, node, &walk.cursor, recorder).await?;
        if context.suspends && !prompts.is_empty() {
            environment.suspend(recorder).await?;
        }
        let parsed = complete_all(setup, context, &prompts, recorder).await?;
        walk.leave(index);
        let joint: Vec<_> = prompts.iter().zip(&parsed).collect();
        if joint.is_empty() {
            continue;
        }
        let step = setup.apply_and_score(&mut environment, &context.task, &joint, recorder).await?;
        let node_visit = recorder.node_visit();
        let position = NodePosition { node_visit, branch: 0, state: None, chosen: true, next_prompt: None };
        for (prompt, parsed) in &joint {
            result.summary.tokens += parsed.completion.tokens.len() as u64;
            result.push_transition(setup, context, (prompt, parsed), &step, &position);
        }
        result.record_step(setup, &joint, &step);
        if !walk.continue_from(step, &prompts) {
            break;
        }
    }
    result.summary.turns = walk.cursor.node_visits();
    Ok(())
}

/// Completes and parses all prompts concurrently. Every agent finishes before a fault of another one counts,
/// so that the reported fault does not depend on timing.
async fn complete_all(
    setup: &EpisodeSetup,
    context: &EpisodeContext,
    prompts: &[AgentPrompt],
    recorder: &mut TraceRecorder,
) -> Result<Vec<ParsedCompletion>, Fault> {
    let shared = &*recorder;
    let completing = prompts.iter().map(async |prompt| {
        let mut fork = shared.fork();
        let parsed = complete_one(setup, context, prompt, &mut fork).await;
        (fork, parsed)
    });
    let completed = join_all(completing).await;
    let (forks, parsed): (Vec<TraceRecorder>, Vec<_>) = completed.into_iter().unzip();
    forks.into_iter().for_each(|fork| recorder.append(fork));
    parsed.into_iter().collect()
}

async fn complete_one(
    setup: &EpisodeSetup,
    context: &EpisodeContext,
    prompt: &AgentPrompt,
    recorder: &mut TraceRecorder,
) -> Result<ParsedCompletion, Fault> {
    let seed = context.key.completion(recorder.node_visit(), prompt.agent as u32, 0, 0);
    let completions = setup.complete(prompt, vec![seed]).await?;
    match completions.into_iter().next() {
        Some(completion) => {
            setup.record_completion(prompt, &completion, recorder);
            setup.parse(prompt, completion, recorder).await
        }
        None => {
            let agent = &setup.agents[prompt.agent].name;
            Err(Fault::for_agent(agent, "generation", "the engine returned no completion"))
        }
    }
}
