//! Base models of the embedded engine, and the policies on them.

use pl_dsl::workflow::Workflow;
use pl_trainer::Trainer;

/// Base models of the embedded engine, and the policies on them.
pub(crate) struct EngineLayout {
    /// Index of each base among the trainer's.
    pub(crate) bases: Vec<usize>,
    /// Base of each policy of the workflow, as an index into `bases`. `None` if servers generate for the policy.
    pub(crate) policies: Vec<Option<usize>>,
}

impl EngineLayout {
    /// Lists the bases that the embedded engine needs. With `own_weights`, each policy without an adapter has a base
    /// of its own, whose weights can be replaced without a change to another policy.
    pub(crate) fn new(workflow: &Workflow, trainer: &Trainer, own_weights: bool) -> Self {
        let (mut bases, mut policies) = (Vec::new(), Vec::new());
        // True for a base that no other policy may share.
        let mut owned: Vec<bool> = Vec::new();
        for (served, policy) in trainer.policies().iter().zip(&workflow.policies) {
            if policy.server.is_some() {
                policies.push(None);
                continue;
            }
            let own = own_weights && served.adapter.is_none();
            let shared = bases.iter().zip(&owned).position(|(base, owned)| *base == served.base && !owned);
            policies.push(Some(match shared.filter(|_| !own) {
                Some(at) => at,
                None => {
                    bases.push(served.base);
                    owned.push(own);
                    bases.len() - 1
                }
            }));
        }
        Self { bases, policies }
    }

    /// Returns true if a policy is the only one on its base.
    pub(crate) fn is_alone(&self, policy: usize) -> bool {
        let base = self.policies.get(policy).copied().flatten();
        base.is_some() && self.policies.iter().filter(|other| **other == base).count() == 1
    }
}
