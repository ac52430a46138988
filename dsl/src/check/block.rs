//! Checks the settings of one block: looks up keys, evaluates values, fills in defaults, and separates the settings of its
//! item.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pl_types::Item;
use serde_json::{Map, Value as Json};

use super::schema::{Property, Schema};
use crate::diagnostic::DiagnosticCode;
use crate::diagnostic::reports::Reports;
use crate::diagnostic::spelling::{list, nearest, suggest};
use crate::eval::evaluate::{check_other_branches, evaluate, resolve_choice};
use crate::eval::raw::{parse_raw, raw_text};
use crate::eval::scalar::Scalar;
use crate::eval::scope::Scope;
use crate::eval::typed::evaluate_as;
use crate::settings::{self, DefaultValue};
use crate::source::Location;
use crate::syntax::block_kind::BlockKind;
use crate::syntax::tree::{Block, Body, Entry, Name, Setting, Value, ValueKind};

/// Item whose settings a block may have besides those of the language.
pub(crate) enum ItemOfBlock<'i> {
    /// The block has no item.
    None,
    /// The item is unknown, which was already reported. Any key may be one of its settings.
    Unknown,
    Item(&'i Item),
}

/// Checked settings of a block. A missing key means that an error was already reported, or that it has no default. A
/// policy's `train` has no defaults: they are those of the file's `train`.
pub(crate) struct BlockSettings {
    // Vectors, not maps: a block has few settings, and files have many blocks.
    values: Vec<(&'static str, Scalar)>,
    written: Vec<WrittenSetting>,
    /// Settings of the item.
    pub item: Map<String, Json>,
}

/// A setting of the language in a block.
struct WrittenSetting {
    key: &'static str,
    /// Location of the key.
    name: Location,
    /// Location of its value, valid or not. `None` if it has braces instead of a value.
    value: Option<Location>,
}

impl BlockSettings {
    fn get(&self, key: &str) -> Option<&Scalar> {
        self.values.iter().find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    fn written(&self, key: &str) -> Option<&WrittenSetting> {
        self.written.iter().find(|written| written.key == key)
    }

    pub fn integer<T: TryFrom<i64>>(&self, key: &str) -> Option<T> {
        match self.get(key)? {
            Scalar::Integer(whole) => T::try_from(*whole).ok(),
            _ => None,
        }
    }

    pub fn number(&self, key: &str) -> Option<f64> {
        match self.get(key)? {
            Scalar::Number(number) => Some(*number),
            _ => None,
        }
    }

    pub fn boolean(&self, key: &str) -> Option<bool> {
        match self.get(key)? {
            Scalar::Boolean(truth) => Some(*truth),
            _ => None,
        }
    }

    pub fn bytes(&self, key: &str) -> Option<u64> {
        match self.get(key)? {
            Scalar::Bytes(bytes) => Some(*bytes),
            _ => None,
        }
    }

    pub fn duration(&self, key: &str) -> Option<Duration> {
        match self.get(key)? {
            Scalar::Duration(duration) => Some(*duration),
            _ => None,
        }
    }

    /// Returns a text, word or name.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Scalar::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns a list of words or texts.
    pub fn words(&self, key: &str) -> Option<Vec<String>> {
        match self.get(key)? {
            Scalar::List(words) => words
                .iter()
                .map(|word| match word {
                    Scalar::Text(text) => Some(text.clone()),
                    _ => None,
                })
                .collect(),
            _ => None,
        }
    }

    /// Returns the location of the setting's value, or `None` for the default.
    pub fn location(&self, key: &str) -> Option<Location> {
        self.written(key)?.value
    }
}

/// Checks the settings of a block.
pub(crate) fn check_settings(
    block: &Block,
    guest: &ItemOfBlock,
    scope: &mut Scope,
    reports: &mut Reports,
) -> BlockSettings {
    let outer = reports.context.replace(block.head);
    let out = check_body(block.kind, &block.title(), block.location(), &block.body, guest, scope, reports);
    reports.context = outer;
    let name = block.name.as_ref().map_or("", |name| name.text.as_str());
    for (key, location) in out.written.iter().filter_map(|written| Some((written.key, written.value?))) {
        scope.places.add(block.kind, name, key, location);
    }
    if let (Some(head), Some(value)) = (settings::head_setting(block.kind), &block.value) {
        scope.places.add(block.kind, name, head.key, value.location);
    }
    out
}

/// Checks the settings between the braces of a block or an inner block. Missing settings are reported at `location`.
pub(crate) fn check_body(
    kind: BlockKind,
    title: &str,
    location: Location,
    body: &Body,
    guest: &ItemOfBlock,
    scope: &mut Scope,
    reports: &mut Reports,
) -> BlockSettings {
    let mut out = BlockSettings { values: Vec::new(), written: Vec::new(), item: Map::new() };
    // Keys that are not settings of the language. There may be any number of them.
    let mut others: BTreeMap<&str, Location> = BTreeMap::new();
    // Keys that a misspelt one was probably meant to be.
    let mut meant = BTreeSet::new();
    let outer_via = reports.via;
    for entry in &body.entries {
        reports.via = outer_via;
        let name = match entry {
            Entry::Setting(setting) => {
                reports.via = scope.used_at(setting.namespace).or(outer_via);
                &setting.key
            }
            Entry::Nested { name, .. } => name,
            Entry::Edge(_) => continue,
        };
        // `train` is both a setting and an inner block of a policy.
        let is_inner = matches!(entry, Entry::Nested { .. }) && kind.inner_block(&name.text).is_some();
        let own = settings::find(kind, &name.text).filter(|_| !is_inner);
        let first = match own {
            Some(own) => out.written(own.key).map(|first| first.name),
            None => others.get(name.text.as_str()).copied(),
        };
        if let Some(first) = first {
            let message = format!("`{}` is set twice in {title}", name.text);
            reports
                .error(DiagnosticCode::SettingTwice, name.location, message, "again here")
                .also(first, "first here")
                .help("remove one of them");
            continue;
        }
        if own.is_none() {
            others.insert(&name.text, name.location);
        }
        match (entry, own, guest) {
            (Entry::Setting(written), Some(own), _) => {
                out.written.push(WrittenSetting {
                    key: own.key,
                    name: name.location,
                    value: Some(written.value.location),
                });
                if let Some(value) = language_setting(own, written, scope, reports) {
                    out.values.push((own.key, value));
                }
            }
            (Entry::Nested { name, .. }, Some(own), _) => {
                out.written.push(WrittenSetting { key: own.key, name: name.location, value: None });
                let message = format!("`{}` is a setting, not a block", own.key);
                reports
                    .error(DiagnosticCode::WrongType, name.location, message, "")
                    .help(format!("write `{} = …`: {}", own.key, own.kind));
            }
            (Entry::Nested { .. }, None, _) if is_inner => {}
            (Entry::Setting(Setting { key, .. }), None, _)
                if let Some(inner) = kind.inner_block(&key.text) =>
            {
                let message = format!("`{}` is a block, not a setting", inner.keyword());
                reports
                    .error(DiagnosticCode::WrongType, key.location, message, "")
                    .help(format!("write `{}`", inner.form()));
            }
            (Entry::Edge(_), ..) | (_, None, ItemOfBlock::Unknown) => {}
            (_, None, ItemOfBlock::None) => meant.extend(unknown(kind, title, name, None, reports)),
            (_, None, ItemOfBlock::Item(item)) => {
                let schema = Schema::new(&item.settings_schema);
                if matches!(schema.property(&name.text), Property::Unknown) {
                    meant.extend(unknown(kind, title, name, Some(schema), reports));
                } else if let Some(value) = item_setting(entry, name, schema, scope, reports) {
                    out.item.insert(name.text.clone(), value);
                }
            }
        }
    }
    reports.via = outer_via;
    if !matches!(kind, BlockKind::PolicyTrain | BlockKind::PolicyDevices) {
        defaults(kind, title, location, body, &meant, &mut out, reports);
    }
    if let ItemOfBlock::Item(item) = guest
        && body.complete
    {
        let missing: Vec<&str> = Schema::new(&item.settings_schema)
            .required()
            .into_iter()
            .filter(|key| !others.contains_key(key) && !meant.contains(key))
            .collect();
        if !missing.is_empty() {
            let message = format!("{title} is missing {}", list(&missing));
            let label = format!("required by item `{}`", item.name);
            reports
                .error(DiagnosticCode::ItemSetting, location, message, label)
                .maybe_help(item_doc(item, &missing));
        }
    }
    out
}

/// Returns the item's own documentation of its keys.
fn item_doc(item: &Item, keys: &[&str]) -> Option<String> {
    let docs: Vec<String> = keys
        .iter()
        .filter_map(|key| {
            let doc = item.settings_schema.get("properties")?.get(key)?.get("description")?.as_str()?;
            Some(format!("`{key}`: {doc}"))
        })
        .collect();
    (!docs.is_empty()).then(|| docs.join("\n"))
}

fn language_setting(
    own: &settings::Setting,
    written: &Setting,
    scope: &mut Scope,
    reports: &mut Reports,
) -> Option<Scalar> {
    let value = scope.in_namespace(written.namespace, reports, |scope, reports| {
        evaluate_as(own.key, own.kind, &written.value, scope, reports)
    })?;
    if let Some(braces) = written.body {
        let message = format!("`{}` has no settings of its own", own.key);
        reports.error(DiagnosticCode::Syntax, braces, message, "").help("remove the braces");
        return None;
    }
    Some(value)
}

/// Reports an unknown key. Returns the key that was probably meant.
fn unknown<'s>(
    kind: BlockKind,
    title: &str,
    name: &Name,
    item: Option<Schema<'s>>,
    reports: &mut Reports,
) -> Option<&'s str> {
    let mut keys: Vec<&'s str> = settings::in_block(kind).map(|setting| setting.key).collect();
    keys.extend(kind.inner().iter().map(|inner| inner.keyword()));
    keys.extend(item.map(Schema::keys).unwrap_or_default());
    let message = format!("{title} has no setting `{}`", name.text);
    let of_all = kind == BlockKind::PolicyTrain && settings::find(BlockKind::Train, &name.text).is_some();
    let hint = match settings::replacement(kind, &name.text) {
        Some(replacement) => Some(replacement.to_owned()),
        None if of_all => {
            Some("it is the same for all policies: write it in the `train` of the file".to_owned())
        }
        None => suggest(&name.text, "it has", keys.iter().copied()),
    };
    reports.error(DiagnosticCode::UnknownSetting, name.location, message, "").maybe_help(hint);
    nearest(&name.text, keys)
}

fn defaults(
    kind: BlockKind,
    title: &str,
    location: Location,
    body: &Body,
    meant: &BTreeSet<&str>,
    out: &mut BlockSettings,
    reports: &mut Reports,
) {
    for own in settings::in_block(kind) {
        if out.location(own.key).is_some() {
            continue;
        }
        let value = match own.default {
            DefaultValue::Absent(_) => continue,
            DefaultValue::Required => {
                if body.complete && !meant.contains(own.key) {
                    let message = format!("{title} is missing `{}`", own.key);
                    let help = format!("add `{} = …`: {}", own.key, own.kind);
                    reports.error(DiagnosticCode::MissingSetting, location, message, "").help(help);
                }
                continue;
            }
            DefaultValue::Integer(whole) => Scalar::Integer(whole),
            DefaultValue::Number(number) => Scalar::Number(number),
            DefaultValue::Boolean(truth) => Scalar::Boolean(truth),
            DefaultValue::Bytes(bytes) => Scalar::Bytes(bytes),
            DefaultValue::Duration(duration) => Scalar::Duration(duration),
            DefaultValue::Text(word) | DefaultValue::Word(word) => Scalar::Text(word.to_owned()),
            DefaultValue::Words(words) => {
                Scalar::List(words.iter().map(|word| Scalar::Text((*word).to_owned())).collect())
            }
            DefaultValue::AllWords => match own.kind {
                settings::SettingKind::Choices(choices) => {
                    let words = settings::words(choices).into_iter();
                    Scalar::List(words.map(|word| Scalar::Text(word.to_owned())).collect())
                }
                _ => continue,
            },
        };
        out.values.push((own.key, value));
    }
}

/// Checks a setting of the block's item against its schema.
fn item_setting(
    entry: &Entry,
    name: &Name,
    schema: Schema,
    scope: &mut Scope,
    reports: &mut Reports,
) -> Option<Json> {
    let schema_of_value = match schema.property(&name.text) {
        Property::Known(known) => Some(known),
        Property::Open | Property::Unknown => None,
    };
    let (json, location) = match entry {
        Entry::Setting(setting) => {
            if let Some(braces) = setting.body {
                let message = format!("`{}` takes either a value or braces", name.text);
                reports.error(DiagnosticCode::Syntax, braces, message, "").help("remove the braces");
                return None;
            }
            let value = scope.in_namespace(setting.namespace, reports, |scope, reports| {
                item_value(&setting.value, schema_of_value, scope, reports)
            });
            (value?, setting.value.location)
        }
        Entry::Nested { body, .. } => (object(body, schema_of_value, scope, reports)?, name.location),
        Entry::Edge(_) => return None,
    };
    let problems = schema_of_value.map(|schema| schema.problems(&json)).unwrap_or_default();
    for problem in &problems {
        let message = format!("`{}` {problem}", name.text);
        reports.error(DiagnosticCode::ItemSetting, location, message, "");
    }
    problems.is_empty().then_some(json)
}

fn item_value(
    value: &Value,
    schema: Option<Schema>,
    scope: &mut Scope,
    reports: &mut Reports,
) -> Option<Json> {
    let chosen = resolve_choice(value, scope, reports)?;
    check_other_branches(value, chosen, scope, reports, |other, scope, aside| {
        drop(item_value(other, schema, scope, aside));
    });
    let value = chosen;
    match &value.kind {
        ValueKind::Path(names) => {
            if let ([name], Some(schema)) = (names.as_slice(), schema) {
                let words = schema.words();
                // The schema check reports a wrong word.
                if words.contains(&name.as_str()) || !(words.is_empty() || scope.contains_name(names)) {
                    return Some(Json::from(name.as_str()));
                }
            }
            Some(evaluate(value, scope, reports)?.to_json())
        }
        ValueKind::Raw(raw) => {
            if let (true, Some(text)) = (schema.is_some_and(Schema::is_text), raw_text(raw, value.location)) {
                return Some(Json::from(text));
            }
            match parse_raw(raw, value.location) {
                // A word is text unless it is the name of a param, as in every override.
                Value { kind: ValueKind::Path(_), .. } => Some(evaluate(value, scope, reports)?.to_json()),
                parsed => item_value(&parsed, schema, scope, reports),
            }
        }
        ValueKind::List(values) => {
            let items = schema.and_then(Schema::items);
            let values: Vec<Option<Json>> =
                values.iter().map(|one| item_value(one, items, scope, reports)).collect();
            values.into_iter().collect::<Option<Vec<_>>>().map(Json::Array)
        }
        _ => Some(evaluate(value, scope, reports)?.to_json()),
    }
}

/// Converts an inner block of an item's settings to a JSON object.
fn object(body: &Body, schema: Option<Schema>, scope: &mut Scope, reports: &mut Reports) -> Option<Json> {
    let mut out = Map::new();
    let mut sound = body.complete;
    for entry in &body.entries {
        let (name, value) = match entry {
            Entry::Setting(setting) => {
                let inner = inner_schema(schema, &setting.key.text);
                let value = scope.in_namespace(setting.namespace, reports, |scope, reports| {
                    item_value(&setting.value, inner, scope, reports)
                });
                (&setting.key, value)
            }
            Entry::Nested { name, body } => {
                (name, object(body, inner_schema(schema, &name.text), scope, reports))
            }
            Entry::Edge(_) => continue,
        };
        match value {
            Some(value) if !out.contains_key(&name.text) => {
                out.insert(name.text.clone(), value);
            }
            Some(_) => {
                let message = format!("`{}` is set twice", name.text);
                reports.error(DiagnosticCode::SettingTwice, name.location, message, "again here");
                sound = false;
            }
            None => sound = false,
        }
    }
    sound.then_some(Json::Object(out))
}

fn inner_schema<'s>(schema: Option<Schema<'s>>, key: &str) -> Option<Schema<'s>> {
    match schema?.object().property(key) {
        Property::Known(known) => Some(known),
        _ => None,
    }
}
