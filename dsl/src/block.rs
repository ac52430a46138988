//! The settings of one block: keys known, values typed, defaults filled in, item settings set apart.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, Value as Json};

use crate::catalog::Item;
use crate::diagnostic::{Code, Place, Reports, list, nearest, suggest};
use crate::evaluate::{decided, evaluate};
use crate::overrides::{as_text, cooked};
use crate::schema::{Property, Schema};
use crate::scope::Scope;
use crate::settings::{self, Default};
use crate::syntax::{Block, BlockKind, Body, Entry, Name, Setting, Value, ValueKind};
use crate::values::{Scalar, typed};

/// Whose settings may stand in a block besides the language's own.
pub(crate) enum Guest<'i> {
    /// Nobody's.
    None,
    /// An item that is not known, which is reported already: any key may be one of its.
    Unknown,
    Item(&'i Item),
}

/// The settings of a block, checked. What is asked for and not there was amiss, and reported.
pub(crate) struct Settings {
    // In rows and not in maps: a block has few settings of the language's, and files have many blocks.
    values: Vec<(&'static str, Scalar)>,
    written: Vec<Written>,
    /// The item's own.
    pub item: Map<String, Json>,
}

/// A setting of the language's that stands in a block.
struct Written {
    key: &'static str,
    /// Where the key stands.
    name: Place,
    /// Where its value stands, sound or not. None: it has braces in place of one.
    value: Option<Place>,
}

impl Settings {
    fn get(&self, key: &str) -> Option<&Scalar> {
        self.values.iter().find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    fn written(&self, key: &str) -> Option<&Written> {
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

    /// Text, a word or a name.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Scalar::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A list of words or texts.
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

    /// Where the setting's value was written; none: it is the default.
    pub fn place(&self, key: &str) -> Option<Place> {
        self.written(key)?.value
    }
}

/// Checks the settings of a block.
pub(crate) fn settings(block: &Block, guest: &Guest, scope: &mut Scope, reports: &mut Reports) -> Settings {
    let outer = reports.context.replace(block.head);
    let out = body(block.kind, &block.title(), block.place(), &block.body, guest, scope, reports);
    reports.context = outer;
    out
}

/// Checks the settings between the braces of a block or an inner block. `place` is where to point for what is
/// missing.
pub(crate) fn body(
    kind: BlockKind,
    title: &str,
    place: Place,
    body: &Body,
    guest: &Guest,
    scope: &mut Scope,
    reports: &mut Reports,
) -> Settings {
    let mut out = Settings { values: Vec::new(), written: Vec::new(), item: Map::new() };
    // What is not the language's own, of which there may be any number.
    let mut others: BTreeMap<&str, Place> = BTreeMap::new();
    // Required keys that a misspelt one was probably meant to be.
    let mut meant = BTreeSet::new();
    let outer_via = reports.via;
    for entry in &body.entries {
        reports.via = outer_via;
        let name = match entry {
            Entry::Setting(setting) => {
                reports.via = scope.used_at(setting.space).or(outer_via);
                &setting.key
            }
            Entry::Nested { name, .. } => name,
            Entry::Edge(_) => continue,
        };
        let own = settings::find(kind, &name.text);
        let first = match own {
            Some(own) => out.written(own.key).map(|first| first.name),
            None => others.get(name.text.as_str()).copied(),
        };
        if let Some(first) = first {
            let message = format!("`{}` stands twice in {title}", name.text);
            reports
                .error(Code::SettingTwice, name.place, message, "again here")
                .also(first, "first here")
                .help("remove one of them");
            continue;
        }
        if own.is_none() {
            others.insert(&name.text, name.place);
        }
        match (entry, own, guest) {
            (Entry::Setting(written), Some(own), _) => {
                out.written.push(Written {
                    key: own.key,
                    name: name.place,
                    value: Some(written.value.place),
                });
                if let Some(value) = language_setting(own, written, scope, reports) {
                    out.values.push((own.key, value));
                }
            }
            (Entry::Nested { name, .. }, Some(own), _) => {
                out.written.push(Written { key: own.key, name: name.place, value: None });
                let message = format!("`{}` is a setting and no block", own.key);
                reports
                    .error(Code::WrongType, name.place, message, "")
                    .help(format!("write `{} = …`: {}", own.key, own.kind));
            }
            (Entry::Nested { name, .. }, None, _) if inner(kind, name).is_some() => {}
            (Entry::Setting(Setting { key, .. }), None, _) if let Some(inner) = inner(kind, key) => {
                let message = format!("`{}` is a block", inner.keyword());
                reports
                    .error(Code::WrongType, key.place, message, "")
                    .help(format!("write `{}`", inner.form()));
            }
            (Entry::Edge(_), ..) | (_, None, Guest::Unknown) => {}
            (_, None, Guest::None) => meant.extend(unknown(kind, title, name, None, reports)),
            (_, None, Guest::Item(item)) => {
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
    defaults(kind, title, place, body, &meant, &mut out, reports);
    if let Guest::Item(item) = guest
        && body.complete
    {
        let missing: Vec<&str> = Schema::new(&item.settings_schema)
            .required()
            .into_iter()
            .filter(|key| !others.contains_key(key) && !meant.contains(key))
            .collect();
        if !missing.is_empty() {
            let message = format!("{title} lacks {}", list(&missing));
            let label = format!("item `{}` wants it", item.name);
            reports.error(Code::ItemSetting, place, message, label).maybe_help(item_doc(item, &missing));
        }
    }
    out
}

/// The block of this name that may stand inside one of this kind.
fn inner(kind: BlockKind, name: &Name) -> Option<BlockKind> {
    kind.inner().filter(|inner| inner.keyword() == name.text)
}

/// What the item's author says about its keys.
fn item_doc(item: &Item, keys: &[&str]) -> Option<String> {
    let said: Vec<String> = keys
        .iter()
        .filter_map(|key| {
            let doc = item.settings_schema.get("properties")?.get(key)?.get("description")?.as_str()?;
            Some(format!("`{key}`: {doc}"))
        })
        .collect();
    (!said.is_empty()).then(|| said.join("\n"))
}

fn language_setting(
    own: &settings::Setting,
    written: &Setting,
    scope: &mut Scope,
    reports: &mut Reports,
) -> Option<Scalar> {
    if !own.supported {
        let message = format!("`{}` is not supported yet", own.key);
        reports.error(Code::NotSupported, written.key.place, message, "").help("leave it out");
        return None;
    }
    let value = scope.within(written.space, reports, |scope, reports| {
        typed(own.key, own.kind, &written.value, scope, reports)
    })?;
    if let Some(braces) = written.body {
        let message = format!("`{}` takes no settings of its own", own.key);
        reports.error(Code::Syntax, braces, message, "").help("remove the braces");
        return None;
    }
    Some(value)
}

/// Reports a key that does not exist; the one that was probably meant.
fn unknown<'s>(
    kind: BlockKind,
    title: &str,
    name: &Name,
    item: Option<Schema<'s>>,
    reports: &mut Reports,
) -> Option<&'s str> {
    let mut keys: Vec<&'s str> =
        settings::of(kind).filter(|own| own.supported).map(|setting| setting.key).collect();
    keys.extend(kind.inner().map(BlockKind::keyword));
    keys.extend(item.map(Schema::keys).unwrap_or_default());
    let message = format!("{title} has no setting `{}`", name.text);
    let hint = suggest(&name.text, "it has", keys.iter().copied());
    reports.error(Code::UnknownSetting, name.place, message, "").maybe_help(hint);
    nearest(&name.text, keys)
}

fn defaults(
    kind: BlockKind,
    title: &str,
    place: Place,
    body: &Body,
    meant: &BTreeSet<&str>,
    out: &mut Settings,
    reports: &mut Reports,
) {
    for own in settings::of(kind) {
        if out.place(own.key).is_some() {
            continue;
        }
        let value = match own.default {
            Default::Absent(_) => continue,
            Default::Required => {
                if body.complete && !meant.contains(own.key) {
                    let message = format!("{title} lacks `{}`", own.key);
                    let help = format!("add `{} = …`: {}", own.key, own.kind);
                    reports.error(Code::MissingSetting, place, message, "").help(help);
                }
                continue;
            }
            Default::Integer(whole) => Scalar::Integer(whole),
            Default::Number(number) => Scalar::Number(number),
            Default::Boolean(truth) => Scalar::Boolean(truth),
            Default::Bytes(bytes) => Scalar::Bytes(bytes),
            Default::Duration(duration) => Scalar::Duration(duration),
            Default::Word(word) => Scalar::Text(word.to_owned()),
            Default::AllWords => match own.kind {
                settings::Kind::Choices(choices) => {
                    let words = settings::supported(choices).into_iter();
                    Scalar::List(words.map(|word| Scalar::Text(word.to_owned())).collect())
                }
                _ => continue,
            },
        };
        out.values.push((own.key, value));
    }
}

/// A setting that the language does not know, by the schema of the block's item.
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
    let (json, place) = match entry {
        Entry::Setting(setting) => {
            if let Some(braces) = setting.body {
                let message = format!("`{}` takes either a value or braces", name.text);
                reports.error(Code::Syntax, braces, message, "").help("remove the braces");
                return None;
            }
            let value = scope.within(setting.space, reports, |scope, reports| {
                item_value(&setting.value, schema_of_value, scope, reports)
            });
            (value?, setting.value.place)
        }
        Entry::Nested { body, .. } => (object(body, schema_of_value, scope, reports)?, name.place),
        Entry::Edge(_) => return None,
    };
    let problems = schema_of_value.map(|schema| schema.problems(&json)).unwrap_or_default();
    for problem in &problems {
        let message = format!("`{}` {problem}", name.text);
        reports.error(Code::ItemSetting, place, message, "");
    }
    problems.is_empty().then_some(json)
}

fn item_value(
    value: &Value,
    schema: Option<Schema>,
    scope: &mut Scope,
    reports: &mut Reports,
) -> Option<Json> {
    let value = decided(value, scope, reports)?;
    match &value.kind {
        ValueKind::Path(names) => {
            if let ([name], Some(schema)) = (names.as_slice(), schema) {
                let words = schema.words();
                // A wrong word is the schema's to report.
                if words.contains(&name.as_str()) || !(words.is_empty() || scope.knows(names)) {
                    return Some(Json::from(name.as_str()));
                }
            }
            Some(evaluate(value, scope, reports)?.json())
        }
        ValueKind::Raw(raw) => {
            if schema.is_some_and(Schema::wants_text) {
                return Some(Json::from(as_text(raw, value.place)));
            }
            match cooked(raw, value.place) {
                // A word is text unless a param has its name, as in every `--set`.
                Value { kind: ValueKind::Path(_), .. } => Some(evaluate(value, scope, reports)?.json()),
                cooked => item_value(&cooked, schema, scope, reports),
            }
        }
        ValueKind::List(values) => {
            let items = schema.and_then(Schema::items);
            let values: Vec<Option<Json>> =
                values.iter().map(|one| item_value(one, items, scope, reports)).collect();
            values.into_iter().collect::<Option<Vec<_>>>().map(Json::Array)
        }
        _ => Some(evaluate(value, scope, reports)?.json()),
    }
}

/// An inner block of an item's settings is a JSON object.
fn object(body: &Body, schema: Option<Schema>, scope: &mut Scope, reports: &mut Reports) -> Option<Json> {
    let mut out = Map::new();
    let mut sound = body.complete;
    for entry in &body.entries {
        let (name, value) = match entry {
            Entry::Setting(setting) => {
                let inner = inner_schema(schema, &setting.key.text);
                let value = scope.within(setting.space, reports, |scope, reports| {
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
                let message = format!("`{}` stands twice", name.text);
                reports.error(Code::SettingTwice, name.place, message, "again here");
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
