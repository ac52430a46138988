//! Everything beyond its own folder that a workflow names.

use std::path::{Path, PathBuf};

use pl_dsl::workflow::{Cluster, CorpusSource, Docker, RetrievalServer, Tasks, Workflow};
use pl_dsl::{BlockKind, Places};
use pl_sandbox::default_endpoint;
use pl_wasm::AllowedHost;

use crate::error::locate::LocateError;
use crate::locate;
use crate::permissions::{Access, PermissionRequest};
use crate::plugins::PluginCatalog;

/// Returns what a workflow in `folder` needs, block by block, without what stands on the command line. `cluster` is the block
/// of that name, if it is used, and `docker` are the containers of the sandbox, if this process starts them.
pub(crate) fn required_permissions(
    workflow: &Workflow,
    cluster: Option<&Cluster>,
    docker: Option<&Docker>,
    folder: &Path,
    places: &Places,
    catalog: &PluginCatalog,
) -> Vec<PermissionRequest> {
    let mut found = Collector { workflow, folder, places, catalog, requests: Vec::new() };
    for path in catalog.texts_outside() {
        found.read(&path, "", None, "the workflow includes");
    }
    found.plugins();
    found.models();
    found.tasks();
    found.corpora();
    found.servers();
    if let Some(docker) = docker {
        found.sandbox(docker);
    }
    if let Some(cluster) = cluster {
        found.cluster(cluster);
    }
    found.requests
}

/// Returns the path of a file that is there or may not be read. One that is missing can't be opened.
fn wanted(located: Result<PathBuf, LocateError>) -> Option<PathBuf> {
    match located {
        Ok(path) | Err(LocateError::NotAllowed(path)) => Some(path),
        Err(_) => None,
    }
}

struct Collector<'a> {
    workflow: &'a Workflow,
    folder: &'a Path,
    places: &'a Places,
    catalog: &'a PluginCatalog,
    requests: Vec<PermissionRequest>,
}

/// Setting of a block.
type SettingOf<'a> = (BlockKind, &'a str, &'a str);

impl Collector<'_> {
    fn add(&mut self, access: Access, written: &str, setting: Option<SettingOf<'_>>, purpose: String) {
        let reads = self.catalog.reads();
        if reads.given().has(&access, written) {
            return;
        }
        let place = setting.and_then(|(block, name, key)| self.places.find(block, name, key));
        let request = PermissionRequest { access, purpose, place: place.cloned() };
        if !self.requests.contains(&request) {
            self.requests.push(request);
        }
    }

    fn read(&mut self, path: &Path, written: &str, setting: Option<SettingOf<'_>>, purpose: &str) {
        for path in self.catalog.reads().leaving(path) {
            let purpose = format!("{purpose} {}", path.display());
            self.add(Access::Read(path), written, setting, purpose);
        }
    }

    fn key(&mut self, variable: Option<&String>, setting: SettingOf<'_>) {
        if let Some(name) = variable {
            let (block, of, _) = setting;
            let purpose = format!("the key of {} {of} is in {name}", block.keyword());
            self.add(Access::Env(name.clone()), name, Some(setting), purpose);
        }
    }

    fn plugins(&mut self) {
        let folder = self.folder;
        for plugin in &self.workflow.plugins {
            let name = plugin.name.as_str();
            let setting = |key| Some((BlockKind::Plugin, name, key));
            let located = locate::plugin(self.catalog.reads(), folder, plugin);
            if let Some((written, located)) = plugin.path.as_ref().zip(located) {
                // One that is found by its name: a path is read as it is written.
                let is_shipped = |path: &PathBuf| {
                    plugin.shipped_name().is_some() && path.parent() == locate::shipped_plugins().as_deref()
                };
                if let Some(path) = wanted(located).filter(|path| !is_shipped(path)) {
                    self.read(&path, written, setting("path"), &format!("plugin {name} is loaded from"));
                }
            }
            for granted in &plugin.grant.read {
                let purpose = format!("plugin {name} reads");
                self.read(&folder.join(granted), granted, setting("read"), &purpose);
            }
            for host in &plugin.grant.http {
                // Without a port it is HTTPS.
                let has_port = AllowedHost::parse(host).is_some_and(|host| host.port().is_some());
                let access = Access::net(&if has_port { host.clone() } else { format!("{host}:443") });
                self.add(access, host, setting("http"), format!("plugin {name} sends requests to {host}"));
            }
        }
    }

    fn models(&mut self) {
        let folder = self.folder;
        for model in &self.workflow.models {
            if locate::is_path(&model.source) {
                let setting = (BlockKind::Model, model.name.as_str(), "source");
                let purpose = format!("model {} is read from", model.name);
                self.read(&folder.join(&model.source), &model.source, Some(setting), &purpose);
            }
        }
        for policy in &self.workflow.policies {
            if let Some(from) = &policy.from {
                let setting = (BlockKind::Policy, policy.name.as_str(), "from");
                let purpose = format!("policy {} starts from", policy.name);
                self.read(&folder.join(from), from, Some(setting), &purpose);
            }
        }
    }

    fn tasks(&mut self) {
        let workflow = &self.workflow;
        let environments = workflow.scenarios.iter().map(|scenario| &scenario.environment);
        let environments = environments.map(|one| (BlockKind::Environment, one.name.as_str(), &one.tasks));
        let evaluations = workflow.evaluations.iter();
        let evaluations = evaluations.map(|one| (BlockKind::Evaluate, one.block(), &one.tasks));
        for (block, name, tasks) in environments.chain(evaluations) {
            let Tasks::File(written) = tasks else { continue };
            let located = locate::task_path(self.catalog.reads(), self.folder, written);
            let Some(path) = wanted(located.map(|tasks| tasks.path)) else { continue };
            let purpose = format!("the tasks of {name} are read from");
            self.read(&path, written, Some((block, name, "tasks")), &purpose);
        }
    }

    fn corpora(&mut self) {
        for corpus in self.workflow.used_corpora() {
            let name = corpus.name.as_str();
            let setting = |key| (BlockKind::Corpus, name, key);
            match &corpus.source {
                CorpusSource::File(file) => {
                    let located = locate::corpus(self.catalog.reads(), self.folder, &file.path);
                    let Some(path) = wanted(located) else { continue };
                    let purpose = format!("corpus {name} is read from");
                    self.read(&path, &file.path, Some(setting("source")), &purpose);
                }
                CorpusSource::Server(RetrievalServer { address, key_variable, .. }) => {
                    let purpose = format!("the queries of corpus {name} are sent to {address}");
                    self.add(Access::net(address), address, Some(setting("source")), purpose);
                    self.key(key_variable.as_ref(), setting("key_variable"));
                }
            }
        }
    }

    fn servers(&mut self) {
        for server in &self.workflow.servers {
            let setting = |key| (BlockKind::Server, server.name.as_str(), key);
            for address in &server.addresses {
                let purpose = format!("the prompts of server {} are sent to {address}", server.name);
                self.add(Access::net(address), address, Some(setting("addresses")), purpose);
            }
            self.key(server.key_variable.as_ref(), setting("key_variable"));
        }
    }

    fn sandbox(&mut self, docker: &Docker) {
        let setting = |key| Some((BlockKind::Sandbox, "", key));
        let purpose = |endpoint: &str| format!("the sandbox uses the Docker engine {endpoint}");
        if docker.endpoints.is_empty() {
            let endpoint = default_endpoint();
            self.add(Access::net(&endpoint), &endpoint, setting("backend"), purpose(&endpoint));
        }
        for endpoint in &docker.endpoints {
            self.add(Access::net(endpoint), endpoint, setting("endpoints"), purpose(endpoint));
        }
        if let Some(path) = &docker.certificates {
            let folder = self.folder.join(path);
            self.read(&folder, path, setting("certificates"), "the sandbox reads certificates in");
        }
    }

    fn cluster(&mut self, cluster: &Cluster) {
        let setting = |key| (BlockKind::Cluster, "", key);
        for address in &cluster.nats {
            let purpose = format!("the run and its tasks are sent to {address}");
            self.add(Access::net(address), address, Some(setting("nats")), purpose);
        }
        let credentials = (&cluster.credentials, "credentials", "the cluster's credentials are read from");
        let authorities = (&cluster.authorities, "authorities", "the cluster's authorities are read from");
        for (path, key, purpose) in [credentials, authorities] {
            if let Some(path) = path {
                self.read(&self.folder.join(path), path, Some(setting(key)), purpose);
            }
        }
        if let Some(name) = &cluster.token_variable {
            let purpose = format!("the token of the cluster is in {name}");
            self.add(Access::Env(name.clone()), name, Some(setting("token_variable")), purpose);
        }
    }
}
