//! Engines of a session: a pool of policies each, on devices of their own, with the base models of these policies.

use pl_dsl::workflow::{DeviceSet, Workflow};
use pl_trainer::Trainer;

/// Engines of a session, and the policies in them.
pub(crate) struct EngineLayout {
    pub(crate) pools: Vec<Pool>,
    /// Place of each policy of the workflow. `None` if servers generate for it.
    pub(crate) policies: Vec<Option<EnginePlace>>,
}

/// Policies that one engine generates for, because they have the same devices.
pub(crate) struct Pool {
    /// `None` for the whole machine.
    pub(crate) devices: Option<DeviceSet>,
    /// Index of each base among the trainer's.
    pub(crate) bases: Vec<usize>,
    /// True for a base that no other policy may share.
    owned: Vec<bool>,
}

/// Place of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EnginePlace {
    pub(crate) pool: usize,
    /// Index into the bases of the pool.
    pub(crate) base: usize,
    /// Index among the policies of the pool.
    pub(crate) policy: usize,
}

impl EngineLayout {
    /// Lists the engines and the bases that each needs. With `own_weights`, each policy without an adapter has a base
    /// of its own, whose weights can be replaced without a change to another policy.
    pub(crate) fn new(workflow: &Workflow, trainer: &Trainer, own_weights: bool) -> Self {
        let mut layout = Self { pools: Vec::new(), policies: Vec::new() };
        for (served, policy) in trainer.policies().iter().zip(&workflow.policies) {
            if policy.server.is_some() {
                layout.policies.push(None);
                continue;
            }
            let own = own_weights && served.adapter.is_none();
            let pool = layout.pool(policy.devices.rollout.as_ref());
            let base = layout.pools[pool].base(served.base, own);
            let in_pool = layout.policies.iter().flatten().filter(|place| place.pool == pool).count();
            layout.policies.push(Some(EnginePlace { pool, base, policy: in_pool }));
        }
        layout
    }

    /// Returns the index of the pool with these devices.
    fn pool(&mut self, devices: Option<&DeviceSet>) -> usize {
        if let Some(found) = self.pools.iter().position(|pool| pool.devices.as_ref() == devices) {
            return found;
        }
        self.pools.push(Pool { devices: devices.cloned(), bases: Vec::new(), owned: Vec::new() });
        self.pools.len() - 1
    }

    /// Number of bases in all engines.
    pub(crate) fn bases(&self) -> usize {
        self.pools.iter().map(|pool| pool.bases.len()).sum()
    }

    /// Returns true if a policy is the only one on its base.
    pub(crate) fn is_alone(&self, policy: usize) -> bool {
        let Some(place) = self.policies.get(policy).copied().flatten() else { return false };
        let shares = |other: &&EnginePlace| (other.pool, other.base) == (place.pool, place.base);
        self.policies.iter().flatten().filter(shares).count() == 1
    }
}

impl Pool {
    /// Returns the index of a base of the trainer in the pool. With `own`, no other policy shares it.
    fn base(&mut self, base: usize, own: bool) -> usize {
        let shared = self.bases.iter().zip(&self.owned).position(|(one, owned)| *one == base && !owned);
        match shared.filter(|_| !own) {
            Some(found) => found,
            None => {
                self.bases.push(base);
                self.owned.push(own);
                self.bases.len() - 1
            }
        }
    }
}
