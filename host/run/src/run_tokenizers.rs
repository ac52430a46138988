//! Tokenizers of recorded runs, for showing token ids as text. No weights are loaded and nothing is fetched.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use pl_dsl::workflow::Workflow;
use pl_model::{Model, Tokenizer};

use crate::error::Error;
use crate::locate::model_on_disk;
use crate::origin::is_own;
use crate::stored::StoredWorkflow;

/// Tokenizers of the runs' models. Each is read once.
#[derive(Debug, Default)]
pub struct RunTokenizers {
    trust: bool,
    loaded: Mutex<HashMap<PathBuf, Arc<Tokenizer>>>,
}

impl RunTokenizers {
    /// Creates an empty collection. With `trust`, the models that runs of somebody else name may be read.
    pub fn new(trust: bool) -> RunTokenizers {
        RunTokenizers { trust, loaded: Mutex::default() }
    }

    /// Returns the tokenizer of an agent's policy, in an evaluation if one is named.
    ///
    /// # Errors
    /// [`Error::ForeignRun`] for a run of somebody else without trust; [`Error::UnknownAgent`]; if the model is not on
    /// this machine.
    pub fn tokenizer(
        &self,
        run: &Path,
        evaluation: Option<&str>,
        agent: &str,
    ) -> Result<Arc<Tokenizer>, Error> {
        let stored = StoredWorkflow::read(run)?;
        let workflow = &stored.workflow;
        let policy = workflow
            .policy_of(agent, evaluation)
            .or_else(|| designed_policy(workflow, agent))
            .ok_or_else(|| Error::UnknownAgent { path: run.to_path_buf(), agent: agent.to_owned() })?;
        // The stored workflow was checked: all indexes are in range.
        let model = &workflow.models[workflow.policies[policy].model];
        if !self.trust && !is_own(run) {
            let opens = vec![format!("the tokenizer of model {}: {}", model.name, model.source)];
            return Err(Error::ForeignRun { path: run.to_path_buf(), opens });
        }
        let path = model_on_disk(&stored.folder, &model.source).map_err(Error::locate_model(&model.name))?;
        let mut loaded = self.loaded.lock();
        if let Some(tokenizer) = loaded.get(&path) {
            return Ok(Arc::clone(tokenizer));
        }
        let (tokenizer, _) = Model::text(&path).map_err(Error::model(&model.name))?;
        let tokenizer = Arc::new(tokenizer);
        loaded.insert(path, Arc::clone(&tokenizer));
        Ok(tokenizer)
    }
}

/// Returns a policy with the model of a designer, or of an agent of a design. Returns `None` if the agent may have one of
/// several models.
fn designed_policy(workflow: &Workflow, agent: &str) -> Option<usize> {
    if let Some(designer) = workflow.designers.iter().find(|designer| designer.name == agent) {
        return Some(designer.policy);
    }
    let names = workflow.designers.iter().flat_map(|designer| &designer.palette.policies);
    let position = |name: &String| workflow.policies.iter().position(|policy| policy.name == *name);
    let policies: Vec<usize> = names.filter_map(position).collect();
    let models: BTreeSet<usize> = policies.iter().map(|policy| workflow.policies[*policy].model).collect();
    policies.first().copied().filter(|_| models.len() == 1)
}
