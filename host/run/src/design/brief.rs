//! The parts that the designs of a scenario are made of, which its designer is told about.

use std::sync::Arc;

use pl_dsl::workflow::Designer;
use pl_dsl::{Catalog, design_grammar};
use pl_types::{Fact, Item, ItemKind, Sampling};

use crate::error::Error;
use crate::workflow::CheckedWorkflow;

/// A scenario's designer, with the parts that its designs are made of.
#[derive(Clone)]
pub(crate) struct DesignBrief {
    pub designer: Designer,
    /// Items of the palette, in its order.
    pub items: Vec<Item>,
    /// Facts of the environment.
    pub facts: Vec<Fact>,
}

impl DesignBrief {
    /// Describes the designer of a scenario.
    ///
    /// # Errors
    /// [`Error::NoDesigner`] if it has none; if a plugin can't be loaded.
    pub fn new(checked: &CheckedWorkflow, scenario: usize) -> Result<DesignBrief, Error> {
        let workflow = &checked.workflow;
        let block = &workflow.scenarios[scenario];
        let designer = block.designer.and_then(|at| workflow.designers.get(at)).ok_or(Error::NoDesigner)?;
        let items = designer.palette.agents.iter().map(|path| {
            let (plugin, item) = path.rsplit_once('.').unwrap_or((path.as_str(), ""));
            item_of(checked, designer, plugin, item, ItemKind::Agent)
        });
        let items = items.collect::<Result<_, Error>>()?;
        let environment = workflow.plugins.get(block.environment.plugin).map_or("", |plugin| &plugin.name);
        let environment =
            item_of(checked, designer, environment, &block.environment.item, ItemKind::Environment)?;
        Ok(DesignBrief { designer: designer.clone(), items, facts: environment.facts })
    }

    /// Returns the distribution that designs are sampled from. `is_here` if this program generates: servers take no grammar.
    pub fn sampling(&self, is_here: bool) -> Sampling {
        let mut sampling = self.designer.sampling.clone();
        if self.designer.constrained && is_here {
            let grammar = design_grammar(&self.designer.palette, &self.items, &self.facts);
            sampling.grammar = Some(Arc::new(grammar));
        }
        sampling
    }
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
