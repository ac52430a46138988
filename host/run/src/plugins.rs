//! The plugins of a workflow, loaded on demand and kept: the check asks for their items, a run plays with
//! them.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pl_dsl::workflow::{Grant, Plugin as PluginBlock};
use pl_dsl::{Catalog, CatalogError};
use pl_plugin::{Plugin, PluginSpec};
use pl_types::Item;
use pl_wasm::{AllowedHost, Engine, Folders};
use tokio::runtime::Handle;

use crate::error::Error;
use crate::error::locate::LocateError;
use crate::error::plugin::PluginError;
use crate::host::{Host, plugin_engine};
use crate::locate;
use crate::permissions::{
    Access, GrantedAccess, OpenError, PermissionRequest, ReadPolicy, SharedPermissions, flags_of,
};

/// Longest time in which a component is compiled and describes itself in a check.
const LONGEST_DESCRIPTION: Duration = Duration::from_secs(10);

/// Longest time for all components of a catalog, so that a workflow of many blocks is checked in seconds too. The second of two
/// slow ones may still be described.
const LONGEST_DESCRIPTIONS: Duration = Duration::from_secs(20);

/// Failures by the component and its limits: an editor checks a workflow after every change.
static FAILED: Mutex<BTreeMap<[u8; 32], Arc<PluginError>>> = Mutex::new(BTreeMap::new());

/// Largest component that is loaded, in bytes. Those with a whole Python have 40 MB.
const LARGEST_COMPONENT: u64 = 512 << 20;

/// Plugins of one workflow. Components are compiled through the compile cache and kept once they are loaded.
pub struct PluginCatalog {
    engine: Engine,
    runtime: Handle,
    std_chat: &'static [u8],
    /// Folder that paths in the workflow are relative to.
    folder: PathBuf,
    reads: ReadPolicy,
    /// Files outside of the folder whose text was read.
    texts_outside: RefCell<BTreeSet<PathBuf>>,
    /// Files whose text or component was not read without permission.
    refused: RefCell<BTreeSet<PathBuf>>,
    loaded: RefCell<BTreeMap<String, Plugin>>,
    /// Rest of [`LONGEST_DESCRIPTIONS`].
    time_left: Cell<Duration>,
}

impl PluginCatalog {
    /// Returns a catalog for a workflow whose paths are relative to `folder`, with the host's permissions and what is given
    /// to it alone.
    ///
    /// # Errors
    /// Those of [`plugin_engine`].
    pub(crate) fn new(host: &Host, folder: &Path, given: GrantedAccess) -> Result<PluginCatalog, Error> {
        let reads = ReadPolicy::new(host.permissions().clone(), given);
        PluginCatalog::with_reads(host.handle(), host.embedded().std_chat, folder, reads)
    }

    /// Returns a catalog that loads plugins on `runtime`, with the component of the built-in plugin.
    ///
    /// # Errors
    /// Those of [`plugin_engine`].
    pub fn with_runtime(
        runtime: Handle,
        std_chat: &'static [u8],
        folder: &Path,
        permissions: SharedPermissions,
    ) -> Result<PluginCatalog, Error> {
        let reads = ReadPolicy::new(permissions, GrantedAccess::new([], folder));
        PluginCatalog::with_reads(runtime, std_chat, folder, reads)
    }

    fn with_reads(
        runtime: Handle,
        std_chat: &'static [u8],
        folder: &Path,
        reads: ReadPolicy,
    ) -> Result<PluginCatalog, Error> {
        let (engine, folder) = (plugin_engine()?, folder.to_path_buf());
        let (texts_outside, refused, loaded) = Default::default();
        Ok(PluginCatalog {
            engine,
            runtime,
            std_chat,
            folder,
            reads,
            texts_outside,
            refused,
            loaded,
            time_left: Cell::new(LONGEST_DESCRIPTIONS),
        })
    }

    /// Returns the decision about the files that the workflow names.
    pub(crate) fn reads(&self) -> &ReadPolicy {
        &self.reads
    }

    /// Allows access for this workflow alone.
    pub(crate) fn allow(&mut self, more: impl IntoIterator<Item = Access>) {
        self.reads.allow(more);
    }

    /// Returns the files outside of the folder whose text was read.
    pub(crate) fn texts_outside(&self) -> Vec<PathBuf> {
        self.texts_outside.borrow().iter().cloned().collect()
    }

    /// Returns the files whose text or component was not read without permission, as requests of the workflow.
    pub(crate) fn refused(&self) -> Vec<PermissionRequest> {
        let request = |path: &PathBuf| PermissionRequest {
            access: Access::Read(path.clone()),
            purpose: format!("the workflow includes or loads {}", path.display()),
            place: None,
        };
        self.refused.borrow().iter().map(request).collect()
    }

    fn refuse(&self, path: PathBuf) -> PathBuf {
        self.refused.borrow_mut().insert(path.clone());
        path
    }

    /// Returns a plugin with its grants, compiled and described.
    ///
    /// # Errors
    /// If its component or a granted folder can't be read, or it is not a plugin.
    pub fn load(&self, block: &PluginBlock) -> Result<Plugin, PluginError> {
        if let Some(plugin) = self.loaded.borrow().get(&block.name) {
            return Ok(plugin.clone());
        }
        let spec = PluginSpec {
            folders: self.granted_folders(&block.grant)?,
            hosts: block.grant.http.iter().filter_map(|host| AllowedHost::parse(host)).collect(),
            ..closed_spec(block)
        };
        let bytes = self.component(block)?;
        let loading = Plugin::load(&self.engine, spec, &bytes);
        let plugin = self.runtime.block_on(loading).map_err(PluginError::Load)?;
        self.loaded.borrow_mut().insert(block.name.clone(), plugin.clone());
        Ok(plugin)
    }

    /// Runs a component that carries no description, without its grants, to describe itself. A check may be
    /// one of a workflow that nobody has read.
    fn ask_for_items(&self, block: &PluginBlock, bytes: Vec<u8>) -> Result<Vec<Item>, PluginError> {
        let key = description_key(block, &bytes);
        if let Some(failure) = FAILED.lock().get(&key) {
            return Err(PluginError::NotDescribed(Arc::clone(failure)));
        }
        let limit = LONGEST_DESCRIPTION.min(self.time_left.get());
        if limit.is_zero() {
            return Err(PluginError::SlowDescriptions { limit: LONGEST_DESCRIPTIONS });
        }
        let started = Instant::now();
        let described = self.run_description(block, bytes, limit);
        self.time_left.set(self.time_left.get().saturating_sub(started.elapsed()));
        described.map_err(|error| {
            let failure = Arc::new(error);
            // One that was given less time than others may succeed in the next check.
            if limit == LONGEST_DESCRIPTION {
                let mut failed = FAILED.lock();
                failed.insert(key, Arc::clone(&failure));
            }
            PluginError::NotDescribed(failure)
        })
    }

    fn run_description(
        &self,
        block: &PluginBlock,
        bytes: Vec<u8>,
        limit: Duration,
    ) -> Result<Vec<Item>, PluginError> {
        let (engine, spec) = (self.engine.clone(), closed_spec(block));
        // On a thread of the runtime: compilation can't be interrupted, but it need not be waited for.
        let loading = self.runtime.spawn(async move { Plugin::load(&engine, spec, &bytes).await });
        let limited = async { tokio::time::timeout(limit, loading).await };
        match self.runtime.block_on(limited) {
            Ok(Ok(loaded)) => Ok(loaded.map_err(PluginError::Load)?.items().to_vec()),
            Ok(Err(panicked)) => Err(PluginError::Worker(panicked)),
            Err(_) => Err(PluginError::SlowDescription { limit }),
        }
    }

    /// Reads the folders that a plugin may read.
    fn granted_folders(&self, grant: &Grant) -> Result<Option<Folders>, PluginError> {
        if grant.read.is_empty() {
            return Ok(None);
        }
        let folders: Vec<(&str, PathBuf)> = grant
            .read
            .iter()
            .filter_map(|path| Some((Grant::mount_name(path)?, self.folder.join(path))))
            .collect();
        for (_, folder) in &folders {
            self.reads.check(folder).map_err(LocateError::NotAllowed)?;
        }
        let folders = folders.iter().map(|(name, folder)| (*name, folder.as_path()));
        let folders = Folders::read(folders).map_err(|error| PluginError::Grant(error.to_string()))?;
        for source in folders.sources() {
            self.reads.check_source(source.clone()).map_err(LocateError::NotAllowed)?;
        }
        Ok(Some(folders))
    }

    /// Returns what the loaded plugins are granted: `PLUGIN read /NAME` with the hash of the folder's
    /// content, `PLUGIN http HOST`, and `PLUGIN policy NAME`.
    pub fn grants(&self, blocks: &[PluginBlock]) -> BTreeMap<String, String> {
        let loaded = self.loaded.borrow();
        let mut grants = BTreeMap::new();
        for block in blocks {
            let name = &block.name;
            for (folder, hash) in loaded.get(name).into_iter().flat_map(Plugin::folders) {
                grants.insert(format!("{name} read /{folder}"), hash.clone());
            }
            for host in &block.grant.http {
                grants.insert(format!("{name} http {host}"), "open".to_owned());
            }
            for policy in &block.grant.policies {
                grants.insert(format!("{name} policy {policy}"), "open".to_owned());
            }
        }
        grants
    }

    fn component(&self, block: &PluginBlock) -> Result<Cow<'static, [u8]>, PluginError> {
        let Some(located) = locate::plugin(&self.reads, &self.folder, block) else {
            return Ok(Cow::Borrowed(self.std_chat));
        };
        let path = located.map_err(|error| match error {
            LocateError::NotAllowed(path) => LocateError::NotAllowed(self.refuse(path)),
            error => error,
        })?;
        let file = if locate::is_shipped(&path) {
            File::open(&path)
        } else {
            match self.reads.open(&path) {
                Err(OpenError::NotAllowed(path)) => {
                    return Err(LocateError::NotAllowed(self.refuse(path)).into());
                }
                Err(OpenError::Io(source)) => Err(source),
                Ok(file) => Ok(file),
            }
        };
        let read = file.and_then(|file| {
            let mut bytes = Vec::new();
            file.take(LARGEST_COMPONENT + 1).read_to_end(&mut bytes)?;
            Ok(bytes)
        });
        match read {
            Ok(bytes) if bytes.len() as u64 > LARGEST_COMPONENT => {
                Err(PluginError::TooLarge { path, largest: LARGEST_COMPONENT })
            }
            Ok(bytes) => Ok(Cow::Owned(bytes)),
            Err(source) => Err(PluginError::Read { path, source }),
        }
    }

    /// Returns true if the compile cache has the component of a plugin.
    pub fn is_cached(&self, block: &PluginBlock) -> bool {
        self.component(block).is_ok_and(|bytes| self.engine.is_cached(&bytes))
    }

    /// Returns the path of a plugin's component. Returns `None` for the built-in plugin, or if the file is
    /// missing.
    pub fn path(&self, block: &PluginBlock) -> Option<PathBuf> {
        locate::plugin(&self.reads, &self.folder, block)?.ok()
    }

    /// Returns the hash of each loaded plugin by name.
    pub fn hashes(&self) -> BTreeMap<String, String> {
        self.loaded.borrow().iter().map(|(name, plugin)| (name.clone(), plugin.hash())).collect()
    }

    /// Returns the items of a plugin. A component that carries its description is not compiled.
    fn describe(&self, block: &PluginBlock) -> Result<Vec<Item>, PluginError> {
        let granted = block.grant.read.iter().map(|path| self.folder.join(path));
        // Nothing is said about folders that may not be read.
        for folder in granted.filter(|folder| self.reads.check(folder).is_ok()) {
            if !folder.is_dir() {
                return Err(PluginError::NoGrantedFolder(folder));
            }
        }
        let component = self.component(block)?;
        match pl_plugin::known_items(&self.engine, &component) {
            Some(items) => Ok(items),
            None => self.ask_for_items(block, component.into_owned()),
        }
    }
}

/// Returns a hash of all that decides whether a component can be described, and how its failure is worded.
fn description_key(block: &PluginBlock, bytes: &[u8]) -> [u8; 32] {
    let limits = format!("{} {} {:?} {}", block.memory, block.fuel, block.timeout, block.name);
    let mut hasher = blake3::Hasher::new();
    hasher.update(blake3::hash(bytes).as_bytes()).update(limits.as_bytes());
    hasher.finalize().into()
}

/// Returns the limits of a plugin, without its grants.
fn closed_spec(block: &PluginBlock) -> PluginSpec {
    let mut spec = PluginSpec::new(&block.name);
    (spec.memory, spec.fuel, spec.timeout) = (block.memory, block.fuel, block.timeout);
    spec
}

impl Catalog for PluginCatalog {
    fn text(&self, path: &Path) -> Result<String, CatalogError> {
        let path = self.folder.join(path);
        let file = self.reads.open(&path).map_err(|error| match error {
            OpenError::NotAllowed(path) => {
                CatalogError::NotAllowed { flag: flags_of([&Access::Read(self.refuse(path))]) }
            }
            OpenError::Io(error) => error.into(),
        })?;
        let text = pl_dsl::read_text_of(file)?;
        self.texts_outside.borrow_mut().extend(self.reads.leaving(&path));
        Ok(text)
    }

    fn items(&self, block: &PluginBlock) -> Result<Vec<Item>, CatalogError> {
        self.describe(block).map_err(CatalogError::plugin)
    }
}

#[cfg(test)]
mod tests {
    use pl_dsl::BlockKind;
    use pl_dsl::settings::{self, DefaultValue};

    use super::*;

    /// `plugin test` and `plugin inspect` have no workflow and show what one without settings gives.
    #[test]
    fn a_plugin_block_without_settings_has_the_limits_of_a_plugin_without_a_workflow() {
        let default = |key| &settings::find(BlockKind::Plugin, key).unwrap().default;
        let spec = PluginSpec::new("p");
        assert!(matches!(default("memory"), DefaultValue::Bytes(bytes) if *bytes == spec.memory));
        assert!(
            matches!(default("fuel"), DefaultValue::Integer(fuel) if u64::try_from(*fuel) == Ok(spec.fuel))
        );
        assert!(matches!(default("timeout"), DefaultValue::Duration(time) if *time == spec.timeout));
    }

    #[test]
    fn a_failure_is_remembered_and_descriptions_share_their_time() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("bad.wasm"), "not a component").unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let catalog = || {
            let (handle, permissions) = (runtime.handle().clone(), SharedPermissions::default());
            PluginCatalog::with_runtime(handle, b"", folder.path(), permissions).unwrap()
        };
        let block = |name: &str| PluginBlock {
            name: name.to_owned(),
            path: Some("bad.wasm".to_owned()),
            is_name_of_included: false,
            memory: 64 << 20,
            fuel: 1 << 30,
            timeout: Duration::from_secs(1),
            grant: Grant::default(),
        };
        let failure = |catalog: &PluginCatalog, name: &str| match catalog.describe(&block(name)) {
            Err(PluginError::NotDescribed(failure)) => Some(failure),
            _ => None,
        };
        let first = failure(&catalog(), "bad").unwrap();
        assert!(matches!(*first, PluginError::Load(_)), "{first}");
        let later = catalog();
        later.time_left.set(Duration::ZERO);
        assert!(Arc::ptr_eq(&failure(&later, "bad").unwrap(), &first));
        let refused = later.describe(&block("other")).unwrap_err();
        assert!(matches!(refused, PluginError::SlowDescriptions { .. }), "{refused}");
        // One that has less than its own time is run, and again by the next check.
        later.time_left.set(LONGEST_DESCRIPTION / 2);
        assert!(failure(&later, "other").is_some() && later.time_left.get() < LONGEST_DESCRIPTION / 2);
        assert!(!FAILED.lock().contains_key(&description_key(&block("other"), b"not a component")));
    }
}
