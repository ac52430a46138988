//! Agents: prompts for a model and the parsing of its completions.

use pl_types::erased::erased;
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
use crate::pool::StatelessCall;
use crate::random::RandomStream;
use crate::services::{Context, Services};
use crate::values::{Completion, Message, Part, PromptRequest, Role, Tool, ToolCall, Turn};

/// An agent with its settings. Keeps no state between calls; cheap to clone.
#[derive(Clone)]
pub struct Agent {
    item: ItemHandle,
    /// Services of its tools.
    services: Option<Services>,
}

impl Agent {
    /// Creates a handle of the agent `item` of a plugin.
    ///
    /// # Errors
    /// [`Error::UnknownItem`].
    pub fn new(plugin: &Plugin, item: &str, settings: Map<String, Value>) -> Result<Self, Error> {
        let (item, _) = ItemHandle::new(plugin, ItemKind::Agent, item, settings)?;
        Ok(Self { item, services: None })
    }

    /// Returns the same agent, whose tools may use `services`.
    #[must_use]
    pub fn with_services(self, services: Services) -> Self {
        Self { services: Some(services), ..self }
    }

    /// Returns the same agent, whose calls are recorded in `call_log`.
    #[must_use]
    pub fn with_call_log(&self, call_log: &CallLog) -> Self {
        Self { item: self.item.with_call_log(call_log), services: self.services.clone() }
    }

    /// Returns the prompt for the model on a view (JSON). Returns `None` if the agent skips the turn.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub async fn prompt(&self, view: &str, turn: &Turn) -> Result<Option<PromptRequest>, Error> {
        let stream = self.stream(b"prompt", view, &[turn.agent.as_bytes(), &turn.visit.to_le_bytes()]);
        let seen = view.to_owned();
        let turn = agents::Turn { agent: turn.agent.clone(), visit: turn.visit };
        let request = erased(self.call(self.item.stateless_call("prompt", stream), async |agents, store| {
            agents.call_prompt(store, &self.item.name, &self.item.settings, &seen, &turn).await
        }))
        .await
        .and_then(|request| request.map_err(refused))
        .and_then(|request| request.map(to_prompt_request).transpose().map_err(CallFailure::invalid));
        request.map_err(|failure| self.item.error("prompt", failure))
    }

    /// Parses a completion into an action (JSON).
    ///
    /// # Errors
    /// [`Error::Call`].
    pub async fn parse(&self, view: &str, completion: &Completion) -> Result<String, Error> {
        let stream = self.stream(b"parse", view, &[completion.text.as_bytes()]);
        let seen = view.to_owned();
        let completion = to_completion(completion);
        let action = erased(self.call(self.item.stateless_call("parse", stream), async |agents, store| {
            agents.call_parse(store, &self.item.name, &self.item.settings, &seen, &completion).await
        }))
        .await
        .and_then(|action| action.map_err(refused))
        .and_then(|action| {
            check::json("the action", &action).map_err(CallFailure::invalid)?;
            Ok(action)
        });
        action.map_err(|failure| self.item.error("parse", failure))
    }

    /// Answers the tool calls of a completion, one result for each. Returns `None` if the agent takes the completion
    /// as it is.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub async fn call_tools(&self, view: &str, calls: &[ToolCall]) -> Result<Option<Vec<String>>, Error> {
        let parts: Vec<&[u8]> =
            calls.iter().flat_map(|call| [call.name.as_bytes(), call.arguments.as_bytes()]).collect();
        let stream = self.stream(b"call_tools", view, &parts);
        let (seen, wire) = (view.to_owned(), calls.iter().map(to_tool_call).collect::<Vec<_>>());
        let call = StatelessCall {
            services: self.services.clone(),
            ..self.item.stateless_call("call_tools", stream)
        };
        let results = erased(self.call(call, async |agents, store| {
            agents.call_call_tools(store, &self.item.name, &self.item.settings, &seen, &wire).await
        }))
        .await
        .and_then(|results| results.map_err(refused))
        .and_then(|results| match results {
            Some(results) if results.len() != calls.len() => {
                Err(CallFailure::invalid(InvalidValue::ToolResultCount {
                    expected: calls.len(),
                    found: results.len(),
                }))
            }
            results => Ok(results),
        });
        results.map_err(|failure| self.item.error("call_tools", failure))
    }

    async fn call<R>(
        &self,
        call: StatelessCall<'_>,
        work: impl AsyncFnOnce(&agents::Guest, &mut Store<Context>) -> wasmtime::Result<R>,
    ) -> Result<R, CallFailure> {
        let world = require_world(&self.item.plugin().agents)?;
        let returned = world.pool.call(
            &self.item.plugin().stores,
            call,
            async |store| world.ready.instantiate_async(&mut *store).await,
            async |bindings, store| work(bindings.pl_host_plugin_agents(), store).await,
        );
        returned.await
    }

    /// Random stream of a stateless call, which depends on its arguments only.
    fn stream(&self, function: &[u8], view: &str, rest: &[&[u8]]) -> RandomStream {
        let mut parts = vec![function, self.item.settings.as_bytes(), view.as_bytes()];
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
    agents::Completion {
        text: completion.text.clone(),
        tool_calls: completion.tool_calls.iter().map(to_tool_call).collect(),
        finish: match completion.finish {
            Finish::Stop => agents::Finish::Stop,
            Finish::Length => agents::Finish::Length,
            Finish::ToolCalls => agents::Finish::ToolCalls,
        },
    }
}

fn to_tool_call(call: &ToolCall) -> agents::ToolCall {
    agents::ToolCall { name: call.name.clone(), arguments: call.arguments.clone() }
}
