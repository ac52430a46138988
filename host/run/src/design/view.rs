//! The view of a scenario's first task, which tells a designer what its agents will see.

use std::sync::Arc;

use pl_plugin::RandomStream;
use pl_types::{Phase, StreamKey};
use serde_json::Value;

use crate::error::Error;
use crate::host::Host;
use crate::session::Session;
use crate::workflow::CheckedWorkflow;

/// Agent that the first view is for. Its environment has not seen any.
const VIEWER: &str = "designer";

/// View of the first task, as the first agent sees it.
pub(crate) struct TaskView(Value);

impl TaskView {
    /// Reads a view as an environment shows it: JSON.
    pub fn new(view: &str) -> TaskView {
        TaskView(serde_json::from_str(view).unwrap_or_else(|_| Value::String(view.to_owned())))
    }

    /// Its JSON.
    pub fn text(&self) -> String {
        self.0.to_string()
    }

    /// Names of its parts, which templates may show.
    pub fn parts(&self) -> Vec<&str> {
        self.0.as_object().map(|parts| parts.keys().map(String::as_str).collect()).unwrap_or_default()
    }
}

/// Returns the view of the scenario's first task of training.
///
/// # Errors
/// If there is no task, or the environment can't start it.
pub(super) async fn view_of_first_task(
    host: &Host,
    checked: &CheckedWorkflow,
    session: &Session,
    scenario: usize,
) -> Result<TaskView, Error> {
    let block = &checked.workflow.scenarios[scenario].environment;
    let environment = &session.scenarios[scenario].environment;
    let source = checked.tasks(host, scenario, &block.tasks, environment, None).await?;
    let tasks = source.take(0, 1).await.map_err(Error::Tasks)?;
    let task =
        tasks.first().map(Arc::clone).ok_or_else(|| Error::NoTasks { environment: block.name.clone() })?;
    let key = StreamKey {
        seed: session.seed,
        phase: Phase::Evaluate(VIEWER.to_owned()),
        step: 0,
        task: 0,
        sample: 0,
        attempt: 0,
    };
    let failed = |error: pl_plugin::Error| Error::Item {
        kind: "environment",
        name: block.name.clone(),
        source: Box::new(error),
    };
    let stream = RandomStream::new(key.environment());
    let mut episode = environment.start(&task, key.start_seed(), stream).await.map_err(failed)?;
    let view = episode.view(VIEWER).await.map_err(failed)?;
    Ok(TaskView::new(&view))
}
