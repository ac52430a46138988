//! The plugins of a workflow, loaded once: what the check asks, and what a run plays with.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use pl_dsl::workflow::{Grant, Plugin as Wanted};
use pl_dsl::{Catalog, Fact, FactKind, Item, ItemKind};
use pl_plugin::{Plugin, PluginSpec};
use pl_wasm::{Engine, EngineConfig, Folders, Host};
use tokio::runtime::Handle;

use crate::exit::Stop;
use crate::places;

/// The built-in plugin `std`.
const STD_CHAT: &[u8] = include_bytes!(concat!(env!("PL_HOST_PLUGINS"), "/std_chat.wasm"));

/// Loads plugins on demand, through the compile cache.
pub struct Plugins {
    engine: Engine,
    runtime: Handle,
    /// Where paths in the workflow start from.
    folder: PathBuf,
    loaded: RefCell<BTreeMap<String, Plugin>>,
}

/// The engine that plugins run in, with the compile cache.
pub fn engine() -> Result<Engine, Stop> {
    let config = EngineConfig::plugins().cache_dir(places::cache()?.join("compiled"));
    Engine::new(config).map_err(Stop::failed)
}

impl Plugins {
    pub fn new(folder: &Path, runtime: &Handle) -> Result<Plugins, Stop> {
        Ok(Plugins {
            engine: engine()?,
            runtime: runtime.clone(),
            folder: folder.to_path_buf(),
            loaded: RefCell::default(),
        })
    }

    /// The plugin, compiled and described.
    pub fn get(&self, wanted: &Wanted) -> Result<Plugin, String> {
        if let Some(plugin) = self.loaded.borrow().get(&wanted.name) {
            return Ok(plugin.clone());
        }
        let plugin = self.load(wanted)?;
        self.loaded.borrow_mut().insert(wanted.name.clone(), plugin.clone());
        Ok(plugin)
    }

    fn load(&self, wanted: &Wanted) -> Result<Plugin, String> {
        let spec = PluginSpec {
            name: wanted.name.clone(),
            memory: wanted.memory,
            fuel: wanted.fuel,
            timeout: wanted.timeout,
            folders: self.folders(&wanted.grant)?,
            hosts: wanted.grant.http.iter().filter_map(|host| Host::parse(host)).collect(),
        };
        let bytes = self.bytes(wanted)?;
        self.runtime.block_on(Plugin::load(&self.engine, spec, &bytes)).map_err(|error| match error {
            // Whoever asks names the plugin.
            pl_plugin::Error::Load { source, .. } => source.to_string(),
            other => other.to_string(),
        })
    }

    /// The folders that a plugin may read, taken in as they are now.
    fn folders(&self, grant: &Grant) -> Result<Option<Folders>, String> {
        if grant.read.is_empty() {
            return Ok(None);
        }
        let places: Vec<(&str, PathBuf)> = grant
            .read
            .iter()
            .filter_map(|path| Some((Grant::name_of(path)?, self.folder.join(path))))
            .collect();
        let folders = places.iter().map(|(name, place)| (*name, place.as_path()));
        Folders::read(folders).map(Some).map_err(|error| format!("grant read: {error}"))
    }

    /// What is open to the loaded plugins: `PLUGIN read /NAME` with the hash of what was read, `PLUGIN http HOST`.
    pub fn grants(&self, wanted: &[Wanted]) -> BTreeMap<String, String> {
        let loaded = self.loaded.borrow();
        let mut open = BTreeMap::new();
        for plugin in wanted {
            let name = &plugin.name;
            for (folder, hash) in loaded.get(name).into_iter().flat_map(Plugin::folders) {
                open.insert(format!("{name} read /{folder}"), hash.clone());
            }
            for host in &plugin.grant.http {
                open.insert(format!("{name} http {host}"), "open".to_owned());
            }
        }
        open
    }

    fn bytes(&self, wanted: &Wanted) -> Result<Cow<'static, [u8]>, String> {
        match &wanted.path {
            None => Ok(Cow::Borrowed(STD_CHAT)),
            Some(path) => {
                let path = places::plugin(&self.folder, path)?;
                Ok(Cow::Owned(std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?))
            }
        }
    }

    /// Whether loading a plugin takes no time of the compiler.
    pub fn is_cached(&self, wanted: &Wanted) -> bool {
        self.bytes(wanted).is_ok_and(|bytes| self.engine.is_cached(&bytes))
    }

    /// Where a plugin lies; none for the built-in one.
    pub fn place(&self, wanted: &Wanted) -> Option<PathBuf> {
        wanted.path.as_ref().and_then(|path| places::plugin(&self.folder, path).ok())
    }

    /// Hash of each loaded plugin by name.
    pub fn hashes(&self) -> BTreeMap<String, String> {
        self.loaded.borrow().iter().map(|(name, plugin)| (name.clone(), plugin.hash())).collect()
    }
}

impl Catalog for Plugins {
    fn text(&self, path: &Path) -> Result<String, String> {
        // Prompts and parts of workflows are written by people; what is larger is something else.
        const LARGEST: u64 = 16 << 20;
        let path = self.folder.join(path);
        // Opening a pipe would wait for whoever writes to it.
        if !path.metadata().map_err(|e| e.to_string())?.is_file() {
            return Err("it is no file".to_owned());
        }
        let file = std::fs::File::open(&path).map_err(|e| e.to_string())?;
        let mut text = String::new();
        let read = file.take(LARGEST + 1).read_to_string(&mut text).map_err(|e| e.to_string())?;
        match read as u64 > LARGEST {
            true => Err(format!("it is larger than {} MiB", LARGEST >> 20)),
            false => Ok(text),
        }
    }

    fn items(&self, wanted: &Wanted) -> Result<Vec<Item>, String> {
        for folder in wanted.grant.read.iter().map(|path| self.folder.join(path)) {
            if !folder.is_dir() {
                return Err(format!("it is granted the folder {}, which is not there", folder.display()));
            }
        }
        // Known without compiling, as a rule.
        match pl_plugin::known_items(&self.engine, &self.bytes(wanted)?) {
            Some(items) => Ok(items.iter().map(item).collect()),
            None => Ok(self.get(wanted)?.items().iter().map(item).collect()),
        }
    }
}

fn item(item: &pl_plugin::Item) -> Item {
    Item {
        kind: match item.kind {
            pl_plugin::ItemKind::Environment => ItemKind::Environment,
            pl_plugin::ItemKind::Agent => ItemKind::Agent,
            pl_plugin::ItemKind::Reward => ItemKind::Reward,
        },
        name: item.name.clone(),
        doc: item.doc.clone(),
        settings_schema: item.settings_schema.clone(),
        facts: item
            .facts
            .iter()
            .map(|fact| Fact {
                name: fact.name.clone(),
                kind: match fact.kind {
                    pl_plugin::FactKind::Boolean => FactKind::Boolean,
                    pl_plugin::FactKind::Number => FactKind::Number,
                    pl_plugin::FactKind::Text => FactKind::Text,
                },
            })
            .collect(),
    }
}
