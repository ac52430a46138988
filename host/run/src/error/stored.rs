//! Reasons for which the workflow in a run folder is refused.

/// Problem of a workflow in a run folder.
#[derive(Debug, thiserror::Error)]
pub enum InvalidWorkflow {
    #[error("it has no scenario")]
    NoScenario,
    #[error("it has several scenarios, one of them without a name")]
    UnnamedScenario,
    #[error("the weights of its scenarios are not shares of training")]
    Weights,
    #[error("a node of its turns has no agent")]
    EmptyNode,
    #[error("it refers to {kind} {index}, but has {count}")]
    Index { kind: &'static str, index: usize, count: usize },
    #[error("plugin {plugin:?} has a {key} out of range ({range})")]
    Limit { plugin: String, key: &'static str, range: String },
    #[error("{name:?} can't be a name")]
    Name { name: String },
    #[error("{name:?} is not the name of an environment variable")]
    Variable { name: String },
    #[error("it has two blocks with the name {name:?}")]
    Duplicate { name: String },
}
