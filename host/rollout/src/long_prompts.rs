//! Prompts that are longer than the context of the model.

use pl_dsl::workflow::LongPrompt;

use crate::setup::AgentRuntime;

/// A prompt that was compared with the model's context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FittedPrompt {
    /// It fits, perhaps after tokens were left out.
    Fits(Vec<u32>),
    /// It leaves no room for a completion, and the agent's rule is to end the episode.
    TooLong { tokens: usize, context: usize },
}

impl AgentRuntime {
    /// Applies the agent's rule for long prompts. A prompt that no limit is known for is left as it is.
    pub(crate) fn fit_prompt(&self, tokens: Vec<u32>) -> FittedPrompt {
        let Some(context) = self.encoder.context(self.policy) else { return FittedPrompt::Fits(tokens) };
        // At least half of the context is for the prompt, also if completions may be longer.
        let room = context - (self.max_tokens as usize).min(context / 2);
        let (first, last) = match self.long_prompt {
            LongPrompt::End if tokens.len() >= context => {
                return FittedPrompt::TooLong { tokens: tokens.len(), context };
            }
            LongPrompt::Left if tokens.len() > room => (0, room),
            LongPrompt::Middle if tokens.len() > room => (room / 2, room - room / 2),
            LongPrompt::End | LongPrompt::Left | LongPrompt::Middle => return FittedPrompt::Fits(tokens),
        };
        let mut kept = tokens[..first].to_vec();
        kept.extend_from_slice(&tokens[tokens.len() - last..]);
        FittedPrompt::Fits(kept)
    }
}
