//! The parts that the designs of a scenario are made of, which its designer is told about.

use std::sync::Arc;

use pl_dsl::workflow::Designer;
use pl_dsl::{Catalog, Source, WorkflowSkeleton, design_grammar};
use pl_types::{Fact, Item, ItemKind, Sampling};

use crate::error::Error;
use crate::workflow::CheckedWorkflow;

/// A scenario's designer, with the parts that its designs are made of.
#[derive(Clone)]
pub(crate) struct DesignBrief {
    pub designer: Designer,
    /// Position of the designer in the workflow.
    pub position: usize,
    /// Items of the palette, in its order.
    pub items: Vec<Item>,
    /// Facts of the environment.
    pub facts: Vec<Fact>,
    /// Distribution that designs are sampled from.
    pub sampling: Sampling,
    /// The distribution of guided designs. `None` if there are none.
    pub guided: Option<Sampling>,
}

impl DesignBrief {
    /// Describes the designer of a scenario.
    ///
    /// # Errors
    /// [`Error::NoDesigner`] if it has none; if a plugin can't be loaded.
    pub fn new(checked: &CheckedWorkflow, scenario: usize) -> Result<DesignBrief, Error> {
        let workflow = &checked.workflow;
        let block = &workflow.scenarios[scenario];
        let position = block.designer.ok_or(Error::NoDesigner)?;
        let designer = workflow.designers.get(position).ok_or(Error::NoDesigner)?;
        let items = designer.palette.agents.iter().map(|path| {
            let (plugin, item) = path.rsplit_once('.').unwrap_or((path.as_str(), ""));
            item_of(checked, designer, plugin, item, ItemKind::Agent)
        });
        let items = items.collect::<Result<Vec<Item>, Error>>()?;
        let environment = workflow.plugins.get(block.environment.plugin).map_or("", |plugin| &plugin.name);
        let environment =
            item_of(checked, designer, environment, &block.environment.item, ItemKind::Environment)?;
        let mut sampling = designer.sampling.clone();
        let mut guided = None;
        let server = workflow.policies.get(designer.policy).and_then(|policy| policy.server);
        let server = server.and_then(|at| workflow.servers.get(at));
        let grammar = || Some(Arc::new(design_grammar(&designer.palette, &items, &environment.facts)));
        if designer.constrained && server.is_none_or(|server| server.kind.takes_grammars()) {
            sampling.grammar = grammar();
        } else if designer.guided > 0 {
            guided = Some(Sampling { grammar: grammar(), ..sampling.clone() });
        }
        let (designer, facts) = (designer.clone(), environment.facts);
        Ok(DesignBrief { designer, position, items, facts, sampling, guided })
    }
}

/// Returns the text of a workflow, and the skeleton that the designs of a scenario stand in.
///
/// # Errors
/// If the scenario's text is in an included file.
pub(super) fn source_and_skeleton(
    checked: &CheckedWorkflow,
    scenario: usize,
) -> Result<(Source, WorkflowSkeleton), Error> {
    let workflow = &checked.workflow;
    let source = Source { name: format!("{}.mas", workflow.name), text: checked.text.clone() };
    let skeleton =
        WorkflowSkeleton::new(&source, workflow, scenario, &checked.overrides).map_err(Error::Skeleton)?;
    Ok((source, skeleton))
}

/// Returns an item of a plugin as it describes itself.
fn item_of(
    checked: &CheckedWorkflow,
    designer: &Designer,
    plugin: &str,
    item: &str,
    kind: ItemKind,
) -> Result<Item, Error> {
    let failed = |reason: String| Error::DesignerPrompt { designer: designer.name.clone(), reason };
    let missing = || failed(format!("there is no {kind} `{plugin}.{item}`"));
    let block = checked.workflow.plugins.iter().find(|block| block.name == plugin).ok_or_else(missing)?;
    let items =
        checked.plugins.items(block).map_err(|error| failed(format!("plugin `{plugin}`: {error}")))?;
    items.into_iter().find(|one| one.kind == kind && one.name == item).ok_or_else(missing)
}
