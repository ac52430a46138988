//! An item of a plugin with its settings: the common part of environments, agents and rewards.

use std::sync::Arc;

use pl_types::{Item, ItemKind};
use serde_json::{Map, Value};

use crate::call_log::CallLog;
use crate::error::{CallFailure, Error};
use crate::plugin::{Inner, Plugin};
use crate::pool::StatelessCall;
use crate::random::RandomStream;

/// An item of a plugin with its settings. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ItemHandle {
    plugin: Plugin,
    pub name: Arc<str>,
    /// A JSON object.
    pub settings: Arc<String>,
    pub call_log: Option<CallLog>,
}

impl ItemHandle {
    /// Returns the handle together with the item's description.
    ///
    /// # Errors
    /// [`Error::UnknownItem`].
    pub(crate) fn new<'p>(
        plugin: &'p Plugin,
        kind: ItemKind,
        name: &str,
        settings: Map<String, Value>,
    ) -> Result<(Self, &'p Item), Error> {
        let description = plugin.item(kind, name)?;
        let handle = Self {
            plugin: plugin.clone(),
            name: name.into(),
            settings: Arc::new(Value::Object(settings).to_string()),
            call_log: None,
        };
        Ok((handle, description))
    }

    pub(crate) fn with_call_log(&self, call_log: &CallLog) -> Self {
        Self { call_log: Some(call_log.clone()), ..self.clone() }
    }

    pub(crate) fn plugin(&self) -> &Inner {
        &self.plugin.inner
    }

    /// Describes a stateless call for [`crate::pool::InstancePool::call`].
    pub(crate) fn stateless_call(&self, function: &'static str, stream: RandomStream) -> StatelessCall<'_> {
        StatelessCall {
            item: &self.name,
            function,
            stream,
            call_log: self.call_log.as_ref(),
            services: None,
            policies: None,
        }
    }

    /// Adds the names of plugin, item and function to a failure.
    pub(crate) fn error(&self, function: &'static str, failure: CallFailure) -> Error {
        self.plugin().error(&self.name, function, failure)
    }
}
