//! Tasks that an evaluation shares with training.

use std::collections::HashSet;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use pl_dsl::workflow::Evaluation;
use pl_plugin::{RandomStream, Task};
use pl_rollout::TaskSource;
use serde::Serialize;

use crate::error::Error;
use crate::host::Host;
use crate::workflow::CheckedWorkflow;

/// Largest number of training tasks that are looked at.
const TRAINING_TASKS: u32 = 500;

/// Episodes that are started at a time.
const IN_FLIGHT: usize = 16;

/// Tasks of an evaluation that start in a state in which a training task starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SharedTasks {
    /// Name of the evaluation.
    pub evaluation: String,
    /// Number of its tasks.
    pub tasks: usize,
    /// Number of them that are shared.
    pub shared: usize,
    /// Number of training tasks that they were compared with.
    pub training: usize,
}

/// Compares the tasks of all evaluations with the first training tasks, by what agents see at the start.
pub(super) async fn shared_tasks(
    host: &Host,
    checked: &CheckedWorkflow,
    scenario: usize,
    environment: &Arc<pl_plugin::Environment>,
    training: &TaskSource,
) -> Result<Vec<SharedTasks>, Error> {
    let all = checked.workflow.evaluations.iter();
    let evaluations: Vec<&Evaluation> = all.filter(|one| one.scenario == scenario).collect();
    if evaluations.is_empty() {
        return Ok(Vec::new());
    }
    let names = Names::new(checked, scenario);
    let count = training.size().map_or(TRAINING_TASKS, |size| TRAINING_TASKS.min(size as u32));
    let own = states(&names, environment, training, count).await?;
    let training: HashSet<&String> = own.iter().collect();
    let mut shared = Vec::new();
    for evaluation in evaluations {
        let source = checked.tasks(host, scenario, &evaluation.tasks, environment, None).await?;
        let count = source.size().map_or(evaluation.limit, |size| evaluation.limit.min(size as u32));
        let tasks = states(&names, environment, &source, count).await?;
        shared.push(SharedTasks {
            evaluation: evaluation.name.clone(),
            tasks: tasks.len(),
            shared: tasks.iter().filter(|state| training.contains(state)).count(),
            training: own.len(),
        });
    }
    Ok(shared)
}

/// Names that the views of a scenario depend on.
struct Names {
    environment: String,
    agents: Vec<String>,
}

impl Names {
    fn new(checked: &CheckedWorkflow, scenario: usize) -> Names {
        let scenario = &checked.workflow.scenarios[scenario];
        let agents = scenario.agents().into_iter().map(|agent| checked.workflow.agents[agent].name.clone());
        Names { environment: scenario.environment.name.clone(), agents: agents.collect() }
    }
}

/// Returns what all agents see at the start of each task.
async fn states(
    names: &Names,
    environment: &Arc<pl_plugin::Environment>,
    source: &TaskSource,
    count: u32,
) -> Result<Vec<String>, Error> {
    let tasks = source.take(0, count).await.map_err(Error::Tasks)?;
    let started = tasks.into_iter().map(|task| state(names, environment, task));
    stream::iter(started).buffered(IN_FLIGHT).try_collect().await
}

async fn state(
    names: &Names,
    environment: &Arc<pl_plugin::Environment>,
    task: Arc<Task>,
) -> Result<String, Error> {
    let failed = |error: pl_plugin::Error| Error::Item {
        kind: "environment",
        name: names.environment.clone(),
        source: Box::new(error),
    };
    let mut episode = environment.start(&task, 0, RandomStream::new([0; 32])).await.map_err(failed)?;
    let mut views = String::new();
    for agent in &names.agents {
        views += &episode.view(agent).await.map_err(failed)?;
        views.push('\n');
    }
    Ok(views)
}
