//! The way from the text of a design to a team that plays: its check, its bound, and its agents.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pl_dsl::workflow::{Designer, ExecutorGroups, Plugin as PluginBlock, Workflow};
use pl_dsl::{Catalog, CatalogError, DesignMistake, ValidParts, WorkflowSkeleton, check_design};
use pl_plugin::{Plugin, Services};
use pl_rollout::{AgentRuntime, EpisodeSetup};
use pl_types::Item;

use super::brief::{DesignBrief, source_and_skeleton};
use super::files::DesignFiles;
use super::numbers::executor_numbers;
use crate::chat::ChatFormats;
use crate::error::Error;
use crate::plan::counts::EpisodeBounds;
use crate::session::{SessionScenario, agent_runtime};
use crate::workflow::CheckedWorkflow;

/// Judgement of a design before any episode.
pub(crate) enum Assessment {
    /// It can be played.
    Sound(Box<Team>),
    /// An episode of it could sample too many tokens.
    Costly { bound: u64, most: u64 },
    /// It did not pass its check.
    Wrong { mistakes: Vec<DesignMistake>, parts: ValidParts },
}

/// Team of a design.
pub(crate) struct Team {
    /// Setup of its episodes, as the first of the designs that are compared.
    setup: EpisodeSetup,
    workflow: Workflow,
}

impl Assessment {
    /// Judgement of a design with mistakes.
    fn wrong(design: &str, mistakes: Vec<DesignMistake>) -> Assessment {
        let parts = ValidParts::of(design, &mistakes);
        Assessment::Wrong { mistakes, parts }
    }

    /// Reward of the design before any episode: 0 for one that can be played, -0.25 for one that could cost too much. One with
    /// mistakes has -1 and more for what is right in it, so that a designer whose designs are all wrong can learn too: text of
    /// the language, an agent, turns. Each mistake takes a little, so that of two with the same parts the better one counts.
    pub fn reward(&self) -> f64 {
        match self {
            Assessment::Sound(_) => 0.0,
            Assessment::Costly { .. } => -0.25,
            Assessment::Wrong { mistakes, parts } => {
                let parses = !mistakes.iter().any(DesignMistake::is_syntax);
                let part = |is_there: bool, credit: f64| if is_there { credit } else { 0.0 };
                let parts = part(parses, 0.2) + part(parts.agent, 0.2) + part(parts.turns, 0.2);
                -1.0 + parts - 0.02 * mistakes.len().min(10) as f64
            }
        }
    }
}

/// Builder of the teams of a scenario's designs. Items and files are those of its creation.
pub(crate) struct TeamBuilder {
    skeleton: WorkflowSkeleton,
    designer: Designer,
    catalog: KnownParts,
    /// Loaded plugins by name.
    plugins: BTreeMap<String, Plugin>,
    /// Names of the session's policies.
    policies: Vec<String>,
    services: Services,
    /// Setup of the scenario, with a team of its own or none.
    scenario: Arc<EpisodeSetup>,
    formats: ChatFormats,
    /// Number of the first agent of a design in keys and groups.
    first_number: u32,
}

impl TeamBuilder {
    /// Prepares to build teams for a scenario.
    ///
    /// # Errors
    /// If a plugin of the palette can't be loaded.
    pub fn new(
        checked: &CheckedWorkflow,
        brief: &DesignBrief,
        skeleton: WorkflowSkeleton,
        scenario: &SessionScenario,
        formats: &ChatFormats,
    ) -> Result<TeamBuilder, Error> {
        let (workflow, designer) = (&checked.workflow, &brief.designer);
        let mut plugins = BTreeMap::new();
        for path in &designer.palette.agents {
            let name = path.rsplit_once('.').map_or(path.as_str(), |(plugin, _)| plugin);
            if let Some(block) = workflow.plugins.iter().find(|block| block.name == name) {
                let loaded = checked.plugins.load(block);
                let failed = |error| Error::Plugin { plugin: name.to_owned(), source: Box::new(error) };
                plugins.insert(name.to_owned(), loaded.map_err(failed)?);
            }
        }
        Ok(TeamBuilder {
            catalog: KnownParts::of(&skeleton, brief, &checked.plugins),
            skeleton,
            designer: designer.clone(),
            plugins,
            policies: workflow.policies.iter().map(|policy| policy.name.clone()).collect(),
            services: scenario.environment.services().clone(),
            scenario: Arc::clone(&scenario.setup),
            formats: formats.clone(),
            first_number: executor_numbers(workflow, brief.position).start,
        })
    }

    pub fn designer(&self) -> &Designer {
        &self.designer
    }

    /// Returns the writer of the best designs into a folder. `workflow_folder` is the one that paths in the workflow are
    /// relative to.
    pub(super) fn files<'s>(&'s self, workflow_folder: &'s Path, folder: &'s Path) -> DesignFiles<'s> {
        let (skeleton, palette, catalog) = (&self.skeleton, &self.designer.palette, &self.catalog);
        DesignFiles { skeleton, palette, catalog, workflow_folder, folder }
    }

    /// Checks a design and bounds its cost.
    pub fn assess(&self, design: &str) -> Assessment {
        let palette = &self.designer.palette;
        let workflow = match check_design(&self.skeleton, palette, design, &self.catalog) {
            Ok(workflow) => workflow,
            Err(mistakes) => return Assessment::wrong(design, mistakes),
        };
        let turns = workflow.scenarios.first().map(|scenario| &scenario.turns);
        let bound = turns.map_or(0, |turns| EpisodeBounds::new(turns, &workflow.agents).tokens);
        if bound > palette.max_tokens {
            return Assessment::Costly { bound, most: palette.max_tokens };
        }
        match self.setup(design, &workflow) {
            Ok(setup) => Assessment::Sound(Box::new(Team { setup, workflow })),
            Err(mistake) => Assessment::wrong(design, vec![mistake]),
        }
    }

    /// Returns the setup of a team's episodes. `number` is that of its design among those that are compared.
    pub fn setup_of(&self, team: Team, number: usize) -> EpisodeSetup {
        let Team { mut setup, workflow } = team;
        for (agent, number) in setup.agents.iter_mut().zip(self.numbers(&workflow, number)) {
            agent.number = number;
        }
        setup
    }

    /// Returns the setup of a design's team.
    ///
    /// # Errors
    /// If the plugin of an agent refuses its settings.
    fn setup(&self, design: &str, workflow: &Workflow) -> Result<EpisodeSetup, DesignMistake> {
        let agents = workflow.agents.iter().zip(self.numbers(workflow, 0));
        let agents = agents.map(|(block, number)| self.agent(workflow, block, number));
        Ok(EpisodeSetup {
            agents: agents.collect::<Result<_, _>>()?,
            turns: workflow
                .scenarios
                .first()
                .map(|one| one.turns.clone())
                .unwrap_or_else(|| self.scenario.turns.clone()),
            design: Some(Arc::from(design)),
            ..EpisodeSetup::clone(&self.scenario)
        })
    }

    fn agent(
        &self,
        workflow: &Workflow,
        block: &pl_dsl::workflow::Agent,
        number: u32,
    ) -> Result<AgentRuntime, DesignMistake> {
        let refused = |reason: String| DesignMistake::Refused { agent: block.name.clone(), reason };
        let plugin = workflow.plugins.get(block.plugin).and_then(|plugin| self.plugins.get(&plugin.name));
        let plugin = plugin.ok_or_else(|| refused("its plugin is not loaded".to_owned()))?;
        let agent = pl_plugin::Agent::new(plugin, &block.item, block.settings.clone())
            .map_err(|error| refused(error.to_string()))?
            .with_services(self.services.clone());
        // The design may lack policies of used files that it doesn't name.
        let name = workflow.policies.get(block.policy).map(|policy| &policy.name);
        let policy = self.policies.iter().position(|own| Some(own) == name);
        let policy = policy.ok_or_else(|| refused("its policy is not loaded".to_owned()))?;
        let runtime = agent_runtime(block, number, agent, &self.formats);
        Ok(AgentRuntime { policy, ..runtime })
    }

    /// Returns the number of each agent in keys and groups: agents with the same one are compared.
    fn numbers(&self, workflow: &Workflow, design: usize) -> Vec<u32> {
        let palette = &self.designer.palette;
        let most = palette.max_agents;
        let role = |agent: &pl_dsl::workflow::Agent| {
            let plugin = workflow.plugins.get(agent.plugin).map_or("", |plugin| plugin.name.as_str());
            let path = format!("{plugin}.{}", agent.item);
            let item = palette.agents.iter().position(|own| *own == path).unwrap_or_default();
            let name = workflow.policies.get(agent.policy).map(|policy| &policy.name);
            let policy = palette.policies.iter().position(|own| Some(own) == name).unwrap_or_default();
            item * palette.policies.len() + policy
        };
        let roles: Vec<usize> = workflow.agents.iter().map(role).collect();
        let number = |at: usize| match self.designer.executor_groups {
            ExecutorGroups::Design => design * most + at,
            ExecutorGroups::Role => {
                // Two agents of a team may have one role.
                let earlier = roles[..at].iter().filter(|role| **role == roles[at]).count();
                roles[at] * most + earlier
            }
        };
        (0..roles.len()).map(|at| self.first_number + number(at) as u32).collect()
    }
}

/// Returns the files that the checks of designs read: those that their workflow uses or includes, and whose text it names.
/// Paths are relative to the workflow's folder.
///
/// # Errors
/// If a plugin can't be loaded, or the scenario of a designer is in an included file.
pub(crate) fn files_of_designs(checked: &CheckedWorkflow) -> Result<Vec<PathBuf>, Error> {
    let mut files = BTreeSet::new();
    let scenarios = checked.workflow.scenarios.iter().enumerate();
    for (scenario, _) in scenarios.filter(|(_, own)| own.designer.is_some() && own.weight > 0.0) {
        let (_, skeleton) = source_and_skeleton(checked, scenario)?;
        let parts = KnownParts::of(&skeleton, &DesignBrief::new(checked, scenario)?, &checked.plugins);
        files.extend(parts.texts.into_keys());
    }
    Ok(files.into_iter().collect())
}

/// Items of plugins and texts of files, as they were when they were asked for the first time.
pub(crate) struct KnownParts {
    items: BTreeMap<String, Result<Vec<Item>, CatalogError>>,
    texts: BTreeMap<PathBuf, Result<String, CatalogError>>,
}

impl KnownParts {
    /// Collects what the check of designs asks for, which is the same for all of them.
    fn of(skeleton: &WorkflowSkeleton, brief: &DesignBrief, catalog: &dyn Catalog) -> KnownParts {
        let asked = Recording { catalog, items: RefCell::default(), texts: RefCell::default() };
        let palette = &brief.designer.palette;
        for (item, policy) in palette.agents.iter().zip(palette.policies.iter().cycle()) {
            let design = format!(
                "agent first = {item} {{ policy = {policy} }}\nturns {{ max = 1; start -> first -> end }}\n"
            );
            // Its mistakes don't matter here.
            let _ = check_design(skeleton, palette, &design, &asked);
        }
        KnownParts { items: asked.items.into_inner(), texts: asked.texts.into_inner() }
    }
}

impl Catalog for KnownParts {
    fn items(&self, plugin: &PluginBlock) -> Result<Vec<Item>, CatalogError> {
        let missing = || Err(CatalogError::Unavailable("it was not loaded when the work on designs began"));
        self.items.get(&plugin.name).cloned().unwrap_or_else(missing)
    }

    fn text(&self, path: &Path) -> Result<String, CatalogError> {
        let missing = || Err(CatalogError::Unavailable("it was not read when the work on designs began"));
        self.texts.get(path).cloned().unwrap_or_else(missing)
    }
}

/// Catalog that remembers its answers.
struct Recording<'c> {
    catalog: &'c dyn Catalog,
    items: RefCell<BTreeMap<String, Result<Vec<Item>, CatalogError>>>,
    texts: RefCell<BTreeMap<PathBuf, Result<String, CatalogError>>>,
}

impl Catalog for Recording<'_> {
    fn items(&self, plugin: &PluginBlock) -> Result<Vec<Item>, CatalogError> {
        let items = self.catalog.items(plugin);
        self.items.borrow_mut().insert(plugin.name.clone(), items.clone());
        items
    }

    fn text(&self, path: &Path) -> Result<String, CatalogError> {
        let text = self.catalog.text(path);
        self.texts.borrow_mut().insert(path.to_path_buf(), text.clone());
        text
    }
}
