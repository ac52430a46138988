//! Loads plugins and looks up their items.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::path::Path;
use std::rc::Rc;

use pl_types::{Item, ItemKind};

use super::block::{BlockSettings, ItemOfBlock, check_body, check_settings};
use super::resolver::{BUILT_IN, LoadedPlugin, NamedBlocks, ResolvedPolicy, Resolver};
use crate::diagnostic::DiagnosticCode;
use crate::diagnostic::spelling::{list, suggest};
use crate::source::Location;
use crate::syntax::block_kind::BlockKind;
use crate::syntax::tree::{Block, Body, File, Value, ValueKind};
use crate::workflow::{Grant, Plugin};

impl Resolver<'_, '_, '_> {
    pub(super) fn load_plugins(&mut self, file: &File) {
        let plugins = self.named(file, BlockKind::Plugin);
        for (at, block) in plugins.blocks.iter().enumerate() {
            let name = plugins.name(at).to_owned();
            let own = check_settings(block, &ItemOfBlock::None, &mut self.scope, self.reports);
            let path = self.in_head(block);
            let (grant, policies) = self.grant(block);
            let is_name_of_included = path.as_ref().is_some_and(|path| self.is_name_of_included(path, block));
            let plugin = path.and_then(|path| plugin(&name, Some(path), &own, grant?));
            let plugin = plugin.map(|plugin| Plugin { is_name_of_included, ..plugin });
            let mut items = None;
            if let Some(plugin) = plugin.as_ref().filter(|_| name != BUILT_IN) {
                items =
                    self.items(plugin, block.value.as_ref().map_or(block.location(), |value| value.location));
            }
            self.plugins.push(LoadedPlugin { plugin, name, items, used: false, policies });
        }
    }

    /// Returns true if a block in an included file of another folder has a path as a file name alone.
    fn is_name_of_included(&self, path: &str, block: &Block) -> bool {
        let Some(Value { kind: ValueKind::Text(written), location }) = &block.value else { return false };
        let is_name = Path::new(written).file_name().is_some_and(|name| name == written.as_str());
        is_name && written != path && self.scope.path_from(*location, written) == Path::new(path)
    }

    /// Returns the grants of a plugin block, `None` if an error was reported, and the location of the granted policies.
    fn grant(&mut self, block: &Block) -> (Option<Grant>, Option<Location>) {
        let Some(own) = self.inner(block, BlockKind::Grant) else { return (Some(Grant::default()), None) };
        let grant = Grant {
            read: own.words("read").unwrap_or_default(),
            http: own.words("http").unwrap_or_default(),
            policies: own.words("policies").unwrap_or_default(),
        };
        let name = block.name.as_ref().map_or("", |name| name.text.as_str());
        for key in ["read", "http"] {
            if let Some(location) = own.location(key) {
                self.scope.places.add(BlockKind::Plugin, name, key, location);
            }
        }
        let mut valid = true;
        let mut refuse = |key: &str, message: String, help: &str| {
            let location = own.location(key).unwrap_or(block.location());
            self.reports.error(DiagnosticCode::BadGrant, location, message, "").help(help);
            valid = false;
        };
        for host in grant.http.iter().filter(|host| !is_authority(host)) {
            let message = format!("`{host}` is not a valid host");
            refuse("http", message, "write `api.example.org`, or `localhost:8080` with a port");
        }
        let mut mounts = BTreeSet::new();
        for folder in &grant.read {
            match Grant::mount_name(folder) {
                None => refuse(
                    "read",
                    format!("the path `{folder}` does not end with a folder name"),
                    "the plugin sees a folder under its name: write a path that ends with one",
                ),
                Some(name) if !mounts.insert(name) => refuse(
                    "read",
                    format!("two granted folders are named `{name}`"),
                    "the plugin sees a folder under its name: rename one of them",
                ),
                Some(_) => {}
            }
        }
        (valid.then_some(grant), own.location("policies"))
    }

    /// Checks the policies that plugins may ask, and returns their indices. They are checked after the blocks of
    /// all policies.
    pub(super) fn granted_policies(
        &mut self,
        policies: &NamedBlocks,
        resolved: &[ResolvedPolicy],
    ) -> BTreeSet<usize> {
        let granted: Vec<(Vec<String>, Option<Location>)> = self
            .plugins
            .iter()
            .map(|loaded| {
                let names = loaded.plugin.iter().flat_map(|plugin| plugin.grant.policies.clone());
                (names.collect(), loaded.policies)
            })
            .collect();
        let mut indices = BTreeSet::new();
        for (names, location) in granted {
            for name in names {
                let Some(location) = location else { continue };
                let Some(index) = self.find(&name, location, policies, "policy") else { continue };
                let trained = |one: &ResolvedPolicy| one.policy.as_ref().is_some_and(|policy| policy.train);
                if resolved.get(index).is_some_and(trained) {
                    let message = format!("the policy `{name}` is trained, so a reward may not ask it");
                    self.reports.error(DiagnosticCode::BadGrant, location, message, "").help(
                        "a judge that changes pays for what it likes to read: set `train = false`, or declare another \
                         policy on the same model",
                    );
                }
                indices.insert(index);
            }
        }
        indices
    }

    fn items(&mut self, plugin: &Plugin, location: Location) -> Option<Vec<Rc<Item>>> {
        match self.catalog.items(plugin) {
            Ok(items) => Some(items.into_iter().map(Rc::new).collect()),
            Err(why) => {
                let message = format!("plugin `{}` can't be loaded: {why}", plugin.name);
                self.reports.error(DiagnosticCode::PluginFailed, location, message, "");
                None
            }
        }
    }

    /// Returns the index of a plugin. The built-in plugin is loaded at its first use.
    fn plugin(&mut self, name: &str, location: Location) -> Option<usize> {
        if let Some(at) = self.plugins.iter().position(|loaded| loaded.name == name) {
            return Some(at);
        }
        if name != BUILT_IN {
            return None;
        }
        let nothing = Body::empty();
        let kind = BlockKind::Plugin;
        let own =
            check_body(kind, name, location, &nothing, &ItemOfBlock::None, &mut self.scope, self.reports);
        let plugin = plugin(name, None, &own, Grant::default());
        let items = plugin.as_ref().and_then(|plugin| self.items(plugin, location));
        self.plugins.push(LoadedPlugin { plugin, name: name.to_owned(), items, used: true, policies: None });
        Some(self.plugins.len() - 1)
    }

    /// Looks up the item in `agent tool = maths.tool`. Returns the index of the plugin with the item's name, and the item,
    /// each if known.
    fn item(&mut self, block: &Block, kind: ItemKind) -> (Option<(usize, String)>, Option<Rc<Item>>) {
        let Some(Value { kind: value, location }) = &block.value else { return (None, None) };
        let (plugin, item) = match value {
            ValueKind::Path(names) if names.len() == 2 && names[0] == BUILT_IN => {
                (BUILT_IN.to_owned(), names[1].as_str())
            }
            ValueKind::Path(names) if names.len() >= 2 => {
                let (item, plugin) = (&names[names.len() - 1], &names[..names.len() - 1]);
                (self.scope.full_name_in(block.namespace, plugin), item.as_str())
            }
            _ => {
                let message = format!("{} needs an item of a plugin", block.title());
                self.reports
                    .error(DiagnosticCode::WrongType, *location, message, "expected `PLUGIN.ITEM`")
                    .help(format!("write `{}`", block.kind.form()));
                return (None, None);
            }
        };
        self.find_item(&plugin, item, *location, kind)
    }

    /// Looks up an item of a plugin. Returns the index of the plugin with the item's name, and the item, each if known.
    pub(super) fn find_item(
        &mut self,
        plugin: &str,
        item: &str,
        location: Location,
        kind: ItemKind,
    ) -> (Option<(usize, String)>, Option<Rc<Item>>) {
        let Some(at) = self.plugin(plugin, location) else {
            let names = self.plugins.iter().map(|loaded| loaded.name.as_str()).chain([BUILT_IN]);
            let hint = suggest(plugin, "the plugins are", names);
            let message = format!("there is no plugin `{plugin}`");
            self.reports.error(DiagnosticCode::UnknownName, location, message, "").maybe_help(hint);
            return (None, None);
        };
        self.plugins[at].used = true;
        let Some(items) = &self.plugins[at].items else { return (None, None) };
        let Some(found) = items.iter().find(|one| one.name == item && one.kind == kind) else {
            if let Some(other) = items.iter().find(|one| one.name == item) {
                let message = format!("`{plugin}.{item}` is of kind {}, not {kind}", other.kind);
                self.reports
                    .error(DiagnosticCode::WrongItemKind, location, message, "")
                    .help(format!("items of kind {kind}: {}", list_of_kind(items, kind)));
            } else {
                let names = items.iter().filter(|one| one.kind == kind).map(|one| one.name.as_str());
                let hint = suggest(item, "its items of that kind are", names);
                let message = format!("plugin `{plugin}` has no {kind} `{item}`");
                self.reports.error(DiagnosticCode::UnknownItem, location, message, "").maybe_help(hint);
            }
            return (None, None);
        };
        (Some((at, item.to_owned())), Some(Rc::clone(found)))
    }

    pub(super) fn with_item(
        &mut self,
        block: &Block,
        kind: ItemKind,
    ) -> (Option<(usize, String)>, Option<Rc<Item>>, BlockSettings) {
        let (at, item) = self.item(block, kind);
        let guest = match &item {
            Some(item) => ItemOfBlock::Item(item),
            None => ItemOfBlock::Unknown,
        };
        let own = check_settings(block, &guest, &mut self.scope, self.reports);
        (at, item, own)
    }
}

/// True if the text is a host name or address, with an optional port.
fn is_authority(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        // An IPv6 address is in brackets.
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

fn plugin(name: &str, path: Option<String>, own: &BlockSettings, grant: Grant) -> Option<Plugin> {
    Some(Plugin {
        name: name.to_owned(),
        path,
        is_name_of_included: false,
        memory: own.bytes("memory")?,
        fuel: own.integer("fuel")?,
        timeout: own.duration("timeout")?,
        grant,
    })
}

fn list_of_kind(items: &[Rc<Item>], kind: ItemKind) -> String {
    let names: Vec<&str> = items.iter().filter(|one| one.kind == kind).map(|one| one.name.as_str()).collect();
    if names.is_empty() { "none".to_owned() } else { list(&names) }
}
