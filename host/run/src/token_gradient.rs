//! The gradient of a token of a recorded run, explained by its policy's objective.

use std::path::Path;

use pl_dsl::settings::published_algorithm;
use pl_trainer::token_explanation::{TokenExplanation, explain_token};
use pl_types::TrainedCompletion;
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::Error;
use crate::stored::StoredWorkflow;

/// Explanation of a token's gradient with the objective that it is from.
#[derive(Debug, Serialize)]
pub struct TokenGradient {
    #[serde(flatten)]
    pub explanation: TokenExplanation,
    /// Algorithm that the objective starts from.
    pub algorithm: AlgorithmFormula,
}

/// Formula of a published algorithm, with the bounds of its publication.
#[derive(Debug, Serialize)]
pub struct AlgorithmFormula {
    /// Value of `algorithm`.
    pub word: String,
    /// Name and publication.
    pub source: &'static str,
    pub formula: &'static str,
}

/// Explains the gradient of a token of an agent's completion. `sampled` are its log-probabilities of sampling.
///
/// # Errors
/// [`Error::StoredWorkflow`] if the run's workflow is invalid; [`Error::UnknownAgent`] if it has no such agent, or trains
/// none of its policy's weights, or if there is no such token.
pub fn token_gradient(
    run: &Path,
    agent: &str,
    record: &TrainedCompletion,
    sampled: &[f32],
    token: usize,
) -> Result<TokenGradient, Error> {
    let stored = StoredWorkflow::read(run)?;
    let workflow = &stored.workflow;
    let unknown = || Error::UnknownAgent { path: run.to_path_buf(), agent: agent.to_owned() };
    let policy = workflow.policy_of(agent, None).and_then(|policy| workflow.policies.get(policy));
    let objective = policy.and_then(|policy| policy.training.as_ref()).map(|training| &training.objective);
    let objective = objective.ok_or_else(unknown)?;
    let explanation = explain_token(objective, record, sampled, token).ok_or_else(unknown)?;
    let word = match json!(objective.algorithm) {
        Value::String(word) => word,
        _ => String::new(),
    };
    let (source, formula) = published_algorithm(&word).map_or(("", ""), |one| (one.source, one.formula));
    Ok(TokenGradient { explanation, algorithm: AlgorithmFormula { word, source, formula } })
}
