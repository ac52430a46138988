//! Program and models of a server.

use serde_json::Value;

/// Program and models of a server, as it lists them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Identity {
    /// True for pl-host's own server, which takes seeds as the embedded engine does.
    pub(crate) is_pl_host: bool,
    pub(crate) models: Vec<ModelCard>,
}

/// Entry of `/v1/models`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ModelCard {
    pub(crate) id: String,
    /// Largest number of tokens of a prompt with its completion.
    pub(crate) max_model_len: Option<usize>,
    /// True for an adapter.
    is_adapter: bool,
    /// Hash of the weights. Only pl-host's own server tells it.
    hash: Option<String>,
}

impl Identity {
    /// Reads the answers of `/version` and `/v1/models`.
    pub(crate) fn parse(version: &Value, models: &Value) -> Self {
        let card = |model: &Value| {
            Some(ModelCard {
                id: model.get("id")?.as_str()?.to_owned(),
                max_model_len: model
                    .get("max_model_len")
                    .and_then(Value::as_u64)
                    .and_then(|length| usize::try_from(length).ok()),
                is_adapter: model.get("parent").is_some_and(|parent| !parent.is_null()),
                hash: model.get("model_hash").and_then(Value::as_str).map(str::to_owned),
            })
        };
        let list = models.get("data").and_then(Value::as_array);
        Self {
            is_pl_host: version.get("server").and_then(Value::as_str) == Some("pl-host"),
            models: list.into_iter().flatten().filter_map(card).collect(),
        }
    }

    /// Returns the base model. `hash` chooses among those of pl-host's own server, and must be that of one.
    ///
    /// # Errors
    /// The problem, and what to do.
    pub(crate) fn base(&self, hash: &str) -> Result<&ModelCard, (String, String)> {
        let mut bases = self.models.iter().filter(|card| !card.is_adapter);
        let found = match self.is_pl_host {
            true => bases.find(|card| card.hash.as_deref() == Some(hash)),
            false => bases.next(),
        };
        found.ok_or_else(|| match self.is_pl_host {
            true => (
                "none of its policies is the untrained model of this workflow".to_owned(),
                "let it serve a workflow with the same `model` and a policy that is just that model: \
                 `policy base { model = …; train = false }`"
                    .to_owned(),
            ),
            false => ("it lists no base model".to_owned(), "start it with a model".to_owned()),
        })
    }

    /// Returns true if an adapter has this name.
    pub(crate) fn is_adapter(&self, name: &str) -> bool {
        self.named(name).is_some_and(|card| card.is_adapter)
    }

    /// Returns the entry of a name.
    pub(crate) fn named(&self, name: &str) -> Option<&ModelCard> {
        self.models.iter().find(|card| card.id == name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_base_of_our_server_is_the_one_with_the_same_weights() {
        let models = json!({ "data": [
            { "id": "coder", "parent": "base", "model_hash": "aa" },
            { "id": "other", "parent": null, "model_hash": "bb", "max_model_len": 64 },
            { "id": "plain", "parent": null, "model_hash": "aa" },
        ] });
        let own = Identity::parse(&json!({ "version": "1", "server": "pl-host" }), &models);
        assert_eq!(own.base("aa").unwrap().id, "plain");
        assert_eq!(own.base("bb").unwrap().max_model_len, Some(64));
        assert!(own.base("cc").is_err());
        let vllm = Identity::parse(&json!({ "version": "0.33.0" }), &models);
        assert_eq!(vllm.base("cc").unwrap().id, "other");
    }
}
