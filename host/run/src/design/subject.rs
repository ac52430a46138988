//! The subject of a search, and the assessment of proposals: their check, their bound and their episodes.

use pl_dsl::workflow::Palette;
use pl_dsl::{WorkflowSkeleton, format_design, own_design, pattern};
use serde_json::{Map, Value, json};

use super::brief::{DesignBrief, source_and_skeleton};
use super::execute::Executor;
use super::record::{Archive, DesignRecord, Outcome, hash_of};
use super::team::Assessment;
use super::view::TaskView;
use crate::error::Error;
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
    pub brief: DesignBrief,
    pub skeleton: WorkflowSkeleton,
    /// Team of the scenario's own turns.
    own: Option<String>,
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
        let (source, skeleton) = source_and_skeleton(checked, scenario)?;
        Ok(Subject {
            checked,
            scenario,
            brief: DesignBrief::new(checked, scenario)?,
            own: own_design(&source, workflow, scenario),
            skeleton,
        })
    }

    /// Everything that the designs of a search depend on, besides models, plugins and data.
    pub fn fingerprint(&self, seed: u64) -> Map<String, Value> {
        let settings: Vec<String> = self.checked.overrides.iter().map(|one| one.to_string()).collect();
        let scenario = &self.checked.workflow.scenarios[self.scenario].name;
        let workflow = blake3::hash(self.checked.text.as_bytes()).to_hex();
        let parts = [
            ("workflow", json!(workflow.as_str())),
            ("settings", json!(settings)),
            ("scenario", json!(scenario)),
            ("seed", json!(seed)),
        ];
        parts.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()
    }

    fn palette(&self) -> &Palette {
        &self.brief.designer.palette
    }

    /// Number of designs of a round.
    pub fn count(&self, round: u32, view: &TaskView) -> u32 {
        if round == 0 { self.hand_made(view).len() as u32 } else { self.brief.designer.designs }
    }

    /// Origin and text of the hand-made designs.
    pub fn hand_made(&self, view: &TaskView) -> Vec<(String, String)> {
        let own = self.own.iter().map(|own| ("own".to_owned(), own.clone()));
        let parts = view.parts();
        let patterns = self.brief.designer.patterns.iter().filter_map(|word| {
            Some((word.clone(), pattern(word, self.palette(), &parts, &self.brief.facts)?))
        });
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
        let design = format_design(&design);
        let hash = hash_of(&design);
        let (outcome, execution_tokens) = match archive.outcome(&hash) {
            Some(earlier) => (earlier.clone(), 0),
            None => self.outcome(&design, executor)?,
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
            task: None,
            design,
        })
    }

    fn outcome(&self, design: &str, executor: &Executor) -> Result<(Outcome, u64), Error> {
        match executor.builder().assess(design) {
            Assessment::Sound(team) => executor.play(*team, self.brief.designer.executions),
            Assessment::Costly { bound, most } => Ok((Outcome::Costly { bound, most }, 0)),
            Assessment::Wrong { mistakes, .. } => Ok((Outcome::wrong(&mistakes), 0)),
        }
    }
}
