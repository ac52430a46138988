//! Agents: what to ask a model, and what its answer means.

use std::sync::Arc;

use pl_types::{Finish, ItemKind};
use pl_wasm::Store;
use serde_json::{Map, Value};

use crate::bindings::agent::exports::pl_host::plugin::agents;
use crate::environment::world_of;
use crate::error::Failed;
use crate::journal::Journal;
use crate::plugin::{Inner, refused};
use crate::pool::Call;
use crate::services::Context;
use crate::{Completion, Error, Message, Part, Plugin, PromptRequest, Role, Stream, Tool, Turn, check};

/// An agent with its settings. Keeps nothing between calls; cheap to clone.
#[derive(Clone)]
pub struct Agent {
    plugin: Plugin,
    item: Arc<str>,
    settings: Arc<String>,
    journal: Option<Journal>,
}

impl Agent {
    /// The agent `item` of a plugin.
    ///
    /// # Errors
    /// [`Error::UnknownItem`].
    pub fn new(plugin: &Plugin, item: &str, settings: Map<String, Value>) -> Result<Self, Error> {
        plugin.item(ItemKind::Agent, item)?;
        Ok(Self {
            plugin: plugin.clone(),
            item: item.into(),
            settings: Arc::new(Value::Object(settings).to_string()),
            journal: None,
        })
    }

    /// The same, with what its calls do noted in a journal.
    #[must_use]
    pub fn with_journal(&self, journal: &Journal) -> Self {
        Self { journal: Some(journal.clone()), ..self.clone() }
    }

    /// What to ask the model on this view (JSON); none skips the turn.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub async fn prompt(&self, view: &str, turn: &Turn) -> Result<Option<PromptRequest>, Error> {
        let stream = self.stream(b"prompt", view, &[turn.agent.as_bytes(), &turn.visit.to_le_bytes()]);
        let seen = view.to_owned();
        let turn = agents::Turn { agent: turn.agent.clone(), visit: turn.visit };
        let asked = self
            .call("prompt", stream, async |agents, store| {
                agents.call_prompt(store, &self.item, &self.settings, &seen, &turn).await
            })
            .await
            .and_then(|request| request.map_err(refused))
            .and_then(|request| request.map(request_of).transpose().map_err(Failed::invalid));
        asked.map_err(|failed| self.inner().error(&self.item, "prompt", failed))
    }

    /// The action (JSON) that a completion means.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub async fn parse(&self, view: &str, completion: &Completion) -> Result<String, Error> {
        let stream = self.stream(b"parse", view, &[completion.text.as_bytes()]);
        let seen = view.to_owned();
        let completion = completion_of(completion);
        let meant = self
            .call("parse", stream, async |agents, store| {
                agents.call_parse(store, &self.item, &self.settings, &seen, &completion).await
            })
            .await
            .and_then(|action| action.map_err(refused))
            .and_then(|action| {
                check::json("the action", &action).map_err(Failed::invalid)?;
                Ok(action)
            });
        meant.map_err(|failed| self.inner().error(&self.item, "parse", failed))
    }

    async fn call<R>(
        &self,
        function: &'static str,
        stream: Stream,
        work: impl AsyncFnOnce(&agents::Guest, &mut Store<Context>) -> wasmtime::Result<R>,
    ) -> Result<R, Failed> {
        let world = world_of(&self.inner().agents)?;
        let returned = world.pool.call(
            self.inner(),
            Call { item: &self.item, function, stream, journal: self.journal.as_ref() },
            async |store| world.ready.instantiate_async(&mut *store).await,
            async |bindings, store| work(bindings.pl_host_plugin_agents(), store).await,
        );
        returned.await
    }

    /// A stateless call draws what its arguments alone decide.
    fn stream(&self, function: &[u8], view: &str, rest: &[&[u8]]) -> Stream {
        let mut parts = vec![function, self.settings.as_bytes(), view.as_bytes()];
        parts.extend(rest);
        Stream::of(&parts)
    }

    fn inner(&self) -> &Inner {
        &self.plugin.inner
    }
}

fn request_of(request: agents::Request) -> Result<PromptRequest, String> {
    if request.messages.is_empty() {
        return Err("a request without messages".to_owned());
    }
    if request.stop.iter().any(String::is_empty) {
        return Err("a stop string is empty, which would end every completion at once".to_owned());
    }
    for tool in &request.tools {
        serde_json::from_str::<Map<String, Value>>(&tool.parameters).map_err(|error| {
            check::not(&format!("the parameters of the tool {}", tool.name), "a JSON object", &error)
        })?;
    }
    let messages = request.messages.into_iter().map(|message| Message {
        role: match message.role {
            agents::Role::System => Role::System,
            agents::Role::User => Role::User,
            agents::Role::Assistant => Role::Assistant,
            agents::Role::Tool => Role::Tool,
        },
        parts: message.parts.into_iter().map(part_of).collect(),
    });
    let tools = request.tools.into_iter().map(|tool| Tool {
        name: tool.name,
        description: tool.description,
        parameters: tool.parameters,
    });
    Ok(PromptRequest { messages: messages.collect(), tools: tools.collect(), stop: request.stop })
}

fn part_of(part: agents::Part) -> Part {
    match part {
        agents::Part::Text(text) => Part::Text(text),
        agents::Part::Image(blob) => Part::Image { mime: blob.mime, bytes: blob.bytes },
        agents::Part::Data(blob) => Part::Data { mime: blob.mime, bytes: blob.bytes },
    }
}

fn completion_of(completion: &Completion) -> agents::Completion {
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
