//! Templates: a block that is made from one gets its settings, and its own besides.

use std::collections::BTreeMap;

use crate::diagnostic::{Code, Place, Reports, list, suggest};
use crate::params::{of_param, of_type};
use crate::scope::{Scope, Space};
use crate::syntax::{
    Argument, Block, BlockKind, Body, Entry, File, More, Name, Parameter, SpaceId, ValueKind,
};
use crate::values::Scalar;

/// What one setting costs of the scope's budget, so that large templates used often come to an end.
const COST_OF_SETTING: usize = 256;

/// Replaces every block that is made from a template by what it stands for.
pub(crate) fn expand(file: &mut File, scope: &mut Scope, reports: &mut Reports) {
    let mut templates: BTreeMap<String, Block> = BTreeMap::new();
    for block in file.blocks.iter().filter(|block| block.kind == BlockKind::Template) {
        if let Some(name) = &block.name {
            // A second one of the name is reported elsewhere.
            templates.entry(name.text.clone()).or_insert_with(|| block.clone());
        }
        declared(block, reports);
    }
    for block in file.blocks.iter_mut().filter(|block| block.kind.is_template_kind()) {
        let Some(value) = &block.value else { continue };
        let place = value.place;
        let (names, called): (Vec<String>, &[Argument]) = match &value.kind {
            ValueKind::Path(names) => (names.clone(), &[]),
            ValueKind::Call(call) => {
                (call.name.text.split('.').map(str::to_owned).collect(), &call.arguments)
            }
            _ if block.kind == BlockKind::Policy => {
                reports
                    .error(Code::WrongType, place, "a policy is made from a template or from nothing", "")
                    .help("write `policy NAME = TEMPLATE(…)` or `policy NAME { … }`");
                spoil(block);
                continue;
            }
            _ => continue,
        };
        let full = scope.full_in(block.space, &names);
        let Some(template) = templates.get(&full) else {
            let is_call = matches!(value.kind, ValueKind::Call(_));
            if is_call || block.kind == BlockKind::Policy {
                let hint = suggest(&full, "the templates are", templates.keys().map(String::as_str));
                let message = format!("there is no template `{}`", names.join("."));
                reports.error(Code::UnknownName, place, message, "").maybe_help(hint);
                spoil(block);
            }
            continue;
        };
        scope.templates_used.insert(full);
        let arguments = called.to_vec();
        make(block, template, &arguments, place, scope, reports);
    }
}

/// What can be wrong with a template by itself.
fn declared(block: &Block, reports: &mut Reports) {
    let Some(More::Template { made, parameters }) = block.more.as_deref() else { return };
    let kind = BlockKind::from_keyword(&made.text).filter(|kind| kind.is_template_kind());
    match (kind, &block.value) {
        (None, _) => {
            reports
                .error(
                    Code::UnknownName,
                    made.place,
                    format!("no template can be made of `{}`", made.text),
                    "",
                )
                .help("write `= agent PLUGIN.ITEM` or `= policy`");
        }
        (Some(BlockKind::Agent), None) => {
            reports
                .error(Code::WrongType, made.place, "a template of an agent says which item it is", "")
                .help("write `= agent PLUGIN.ITEM`");
        }
        (Some(BlockKind::Policy), Some(value)) => {
            reports
                .error(Code::WrongType, value.place, "a template of a policy is made from nothing", "")
                .help("write `= policy { … }`");
        }
        _ => {}
    }
    for (at, parameter) in parameters.iter().enumerate() {
        of_type(&parameter.of_type, true, reports);
        if let Some(first) = parameters[..at].iter().find(|first| first.name.text == parameter.name.text) {
            let message = format!("a second parameter `{}`", parameter.name.text);
            reports
                .error(Code::Duplicate, parameter.name.place, message, "again here")
                .also(first.name.place, "first here");
        }
    }
}

/// Keeps a block's name, and no one looks for what it lacks.
fn spoil(block: &mut Block) {
    block.sound = false;
    block.body.complete = false;
    block.value = None;
}

fn make(
    block: &mut Block,
    template: &Block,
    called: &[Argument],
    place: Place,
    scope: &mut Scope,
    reports: &mut Reports,
) {
    let Some(More::Template { made, parameters }) = template.more.as_deref() else { return spoil(block) };
    if !template.sound || BlockKind::from_keyword(&made.text).is_none_or(|kind| !kind.is_template_kind()) {
        return spoil(block);
    }
    if made.text != block.kind.keyword() {
        let name = template.name.as_ref().map_or("", |name| name.text.as_str());
        let message = format!("`{name}` is a template of {} {}", article(&made.text), made.text);
        reports
            .error(
                Code::WrongItemKind,
                place,
                message,
                format!("and this is {} {}", article(block.kind.keyword()), block.kind.keyword()),
            )
            .also(made.place, "declared here");
        return spoil(block);
    }
    let Some(locals) = arguments(parameters, called, block.space, template.space, place, scope, reports)
    else {
        return spoil(block);
    };
    let prefix = scope.spaces.get(template.space).map(|space| space.prefix.clone()).unwrap_or_default();
    scope.spaces.push(Space { prefix, locals, used_at: Some(place) });
    let space = scope.spaces.len() - 1;
    block.value = template.value.clone();
    block.space = space;
    let cost = COST_OF_SETTING * (1 + template.body.entries.len());
    if scope.spend(cost, place, reports).is_none() {
        return spoil(block);
    }
    let mut body = template.body.clone();
    moved(&mut body, space);
    let own = std::mem::replace(&mut block.body, body);
    merge(&mut block.body, own);
}

fn article(word: &str) -> &'static str {
    if word.starts_with('a') { "an" } else { "a" }
}

/// The settings of a body, seen from another space.
fn moved(body: &mut Body, space: SpaceId) {
    for entry in &mut body.entries {
        match entry {
            Entry::Setting(setting) => setting.space = space,
            Entry::Nested { body, .. } => moved(body, space),
            Entry::Edge(_) => {}
        }
    }
}

/// Writes a block's own settings over those of its template.
fn merge(into: &mut Body, own: Body) {
    into.complete &= own.complete;
    let key = |entry: &Entry| match entry {
        Entry::Setting(setting) => setting.key.text.clone(),
        Entry::Nested { name, .. } => name.text.clone(),
        Entry::Edge(_) => String::new(),
    };
    let from_template = into.entries.len();
    let at: BTreeMap<String, usize> =
        into.entries.iter().enumerate().map(|(at, entry)| (key(entry), at)).collect();
    let mut taken = vec![false; from_template];
    for entry in own.entries {
        match at.get(&key(&entry)) {
            Some(at) if !std::mem::replace(&mut taken[*at], true) => match (&mut into.entries[*at], entry) {
                (Entry::Nested { body: below, .. }, Entry::Nested { body, .. }) => merge(below, body),
                (below, entry) => *below = entry,
            },
            // Twice by its own hand: reported where settings are read.
            _ => into.entries.push(entry),
        }
    }
}

/// The values of a template's parameters where it is used. None: reported.
fn arguments(
    parameters: &[Parameter],
    called: &[Argument],
    caller: SpaceId,
    home: SpaceId,
    place: Place,
    scope: &mut Scope,
    reports: &mut Reports,
) -> Option<BTreeMap<String, Option<Scalar>>> {
    let mut given: BTreeMap<&str, &Argument> = BTreeMap::new();
    let mut sound = true;
    let names = || parameters.iter().map(|parameter| parameter.name.text.as_str());
    for (at, argument) in called.iter().enumerate() {
        let name: Option<&Name> = match &argument.name {
            Some(name) => match parameters.iter().find(|parameter| parameter.name.text == name.text) {
                Some(parameter) => Some(&parameter.name),
                None => {
                    let hint = suggest(&name.text, "it has", names());
                    let message = format!("the template has no parameter `{}`", name.text);
                    reports.error(Code::UnknownName, name.place, message, "").maybe_help(hint);
                    None
                }
            },
            None => match parameters.get(at) {
                Some(parameter) => Some(&parameter.name),
                None => {
                    let message = format!(
                        "the template has {} parameters, and this is argument {}",
                        parameters.len(),
                        at + 1
                    );
                    reports.error(Code::WrongType, argument.value.place, message, "").help("remove it");
                    None
                }
            },
        };
        let Some(name) = name else {
            sound = false;
            continue;
        };
        if given.insert(&name.text, argument).is_some() {
            let message = format!("`{}` is given twice", name.text);
            reports
                .error(Code::SettingTwice, argument.value.place, message, "again here")
                .help("remove one of them");
            sound = false;
        }
    }
    let missing: Vec<&str> = parameters
        .iter()
        .filter(|parameter| parameter.default.is_none() && !given.contains_key(parameter.name.text.as_str()))
        .map(|parameter| parameter.name.text.as_str())
        .collect();
    if !missing.is_empty() && sound {
        let message = format!("the template wants {}", list(&missing));
        reports
            .error(Code::MissingSetting, place, message, "")
            .help(format!("write `({} = …)` behind its name", missing.join(" = …, ")));
        sound = false;
    }
    let mut out = BTreeMap::new();
    for parameter in parameters {
        let (value, space) = match (given.get(parameter.name.text.as_str()), &parameter.default) {
            (Some(argument), _) => (&argument.value, caller),
            (None, Some(default)) => (default, home),
            (None, None) => continue,
        };
        // What is wrong with the type is reported where it stands.
        let wanted = of_type(&parameter.of_type, true, &mut Reports::new(&[]));
        let value = scope.within(space, reports, |scope, reports| {
            of_param(&parameter.name.text, wanted?, value, scope, reports)
        });
        out.insert(parameter.name.text.clone(), value);
    }
    sound.then_some(out)
}
