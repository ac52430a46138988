//! The weights that the engine generates with: bases, the policies on them, and their cache.
//!
//! A [`Seat`] is a policy in one state of its weights. Publishing makes new states; sequences under way keep the
//! one that they started with.

use std::rc::Rc;
use std::sync::Arc;

use pl_model::{Adapter, Config, Dtype, Projection, Tokenizer, Weights};

use crate::blocks::{Blocks, Identity};
use crate::executor::Executor;
use crate::{Base, Error, PolicyWeights, Update};

/// All bases and policies in their newest state. Lives on the engine's thread.
pub(crate) struct Policies<E: Executor> {
    pub(crate) bases: Vec<BaseState<E>>,
    /// Per policy: its base, and its place there.
    homes: Vec<(usize, usize)>,
    /// Names the next state of weights.
    next: Identity,
}

pub(crate) struct BaseState<E: Executor> {
    config: Arc<Config>,
    tokenizer: Arc<Tokenizer>,
    dtype: Dtype,
    /// What published weights have to look like.
    shapes: Vec<(String, Vec<i64>)>,
    weights: Rc<E::Weights>,
    policies: Vec<PolicyState<E>>,
    pub(crate) cache: E::Cache,
    pub(crate) blocks: Blocks,
    pub(crate) block_bytes: usize,
}

struct PolicyState<E: Executor> {
    adapter: Option<Rc<E::Adapter>>,
    version: u64,
    identity: Identity,
}

/// A policy in one state of its weights.
pub(crate) struct Seat<E: Executor> {
    /// Index of its base.
    pub(crate) base: usize,
    pub(crate) config: Arc<Config>,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) weights: Rc<E::Weights>,
    pub(crate) adapter: Option<Rc<E::Adapter>>,
    pub(crate) policy: usize,
    pub(crate) version: u64,
    /// Names this state: keys and values of equal tokens under one identity are equal.
    pub(crate) identity: Identity,
}

impl<E: Executor> Clone for Seat<E> {
    fn clone(&self) -> Self {
        Self {
            config: Arc::clone(&self.config),
            tokenizer: Arc::clone(&self.tokenizer),
            weights: Rc::clone(&self.weights),
            adapter: self.adapter.clone(),
            ..*self
        }
    }
}

impl<E: Executor> Policies<E> {
    /// The policies that [`check`] found good. The bases share `kv_cache` bytes for keys and values.
    pub(crate) fn new(
        executor: &E,
        bases: Vec<Base>,
        policies: Vec<PolicyWeights>,
        kv_cache: u64,
    ) -> Result<Self, Error> {
        let share = usize::try_from(kv_cache).unwrap_or(usize::MAX) / bases.len().max(1);
        let mut states = Vec::new();
        for base in bases {
            let block_bytes = executor.block_bytes(&base);
            let limit = (share / block_bytes.max(1)).max(1);
            states.push(BaseState {
                weights: Rc::new(executor.weights(&base, true).map_err(Error::Setup)?),
                cache: executor.cache(&base, limit).map_err(Error::Setup)?,
                blocks: Blocks::new(limit),
                block_bytes,
                shapes: shapes(&base.weights),
                config: Arc::new(base.config),
                tokenizer: base.tokenizer,
                dtype: base.dtype,
                policies: Vec::new(),
            });
        }
        let mut all = Self { bases: states, homes: Vec::new(), next: 0 };
        for weights in policies {
            let home = &mut all.bases[weights.base];
            let adapter = weights.adapter.map(|adapter| executor.adapter(&home.config, &adapter));
            all.homes.push((weights.base, home.policies.len()));
            home.policies.push(PolicyState {
                adapter: adapter.transpose().map_err(Error::Setup)?.map(Rc::new),
                version: weights.version,
                identity: all.next,
            });
            all.next += 1;
        }
        Ok(all)
    }

    pub(crate) fn publish(
        &mut self,
        executor: &E,
        policy: usize,
        update: Update,
        version: u64,
    ) -> Result<(), Error> {
        let (home, place) = *self.homes.get(policy).ok_or_else(|| {
            Error::Setup(format!("weights for policy {policy}, but there are {}", self.homes.len()))
        })?;
        let home = &mut self.bases[home];
        match update {
            Update::Adapter(adapter) => {
                fits(&home.config, &adapter, policy)?;
                let adapter = executor.adapter(&home.config, &adapter).map_err(Error::Setup)?;
                home.policies[place].adapter = Some(Rc::new(adapter));
                home.policies[place].identity = self.next;
                self.next += 1;
            }
            Update::Weights(weights) => {
                if shapes(&weights) != home.shapes {
                    return Err(Error::Setup(format!(
                        "the weights published for policy {policy} are not of its model's shapes"
                    )));
                }
                let (config, tokenizer) = ((*home.config).clone(), Arc::clone(&home.tokenizer));
                let base = Base { config, weights, tokenizer, dtype: home.dtype };
                home.weights = Rc::new(executor.weights(&base, false).map_err(Error::Setup)?);
                for state in &mut home.policies {
                    state.identity = self.next;
                    self.next += 1;
                }
            }
        }
        home.policies[place].version = version;
        let alive: Vec<Identity> = home.policies.iter().map(|state| state.identity).collect();
        home.blocks.retain(|identity| alive.contains(&identity));
        Ok(())
    }

    /// The newest weights of a policy.
    pub(crate) fn seat(&self, policy: usize) -> Option<Seat<E>> {
        let (base, place) = *self.homes.get(policy)?;
        let home = &self.bases[base];
        let state = &home.policies[place];
        Some(Seat {
            base,
            config: Arc::clone(&home.config),
            tokenizer: Arc::clone(&home.tokenizer),
            weights: Rc::clone(&home.weights),
            adapter: state.adapter.clone(),
            policy,
            version: state.version,
            identity: state.identity,
        })
    }
}

fn shapes(weights: &Weights) -> Vec<(String, Vec<i64>)> {
    weights.parameters().into_iter().map(|(name, tensor)| (name, tensor.size())).collect()
}

/// Whether policies and bases fit each other, and bases themselves.
pub(crate) fn check(bases: &[Base], policies: &[PolicyWeights]) -> Result<(), Error> {
    for (index, base) in bases.iter().enumerate() {
        for (number, layer) in base.weights.layers.iter().enumerate() {
            for projection in Projection::ALL {
                let (fan_in, out) = projection.shape(&base.config);
                let got = layer.projection(projection).size();
                if got != [out, fan_in] {
                    return Err(Error::Setup(format!(
                        "{projection} of layer {number} of base {index} is {got:?}, but its measures say [{out}, {fan_in}]"
                    )));
                }
            }
        }
    }
    for (policy, weights) in policies.iter().enumerate() {
        let home = bases.get(weights.base).ok_or_else(|| {
            let (base, count) = (weights.base, bases.len());
            Error::Setup(format!("policy {policy} names base {base}, but there are {count}"))
        })?;
        if let Some(adapter) = &weights.adapter {
            fits(&home.config, adapter, policy)?;
        }
    }
    Ok(())
}

/// Whether an adapter is for a model of these measures.
fn fits(config: &Config, adapter: &Adapter, policy: usize) -> Result<(), Error> {
    for layer in 0..config.layers {
        for projection in adapter.targets() {
            let (fan_in, out) = projection.shape(config);
            let rank = adapter.rank as i64;
            let good = adapter
                .part(layer, *projection)
                .is_some_and(|part| part.a.size() == [rank, fan_in] && part.b.size() == [out, rank]);
            if !good {
                return Err(Error::Setup(format!(
                    "the adapter of policy {policy} does not fit its model at {projection} of layer {layer}"
                )));
            }
        }
    }
    Ok(())
}
