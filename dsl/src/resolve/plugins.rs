//! Plugins and the items that blocks are made from.

use std::rc::Rc;

use super::Resolver;
use crate::block::{Guest, Settings, body, settings};
use crate::catalog::{Item, ItemKind};
use crate::diagnostic::{Code, Place, suggest};
use crate::syntax::{Block, BlockKind, Body, File, Value, ValueKind};
use crate::workflow::Plugin;

/// The plugin that is always there.
pub(super) const BUILT_IN: &str = "std";

pub(super) struct LoadedPlugin {
    pub plugin: Option<Plugin>,
    pub name: String,
    /// None: it can't be loaded, which is reported already.
    items: Option<Vec<Rc<Item>>>,
    pub used: bool,
}

impl Resolver<'_, '_, '_> {
    pub(super) fn load_plugins(&mut self, file: &File) {
        let plugins = self.named(file, BlockKind::Plugin);
        for (at, block) in plugins.blocks.iter().enumerate() {
            let name = plugins.name(at).to_owned();
            let own = settings(block, &Guest::None, &mut self.scope, self.reports);
            let path = self.in_head(block);
            let plugin = path.and_then(|path| plugin(&name, Some(path), &own));
            let mut items = None;
            if let Some(plugin) = plugin.as_ref().filter(|_| name != BUILT_IN) {
                items = self.items(plugin, block.value.as_ref().map_or(block.place(), |value| value.place));
            }
            self.plugins.push(LoadedPlugin { plugin, name, items, used: false });
        }
    }

    fn items(&mut self, plugin: &Plugin, place: Place) -> Option<Vec<Rc<Item>>> {
        match self.catalog.items(plugin) {
            Ok(items) => Some(items.into_iter().map(Rc::new).collect()),
            Err(why) => {
                let message = format!("plugin `{}` can't be loaded: {why}", plugin.name);
                self.reports.error(Code::PluginFailed, place, message, "");
                None
            }
        }
    }

    /// The position of a plugin; the built-in one is loaded when it is first used.
    fn plugin(&mut self, name: &str, place: Place) -> Option<usize> {
        if let Some(at) = self.plugins.iter().position(|loaded| loaded.name == name) {
            return Some(at);
        }
        if name != BUILT_IN {
            return None;
        }
        let nothing = Body::empty();
        let kind = BlockKind::Plugin;
        let own = body(kind, name, place, &nothing, &Guest::None, &mut self.scope, self.reports);
        let plugin = plugin(name, None, &own);
        let items = plugin.as_ref().and_then(|plugin| self.items(plugin, place));
        self.plugins.push(LoadedPlugin { plugin, name: name.to_owned(), items, used: true });
        Some(self.plugins.len() - 1)
    }

    /// The item of `agent tool = maths.tool`: the plugin's position, and the item where it is known.
    fn item(&mut self, block: &Block, kind: ItemKind) -> (Option<(usize, String)>, Option<Rc<Item>>) {
        let Some(Value { kind: value, place }) = &block.value else { return (None, None) };
        let (plugin, item) = match value {
            ValueKind::Path(names) if names.len() == 2 && names[0] == BUILT_IN => {
                (BUILT_IN.to_owned(), names[1].as_str())
            }
            ValueKind::Path(names) if names.len() >= 2 => {
                let (item, plugin) = (&names[names.len() - 1], &names[..names.len() - 1]);
                (self.scope.full_in(block.space, plugin), item.as_str())
            }
            _ => {
                let message = format!("{} is not made from a plugin's item", block.title());
                self.reports
                    .error(Code::WrongType, *place, message, "expected `PLUGIN.ITEM`")
                    .help(format!("write `{}`", block.kind.form()));
                return (None, None);
            }
        };
        let plugin = plugin.as_str();
        let Some(at) = self.plugin(plugin, *place) else {
            let names = self.plugins.iter().map(|loaded| loaded.name.as_str()).chain([BUILT_IN]);
            let hint = suggest(plugin, "the plugins are", names);
            let message = format!("there is no plugin `{plugin}`");
            self.reports.error(Code::UnknownName, *place, message, "").maybe_help(hint);
            return (None, None);
        };
        self.plugins[at].used = true;
        let Some(items) = &self.plugins[at].items else { return (None, None) };
        let Some(found) = items.iter().find(|one| one.name == item && one.kind == kind) else {
            if let Some(other) = items.iter().find(|one| one.name == item) {
                let message = format!("`{plugin}.{item}` is of kind {}, not {kind}", other.kind);
                self.reports
                    .error(Code::WrongItemKind, *place, message, "")
                    .help(format!("of kind {kind} are: {}", of_kind(items, kind)));
            } else {
                let names = items.iter().filter(|one| one.kind == kind).map(|one| one.name.as_str());
                let hint = suggest(item, &format!("of kind {kind} it has"), names);
                let message = format!("plugin `{plugin}` offers no {kind} `{item}`");
                self.reports.error(Code::UnknownItem, *place, message, "").maybe_help(hint);
            }
            return (None, None);
        };
        (Some((at, item.to_owned())), Some(Rc::clone(found)))
    }

    pub(super) fn with_item(
        &mut self,
        block: &Block,
        kind: ItemKind,
    ) -> (Option<(usize, String)>, Option<Rc<Item>>, Settings) {
        let (at, item) = self.item(block, kind);
        let guest = match &item {
            Some(item) => Guest::Item(item),
            None => Guest::Unknown,
        };
        let own = settings(block, &guest, &mut self.scope, self.reports);
        (at, item, own)
    }
}

fn plugin(name: &str, path: Option<String>, own: &Settings) -> Option<Plugin> {
    Some(Plugin {
        name: name.to_owned(),
        path,
        memory: own.bytes("memory")?,
        fuel: own.integer("fuel")?,
        timeout: own.duration("timeout")?,
    })
}

fn of_kind(items: &[Rc<Item>], kind: ItemKind) -> String {
    let names: Vec<&str> = items.iter().filter(|one| one.kind == kind).map(|one| one.name.as_str()).collect();
    if names.is_empty() { "none".to_owned() } else { crate::diagnostic::list(&names) }
}
