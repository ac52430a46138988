//! Answers of policies to the rewards that may ask them.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use pl_dsl::workflow::Workflow;
use pl_plugin::{Message, Part, Role};
use pl_rollout::PromptEncoder;
use pl_types::{
    AnswerQuestions, Generate, Question, QuestionError, QuestionMessage, QuestionRole, Request, Sampling,
};

use crate::chat::{ChatEncoder, ChatFormats};

/// The policies that the plugin of a scenario's reward is granted.
pub(crate) struct GrantedPolicies {
    policies: BTreeMap<String, GrantedPolicy>,
    encoder: ChatEncoder,
    generator: Arc<dyn Generate>,
}

struct GrantedPolicy {
    /// Index in the workflow.
    index: usize,
    /// True if a server generates, whose results may change.
    is_remote: bool,
}

impl GrantedPolicies {
    /// Collects the policies with the given names.
    pub fn new(
        workflow: &Workflow,
        granted: &[String],
        formats: &ChatFormats,
        generator: Arc<dyn Generate>,
    ) -> GrantedPolicies {
        let policies = granted.iter().filter_map(|name| {
            let index = workflow.policies.iter().position(|policy| policy.name == *name)?;
            let is_remote = workflow.policies.get(index)?.server.is_some();
            Some((name.clone(), GrantedPolicy { index, is_remote }))
        });
        GrantedPolicies { policies: policies.collect(), encoder: formats.encoder(None), generator }
    }
}

#[async_trait]
impl AnswerQuestions for GrantedPolicies {
    fn has(&self, policy: &str) -> bool {
        self.policies.contains_key(policy)
    }

    async fn answer(&self, question: &Question) -> Result<String, QuestionError> {
        let failed = |reason: String| QuestionError { policy: question.policy.clone(), reason };
        let policy =
            self.policies.get(&question.policy).ok_or_else(|| failed("it is not granted".to_owned()))?;
        let messages: Vec<Message> = question.messages.iter().map(to_message).collect();
        let prompt =
            self.encoder.encode(policy.index, &messages, &[]).map_err(|fault| failed(fault.cause))?;
        let request = Request {
            policy: policy.index,
            prompt: prompt.into(),
            // The most likely tokens need no random numbers.
            seeds: vec![[0; 32]],
            max_tokens: question.max_tokens,
            sampling: Sampling { temperature: 0.0, ..Sampling::default() },
            stop: Arc::new([]),
            stop_ids: Arc::new([]),
            top_logprobs: 0,
            listener: None,
        };
        let mut completions =
            self.generator.generate(request).await.map_err(|error| failed(error.to_string()))?;
        let completion =
            completions.pop().ok_or_else(|| failed("the engine returned no completion".to_owned()))?;
        Ok(completion.text)
    }

    fn is_reproducible(&self, policy: &str) -> bool {
        self.policies.get(policy).is_none_or(|policy| !policy.is_remote)
    }
}

fn to_message(message: &QuestionMessage) -> Message {
    let role = match message.role {
        QuestionRole::System => Role::System,
        QuestionRole::User => Role::User,
        QuestionRole::Assistant => Role::Assistant,
    };
    Message { role, parts: vec![Part::Text(message.text.clone())] }
}
