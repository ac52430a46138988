//! The designer of a scenario in a run: it writes designs for tasks, and their teams play them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pl_dsl::workflow::Designer;
use pl_rollout::{EpisodeSetup, Trace};
use pl_types::Phase;

use super::brief::{DesignBrief, source_and_skeleton};
use super::episode::designer_setup;
use super::record::read_designs;
use super::team::{Assessment, TeamBuilder};
use crate::chat::ChatFormats;
use crate::error::Error;
use crate::session::SessionScenario;
use crate::workflow::CheckedWorkflow;

/// Designer of a scenario, with what its designs are played by.
pub(crate) struct ScenarioDesigner {
    pub builder: Arc<TeamBuilder>,
    /// Setup of the episodes in which it writes.
    pub setup: Arc<EpisodeSetup>,
    /// Setup of the episodes of a task whose designs are guided. `None` if none are.
    pub guided: Option<Arc<EpisodeSetup>>,
    /// Folder that paths in the workflow are relative to.
    folder: PathBuf,
}

impl ScenarioDesigner {
    /// Prepares the designer of the scenario with this index. Returns `None` if it has none.
    ///
    /// # Errors
    /// If a plugin can't be loaded, or the scenario's text is in an included file.
    pub fn new(
        checked: &CheckedWorkflow,
        index: usize,
        scenario: &SessionScenario,
        formats: &ChatFormats,
    ) -> Result<Option<ScenarioDesigner>, Error> {
        if checked.workflow.scenarios[index].designer.is_none() {
            return Ok(None);
        }
        let brief = DesignBrief::new(checked, index)?;
        let (_, skeleton) = source_and_skeleton(checked, index)?;
        let builder = Arc::new(TeamBuilder::new(checked, &brief, skeleton, scenario, formats)?);
        let setup = designer_setup(checked, &brief, &builder, &scenario.setup, formats.encoder(None));
        let guided = brief.guided.map(|sampling| {
            let mut guided = setup.clone();
            guided.agents.iter_mut().for_each(|agent| agent.sampling = sampling.clone());
            Arc::new(guided)
        });
        let folder = checked.folder.clone();
        Ok(Some(ScenarioDesigner { builder, setup: Arc::new(setup), guided, folder }))
    }

    pub fn designer(&self) -> &Designer {
        self.builder.designer()
    }

    /// Returns the setup that an attempt of a run was played with. Returns `None` for one of the scenario's own team.
    pub fn setup_of(&self, trace: &Trace) -> Option<Arc<EpisodeSetup>> {
        match &trace.design {
            Some(design) => match self.builder.assess(design) {
                // Numbers of agents are for training alone.
                Assessment::Sound(team) => Some(Arc::new(self.builder.setup_of(*team, 0))),
                Assessment::Wrong { .. } | Assessment::Costly { .. } => None,
            },
            None => {
                // Its first event is the view that it was shown. Runs of earlier versions trained a team of the scenario's own.
                let first = trace.events.iter().find_map(|event| event.position.agent.as_deref());
                let is_designers = trace.key.phase == Phase::Train && first == Some(&self.designer().name);
                is_designers.then(|| Arc::clone(&self.setup))
            }
        }
    }

    /// Writes the best designs of a run as whole workflows into its folder.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn write_best(&self, run: &Path) -> Result<(), Error> {
        let records = read_designs(run)?;
        let files = self.builder.files(&self.folder, run);
        files.write_by_hash(&records.iter().collect::<Vec<_>>()).map(drop)
    }
}
