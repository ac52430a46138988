//! Prompts from which a critic estimates the value of states that a tree does not continue from.

use pl_dsl::workflow::Node;

use crate::environment_copy::EnvironmentCopy;
use crate::fault::Fault;
use crate::node_visit::{AgentPrompt, NodePrompts, ScoredStep};
use crate::setup::EpisodeSetup;
use crate::trace::recorder::TraceRecorder;
use crate::walk::GraphWalk;

impl EpisodeSetup {
    /// Builds the prompts that the agents of `prompts` would have in the state after their step, in the order of
    /// `prompts`. `None` for an agent without a critic, and for one that could not act again or skips the turn.
    ///
    /// The prompt of an agent that acts after others is the one before they act: their turns were not sampled.
    pub(crate) async fn next_prompts(
        &self,
        environment: &mut EnvironmentCopy,
        walk: &GraphWalk<'_>,
        prompts: &[AgentPrompt],
        step: &ScoredStep,
        recorder: &mut TraceRecorder,
    ) -> Result<Vec<Option<Vec<u32>>>, Fault> {
        let asked = |agent: usize| self.agents[agent].bootstraps && walk.may_act_again(agent, step, prompts);
        let agents = prompts.iter().map(|prompt| prompt.agent).filter(|agent| asked(*agent)).collect();
        let node = Node { agents, edges: Vec::new() };
        let NodePrompts::Ready(next) = self.prompt_agents(environment, &node, &walk.cursor, recorder).await?
        else {
            return Ok(vec![None; prompts.len()]);
        };
        let tokens = |prompt: &AgentPrompt| {
            let own = next.iter().find(|next| next.agent == prompt.agent)?;
            Some(own.tokens.to_vec())
        };
        Ok(prompts.iter().map(tokens).collect())
    }
}
