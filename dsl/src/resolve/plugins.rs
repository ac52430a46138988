//! Plugins and the items that blocks are made from.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::rc::Rc;

use super::Resolver;
use crate::block::{Guest, Settings, body, settings};
use crate::catalog::{Item, ItemKind};
use crate::diagnostic::{Code, Place, suggest};
use crate::syntax::{Block, BlockKind, Body, File, Value, ValueKind};
use crate::workflow::{Grant, Plugin};

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
            let grant = self.grant(block);
            let plugin = path.and_then(|path| plugin(&name, Some(path), &own, grant?));
            let mut items = None;
            if let Some(plugin) = plugin.as_ref().filter(|_| name != BUILT_IN) {
                items = self.items(plugin, block.value.as_ref().map_or(block.place(), |value| value.place));
            }
            self.plugins.push(LoadedPlugin { plugin, name, items, used: false });
        }
    }

    /// What a plugin block opens. None: it is not written as it must be, which is reported.
    fn grant(&mut self, block: &Block) -> Option<Grant> {
        let Some(own) = self.inner(block) else { return Some(Grant::default()) };
        let grant = Grant {
            read: own.words("read").unwrap_or_default(),
            http: own.words("http").unwrap_or_default(),
        };
        let mut fine = true;
        let mut refuse = |key: &str, message: String, help: &str| {
            let place = own.place(key).unwrap_or(block.place());
            self.reports.error(Code::BadGrant, place, message, "").help(help);
            fine = false;
        };
        for host in grant.http.iter().filter(|host| !is_authority(host)) {
            let message = format!("`{host}` is no host");
            refuse("http", message, "write `api.example.org`, or `localhost:8080` with a port");
        }
        let mut mounts = BTreeSet::new();
        for folder in &grant.read {
            match Grant::name_of(folder) {
                None => refuse(
                    "read",
                    format!("the folder `{folder}` has no name of its own"),
                    "the plugin finds a folder under its own name: write one that has a name",
                ),
                Some(name) if !mounts.insert(name) => refuse(
                    "read",
                    format!("two folders are named `{name}`"),
                    "the plugin finds a folder under its own name: rename one of them",
                ),
                Some(_) => {}
            }
        }
        fine.then_some(grant)
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
        let plugin = plugin(name, None, &own, Grant::default());
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

/// A host's name or address, and a port where one is written.
fn is_authority(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        // An address of version 6 stands in brackets.
        Some((host, port)) if !text.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let named = match bracketed {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-')),
    };
    named && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

fn plugin(name: &str, path: Option<String>, own: &Settings, grant: Grant) -> Option<Plugin> {
    Some(Plugin {
        name: name.to_owned(),
        path,
        memory: own.bytes("memory")?,
        fuel: own.integer("fuel")?,
        timeout: own.duration("timeout")?,
        grant,
    })
}

fn of_kind(items: &[Rc<Item>], kind: ItemKind) -> String {
    let names: Vec<&str> = items.iter().filter(|one| one.kind == kind).map(|one| one.name.as_str()).collect();
    if names.is_empty() { "none".to_owned() } else { crate::diagnostic::list(&names) }
}
