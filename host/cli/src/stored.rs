//! What a run folder keeps of the workflow that it was begun with.

use std::path::{Path, PathBuf};

use pl_dsl::workflow::Workflow;
use pl_record::RunFolder;
use tokio::runtime::Runtime;

use crate::exit::Stop;
use crate::session::{Loaded, Team};

/// What `workflow.json` holds: the resolved workflow, and where its relative paths start from.
#[derive(serde::Serialize, serde::Deserialize)]
pub struct Stored {
    pub folder: PathBuf,
    pub workflow: Workflow,
}

impl Stored {
    pub fn of(loaded: &Loaded, team: &Team) -> Stored {
        // An empty path is the working folder, which `absolute` does not take.
        let folder = std::path::absolute(Path::new(".").join(&loaded.folder));
        let folder = folder.unwrap_or_else(|_| loaded.folder.clone());
        let mut workflow = loaded.workflow.clone();
        // A run goes on with the models that it began with, whatever a hub publishes meanwhile.
        for (model, source) in workflow.models.iter_mut().zip(&team.model_sources) {
            model.source.clone_from(source);
        }
        Stored { folder, workflow }
    }

    /// That of a run.
    pub fn read(root: &Path) -> Result<Stored, Stop> {
        RunFolder::read_json(root, "workflow.json").map_err(Stop::input)
    }

    /// With its plugins. It was checked when its run began.
    pub fn load(self, runtime: &Runtime, root: &Path) -> Result<Loaded, Stop> {
        let text = std::fs::read_to_string(root.join("workflow.mas")).unwrap_or_default();
        Loaded::resolved(runtime, self.workflow, text, self.folder)
    }
}
