//! Checked workflows: a file, its diagnostics, and the plugins that it names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pl_dsl::workflow::{Corpus, Tasks, Workflow};
use pl_dsl::{Override, Source};
use pl_plugin::Services;
use pl_rollout::{TaskFile, TaskSource};

use crate::corpus;
use crate::diagnostics::Diagnostics;
use crate::error::Error;
use crate::host::Host;
use crate::locate;
use crate::memory::MemoryEstimate;
use crate::plugins::PluginCatalog;
use crate::sandbox::LazyWorkers;

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
    pub plugins: PluginCatalog,
}

impl CheckedWorkflow {
    /// Reads and checks a workflow file.
    ///
    /// # Errors
    /// [`Error::Workflow`] with all diagnostics if the file has errors.
    pub fn open(host: &Host, file: &Path, overrides: &[Override]) -> Result<CheckedWorkflow, Error> {
        let text = std::fs::read_to_string(file)
            .map_err(|source| Error::Read { path: file.to_path_buf(), source })?;
        let folder = file.parent().map(Path::to_path_buf).unwrap_or_default();
        let source = Source { name: file.display().to_string(), text };
        CheckedWorkflow::check(host, source, folder, overrides)
    }

    /// Checks the text of a workflow whose paths are relative to `folder`.
    ///
    /// # Errors
    /// Those of [`CheckedWorkflow::open`].
    pub fn check(
        host: &Host,
        source: Source,
        folder: PathBuf,
        overrides: &[Override],
    ) -> Result<CheckedWorkflow, Error> {
        let plugins = PluginCatalog::new(host, &folder)?;
        let checked = pl_dsl::check(&source, overrides, &plugins);
        let warnings = Diagnostics { list: checked.diagnostics, sources: checked.sources };
        let Some(workflow) = checked.workflow else { return Err(Error::Workflow(warnings)) };
        for model in &workflow.models {
            locate::check_model_source(&model.source)
                .map_err(|error| Error::LocateModel { model: model.name.clone(), source: Box::new(error) })?;
        }
        let overrides = overrides.to_vec();
        Ok(CheckedWorkflow { workflow, text: source.text, folder, overrides, warnings, plugins })
    }

    /// Adds the warnings that follow from a memory estimate.
    pub fn warn_of_memory(&mut self, memory: &MemoryEstimate) {
        self.warnings.list.extend(memory.warnings());
    }

    fn plugin(&self, index: usize) -> Result<pl_plugin::Plugin, Error> {
        let block = &self.workflow.plugins[index];
        self.plugins
            .load(block)
            .map_err(|error| Error::Plugin { plugin: block.name.clone(), source: error.into() })
    }

    /// Creates the environment with the sandbox and the corpora that the workflow configures. The index of a corpus is
    /// built if the cache has none.
    ///
    /// # Errors
    /// If the plugin, the sandbox or the corpus is not usable.
    pub fn environment(&self, host: &Host) -> Result<pl_plugin::Environment, Error> {
        let sandbox = LazyWorkers::for_workflow(host, &self.workflow.sandbox, &self.folder)?;
        let open = |corpus: &Corpus| Ok((corpus.name.clone(), corpus::open(host, corpus, &self.folder)?));
        let corpora = self.corpora().map(open).collect::<Result<_, Error>>()?;
        self.environment_with(Services { sandbox, corpora })
    }

    /// Creates the environment with other services.
    ///
    /// # Errors
    /// If the plugin is not usable.
    pub fn environment_with(&self, services: Services) -> Result<pl_plugin::Environment, Error> {
        let block = &self.workflow.scenarios[0].environment;
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

    /// Creates the reward.
    ///
    /// # Errors
    /// If the plugin is not usable.
    pub fn reward(&self) -> Result<pl_plugin::Reward, Error> {
        let block = &self.workflow.scenarios[0].reward;
        pl_plugin::Reward::new(&self.plugin(block.plugin)?, &block.item, block.settings.clone())
            .map_err(|error| Error::Item { kind: "reward", name: block.name.clone(), source: error.into() })
    }

    /// Opens a source of tasks. A task file is read and checked as a whole. `shuffle` is the seed of its
    /// order.
    ///
    /// # Errors
    /// If the file is missing or has an invalid record.
    pub async fn tasks(
        &self,
        tasks: &Tasks,
        environment: &Arc<pl_plugin::Environment>,
        shuffle: Option<u64>,
    ) -> Result<TaskSource, Error> {
        match tasks {
            Tasks::File(path) => {
                let path = locate::task_file(&self.folder, path).map_err(Error::LocateTasks)?;
                let file =
                    TaskFile::read(&path, environment.as_ref(), shuffle).await.map_err(Error::Tasks)?;
                Ok(TaskSource::File(Arc::new(file)))
            }
            Tasks::Generated { split, level } => Ok(TaskSource::Generated {
                environment: self.workflow.scenarios[0].environment.name.clone(),
                generator: environment.clone(),
                split: split.clone(),
                level: *level,
            }),
        }
    }

    /// Returns the corpora that the environment may search.
    pub fn corpora(&self) -> impl Iterator<Item = &Corpus> {
        let environment = &self.workflow.scenarios[0].environment;
        environment.corpora.iter().filter_map(|corpus| self.workflow.corpora.get(*corpus))
    }

    /// Returns the task files that the workflow names, each with the name of its environment or evaluation.
    pub fn task_files(&self) -> Vec<(String, PathBuf)> {
        let environment = &self.workflow.scenarios[0].environment;
        let evaluations = self.workflow.evaluations.iter().map(|block| (&block.name, &block.tasks));
        std::iter::once((&environment.name, &environment.tasks))
            .chain(evaluations)
            .filter_map(|(name, tasks)| match tasks {
                Tasks::File(path) => Some((name.clone(), locate::task_file(&self.folder, path).ok()?)),
                Tasks::Generated { .. } => None,
            })
            .collect()
    }
}
