//! Agents: a prompt and a parse, stateless both.

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use crate::bindings::exports::pl_host::plugin::agents::{
    Blob, Completion, Finish, Message, Part, Request, Role, Tool, ToolCall, Turn,
};
use crate::error::Result;

/// An agent: what to ask the model, and what its answer means. What an agent needs to remember stands in the
/// environment's view.
pub trait Agent: 'static {
    /// Name of the item, as a workflow writes it after the plugin's name.
    const NAME: &'static str;
    /// One sentence for people.
    const DOC: &'static str;
    /// The item's settings. Derive `Deserialize` with `deny_unknown_fields`, so that a typing mistake is found.
    type Settings: DeserializeOwned + JsonSchema;
    /// What the agent reads of the environment's view.
    type View: DeserializeOwned;
    /// What the agent does.
    type Action: Serialize;

    /// What to ask the model; none skips this turn.
    ///
    /// # Errors
    /// When settings or view allow no prompt.
    fn prompt(settings: &Self::Settings, view: &Self::View, turn: &Turn) -> Result<Option<Request>>;

    /// What the completion means. Text that means nothing is an action too (let `Action` have a form for it),
    /// never an error: the environment decides what follows.
    ///
    /// # Errors
    /// When the settings are at odds with themselves.
    fn parse(settings: &Self::Settings, view: &Self::View, completion: &Completion) -> Result<Self::Action>;
}

impl Request {
    /// A request of one user message.
    pub fn user(text: impl Into<String>) -> Self {
        Self { messages: vec![Message::new(Role::User, text)], tools: Vec::new(), stop: Vec::new() }
    }

    /// The same with a system message in front.
    #[must_use]
    pub fn with_system(mut self, text: impl Into<String>) -> Self {
        self.messages.insert(0, Message::new(Role::System, text));
        self
    }

    /// The same with a worked example, an earlier exchange, in front of the last message. Examples keep their
    /// order.
    #[must_use]
    pub fn with_example(mut self, question: impl Into<String>, answer: impl Into<String>) -> Self {
        let at = self.messages.len().saturating_sub(1);
        let exchange = [Message::new(Role::User, question), Message::new(Role::Assistant, answer)];
        self.messages.splice(at..at, exchange);
        self
    }

    /// The same with strings that end the completion (they are not part of its text).
    #[must_use]
    pub fn with_stop<S: Into<String>>(mut self, stop: impl IntoIterator<Item = S>) -> Self {
        self.stop.extend(stop.into_iter().map(Into::into));
        self
    }
}

impl Message {
    /// A message of one text part.
    pub fn new(role: Role, text: impl Into<String>) -> Self {
        Self { role, parts: vec![Part::Text(text.into())] }
    }

    /// The text parts, joined.
    #[must_use]
    pub fn text(&self) -> String {
        let parts = self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Image(_) | Part::Data(_) => None,
        });
        parts.collect()
    }
}
