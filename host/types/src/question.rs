//! Questions of plugins to a workflow's policies, and the trait between plugins and what generates the answers.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// Policies that answer questions, for example as judges.
#[async_trait]
pub trait AnswerQuestions: Send + Sync {
    /// Returns true if there is a policy with this name that may be asked.
    fn has(&self, policy: &str) -> bool;

    /// Returns the policy's greedy completion of a conversation.
    ///
    /// # Errors
    /// [`QuestionError`] if there is no such policy or it can't generate.
    async fn answer(&self, question: &Question) -> Result<String, QuestionError>;

    /// Returns true if the policy always gives equal answers to equal questions.
    fn is_reproducible(&self, policy: &str) -> bool;
}

/// A conversation that a policy is to complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Name of the policy in the workflow.
    pub policy: String,
    pub messages: Vec<QuestionMessage>,
    /// Largest number of tokens of the answer.
    pub max_tokens: u32,
}

/// A message of a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionMessage {
    pub role: QuestionRole,
    pub text: String,
}

/// Author of a message of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionRole {
    System,
    User,
    Assistant,
}

/// Error of a question without an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("policy `{policy}`: {reason}")]
pub struct QuestionError {
    /// Name in the workflow.
    pub policy: String,
    /// The problem, and what to do.
    pub reason: String,
}
