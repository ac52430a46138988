//! Grading of answers as a run would grade them: one episode per answer, without a model.

use std::sync::Arc;

use futures::{StreamExt, stream};
use pl_plugin::{Completion, RandomStream, Task};
use pl_types::Finish;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::Error;
use crate::host::Host;
use crate::workflow::CheckedWorkflow;

/// Answers that are graded at a time.
const IN_FLIGHT: usize = 64;

/// Answer to a task.
#[derive(Debug, Clone, PartialEq)]
pub struct GradedAnswer {
    /// Record of the task.
    pub record: Value,
    /// Text of the answer.
    pub answer: String,
}

/// Reason for which a line of input is not an answer.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The line is not such an object.
    #[error("{0}; a line is {FORM}")]
    Json(#[from] serde_json::Error),
    /// The line is another value of JSON.
    #[error("it is not an object; a line is {FORM}")]
    NotAnObject,
    /// The line names two tasks.
    #[error("it has both `gold` and `task`; a line is {FORM}")]
    TwoTasks,
    /// The line names no task.
    #[error("it has neither `gold` nor `task`; a line is {FORM}")]
    NoTask,
}

const FORM: &str = "{\"gold\": …, \"pred\": …} or {\"task\": {…}, \"pred\": …}";

/// Fields of a line: the answer, and either the record of the task or, for environments whose records have
/// nothing else, the right answer. Other fields are ignored.
#[derive(Deserialize)]
struct AnswerLine {
    gold: Option<Value>,
    task: Option<Value>,
    pred: String,
}

impl GradedAnswer {
    /// Parses a line of input.
    ///
    /// # Errors
    /// If the line has another form.
    pub fn parse(line: &str) -> Result<GradedAnswer, AnswerError> {
        let line = pl_data::exact_json(line)?;
        // A list would be read as the values of the fields.
        if !line.is_object() {
            return Err(AnswerError::NotAnObject);
        }
        let AnswerLine { gold, task, pred } = serde_json::from_value(line)?;
        let record = match (gold, task) {
            (Some(_), Some(_)) => return Err(AnswerError::TwoTasks),
            (Some(gold), None) => json!({ "gold": gold }),
            (None, Some(task)) => task,
            (None, None) => return Err(AnswerError::NoTask),
        };
        Ok(GradedAnswer { record, answer: pred })
    }
}

/// The environment, the agent and the reward of a workflow.
struct Grader {
    environment: Arc<pl_plugin::Environment>,
    agent: pl_plugin::Agent,
    agent_name: String,
    reward: pl_plugin::Reward,
}

/// Grades answers of an agent, by default of the last one in the turns, in the first scenario in which it acts. Hands each
/// verdict to `graded`, in order.
///
/// # Errors
/// [`Error::NotAllowed`]; if the workflow has no such agent, a plugin can't grade an answer, or `graded` fails.
pub fn grade<E: From<Error>>(
    host: &Host,
    checked: &CheckedWorkflow,
    agent: Option<&str>,
    answers: Vec<GradedAnswer>,
    mut graded: impl FnMut(bool) -> Result<(), E>,
) -> Result<(), E> {
    let index = agent_index(checked, agent)?;
    let scenarios = &checked.workflow.scenarios;
    let scenario = scenarios.iter().position(|one| one.agents().contains(&index)).unwrap_or_default();
    checked.require_permissions()?;
    let mut environments = checked.environments(host)?;
    let grader = Arc::new(Grader {
        environment: environments.swap_remove(scenario),
        agent: checked.agent(index)?,
        agent_name: checked.workflow.agents[index].name.clone(),
        reward: checked.reward(scenario)?,
    });
    host.block_on(async {
        let mut verdicts = stream::iter((1..).zip(answers).map(|(line, answer)| {
            let grader = Arc::clone(&grader);
            tokio::spawn(async move {
                grader
                    .grade(line, answer)
                    .await
                    .map_err(|error| Error::Grade { line, source: Box::new(error) })
            })
        }))
        .buffered(IN_FLIGHT);
        while let Some(verdict) = verdicts.next().await {
            graded(verdict.map_err(Error::from)??)?;
        }
        Ok(())
    })
}

fn agent_index(checked: &CheckedWorkflow, name: Option<&str>) -> Result<usize, Error> {
    let agents = &checked.workflow.agents;
    let nodes = &checked.workflow.scenarios[0].turns.nodes;
    let index = match name {
        Some(name) => agents.iter().position(|agent| agent.name == name),
        None => nodes.last().and_then(|node| node.agents.last().copied()),
    };
    index.ok_or_else(|| Error::NoAgent {
        agent: name.unwrap_or_default().to_owned(),
        agents: agents.iter().map(|agent| agent.name.clone()).collect(),
    })
}

impl Grader {
    async fn grade(&self, line: usize, answer: GradedAnswer) -> Result<bool, pl_plugin::Error> {
        let task = Task { id: format!("line {line}"), data: answer.record.to_string() };
        let mut episode = self.environment.start(&task, 0, RandomStream::new([0; 32])).await?;
        let view = episode.view(&self.agent_name).await?;
        let completion = Completion::new(answer.answer, Finish::Stop);
        let action = self.agent.parse(&view, &completion).await?;
        let actions = [(self.agent_name.clone(), action)];
        let outcome = episode.apply(actions.to_vec()).await?;
        let scores = self.reward.score(&task, &actions, &outcome).await?;
        Ok(scores.local.iter().any(|score| score.agent == self.agent_name && score.success))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_record_or_the_right_answer() {
        let parse = |line: &str| GradedAnswer::parse(line).map_err(|error| error.to_string());
        let gold = parse(r#"{"gold": "42", "pred": "It is 42.", "more": 1}"#).unwrap();
        assert_eq!((gold.record, gold.answer.as_str()), (json!({ "gold": "42" }), "It is 42."));
        assert_eq!(parse(r#"{"task": {"a": 1}, "pred": ""}"#).unwrap().record, json!({ "a": 1 }));
        assert!(
            parse(r#"{"pred": "1"}"#).unwrap_err().starts_with("it has neither `gold` nor `task`; a line is")
        );
        let both = parse(r#"{"gold": "5", "task": {"answer": "7"}, "pred": "5"}"#);
        assert!(both.unwrap_err().starts_with("it has both `gold` and `task`"));
        assert!(parse(r#"["5", null, "5"]"#).unwrap_err().starts_with("it is not an object"));
        assert!(parse(r#"{"gold": "1"}"#).unwrap_err().contains("missing field `pred`"));
    }
}
