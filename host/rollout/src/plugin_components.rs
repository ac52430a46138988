//! The plugin host's environments, agents and rewards as components of an episode.

use async_trait::async_trait;
use pl_plugin::call_log::CallLog;
use pl_plugin::{
    Completion, DrawingForm, Outcome, PromptRequest, RandomStream, RefusalKind, Scores, Snapshot, Task,
    ToolCall, Turn,
};

use crate::components::{Agent, Environment, Episode, Reward, TaskGenerator};
use crate::fault::Fault;

/// Converts a plugin's error. A refusal keeps the plugin's own message; every other error has the host's.
fn fault(stage: &'static str) -> impl FnOnce(pl_plugin::Error) -> Fault {
    move |error| {
        let reproducible = error.reproducible();
        let cause = match error.refusal() {
            Some((_, message)) => message.to_owned(),
            None => error.to_string(),
        };
        let is_task_refused = matches!(error.refusal(), Some((RefusalKind::Task, _)));
        Fault { agent: None, stage, cause, reproducible, is_task_refused }
    }
}

#[async_trait]
impl Environment for pl_plugin::Environment {
    async fn start(
        &self,
        task: &Task,
        seed: u64,
        stream: [u8; 32],
        call_log: &CallLog,
    ) -> Result<Box<dyn Episode>, Fault> {
        let logged = self.with_call_log(call_log);
        let episode = logged.start(task, seed, RandomStream::new(stream)).await.map_err(fault("start"))?;
        Ok(Box::new(episode))
    }

    async fn restore(&self, snapshot: &Snapshot, call_log: &CallLog) -> Result<Box<dyn Episode>, Fault> {
        Ok(Box::new(self.with_call_log(call_log).restore(snapshot).await.map_err(fault("restore"))?))
    }

    fn capacity(&self) -> usize {
        self.capacity()
    }
}

#[async_trait]
impl TaskGenerator for pl_plugin::Environment {
    async fn tasks(&self, split: &str, start: u64, count: u32, level: u32) -> Result<Vec<Task>, Fault> {
        self.tasks(split, start, count, level).await.map_err(fault("tasks"))
    }
}

#[async_trait]
impl Episode for pl_plugin::Episode {
    async fn view(&mut self, agent: &str) -> Result<String, Fault> {
        self.view(agent).await.map_err(fault("view"))
    }

    async fn apply(&mut self, actions: &[(String, String)]) -> Result<Outcome, Fault> {
        self.apply(actions.to_vec()).await.map_err(fault("apply"))
    }

    async fn oracle(&mut self, agent: &str) -> Result<Option<String>, Fault> {
        self.oracle(agent).await.map_err(fault("oracle"))
    }

    async fn draw(&mut self, form: DrawingForm) -> Result<Option<String>, Fault> {
        self.draw(form).await.map_err(fault("draw"))
    }

    async fn snapshot(&mut self) -> Result<Snapshot, Fault> {
        self.snapshot().await.map_err(fault("snapshot"))
    }

    async fn suspend(&mut self) -> Result<(), Fault> {
        self.suspend().await.map_err(fault("suspend"))
    }

    fn reproducible(&self) -> bool {
        self.reproducible()
    }
}

#[async_trait]
impl Agent for pl_plugin::Agent {
    async fn prompt(
        &self,
        view: &str,
        turn: &Turn,
        call_log: &CallLog,
    ) -> Result<Option<PromptRequest>, Fault> {
        self.with_call_log(call_log).prompt(view, turn).await.map_err(fault("prompt"))
    }

    async fn call_tools(
        &self,
        view: &str,
        calls: &[ToolCall],
        call_log: &CallLog,
    ) -> Result<Option<Vec<String>>, Fault> {
        self.with_call_log(call_log).call_tools(view, calls).await.map_err(fault("call_tools"))
    }

    async fn parse(&self, view: &str, completion: &Completion, call_log: &CallLog) -> Result<String, Fault> {
        self.with_call_log(call_log).parse(view, completion).await.map_err(fault("parse"))
    }
}

#[async_trait]
impl Reward for pl_plugin::Reward {
    async fn score(
        &self,
        task: &Task,
        actions: &[(String, String)],
        outcome: &Outcome,
        call_log: &CallLog,
    ) -> Result<Scores, Fault> {
        self.with_call_log(call_log).score(task, actions, outcome).await.map_err(fault("score"))
    }
}
