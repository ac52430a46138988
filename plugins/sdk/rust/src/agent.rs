//! Agents: two stateless functions, `prompt` and `parse`.

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use crate::bindings::exports::pl_host::plugin::agents::{
    Blob, Completion, Finish, Message, Part, Request, Role, Tool, ToolCall, Turn,
};
use crate::error::Result;

/// An agent: it builds the prompt for the model and turns the model's completion into an action. An agent
/// keeps no state; everything it must remember belongs in the environment's view.
pub trait Agent: 'static {
    /// Name of the item, as a workflow writes it after the plugin's name.
    const NAME: &'static str;
    /// One sentence for users.
    const DOC: &'static str;
    /// The item's settings. Derive `Deserialize` with `deny_unknown_fields`, so that a typing mistake is
    /// found.
    type Settings: DeserializeOwned + JsonSchema;
    /// The parts of the environment's view that the agent reads.
    type View: DeserializeOwned;
    /// The agent's action.
    type Action: Serialize;

    /// Returns the request to the model, or `None` to skip this turn.
    ///
    /// # Errors
    /// If no prompt can be made from these settings or this view.
    fn prompt(settings: &Self::Settings, view: &Self::View, turn: &Turn) -> Result<Option<Request>>;

    /// Answers the tool calls of a completion with one result for each; the model is then asked again, in the same turn.
    /// `None` (the default) if the completion is the turn's last. Called only for completions with tool calls;
    /// [`crate::sandbox`] and [`crate::retrieval`] are available.
    ///
    /// # Errors
    /// If the settings contradict each other. An invalid call is not an error: its result tells the model so.
    fn call_tools(
        settings: &Self::Settings,
        view: &Self::View,
        calls: &[ToolCall],
    ) -> Result<Option<Vec<String>>> {
        let _ = (settings, view, calls);
        Ok(None)
    }

    /// Turns the turn's last completion into an action. Invalid text is an action too, never an error: give `Action` a
    /// variant for it, and let the environment decide how to continue.
    ///
    /// # Errors
    /// If the settings contradict each other.
    fn parse(settings: &Self::Settings, view: &Self::View, completion: &Completion) -> Result<Self::Action>;
}

impl Request {
    /// A request with one user message.
    pub fn user(text: impl Into<String>) -> Self {
        Self { messages: vec![Message::new(Role::User, text)], tools: Vec::new(), stop: Vec::new() }
    }

    /// Adds a system message at the front.
    #[must_use]
    pub fn with_system(mut self, text: impl Into<String>) -> Self {
        self.messages.insert(0, Message::new(Role::System, text));
        self
    }

    /// Adds a worked example (a user message and the assistant's answer) before the last message. Several
    /// examples keep their order.
    #[must_use]
    pub fn with_example(mut self, question: impl Into<String>, answer: impl Into<String>) -> Self {
        let at = self.messages.len().saturating_sub(1);
        let exchange = [Message::new(Role::User, question), Message::new(Role::Assistant, answer)];
        self.messages.splice(at..at, exchange);
        self
    }

    /// Adds strings that end the completion. They are not part of its text.
    #[must_use]
    pub fn with_stop<S: Into<String>>(mut self, stop: impl IntoIterator<Item = S>) -> Self {
        self.stop.extend(stop.into_iter().map(Into::into));
        self
    }
}

impl Message {
    /// A message with one text part.
    pub fn new(role: Role, text: impl Into<String>) -> Self {
        Self { role, parts: vec![Part::Text(text.into())] }
    }

    /// Returns the text parts, joined.
    #[must_use]
    pub fn text(&self) -> String {
        let parts = self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Image(_) | Part::Data(_) => None,
        });
        parts.collect()
    }
}
