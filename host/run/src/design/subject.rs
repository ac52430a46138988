//! The subject of a search, and the assessment of proposals: their check, their bound and their episodes.

use pl_dsl::workflow::{Designer, Palette, Workflow};
use pl_dsl::{Catalog, Frame, Source, check_design, own_design, pattern};
use pl_types::{Fact, Item, ItemKind};

use super::execute::Executor;
use super::record::{Archive, DesignRecord, Outcome};
use super::view::TaskView;
use crate::error::Error;
use crate::plan::counts::EpisodeBounds;
use crate::workflow::CheckedWorkflow;

/// Proposed design, before its check.
pub(crate) struct Proposal {
    /// `designer`, `own`, or the word of a pattern.
    pub origin: String,
    /// Hashes of the designs that its prompt showed.
    pub parents: Vec<String>,
    pub design: String,
    /// Tokens that it took to write.
    pub tokens: u64,
}

impl Proposal {
    pub fn hand_made((origin, design): (String, String)) -> Proposal {
        Proposal { origin, parents: Vec::new(), design, tokens: 0 }
    }
}

/// Subject of a search: a scenario, its designer, and the parts that designs are made of.
pub(crate) struct Subject<'c> {
    pub checked: &'c CheckedWorkflow,
    pub scenario: usize,
    pub designer: &'c Designer,
    pub frame: Frame,
    /// Team of the scenario's own turns.
    own: Option<String>,
    /// Items of the palette, in its order.
    pub items: Vec<Item>,
    /// Facts of the environment.
    pub facts: Vec<Fact>,
}

impl<'c> Subject<'c> {
    pub fn new(checked: &'c CheckedWorkflow, scenario: Option<&str>) -> Result<Subject<'c>, Error> {
        let workflow = &checked.workflow;
        let scenario = match scenario {
            Some(name) => checked.scenario(Some(name))?,
            None => {
                let designed = workflow.scenarios.iter().position(|one| one.designer.is_some());
                designed.ok_or(Error::NoDesigner)?
            }
        };
        let block = &workflow.scenarios[scenario];
        let designer = block.designer.and_then(|at| workflow.designers.get(at)).ok_or(Error::NoDesigner)?;
        let source = Source { name: format!("{}.mas", workflow.name), text: checked.text.clone() };
        let frame = Frame::new(&source, workflow, scenario, &checked.overrides).map_err(Error::Frame)?;
        let items = designer.palette.agents.iter().map(|path| {
            let (plugin, item) = path.rsplit_once('.').unwrap_or((path.as_str(), ""));
            item_of(checked, plugin, item, ItemKind::Agent)
        });
        let environment = workflow.plugins.get(block.environment.plugin).map_or("", |plugin| &plugin.name);
        let environment = item_of(checked, environment, &block.environment.item, ItemKind::Environment)?;
        Ok(Subject {
            checked,
            scenario,
            designer,
            own: own_design(&source, workflow, scenario),
            items: items.collect::<Result<_, Error>>()?,
            facts: environment.facts,
            frame,
        })
    }

    /// Everything that the designs of a search depend on, besides models, plugins and data.
    pub fn fingerprint(&self, seed: u64) -> serde_json::Value {
        serde_json::json!({
            "workflow": blake3::hash(self.checked.text.as_bytes()).to_hex().as_str(),
            "settings": self.checked.overrides.iter().map(|one| one.to_string()).collect::<Vec<_>>(),
            "scenario": self.checked.workflow.scenarios[self.scenario].name,
            "seed": seed,
        })
    }

    fn palette(&self) -> &Palette {
        &self.designer.palette
    }

    /// Number of designs of a round.
    pub fn count(&self, round: u32, view: &TaskView) -> u32 {
        if round == 0 { self.hand_made(view).len() as u32 } else { self.designer.designs }
    }

    /// Origin and text of the hand-made designs.
    pub fn hand_made(&self, view: &TaskView) -> Vec<(String, String)> {
        let own = self.own.iter().map(|own| ("own".to_owned(), own.clone()));
        let parts = view.parts();
        let patterns = self
            .designer
            .patterns
            .iter()
            .filter_map(|word| Some((word.clone(), pattern(word, self.palette(), &parts, &self.facts)?)));
        own.chain(patterns).collect()
    }

    /// Checks a design, bounds its cost and plays it. A design that was proposed before has its earlier outcome.
    pub fn assess(
        &self,
        round: u32,
        index: u32,
        proposal: Proposal,
        archive: &Archive,
        executor: &Executor,
    ) -> Result<DesignRecord, Error> {
        let Proposal { origin, parents, design, tokens } = proposal;
        let design = pl_dsl::format(&design).unwrap_or(design);
        let hash: String = blake3::hash(design.as_bytes()).to_hex().chars().take(12).collect();
        let (outcome, execution_tokens) = match archive.outcome(&hash) {
            Some(earlier) => (earlier.clone(), 0),
            None => match check_design(&self.frame, self.palette(), &design, &self.checked.plugins) {
                Ok(workflow) => self.outcome(workflow, executor)?,
                Err(mistakes) => {
                    let mistakes = mistakes.iter().map(ToString::to_string).collect();
                    (Outcome::Invalid { mistakes }, 0)
                }
            },
        };
        Ok(DesignRecord {
            round,
            index,
            hash,
            origin,
            parents,
            outcome,
            designer_tokens: tokens,
            execution_tokens,
            design,
        })
    }

    fn outcome(&self, workflow: Workflow, executor: &Executor) -> Result<(Outcome, u64), Error> {
        let turns = workflow.scenarios.first().map(|scenario| &scenario.turns);
        let bound = turns.map_or(0, |turns| EpisodeBounds::new(turns, &workflow.agents).tokens);
        let most = self.palette().max_tokens;
        if bound > most {
            return Ok((Outcome::Costly { bound, most }, 0));
        }
        executor.play(workflow, self.designer.executions)
    }
}

/// Returns an item of a plugin as it describes itself.
fn item_of(checked: &CheckedWorkflow, plugin: &str, item: &str, kind: ItemKind) -> Result<Item, Error> {
    let missing = || Error::DesignerPrompt {
        designer: plugin.to_owned(),
        reason: format!("the plugin has no {kind} `{item}`"),
    };
    let block = checked.workflow.plugins.iter().find(|block| block.name == plugin).ok_or_else(missing)?;
    let items = checked
        .plugins
        .items(block)
        .map_err(|error| Error::DesignerPrompt { designer: plugin.to_owned(), reason: error.to_string() })?;
    items.into_iter().find(|one| one.kind == kind && one.name == item).ok_or_else(missing)
}
