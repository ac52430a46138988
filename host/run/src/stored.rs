//! The workflow in a run folder: `workflow.json`.

mod validate;

use std::path::{Path, PathBuf};

use pl_dsl::workflow::Workflow;
use pl_dsl::{Override, Places, Source, Sources};
use pl_record::{Lock, RunFolder};
use serde::{Deserialize, Serialize};

use crate::diagnostics::Diagnostics;
use crate::error::Error;
use crate::host::Host;
use crate::lock::recorded_permissions;
use crate::permissions::GrantedAccess;
use crate::plugins::PluginCatalog;
use crate::session::{Session, absolute};
use crate::workflow::CheckedWorkflow;

use self::validate::validate;

/// Content of `workflow.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredWorkflow {
    /// Folder that relative paths start from.
    pub folder: PathBuf,
    /// Checked workflow. The models of a hub are pinned to the commits that were loaded.
    pub workflow: Workflow,
    /// Settings from outside the file that led to this workflow, in order.
    #[serde(default)]
    pub overrides: Vec<StoredOverride>,
}

/// Setting from outside the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredOverride {
    /// Name of a param, or dotted path of a setting.
    pub path: String,
    pub value: String,
    /// Form in which messages show it.
    pub shown: String,
    /// True if it is ignored by workflows without such a param.
    #[serde(default)]
    pub optional: bool,
}

impl From<&Override> for StoredOverride {
    fn from(given: &Override) -> StoredOverride {
        let Override { path, value, shown, optional } = given.clone();
        StoredOverride { path, value, shown, optional }
    }
}

impl From<&StoredOverride> for Override {
    fn from(stored: &StoredOverride) -> Override {
        let StoredOverride { path, value, shown, optional } = stored.clone();
        Override { path, value, shown, optional }
    }
}

impl StoredWorkflow {
    /// Returns what a new run stores.
    pub(crate) fn new(checked: &CheckedWorkflow, session: &Session) -> StoredWorkflow {
        let mut workflow = checked.workflow.clone();
        // A resumed run loads the commits that it was started with, whatever the hub publishes meanwhile.
        for (model, source) in workflow.models.iter_mut().zip(&session.model_sources) {
            model.source.clone_from(source);
        }
        let overrides = checked.overrides.iter().map(StoredOverride::from).collect();
        StoredWorkflow { folder: absolute(&checked.folder), workflow, overrides }
    }

    /// Reads the workflow of a run, which may come from anywhere.
    ///
    /// # Errors
    /// [`Error::RunFolder`] if the folder is not a run folder, [`Error::StoredWorkflow`] if its workflow is
    /// not one that a run has written.
    pub fn read(root: &Path) -> Result<StoredWorkflow, Error> {
        let stored: StoredWorkflow = RunFolder::read_json(root, "workflow.json").map_err(Error::RunFolder)?;
        validate(&stored.workflow)
            .map_err(|source| Error::StoredWorkflow { path: root.join("workflow.json"), source })?;
        Ok(stored)
    }

    /// Checks a workflow that another machine has sent, and moves it to a folder of this one.
    ///
    /// # Errors
    /// [`Error::StoredWorkflow`] if it is not one that a run has written.
    pub(crate) fn in_folder(self, folder: PathBuf) -> Result<StoredWorkflow, Error> {
        validate(&self.workflow)
            .map_err(|source| Error::StoredWorkflow { path: folder.join("workflow.json"), source })?;
        Ok(StoredWorkflow { folder, ..self })
    }

    /// Returns what the run in `root` may use without a question. A `trusted` one has the folder of its workflow, what it was
    /// started with, and what its start was allowed; all of these stand in the run folder, so that of somebody else has the
    /// run folder alone. `more` stands on the command line.
    pub(crate) fn given(&self, root: &Path, lock: &Lock, trusted: bool, more: &[Override]) -> GrantedAccess {
        if !trusted {
            return GrantedAccess::new(more, &self.folder).in_folder(root);
        }
        let started: Vec<Override> = self.overrides.iter().map(Override::from).collect();
        let mut given = GrantedAccess::new(started.iter().chain(more), &self.folder);
        given.allow(recorded_permissions(lock));
        given
    }

    /// Opens the workflow with its plugins. It was checked when its run was started. It may use what is in `given`.
    ///
    /// # Errors
    /// If the plugin engine can't be started.
    pub(crate) fn open(
        self,
        host: &Host,
        root: &Path,
        given: GrantedAccess,
    ) -> Result<CheckedWorkflow, Error> {
        let text = RunFolder::read_text(root, "workflow.mas").unwrap_or_default();
        let plugins = PluginCatalog::new(host, &self.folder, given)?;
        let source = Source { name: self.workflow.name.clone(), text: text.clone() };
        let warnings = Diagnostics::new(Vec::new(), Sources::from(source));
        let overrides = self.overrides.iter().map(Override::from).collect();
        Ok(CheckedWorkflow {
            workflow: self.workflow,
            text,
            folder: self.folder,
            overrides,
            warnings,
            places: Places::default(),
            ignores_cluster: false,
            jobs: None,
            plugins,
        })
    }

    /// Checks the text of the run's file again, with further settings. The user has named what is in `given`.
    ///
    /// # Errors
    /// [`Error::Workflow`] if a setting does not exist or its value is invalid.
    pub(crate) fn with_overrides(
        &self,
        host: &Host,
        root: &Path,
        more: &[Override],
        given: GrantedAccess,
    ) -> Result<CheckedWorkflow, Error> {
        let path = root.join("workflow.mas");
        let text = RunFolder::read_text(root, "workflow.mas").map_err(Error::RunFolder)?;
        let mut overrides: Vec<Override> = self.overrides.iter().map(Override::from).collect();
        overrides.extend(more.iter().cloned());
        let source = Source { name: path.display().to_string(), text };
        CheckedWorkflow::check(host, source, self.folder.clone(), &overrides, given)
    }
}
