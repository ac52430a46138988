//! Checks of settings schemas: an item accepts exactly the settings that its schema allows.

use std::sync::Arc;

use boon::{CompileError, Compiler, Draft, SchemaIndex, Schemas, UrlLoader};
use pl_types::{Finish, Item, ItemKind};
use serde_json::{Map, Value, json};

use super::EchoPolicies;
use super::drive::{SEED, SampleEpisodes};
use super::report::{CheckFailure, CheckOutcome, Report, violation};
use crate::agent::Agent;
use crate::environment::Environment;
use crate::error::{Error, RefusalKind};
use crate::plugin::Plugin;
use crate::reward::Reward;
use crate::services::Services;
use crate::values::Completion;

pub async fn check_settings(
    plugin: &Plugin,
    item: &Item,
    services: &Services,
    episodes: &SampleEpisodes,
    report: &mut Report,
) {
    report.add(item, "has a valid JSON Schema of its settings", is_schema(&item.settings_schema));
    let required = item.settings_schema.get("required").and_then(Value::as_array);
    if required.is_some_and(|required| !required.is_empty()) {
        return;
    }
    let calls = ItemCalls { plugin, item, services, episodes };
    report.add(item, "accepts the defaults of its settings schema", defaults(&calls).await);
    report.add(item, "refuses settings that its schema does not allow", refusals(&calls).await);
}

fn is_schema(schema: &Value) -> CheckOutcome {
    let object = schema.get("type").is_none_or(|kind| kind == "object");
    if !object {
        return Err(violation("the schema does not describe an object"));
    }
    Validator::new(schema).map(drop)
}

/// A compiled JSON Schema (draft 2020-12 unless it names another).
struct Validator {
    schemas: Schemas,
    root: SchemaIndex,
}

impl Validator {
    fn new(schema: &Value) -> Result<Self, CheckFailure> {
        const LOCATION: &str = "pl-host://schema/settings.json";
        let mut compiler = Compiler::new();
        compiler.set_default_draft(Draft::V2020_12);
        // The default loader would open files that a plugin's schema refers to.
        compiler.use_loader(Box::new(NoFiles));
        let mut schemas = Schemas::new();
        let invalid = |error: CompileError| violation(format!("{error:#}"));
        compiler.add_resource(LOCATION, schema.clone()).map_err(invalid)?;
        let root = compiler.compile(LOCATION, &mut schemas).map_err(invalid)?;
        Ok(Self { schemas, root })
    }

    fn is_valid(&self, value: &Value) -> bool {
        self.schemas.validate(value, self.root).is_ok()
    }
}

/// A loader of referenced schemas that refuses all of them.
struct NoFiles;

impl UrlLoader for NoFiles {
    fn load(&self, url: &str) -> Result<Value, Box<dyn std::error::Error>> {
        Err(format!("a settings schema can't refer to another file: {url}").into())
    }
}

fn properties(item: &Item) -> impl Iterator<Item = (&String, &Value)> {
    item.settings_schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

async fn defaults(calls: &ItemCalls<'_>) -> CheckOutcome {
    let stated: Map<String, Value> = properties(calls.item)
        .filter_map(|(key, schema)| Some((key.clone(), schema.get("default")?.clone())))
        .collect();
    let validator = Validator::new(&calls.item.settings_schema)?;
    for (key, value) in &stated {
        let settings = Value::Object(Map::from_iter([(key.clone(), value.clone())]));
        if !validator.is_valid(&settings) {
            return Err(violation(format!("the default of {settings} is not allowed by the schema")));
        }
    }
    for settings in [Map::new(), stated] {
        let text = Value::Object(settings.clone());
        match calls.first_call(settings).await? {
            Some((RefusalKind::Settings, why)) => return Err(violation(format!("with {text}: {why}"))),
            _ => continue,
        }
    }
    Ok(())
}

async fn refusals(calls: &ItemCalls<'_>) -> CheckOutcome {
    let schema = &calls.item.settings_schema;
    let validator = Validator::new(schema)?;
    let odd = [json!("a text"), json!(-1), json!(0.5), json!(true), json!([]), json!({"odd": 1})];
    let unknown = ("no_such_setting".to_owned(), json!(1));
    let single =
        properties(calls.item).flat_map(|(key, _)| odd.iter().map(move |value| (key.clone(), value.clone())));
    for (key, value) in single.chain([unknown]) {
        let settings = Map::from_iter([(key, value)]);
        let text = Value::Object(settings.clone());
        if validator.is_valid(&text) {
            continue;
        }
        match calls.first_call(settings).await? {
            Some((RefusalKind::Settings, _)) => {}
            Some((_, why)) => {
                return Err(violation(format!("{text} is not refused as invalid settings but with: {why}")));
            }
            None => {
                return Err(violation(format!("the item accepts {text}, which its schema does not allow")));
            }
        }
    }
    Ok(())
}

/// An item with sample episodes to call it on.
struct ItemCalls<'b> {
    plugin: &'b Plugin,
    item: &'b Item,
    services: &'b Services,
    episodes: &'b SampleEpisodes,
}

impl ItemCalls<'_> {
    /// Calls the item with settings. Returns the item's own error, if any.
    async fn first_call(
        &self,
        settings: Map<String, Value>,
    ) -> Result<Option<(RefusalKind, String)>, CheckFailure> {
        match self.call(settings).await? {
            Ok(()) => Ok(None),
            Err(error) => match error.refusal() {
                Some((kind, message)) => Ok(Some((kind, message.to_owned()))),
                None => Err(error.into()),
            },
        }
    }

    async fn call(&self, settings: Map<String, Value>) -> Result<Result<(), Error>, CheckFailure> {
        let (plugin, name) = (self.plugin, &self.item.name);
        let missing = || CheckFailure::Untestable("there is no episode to call it with".to_owned());
        Ok(match self.item.kind {
            ItemKind::Environment => {
                let played = self.episodes.of_environment(name).next().ok_or_else(missing)?;
                let environment = Environment::new(plugin, name, settings, self.services.clone())?;
                environment.start(&played.task, SEED, played.stream()).await.map(drop)
            }
            ItemKind::Agent => {
                let (_, step) =
                    self.episodes.steps().find(|(_, step)| step.agent == *name).ok_or_else(missing)?;
                let agent = Agent::new(plugin, name, settings)?;
                agent.parse(&step.view, &Completion::new("42", Finish::Stop)).await.map(drop)
            }
            ItemKind::Reward => {
                let (played, step) = self.episodes.steps().next().ok_or_else(missing)?;
                let reward = Reward::new(plugin, name, settings)?.with_policies(Arc::new(EchoPolicies));
                let actions = [(step.agent.clone(), step.action.clone())];
                reward.score(&played.task, &actions, &step.outcome).await.map(drop)
            }
        })
    }
}
