//! Agents: prompts for a model and the parsing of its completions.

use pl_types::{Finish, ItemKind};
use pl_wasm::Store;
use serde_json::{Map, Value};

use crate::bindings::agent::exports::pl_host::plugin::agents;
use crate::call_log::CallLog;
use crate::check::{self, InvalidValue, json_error};
use crate::environment::require_world;
use crate::error::{CallFailure, Error};
use crate::item_handle::ItemHandle;
use crate::plugin::{Plugin, refused};
use crate::random::RandomStream;
use crate::services::Context;
use crate::values::{Completion, Message, Part, PromptRequest, Role, Tool, Turn};

/// An agent with its settings. Keeps no state between calls; cheap to clone.
#[derive(Clone)]
pub struct Agent(ItemHandle);

impl Agent {
    /// Creates a handle of the agent `item` of a plugin.
    ///
    /// # Errors
    /// [`Error::UnknownItem`].
    pub fn new(plugin: &Plugin, item: &str, settings: Map<String, Value>) -> Result<Self, Error> {
        Ok(Self(ItemHandle::new(plugin, ItemKind::Agent, item, settings)?.0))
    }

    /// Returns the same agent, whose calls are recorded in `call_log`.
    #[must_use]
    pub fn with_call_log(&self, call_log: &CallLog) -> Self {
        Self(self.0.with_call_log(call_log))
    }

    /// Returns the prompt for the model on a view (JSON). Returns `None` if the agent skips the turn.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub async fn prompt(&self, view: &str, turn: &Turn) -> Result<Option<PromptRequest>, Error> {
        let stream = self.stream(b"prompt", view, &[turn.agent.as_bytes(), &turn.visit.to_le_bytes()]);
        let seen = view.to_owned();
        let turn = agents::Turn { agent: turn.agent.clone(), visit: turn.visit };
        let request = self
            .call("prompt", stream, async |agents, store| {
                agents.call_prompt(store, &self.0.name, &self.0.settings, &seen, &turn).await
            })
            .await
            .and_then(|request| request.map_err(refused))
            .and_then(|request| request.map(to_prompt_request).transpose().map_err(CallFailure::invalid));
        request.map_err(|failure| self.0.error("prompt", failure))
    }

    /// Parses a completion into an action (JSON).
    ///
    /// # Errors
    /// [`Error::Call`].
    pub async fn parse(&self, view: &str, completion: &Completion) -> Result<String, Error> {
        let stream = self.stream(b"parse", view, &[completion.text.as_bytes()]);
        let seen = view.to_owned();
        let completion = to_completion(completion);
        let action = self
            .call("parse", stream, async |agents, store| {
                agents.call_parse(store, &self.0.name, &self.0.settings, &seen, &completion).await
            })
            .await
            .and_then(|action| action.map_err(refused))
            .and_then(|action| {
                check::json("the action", &action).map_err(CallFailure::invalid)?;
                Ok(action)
            });
        action.map_err(|failure| self.0.error("parse", failure))
    }

    async fn call<R>(
        &self,
        function: &'static str,
        stream: RandomStream,
        work: impl AsyncFnOnce(&agents::Guest, &mut Store<Context>) -> wasmtime::Result<R>,
    ) -> Result<R, CallFailure> {
        let world = require_world(&self.0.plugin().agents)?;
        let returned = world.pool.call(
            &self.0.plugin().stores,
            self.0.stateless_call(function, stream),
            async |store| world.ready.instantiate_async(&mut *store).await,
            async |bindings, store| work(bindings.pl_host_plugin_agents(), store).await,
        );
        returned.await
    }

    /// Random stream of a stateless call, which depends on its arguments only.
    fn stream(&self, function: &[u8], view: &str, rest: &[&[u8]]) -> RandomStream {
        let mut parts = vec![function, self.0.settings.as_bytes(), view.as_bytes()];
        parts.extend(rest);
        RandomStream::from_parts(&parts)
    }
}

fn to_prompt_request(request: agents::Request) -> Result<PromptRequest, InvalidValue> {
    if request.messages.is_empty() {
        return Err(InvalidValue::NoMessages);
    }
    if request.stop.iter().any(String::is_empty) {
        return Err(InvalidValue::EmptyStopString);
    }
    for tool in &request.tools {
        serde_json::from_str::<Map<String, Value>>(&tool.parameters).map_err(|error| {
            json_error(format!("the parameters of the tool {}", tool.name), "a JSON object", error)
        })?;
    }
    let messages = request.messages.into_iter().map(|message| Message {
        role: match message.role {
            agents::Role::System => Role::System,
            agents::Role::User => Role::User,
            agents::Role::Assistant => Role::Assistant,
            agents::Role::Tool => Role::Tool,
        },
        parts: message.parts.into_iter().map(to_part).collect(),
    });
    let tools = request.tools.into_iter().map(|tool| Tool {
        name: tool.name,
        description: tool.description,
        parameters: tool.parameters,
    });
    Ok(PromptRequest { messages: messages.collect(), tools: tools.collect(), stop: request.stop })
}

fn to_part(part: agents::Part) -> Part {
    match part {
        agents::Part::Text(text) => Part::Text(text),
        agents::Part::Image(blob) => Part::Image { mime: blob.mime, bytes: blob.bytes },
        agents::Part::Data(blob) => Part::Data { mime: blob.mime, bytes: blob.bytes },
    }
}

fn to_completion(completion: &Completion) -> agents::Completion {
    let tool_calls = completion
        .tool_calls
        .iter()
        .map(|call| agents::ToolCall { name: call.name.clone(), arguments: call.arguments.clone() });
    agents::Completion {
        text: completion.text.clone(),
        tool_calls: tool_calls.collect(),
        finish: match completion.finish {
            Finish::Stop => agents::Finish::Stop,
            Finish::Length => agents::Finish::Length,
            Finish::ToolCalls => agents::Finish::ToolCalls,
        },
    }
}
