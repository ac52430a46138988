//! A fault within an episode.

/// A failure in one stage of an episode. It costs that episode, or that candidate, alone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{stage}: {cause}", agent.as_ref().map(|a| format!("agent {a}, ")).unwrap_or_default())]
pub struct Fault {
    /// The workflow's name of the acting agent, if there is one.
    pub agent: Option<String>,
    /// The stage, in a word or two: `start`, `view`, `prompt`, `generation`, `parse`, `apply`, `score`…
    pub stage: &'static str,
    pub cause: String,
    /// False if a wall clock, not the code, caused it.
    pub reproducible: bool,
    /// True if the environment refuses the task.
    pub is_task_refused: bool,
}

impl Fault {
    pub fn new(stage: &'static str, cause: impl ToString) -> Fault {
        Fault { agent: None, stage, cause: cause.to_string(), reproducible: true, is_task_refused: false }
    }

    pub fn for_agent(agent: &str, stage: &'static str, cause: impl ToString) -> Fault {
        Fault::new(stage, cause).with_agent(agent)
    }

    /// True if the completions of its node visit caused it: their tool calls were answered, or their actions
    /// parsed, applied or scored, and another run would have the same fault.
    pub fn is_caused_by_completions(&self) -> bool {
        self.reproducible && matches!(self.stage, "call_tools" | "parse" | "apply" | "score" | "snapshot")
    }

    /// The same fault, attributed to an agent.
    pub fn with_agent(self, agent: &str) -> Fault {
        Fault { agent: Some(agent.to_owned()), ..self }
    }
}
