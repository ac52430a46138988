//! Checked workflows: a file, its diagnostics, and the plugins that it names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pl_dsl::workflow::{Cluster, Corpus, Docker, Model, Tasks, Workflow};
use pl_dsl::{Override, Places, Source};
use pl_plugin::Services;
use pl_rollout::{TaskFile, TaskSource};
use pl_sandbox::Sandbox;
use pl_types::SourcePath;
use tch::Device;

use crate::corpus::{self, CorpusPlace};
use crate::data;
use crate::diagnostics::Diagnostics;
use crate::error::Error;
use crate::error::locate::LocateError;
use crate::host::Host;
use crate::locate;
use crate::memory::MemoryEstimate;
use crate::permissions::{AccessKind, GrantedAccess, PermissionRequest};
use crate::plugins::PluginCatalog;
use crate::required_permissions::required_permissions;
use crate::sandbox::LazyWorkers;
use crate::unknown_names::unknown_names;

/// Workflow that passed its check, with its plugins.
pub struct CheckedWorkflow {
    pub workflow: Workflow,
    /// Text of the file.
    pub text: String,
    /// Folder that paths in the file are relative to.
    pub folder: PathBuf,
    /// Settings from outside the file, in order.
    pub overrides: Vec<Override>,
    /// Warnings of the check.
    pub warnings: Diagnostics,
    /// Places of settings in the file. None in a run folder.
    pub(crate) places: Places,
    /// True if its `cluster` block has no effect on what is done with it.
    pub(crate) ignores_cluster: bool,
    /// Sandbox in place of the workflow's own. `None` for its own.
    pub(crate) jobs: Option<Arc<dyn Sandbox>>,
    pub plugins: PluginCatalog,
}

impl CheckedWorkflow {
    /// Reads and checks a workflow file.
    ///
    /// # Errors
    /// [`Error::Workflow`] with all diagnostics if the file has errors.
    pub fn open(host: &Host, file: &Path, overrides: &[Override]) -> Result<CheckedWorkflow, Error> {
        let text = pl_dsl::read_text(file)
            .map_err(|error| Error::ReadWorkflow { path: file.to_path_buf(), source: error.into() })?;
        let folder = file.parent().map(Path::to_path_buf).unwrap_or_default();
        let source = Source { name: file.display().to_string(), text };
        let given = GrantedAccess::new(overrides, &folder);
        CheckedWorkflow::check(host, source, folder, overrides, given)
    }

    /// Checks the text of a workflow whose paths are relative to `folder`. The user has named what is in `given`.
    ///
    /// # Errors
    /// Those of [`CheckedWorkflow::open`].
    pub(crate) fn check(
        host: &Host,
        source: Source,
        folder: PathBuf,
        overrides: &[Override],
        given: GrantedAccess,
    ) -> Result<CheckedWorkflow, Error> {
        let plugins = PluginCatalog::new(host, &folder, given)?;
        let checked = pl_dsl::check(&source, overrides, &plugins);
        let places = checked.places;
        let refused = plugins.refused();
        let mut warnings = Diagnostics { refused, ..Diagnostics::new(checked.diagnostics, checked.sources) };
        let Some(workflow) = checked.workflow else { return Err(Error::Workflow(warnings)) };
        let unknown = unknown_names(&workflow, &places);
        if !unknown.is_empty() {
            warnings.add(unknown);
            return Err(Error::Workflow(warnings));
        }
        let overrides = overrides.to_vec();
        Ok(CheckedWorkflow {
            workflow,
            text: source.text,
            folder,
            overrides,
            warnings,
            places,
            ignores_cluster: false,
            jobs: None,
            plugins,
        })
    }

    /// Returns what the workflow needs beyond its own folder, allowed or not, without what stands on the command line.
    pub fn required_permissions(&self) -> Vec<PermissionRequest> {
        required_permissions(
            &self.workflow,
            self.cluster(),
            self.own_containers(),
            &self.folder,
            &self.places,
            &self.plugins,
        )
    }

    /// Returns the settings of the containers that this process starts for the code of agents.
    pub(crate) fn own_containers(&self) -> Option<&Docker> {
        self.workflow.sandbox.docker.as_ref().filter(|_| self.jobs.is_none())
    }

    /// Ignores the `cluster` block, and what it needs: episodes are played by this process, or by machines that the user has
    /// named.
    pub fn without_cluster(self) -> CheckedWorkflow {
        CheckedWorkflow { ignores_cluster: true, ..self }
    }

    /// Runs the code that agents write in another sandbox than that of the workflow, which is not started here.
    pub(crate) fn with_jobs_in(self, sandbox: Arc<dyn Sandbox>) -> CheckedWorkflow {
        CheckedWorkflow { jobs: Some(sandbox), ..self }
    }

    /// Returns the `cluster` block, if it has an effect.
    pub(crate) fn cluster(&self) -> Option<&Cluster> {
        self.workflow.cluster.as_ref().filter(|_| !self.ignores_cluster)
    }

    /// Checks that the user has allowed all that the workflow needs.
    ///
    /// # Errors
    /// [`Error::NotAllowed`].
    pub fn require_permissions(&self) -> Result<(), Error> {
        self.require(self.required_permissions())
    }

    /// Checks that the user has allowed all that the workflow reads, which is what a replay needs.
    ///
    /// # Errors
    /// [`Error::NotAllowed`].
    pub(crate) fn require_reads(&self) -> Result<(), Error> {
        let requests = self
            .required_permissions()
            .into_iter()
            .filter(|request| request.access.kind() == AccessKind::Read);
        self.require(requests.collect())
    }

    /// Returns what the workflow needs beyond its own folder and was not allowed.
    pub(crate) fn refused_permissions(&self) -> Vec<PermissionRequest> {
        let mut requests = self.required_permissions();
        requests.retain(|request| !self.plugins.reads().allows(&request.access));
        requests
    }

    /// Allows this workflow all that it needs, but no other.
    pub(crate) fn allow_required_permissions(&mut self) {
        let requests = self.required_permissions();
        self.plugins.allow(requests.into_iter().map(|request| request.access));
    }

    fn require(&self, mut requests: Vec<PermissionRequest>) -> Result<(), Error> {
        requests.retain(|request| !self.plugins.reads().allows(&request.access));
        if requests.is_empty() {
            return Ok(());
        }
        Err(Error::NotAllowed { workflow: self.workflow.name.clone(), requests })
    }

    /// Checks that a file of the workflow may be read.
    pub(crate) fn check_read(&self, path: &Path) -> Result<(), LocateError> {
        self.plugins.reads().check(path).map_err(LocateError::NotAllowed)
    }

    /// Returns a file or folder of the workflow to read. Its files are checked when they are open.
    pub(crate) fn source(&self, path: &Path) -> Result<SourcePath, LocateError> {
        self.plugins.reads().source(path).map_err(LocateError::NotAllowed)
    }

    /// Finds a task file that may be read, or the files of a folder's split.
    pub(crate) fn task_sources(&self, written: &str) -> Result<Vec<SourcePath>, LocateError> {
        let located = locate::task_path(self.plugins.reads(), &self.folder, written)?;
        let source = self.source(&located.path)?;
        match located.split {
            Some(split) => Ok(split.files(&source)?),
            None => Ok(vec![source]),
        }
    }

    /// Returns where the files of its corpora are.
    pub(crate) fn corpus_place(&self) -> CorpusPlace<'_> {
        CorpusPlace { reads: self.plugins.reads(), folder: &self.folder }
    }

    /// Finds a model that is already on this machine and that may be read. Nothing is fetched.
    pub(crate) fn model_on_disk(&self, model: &Model) -> Result<PathBuf, LocateError> {
        if locate::is_path(&model.source) {
            self.check_read(&self.folder.join(&model.source))?;
        }
        locate::model_on_disk(&self.folder, &model.source)
    }

    /// Returns a model that was found at `path`, to be read. One of a hub and a fetched one are the program's own.
    pub(crate) fn model_source(&self, model: &Model, path: &Path) -> Result<SourcePath, LocateError> {
        if locate::is_path(&model.source) { self.source(path) } else { Ok(path.into()) }
    }

    /// Returns an adapter or a model that a policy's `from` names, to be read. Its files are checked when they are open.
    pub(crate) fn start(&self, from: &str) -> SourcePath {
        self.to_open(self.folder.join(from))
    }

    /// Returns a file or folder to read, which is refused at the latest when it is open.
    pub(crate) fn to_open(&self, path: PathBuf) -> SourcePath {
        let reads = self.plugins.reads();
        reads.source(&path).unwrap_or_else(|_| SourcePath::checked(path, Arc::new(reads.clone())))
    }

    /// Estimates the memory that the workflow needs. Nothing is fetched, and nothing is read without permission.
    ///
    /// # Errors
    /// If a model is not on this machine, or its configuration can't be read.
    pub fn estimate_memory(&self, device: Device) -> Result<MemoryEstimate, Error> {
        for from in self.workflow.policies.iter().filter_map(|policy| policy.from.as_ref()) {
            self.check_read(&self.folder.join(from)).map_err(Error::NotRead)?;
        }
        let find = |model: &Model| {
            let located = self.model_on_disk(model).and_then(|path| self.model_source(model, &path));
            located.map_err(Error::locate_model(&model.name))
        };
        let models = self.workflow.models.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        MemoryEstimate::new(&self.workflow, &self.folder, &models, device)
    }

    /// Adds the warnings that follow from a memory estimate.
    pub fn warn_of_memory(&mut self, memory: &MemoryEstimate) {
        self.warnings.add(memory.warnings());
    }

    /// Loads the plugin with this index.
    ///
    /// # Errors
    /// If it is not usable.
    pub(crate) fn plugin(&self, index: usize) -> Result<pl_plugin::Plugin, Error> {
        let block = &self.workflow.plugins[index];
        self.plugins
            .load(block)
            .map_err(|error| Error::Plugin { plugin: block.name.clone(), source: error.into() })
    }

    /// Returns the position of a scenario. Without a name, it is the first.
    ///
    /// # Errors
    /// [`Error::NoScenario`] if there is no scenario of that name.
    pub fn scenario(&self, name: Option<&str>) -> Result<usize, Error> {
        let Some(name) = name else { return Ok(0) };
        let scenarios = &self.workflow.scenarios;
        scenarios.iter().position(|one| one.name.as_deref() == Some(name)).ok_or_else(|| Error::NoScenario {
            scenario: name.to_owned(),
            scenarios: scenarios.iter().filter_map(|one| one.name.clone()).collect(),
        })
    }

    /// Checks that a scenario has turns to play.
    ///
    /// # Errors
    /// [`Error::NoTeam`] if its designer has yet to write them.
    pub fn require_team(&self, scenario: usize) -> Result<(), Error> {
        match self.workflow.scenarios.get(scenario).filter(|one| one.lacks_team()) {
            Some(one) => Err(Error::NoTeam { scenario: one.name.clone().unwrap_or_default() }),
            None => Ok(()),
        }
    }

    /// Creates the environment of each scenario with the sandbox and the corpora that the workflow configures. Scenarios
    /// that name the same environment share it. The index of a corpus is built if the cache has none.
    ///
    /// # Errors
    /// If a plugin, the sandbox or a corpus is not usable.
    pub fn environments(&self, host: &Host) -> Result<Vec<Arc<pl_plugin::Environment>>, Error> {
        let sandbox = match &self.jobs {
            Some(elsewhere) => Arc::clone(elsewhere),
            None => LazyWorkers::for_workflow(host, &self.workflow.sandbox, &self.folder)?,
        };
        let open =
            |corpus: &Corpus| Ok((corpus.name.clone(), corpus::open(host, &self.corpus_place(), corpus)?));
        self.environments_with(|scenario| {
            let corpora = self.corpora_of(scenario).map(open).collect::<Result<_, Error>>()?;
            Ok(Services { sandbox: Arc::clone(&sandbox), corpora })
        })
    }

    /// Creates the environment of each scenario with other services.
    ///
    /// # Errors
    /// If a plugin is not usable.
    pub fn environments_with(
        &self,
        services: impl Fn(usize) -> Result<Services, Error>,
    ) -> Result<Vec<Arc<pl_plugin::Environment>>, Error> {
        let scenarios = &self.workflow.scenarios;
        let mut environments: Vec<Arc<pl_plugin::Environment>> = Vec::new();
        for (index, scenario) in scenarios.iter().enumerate() {
            let name = &scenario.environment.name;
            let same = scenarios.iter().take(index).position(|earlier| earlier.environment.name == *name);
            let environment = match same.and_then(|same| environments.get(same)) {
                Some(shared) => Arc::clone(shared),
                None => Arc::new(self.environment(index, services(index)?)?),
            };
            environments.push(environment);
        }
        Ok(environments)
    }

    fn environment(&self, scenario: usize, services: Services) -> Result<pl_plugin::Environment, Error> {
        let block = &self.workflow.scenarios[scenario].environment;
        let plugin = self.plugin(block.plugin)?;
        pl_plugin::Environment::new(&plugin, &block.item, block.settings.clone(), services).map_err(|error| {
            Error::Item { kind: "environment", name: block.name.clone(), source: error.into() }
        })
    }

    /// Creates the agent with this index.
    ///
    /// # Errors
    /// If the plugin is not usable.
    pub fn agent(&self, index: usize) -> Result<pl_plugin::Agent, Error> {
        let block = &self.workflow.agents[index];
        pl_plugin::Agent::new(&self.plugin(block.plugin)?, &block.item, block.settings.clone())
            .map_err(|error| Error::Item { kind: "agent", name: block.name.clone(), source: error.into() })
    }

    /// Creates the reward of a scenario.
    ///
    /// # Errors
    /// If the plugin is not usable.
    pub fn reward(&self, scenario: usize) -> Result<pl_plugin::Reward, Error> {
        let block = &self.workflow.scenarios[scenario].reward;
        pl_plugin::Reward::new(&self.plugin(block.plugin)?, &block.item, block.settings.clone())
            .map_err(|error| Error::Item { kind: "reward", name: block.name.clone(), source: error.into() })
    }

    /// Opens a source of tasks for a scenario. A task file is read and checked as a whole; a data set is fetched if it is not
    /// on this machine. `shuffle` is the seed of the order.
    ///
    /// # Errors
    /// If the file or the data set is missing, or has an invalid record.
    pub async fn tasks(
        &self,
        host: &Host,
        scenario: usize,
        tasks: &Tasks,
        environment: &Arc<pl_plugin::Environment>,
        shuffle: Option<u64>,
    ) -> Result<TaskSource, Error> {
        let file = match tasks {
            Tasks::File(path) => self.file_of(path),
            Tasks::Named(name) => {
                data::task_file(host, name).map(SourcePath::from).map_err(Error::LocateTasks)
            }
            Tasks::Generated { split, level } => {
                return Ok(TaskSource::Generated {
                    environment: self.workflow.scenarios[scenario].environment.name.clone(),
                    generator: environment.clone(),
                    split: split.clone(),
                    level: *level,
                });
            }
        };
        let file = TaskFile::read(file?, environment.as_ref(), shuffle).await.map_err(Error::Tasks)?;
        Ok(TaskSource::File(Arc::new(file)))
    }

    /// Returns a task file, or a folder's split, as JSONL.
    fn file_of(&self, path: &str) -> Result<SourcePath, Error> {
        self.task_sources(path).and_then(|sources| data::as_jsonl(&sources)).map_err(Error::LocateTasks)
    }

    /// Returns the corpora that the environment of a scenario may search.
    fn corpora_of(&self, scenario: usize) -> impl Iterator<Item = &Corpus> {
        let environment = &self.workflow.scenarios[scenario].environment;
        environment.corpora.iter().filter_map(|corpus| self.workflow.corpora.get(*corpus))
    }

    /// Returns the corpora that environments may search.
    pub fn corpora(&self) -> Vec<&Corpus> {
        self.workflow.used_corpora()
    }

    /// Returns the task files of the workflow that are there, each with the name of its environment or evaluation.
    pub fn task_files(&self, host: &Host) -> Vec<(String, PathBuf)> {
        let environments = self.workflow.scenarios.iter().map(|scenario| &scenario.environment);
        let evaluations = self.workflow.evaluations.iter().map(|block| (&block.name, &block.tasks));
        environments
            .map(|block| (&block.name, &block.tasks))
            .chain(evaluations)
            .filter_map(|(name, tasks)| {
                let file = match tasks {
                    Tasks::File(path) => self.file_of(path).ok()?.path().to_path_buf(),
                    Tasks::Named(data) => data::task_file(host, data).ok()?,
                    Tasks::Generated { .. } => return None,
                };
                Some((name.clone(), file))
            })
            .collect()
    }
}
