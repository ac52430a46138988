//! What a settings schema promises: that the item takes what it admits and refuses what it does not.

use pl_types::{Finish, Item, ItemKind};
use serde_json::{Map, Value, json};

use super::drive::{Driven, SEED};
use super::{Outcome, Report, Trouble, broken};
use crate::{Agent, Completion, Environment, Error, Plugin, RefusalKind, Reward, Services};

pub async fn examine(
    plugin: &Plugin,
    item: &Item,
    services: &Services,
    driven: &Driven,
    report: &mut Report,
) {
    report.note(item, "has a settings schema that is JSON Schema", is_schema(&item.settings_schema));
    let required = item.settings_schema.get("required").and_then(Value::as_array);
    if required.is_some_and(|required| !required.is_empty()) {
        return;
    }
    let bench = Bench { plugin, item, services, driven };
    report.note(item, "takes the defaults of its settings schema", defaults(&bench).await);
    report.note(item, "refuses the settings that its schema refuses", refusals(&bench).await);
}

fn is_schema(schema: &Value) -> Outcome {
    let object = schema.get("type").is_none_or(|kind| kind == "object");
    if !object {
        return Err(broken("settings are an object, and the schema says otherwise"));
    }
    jsonschema::validator_for(schema).map(|_| ()).map_err(|error| broken(error.to_string()))
}

fn properties(item: &Item) -> impl Iterator<Item = (&String, &Value)> {
    item.settings_schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

async fn defaults(bench: &Bench<'_>) -> Outcome {
    let stated: Map<String, Value> = properties(bench.item)
        .filter_map(|(key, schema)| Some((key.clone(), schema.get("default")?.clone())))
        .collect();
    for settings in [Map::new(), stated] {
        let words = Value::Object(settings.clone());
        match bench.first_call(settings).await? {
            Some((RefusalKind::Settings, why)) => return Err(broken(format!("with {words}: {why}"))),
            _ => continue,
        }
    }
    Ok(())
}

async fn refusals(bench: &Bench<'_>) -> Outcome {
    let schema = &bench.item.settings_schema;
    let validator = jsonschema::validator_for(schema).map_err(|error| broken(error.to_string()))?;
    let odd = [json!("a text"), json!(-1), json!(0.5), json!(true), json!([]), json!({"odd": 1})];
    let unknown = ("no_such_setting".to_owned(), json!(1));
    let single =
        properties(bench.item).flat_map(|(key, _)| odd.iter().map(move |value| (key.clone(), value.clone())));
    for (key, value) in single.chain([unknown]) {
        let settings = Map::from_iter([(key, value)]);
        let words = Value::Object(settings.clone());
        if validator.is_valid(&words) {
            continue;
        }
        match bench.first_call(settings).await? {
            Some((RefusalKind::Settings, _)) => {}
            Some((_, why)) => {
                return Err(broken(format!(
                    "{words} is refused as something other than bad settings: {why}"
                )));
            }
            None => return Err(broken(format!("the schema refuses {words}, and the item takes it"))),
        }
    }
    Ok(())
}

/// An item, and something to call it with.
struct Bench<'b> {
    plugin: &'b Plugin,
    item: &'b Item,
    services: &'b Services,
    driven: &'b Driven,
}

impl Bench<'_> {
    /// Calls the item under other settings; returns what it refused, if it did.
    async fn first_call(
        &self,
        settings: Map<String, Value>,
    ) -> Result<Option<(RefusalKind, String)>, Trouble> {
        match self.call(settings).await? {
            Ok(()) => Ok(None),
            Err(error) => match error.refusal() {
                Some((kind, words)) => Ok(Some((kind, words.to_owned()))),
                None => Err(error.into()),
            },
        }
    }

    async fn call(&self, settings: Map<String, Value>) -> Result<Result<(), Error>, Trouble> {
        let (plugin, name) = (self.plugin, &self.item.name);
        let missing = || Trouble::Missing("nothing to call it with".to_owned());
        Ok(match self.item.kind {
            ItemKind::Environment => {
                let played = self.driven.of(name).next().ok_or_else(missing)?;
                let environment = Environment::new(plugin, name, settings, self.services.clone())?;
                environment.start(&played.task, SEED, played.stream()).await.map(drop)
            }
            ItemKind::Agent => {
                let (_, step) =
                    self.driven.steps().find(|(_, step)| step.agent == *name).ok_or_else(missing)?;
                let agent = Agent::new(plugin, name, settings)?;
                agent.parse(&step.view, &Completion::new("42", Finish::Stop)).await.map(drop)
            }
            ItemKind::Reward => {
                let (played, step) = self.driven.steps().next().ok_or_else(missing)?;
                let reward = Reward::new(plugin, name, settings)?;
                let actions = [(step.agent.clone(), step.action.clone())];
                reward.score(&played.task, &actions, &step.outcome).await.map(drop)
            }
        })
    }
}
