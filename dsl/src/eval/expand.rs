//! Expands templates: a block made from one gets the template's settings and its own.

use std::collections::BTreeMap;

use super::params::{param_value, resolve_type};
use super::scalar::Scalar;
use super::scope::{Namespace, Scope};
use crate::diagnostic::DiagnosticCode;
use crate::diagnostic::reports::Reports;
use crate::diagnostic::spelling::{list, suggest};
use crate::source::Location;
use crate::syntax::block_kind::BlockKind;
use crate::syntax::tree::{
    Argument, Block, Body, Entry, File, HeadExtra, Name, NamespaceId, Parameter, ValueKind,
};

/// Cost of one setting from the scope's budget. It bounds the work of large templates that are used often.
const COST_OF_SETTING: usize = 256;

/// Expands every block that is made from a template.
pub(crate) fn expand(file: &mut File, scope: &mut Scope, reports: &mut Reports) {
    let mut templates: BTreeMap<String, Block> = BTreeMap::new();
    for block in file.blocks.iter().filter(|block| block.kind == BlockKind::Template) {
        if let Some(name) = &block.name {
            // A duplicate name is reported elsewhere.
            templates.entry(name.text.clone()).or_insert_with(|| block.clone());
        }
        check_template(block, reports);
    }
    for block in file.blocks.iter_mut().filter(|block| block.kind.is_template_kind()) {
        let Some(value) = &block.value else { continue };
        let location = value.location;
        let (names, called): (Vec<String>, &[Argument]) = match &value.kind {
            ValueKind::Path(names) => (names.clone(), &[]),
            ValueKind::Call(call) => {
                (call.name.text.split('.').map(str::to_owned).collect(), &call.arguments)
            }
            _ if block.kind == BlockKind::Policy => {
                reports
                    .error(
                        DiagnosticCode::WrongType,
                        location,
                        "a policy can only be made from a template",
                        "",
                    )
                    .help("write `policy NAME = TEMPLATE(…)` or `policy NAME { … }`");
                mark_unsound(block);
                continue;
            }
            _ => continue,
        };
        let full = scope.full_name_in(block.namespace, &names);
        let Some(template) = templates.get(&full) else {
            let is_call = matches!(value.kind, ValueKind::Call(_));
            if is_call || block.kind == BlockKind::Policy {
                let hint = suggest(&full, "the templates are", templates.keys().map(String::as_str));
                let message = format!("there is no template `{}`", names.join("."));
                reports.error(DiagnosticCode::UnknownName, location, message, "").maybe_help(hint);
                mark_unsound(block);
            }
            continue;
        };
        scope.templates_used.insert(full);
        let arguments = called.to_vec();
        instantiate(block, template, &arguments, location, scope, reports);
    }
}

/// Checks the declaration of a template.
fn check_template(block: &Block, reports: &mut Reports) {
    let Some(HeadExtra::Template { target, parameters }) = block.extra.as_deref() else { return };
    let kind = BlockKind::from_keyword(&target.text).filter(|kind| kind.is_template_kind());
    match (kind, &block.value) {
        (None, _) => {
            reports
                .error(
                    DiagnosticCode::UnknownName,
                    target.location,
                    format!("a template can't make a block `{}`", target.text),
                    "",
                )
                .help("write `= agent PLUGIN.ITEM` or `= policy`");
        }
        (Some(BlockKind::Agent), None) => {
            reports
                .error(
                    DiagnosticCode::WrongType,
                    target.location,
                    "the template of an agent needs an item",
                    "",
                )
                .help("write `= agent PLUGIN.ITEM`");
        }
        (Some(BlockKind::Policy), Some(value)) => {
            reports
                .error(DiagnosticCode::WrongType, value.location, "the template of a policy has no item", "")
                .help("write `= policy { … }`");
        }
        _ => {}
    }
    for (at, parameter) in parameters.iter().enumerate() {
        resolve_type(&parameter.ty, true, reports);
        if let Some(first) = parameters[..at].iter().find(|first| first.name.text == parameter.name.text) {
            let message = format!("a second parameter `{}`", parameter.name.text);
            reports
                .error(DiagnosticCode::Duplicate, parameter.name.location, message, "again here")
                .also(first.name.location, "first here");
        }
    }
}

/// Keeps a block's name, without errors about its missing parts.
fn mark_unsound(block: &mut Block) {
    block.sound = false;
    block.body.complete = false;
    block.value = None;
}

fn instantiate(
    block: &mut Block,
    template: &Block,
    called: &[Argument],
    location: Location,
    scope: &mut Scope,
    reports: &mut Reports,
) {
    let Some(HeadExtra::Template { target, parameters }) = template.extra.as_deref() else {
        return mark_unsound(block);
    };
    if !template.sound || BlockKind::from_keyword(&target.text).is_none_or(|kind| !kind.is_template_kind()) {
        return mark_unsound(block);
    }
    if target.text != block.kind.keyword() {
        let name = template.name.as_ref().map_or("", |name| name.text.as_str());
        let message = format!("`{name}` is a template for {} {}", article(&target.text), target.text);
        reports
            .error(
                DiagnosticCode::WrongItemKind,
                location,
                message,
                format!("this is {} {}", article(block.kind.keyword()), block.kind.keyword()),
            )
            .also(target.location, "declared here");
        return mark_unsound(block);
    }
    let Some(locals) =
        arguments(parameters, called, block.namespace, template.namespace, location, scope, reports)
    else {
        return mark_unsound(block);
    };
    let prefix = scope
        .namespaces
        .get(template.namespace)
        .map(|namespace| namespace.prefix.clone())
        .unwrap_or_default();
    scope.namespaces.push(Namespace { prefix, locals, used_at: Some(location) });
    let namespace = scope.namespaces.len() - 1;
    block.value = template.value.clone();
    block.namespace = namespace;
    let cost = COST_OF_SETTING * (1 + template.body.entries.len());
    if scope.spend(cost, location, reports).is_none() {
        return mark_unsound(block);
    }
    let mut body = template.body.clone();
    set_space(&mut body, namespace);
    let own = std::mem::replace(&mut block.body, body);
    merge(&mut block.body, own);
}

fn article(word: &str) -> &'static str {
    if word.starts_with('a') { "an" } else { "a" }
}

/// Changes the namespace of all settings in a body.
fn set_space(body: &mut Body, namespace: NamespaceId) {
    for entry in &mut body.entries {
        match entry {
            Entry::Setting(setting) => setting.namespace = namespace,
            Entry::Nested { body, .. } => set_space(body, namespace),
            Entry::Edge(_) => {}
        }
    }
}

/// Overwrites the settings of a template with the block's own.
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
            // A duplicate in the block itself, which is reported when its settings are checked.
            _ => into.entries.push(entry),
        }
    }
}

/// Evaluates the arguments of a template. Returns `None` if an error was reported.
fn arguments(
    parameters: &[Parameter],
    called: &[Argument],
    caller: NamespaceId,
    home: NamespaceId,
    location: Location,
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
                    reports.error(DiagnosticCode::UnknownName, name.location, message, "").maybe_help(hint);
                    None
                }
            },
            None => match parameters.get(at) {
                Some(parameter) => Some(&parameter.name),
                None => {
                    let message = format!(
                        "the template has {} parameters, but this is argument {}",
                        parameters.len(),
                        at + 1
                    );
                    reports
                        .error(DiagnosticCode::WrongType, argument.value.location, message, "")
                        .help("remove it");
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
                .error(DiagnosticCode::SettingTwice, argument.value.location, message, "again here")
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
        let message = format!("the template needs {}", list(&missing));
        reports
            .error(DiagnosticCode::MissingSetting, location, message, "")
            .help(format!("write `({} = …)` after its name", missing.join(" = …, ")));
        sound = false;
    }
    let mut out = BTreeMap::new();
    for parameter in parameters {
        let (value, namespace) = match (given.get(parameter.name.text.as_str()), &parameter.default) {
            (Some(argument), _) => (&argument.value, caller),
            (None, Some(default)) => (default, home),
            (None, None) => continue,
        };
        // Errors in the type were reported at the declaration.
        let wanted = resolve_type(&parameter.ty, true, &mut Reports::new(&[]));
        let value = scope.in_namespace(namespace, reports, |scope, reports| {
            param_value(&parameter.name.text, wanted?, value, scope, reports)
        });
        out.insert(parameter.name.text.clone(), value);
    }
    sound.then_some(out)
}
