//! Turns of several model calls: an agent answers the tool calls of a completion, and the model is asked again.

use pl_plugin::{Message, Part, Role};
use pl_types::{Completion, Finish};
use tracing::Instrument;

use crate::fault::Fault;
use crate::long_prompts::FittedPrompt;
use crate::node_visit::{AgentPrompt, ModelCall};
use crate::setup::{AgentRuntime, EpisodeSetup};
use crate::spans::call_span;
use crate::trace::EventKind;
use crate::trace::recorder::TraceRecorder;

/// The prompt that follows a completion within a turn.
enum FollowUp {
    /// The prompt with the completion and the results of its tool calls.
    Prompt(AgentPrompt),
    /// None: the turn ends with the completion.
    None,
    /// It would be too long for the model: the turn ends with the completion, and the episode with the turn.
    TooLong,
}

impl EpisodeSetup {
    /// Ends a turn whose first model call is in `calls`: answers tool calls and asks the model again until a completion
    /// has none, the agent gives no results, the agent's limit is reached, or the next prompt is too long; then returns
    /// the action of the last completion. `seed` gives the seed of a call by its number. If it fails, `calls` has those
    /// up to the fault.
    pub(crate) async fn finish_turn(
        &self,
        prompt: &AgentPrompt,
        calls: &mut Vec<ModelCall>,
        seed: impl Fn(u32) -> [u8; 32],
        recorder: &mut TraceRecorder,
    ) -> Result<String, Fault> {
        let runtime = &self.agents[prompt.agent];
        // The prompt with the completions and results so far.
        let mut asked: Option<AgentPrompt> = None;
        loop {
            let round = calls.len() as u32;
            let Some(call) = calls.last_mut() else {
                return Err(Fault::for_agent(&runtime.name, "generation", "the turn has no completion"));
            };
            let read = read_completion(runtime, prompt, &call.completion);
            let follow_up = match read.tool_calls.is_empty() || round > runtime.tool_rounds {
                true => FollowUp::None,
                false => self.follow_up(asked.as_ref().unwrap_or(prompt), &read, round, recorder).await?,
            };
            call.follow_up_too_long = matches!(follow_up, FollowUp::TooLong);
            let FollowUp::Prompt(next) = follow_up else { return self.parse(prompt, &read, recorder).await };
            calls.push(self.complete_once(&next, seed(round), recorder).await?);
            asked = Some(next);
        }
    }

    /// Has the agent answer the tool calls of a completion. Returns the prompt with the completion and the results, to
    /// which the agent's rule for long prompts was applied.
    async fn follow_up(
        &self,
        prompt: &AgentPrompt,
        completion: &pl_plugin::Completion,
        round: u32,
        recorder: &mut TraceRecorder,
    ) -> Result<FollowUp, Fault> {
        let runtime = &self.agents[prompt.agent];
        let name = Some(runtime.name.as_str());
        let attribute = |fault: Fault| fault.with_agent(&runtime.name);
        let function = format!("call_tools {round}");
        let call_log = recorder.call_log(name, &function);
        let span = call_span("call_tools", &runtime.name);
        let results = runtime.agent.call_tools(&prompt.view, &completion.tool_calls, &call_log);
        let results = results.instrument(span).await;
        recorder.record_calls(name, &function, &call_log);
        let Some(results) = results.map_err(attribute)? else { return Ok(FollowUp::None) };
        let mut next = prompt.clone();
        let message = |role: Role, text: String| Message { role, parts: vec![Part::Text(text)] };
        next.messages.push(message(Role::Assistant, completion.text.clone()));
        next.messages.extend(results.iter().map(|result| message(Role::Tool, result.clone())));
        recorder.record(name, EventKind::ToolResults(results));
        let tokens =
            runtime.encoder.encode(runtime.policy, &next.messages, &next.tools).map_err(attribute)?;
        let tokens = match runtime.fit_prompt(tokens) {
            FittedPrompt::Fits(tokens) => tokens,
            FittedPrompt::TooLong { tokens, context } => {
                self.record_long_prompt(&runtime.name, tokens, context, recorder);
                return Ok(FollowUp::TooLong);
            }
        };
        recorder.record(name, EventKind::Prompted { visit: next.visit, prompt: tokens.clone() });
        next.tokens = tokens.into();
        Ok(FollowUp::Prompt(next))
    }
}

/// Reads the tool calls of a completion, if the agent offers tools.
fn read_completion(
    runtime: &AgentRuntime,
    prompt: &AgentPrompt,
    completion: &Completion,
) -> pl_plugin::Completion {
    let mut read = pl_plugin::Completion::new(completion.text.clone(), completion.finish);
    // The end of a completion that was cut off may be a call that looks whole, but is not.
    if !prompt.tools.is_empty() && completion.finish != Finish::Length {
        read.tool_calls = runtime.encoder.tool_calls(runtime.policy, &completion.text);
        if !read.tool_calls.is_empty() {
            read.finish = Finish::ToolCalls;
        }
    }
    read
}
