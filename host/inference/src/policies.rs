//! The weights that the engine generates with: base models, the policies on them, and their KV caches.
//!
//! A [`PolicySnapshot`] is one version of a policy's weights. Publishing weights creates new snapshots;
//! sequences in progress keep the snapshot that they started with.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use pl_model::{Adapter, Config, Projection, Tokenizer};
use pl_types::{Dtype, GenerateError, ValueHeadWeights};

use crate::block_pool::{BLOCK, BlockPool, SnapshotId};
use crate::config::{BaseModel, PolicyWeights, WeightUpdate};
use crate::executor::{Executor, ExecutorError};

/// All base models and policies with their newest weights. Owned by the engine's thread.
pub(crate) struct Policies<E: Executor> {
    pub(crate) bases: Vec<BaseState<E>>,
    /// `None` for a policy that was removed: its index is never used again, because requests for it may be on
    /// their way.
    policies: Vec<Option<PolicyState<E>>>,
    next_snapshot: SnapshotId,
    /// Number of earlier versions to keep of each policy.
    kept_versions: usize,
}

pub(crate) struct BaseState<E: Executor> {
    config: Arc<Config>,
    tokenizer: Arc<Tokenizer>,
    dtype: Dtype,
    /// Names and shapes that published weights must have.
    shapes: Vec<(String, Vec<i64>)>,
    weights: Rc<E::Weights>,
    pub(crate) cache: E::Cache,
    pub(crate) blocks: BlockPool,
    pub(crate) block_bytes: usize,
}

struct PolicyState<E: Executor> {
    /// Index of its base.
    base: usize,
    adapter: Option<Rc<E::Adapter>>,
    value_head: Option<Arc<ValueHeadWeights>>,
    version: u64,
    snapshot: SnapshotId,
    /// Earlier versions, oldest first.
    earlier: VecDeque<PolicySnapshot<E>>,
}

/// Result of a search for a version of a policy.
pub(crate) enum FoundVersion<E: Executor> {
    Kept(PolicySnapshot<E>),
    /// It was not published yet.
    Awaited,
    /// It is no longer kept, or there is no such policy.
    Gone,
}

/// One version of a policy's weights.
pub(crate) struct PolicySnapshot<E: Executor> {
    /// Index of its base.
    pub(crate) base: usize,
    pub(crate) config: Arc<Config>,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) weights: Rc<E::Weights>,
    pub(crate) adapter: Option<Rc<E::Adapter>>,
    pub(crate) value_head: Option<Arc<ValueHeadWeights>>,
    pub(crate) policy: usize,
    pub(crate) version: u64,
    /// Keys and values of equal tokens under one id are equal.
    pub(crate) id: SnapshotId,
}

impl<E: Executor> Clone for PolicySnapshot<E> {
    fn clone(&self) -> Self {
        Self {
            config: Arc::clone(&self.config),
            tokenizer: Arc::clone(&self.tokenizer),
            weights: Rc::clone(&self.weights),
            adapter: self.adapter.clone(),
            value_head: self.value_head.clone(),
            ..*self
        }
    }
}

/// Returns the length of the longest sequence: the cache may hold fewer tokens than the model takes. The tables
/// of positions of a model that claims millions would take gigabytes.
fn positions(config: &Config, capacity: usize) -> usize {
    config.max_positions.min(capacity.saturating_mul(BLOCK))
}

impl<E: Executor> Policies<E> {
    /// Loads policies that [`check_shapes`] has accepted. The bases share `kv_cache` bytes evenly.
    pub(crate) fn new(
        executor: &E,
        bases: Vec<BaseModel>,
        policies: Vec<PolicyWeights>,
        kv_cache: u64,
    ) -> Result<Self, GenerateError> {
        let share = usize::try_from(kv_cache).unwrap_or(usize::MAX) / bases.len().max(1);
        let mut states = Vec::new();
        for base in bases {
            let block_bytes = executor.block_bytes(&base);
            let capacity = (share / block_bytes.max(1)).max(1);
            states.push(BaseState {
                weights: Rc::new(
                    executor
                        .load_weights(&base, positions(&base.config, capacity), true)
                        .map_err(setup_error)?,
                ),
                cache: executor.new_cache(&base, capacity).map_err(setup_error)?,
                blocks: BlockPool::new(capacity),
                block_bytes,
                shapes: base.weights.sizes(),
                config: Arc::new(base.config),
                tokenizer: base.tokenizer,
                dtype: base.dtype,
            });
        }
        let mut all = Self { bases: states, policies: Vec::new(), next_snapshot: 0, kept_versions: 0 };
        for weights in policies {
            all.add(executor, weights)?;
        }
        Ok(all)
    }

    /// Adds a policy. Returns its index.
    pub(crate) fn add(&mut self, executor: &E, weights: PolicyWeights) -> Result<usize, GenerateError> {
        let index = self.policies.len();
        let base = self.bases.get(weights.base).ok_or_else(|| {
            let (base, count) = (weights.base, self.bases.len());
            GenerateError::Setup(format!("policy {index} names base {base}, but there are {count} bases"))
        })?;
        let adapter = match &weights.adapter {
            Some(adapter) => {
                check_adapter(&base.config, adapter, index)?;
                Some(Rc::new(executor.load_adapter(&base.config, adapter).map_err(setup_error)?))
            }
            None => None,
        };
        let (base, version) = (weights.base, weights.version);
        let snapshot = self.next_snapshot;
        let earlier = VecDeque::new();
        self.policies.push(Some(PolicyState { base, adapter, value_head: None, version, snapshot, earlier }));
        self.next_snapshot += 1;
        Ok(index)
    }

    /// Removes a policy. Sequences in progress finish with its weights.
    pub(crate) fn remove(&mut self, policy: usize) -> Result<(), GenerateError> {
        let removed = self.policies.get_mut(policy).and_then(Option::take);
        let state = removed.ok_or_else(|| self.missing("removed", policy))?;
        self.drop_old_blocks(state.base);
        Ok(())
    }

    fn missing(&self, what: &str, policy: usize) -> GenerateError {
        let count = self.policies.iter().flatten().count();
        GenerateError::Setup(format!(
            "policy {policy} can't be {what}: it is not one of the {count} policies"
        ))
    }

    /// Forgets the cached prefixes of weights that no policy of a base has any more.
    fn drop_old_blocks(&mut self, base: usize) {
        let own = self.policies.iter().flatten().filter(|state| state.base == base);
        let current: Vec<SnapshotId> = own.map(|state| state.snapshot).collect();
        if let Some(base) = self.bases.get_mut(base) {
            base.blocks.retain_snapshots(|id| current.contains(&id));
        }
    }

    /// Keeps the present weights of a policy, if `version` is a new one and versions are kept.
    fn keep_version_before(&mut self, policy: usize, version: u64) {
        let (kept, snapshot) = (self.kept_versions, self.snapshot(policy));
        let state = self.policies.get_mut(policy).and_then(Option::as_mut);
        if let (Some(state), Some(snapshot)) = (state, snapshot)
            && version != snapshot.version
            && state.earlier.back().is_none_or(|last| last.version != snapshot.version)
            && kept > 0
        {
            state.earlier.push_back(snapshot);
            state.earlier.drain(..state.earlier.len().saturating_sub(kept));
        }
    }

    /// Keeps this number of earlier versions of each policy from now on.
    pub(crate) fn keep_versions(&mut self, count: usize) {
        self.kept_versions = count;
    }

    /// Replaces the weights of a policy.
    pub(crate) fn publish(
        &mut self,
        executor: &E,
        policy: usize,
        update: WeightUpdate,
        version: u64,
    ) -> Result<(), GenerateError> {
        self.keep_version_before(policy, version);
        let found = self.policies.get(policy).and_then(Option::as_ref).map(|state| state.base);
        let index = found.ok_or_else(|| self.missing("given new weights", policy))?;
        let base = &mut self.bases[index];
        let mut new_adapter = None;
        match update {
            WeightUpdate::Adapter(adapter) => {
                check_adapter(&base.config, &adapter, policy)?;
                let adapter = executor.load_adapter(&base.config, &adapter).map_err(setup_error)?;
                new_adapter = Some(Rc::new(adapter));
            }
            WeightUpdate::ValueHead(head) => {
                if head.weight.len() as i64 != base.config.hidden {
                    return Err(GenerateError::Setup(format!(
                        "the value head of policy {policy} has {} weights, but its model {} hidden dimensions",
                        head.weight.len(),
                        base.config.hidden
                    )));
                }
                if let Some(state) = self.policies.get_mut(policy).and_then(Option::as_mut) {
                    state.value_head = Some(Arc::new(head));
                }
                return Ok(());
            }
            WeightUpdate::Version => {
                if let Some(state) = self.policies.get_mut(policy).and_then(Option::as_mut) {
                    state.version = version;
                }
                return Ok(());
            }
            WeightUpdate::Weights(weights) => {
                if weights.sizes() != base.shapes {
                    return Err(GenerateError::Setup(format!(
                        "the weights published for policy {policy} don't have the shapes of its model"
                    )));
                }
                let (config, tokenizer) = ((*base.config).clone(), Arc::clone(&base.tokenizer));
                let positions = positions(&config, base.blocks.capacity());
                let model = BaseModel { config, weights, tokenizer, dtype: base.dtype };
                base.weights = Rc::new(executor.load_weights(&model, positions, false).map_err(setup_error)?);
            }
        }
        let all_change = new_adapter.is_none();
        for (at, state) in self.policies.iter_mut().enumerate() {
            let Some(state) = state.as_mut().filter(|state| state.base == index) else { continue };
            if at == policy {
                state.version = version;
                state.adapter = new_adapter.take().or(state.adapter.take());
            }
            if all_change || at == policy {
                state.snapshot = self.next_snapshot;
                self.next_snapshot += 1;
            }
        }
        self.drop_old_blocks(index);
        Ok(())
    }

    /// Forgets the cached prefixes of all prompts.
    pub(crate) fn clear_prefixes(&mut self) {
        self.bases.iter_mut().for_each(|base| base.blocks.retain_snapshots(|_| false));
    }

    /// Gives the memory of all caches back. No sequence may have blocks.
    pub(crate) fn release_caches(&mut self, executor: &E) {
        for base in &mut self.bases {
            base.blocks = BlockPool::new(base.blocks.capacity());
            executor.release_cache(&mut base.cache);
        }
    }

    /// Takes the memory of all caches again.
    pub(crate) fn restore_caches(&mut self, executor: &E) -> Result<(), GenerateError> {
        self.bases
            .iter_mut()
            .try_for_each(|base| executor.restore_cache(&mut base.cache))
            .map_err(setup_error)
    }

    /// Returns a version of a policy's weights.
    pub(crate) fn version(&self, policy: usize, version: u64) -> FoundVersion<E> {
        let Some(newest) = self.snapshot(policy) else { return FoundVersion::Gone };
        if newest.version <= version {
            let is_newest = newest.version == version;
            return if is_newest { FoundVersion::Kept(newest) } else { FoundVersion::Awaited };
        }
        let state = self.policies.get(policy).and_then(Option::as_ref);
        let kept = state.and_then(|state| state.earlier.iter().find(|own| own.version == version));
        kept.map_or(FoundVersion::Gone, |own| FoundVersion::Kept(own.clone()))
    }

    /// Returns the newest weights of a policy, if they have another version.
    pub(crate) fn newer_than(&self, policy: usize, version: u64) -> Option<PolicySnapshot<E>> {
        let state = self.policies.get(policy)?.as_ref()?;
        if state.version == version { None } else { self.snapshot(policy) }
    }

    /// Newest weights of a policy, or `None` if there is no such policy.
    pub(crate) fn snapshot(&self, policy: usize) -> Option<PolicySnapshot<E>> {
        let state = self.policies.get(policy)?.as_ref()?;
        let base = &self.bases[state.base];
        Some(PolicySnapshot {
            base: state.base,
            config: Arc::clone(&base.config),
            tokenizer: Arc::clone(&base.tokenizer),
            weights: Rc::clone(&base.weights),
            adapter: state.adapter.clone(),
            value_head: state.value_head.clone(),
            policy,
            version: state.version,
            id: state.snapshot,
        })
    }
}

fn setup_error(error: ExecutorError) -> GenerateError {
    GenerateError::Setup(error.to_string())
}

/// Checks that weights have the shapes of their model's config, and adapters those of their base.
pub(crate) fn check_shapes(bases: &[BaseModel], policies: &[PolicyWeights]) -> Result<(), GenerateError> {
    for (index, base) in bases.iter().enumerate() {
        for (number, layer) in base.weights.layers.iter().enumerate() {
            for projection in Projection::ALL {
                let (inputs, outputs) = projection.shape(&base.config);
                let got = layer.projection(projection).size();
                if got != [outputs, inputs] {
                    return Err(GenerateError::Setup(format!(
                        "{projection} of layer {number} of base {index} has shape {got:?}, but its config says \
                         [{outputs}, {inputs}]"
                    )));
                }
            }
        }
    }
    for (policy, weights) in policies.iter().enumerate() {
        let base = bases.get(weights.base).ok_or_else(|| {
            let (base, count) = (weights.base, bases.len());
            GenerateError::Setup(format!("policy {policy} names base {base}, but there are {count} bases"))
        })?;
        if let Some(adapter) = &weights.adapter {
            check_adapter(&base.config, adapter, policy)?;
        }
    }
    Ok(())
}

/// Checks that an adapter has the dimensions of its model.
fn check_adapter(config: &Config, adapter: &Adapter, policy: usize) -> Result<(), GenerateError> {
    for layer in 0..config.layers {
        for projection in adapter.targets() {
            let (inputs, outputs) = projection.shape(config);
            let rank = adapter.rank as i64;
            let fits = adapter
                .part(layer, *projection)
                .is_some_and(|part| part.a.size() == [rank, inputs] && part.b.size() == [outputs, rank]);
            if !fits {
                return Err(GenerateError::Setup(format!(
                    "the adapter of policy {policy} does not fit its model at {projection} of layer {layer}"
                )));
            }
        }
    }
    Ok(())
}
