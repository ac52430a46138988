//! The weights that the engine generates with: bases, the policies on them, and adapters laid side by side.
//!
//! A [`Set`] is one state of a base and of all its policies. It never changes: publishing makes a new one, and
//! sequences under way keep the one that they started with. All rows of a decoding step share a set.

use std::rc::Rc;

use pl_model::{Adapter, Config, Deltas, Projection, Rope, Tokenizer, Weights};
use tch::{Device, Kind, Tensor};

use crate::{Base, Error, PolicyWeights, Update};

/// All bases and policies in their newest state. Lives on the engine's thread once started.
pub(crate) struct Policies {
    bases: Vec<BaseState>,
    /// Per policy: its base.
    homes: Vec<usize>,
    /// Number of the next set of weights.
    next: u64,
}

struct BaseState {
    base: Base,
    policies: Vec<PolicyState>,
    /// Built when a request first needs it after a change.
    set: Option<Rc<Set>>,
}

struct PolicyState {
    policy: usize,
    adapter: Option<Adapter>,
    version: u64,
    /// Names this state of the policy's weights: the key of cached prompts.
    identity: u64,
}

impl Policies {
    /// The policies that [`check`] found good.
    pub(crate) fn new(bases: Vec<Base>, policies: Vec<PolicyWeights>) -> Self {
        let mut all = Self {
            bases: bases
                .into_iter()
                .map(|base| BaseState { base, policies: Vec::new(), set: None })
                .collect(),
            homes: Vec::new(),
            next: 0,
        };
        for (policy, weights) in policies.into_iter().enumerate() {
            all.bases[weights.base].policies.push(PolicyState {
                policy,
                adapter: weights.adapter,
                version: weights.version,
                identity: all.next,
            });
            all.next += 1;
            all.homes.push(weights.base);
        }
        all
    }

    pub(crate) fn publish(&mut self, policy: usize, update: Update, version: u64) -> Result<(), Error> {
        let home = *self.homes.get(policy).ok_or_else(|| {
            Error::Setup(format!("weights for policy {policy}, but there are {}", self.homes.len()))
        })?;
        let home = &mut self.bases[home];
        match update {
            Update::Adapter(adapter) => {
                fits(&home.base.config, &adapter, policy)?;
                for state in home.policies.iter_mut().filter(|state| state.policy == policy) {
                    state.identity = self.next;
                    state.version = version;
                    state.adapter = None;
                }
                if let Some(state) = home.policies.iter_mut().find(|state| state.policy == policy) {
                    state.adapter = Some(adapter);
                }
            }
            Update::Weights(weights) => {
                let shapes = |w: &Weights| -> Vec<_> {
                    w.parameters().into_iter().map(|(name, tensor)| (name, tensor.size())).collect()
                };
                if shapes(&weights) != shapes(&home.base.weights) {
                    return Err(Error::Setup(format!(
                        "the weights published for policy {policy} are not of its model's shapes"
                    )));
                }
                home.base.weights = weights;
                for (i, state) in home.policies.iter_mut().enumerate() {
                    state.identity = self.next + i as u64;
                    if state.policy == policy {
                        state.version = version;
                    }
                }
            }
        }
        self.next += home.policies.len().max(1) as u64;
        home.set = None;
        Ok(())
    }

    /// Whether an identity is that of some policy's newest weights.
    pub(crate) fn is_current(&self, identity: u64) -> bool {
        self.bases.iter().flat_map(|base| &base.policies).any(|state| state.identity == identity)
    }

    /// The newest weights of a policy.
    pub(crate) fn seat(&mut self, policy: usize) -> Option<Seat> {
        let home = self.bases.get_mut(*self.homes.get(policy)?)?;
        let index = home.policies.iter().position(|state| state.policy == policy)?;
        let set = match &home.set {
            Some(set) => Rc::clone(set),
            None => Rc::clone(home.set.insert(Rc::new(Set::new(&home.base, &home.policies)))),
        };
        let state = &home.policies[index];
        Some(Seat { set, member: index, policy, version: state.version, identity: state.identity })
    }
}

/// Whether policies and bases fit each other.
pub(crate) fn check(bases: &[Base], policies: &[PolicyWeights]) -> Result<(), Error> {
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

/// A policy in one state of its weights.
#[derive(Clone)]
pub(crate) struct Seat {
    pub(crate) set: Rc<Set>,
    /// Index within the set.
    pub(crate) member: usize,
    pub(crate) policy: usize,
    pub(crate) version: u64,
    pub(crate) identity: u64,
}

/// One state of a base and its policies.
pub(crate) struct Set {
    pub(crate) config: Config,
    pub(crate) tokenizer: std::sync::Arc<Tokenizer>,
    pub(crate) weights: Weights,
    /// Rows of all positions of the model.
    pub(crate) rope: Rope,
    members: usize,
    /// Per layer and projection.
    stacks: Vec<[Option<Stack>; 7]>,
    /// Per projection: which columns of its stack are whose.
    columns: [Vec<Columns>; 7],
}

/// The factors of all adapters on one projection, side by side: two products serve all of them.
struct Stack {
    /// `[sum of ranks, in]`.
    a: Tensor,
    /// `[out, sum of ranks]`.
    b: Tensor,
}

#[derive(Clone, Copy)]
struct Columns {
    member: usize,
    start: usize,
    rank: usize,
    scale: f32,
}

impl Set {
    fn new(base: &Base, policies: &[PolicyState]) -> Self {
        let device = base.weights.device();
        let columns = Projection::ALL.map(|projection| {
            let mut start = 0;
            let mut columns = Vec::new();
            for (member, state) in policies.iter().enumerate() {
                let Some(adapter) = &state.adapter else { continue };
                if adapter.targets().contains(&projection) {
                    let (rank, scale) = (adapter.rank, adapter.scale() as f32);
                    columns.push(Columns { member, start, rank, scale });
                    start += rank;
                }
            }
            columns
        });
        let stacks = (0..base.config.layers)
            .map(|layer| {
                Projection::ALL.map(|projection| {
                    let parts: Vec<_> = policies
                        .iter()
                        .filter_map(|state| state.adapter.as_ref()?.part(layer, projection))
                        .collect();
                    (!parts.is_empty()).then(|| {
                        let join = |tensors: Vec<&Tensor>, dim| {
                            Tensor::cat(&tensors, dim).detach().to_device(device)
                        };
                        Stack {
                            a: join(parts.iter().map(|part| &part.a).collect(), 0),
                            b: join(parts.iter().map(|part| &part.b).collect(), 1),
                        }
                    })
                })
            })
            .collect();
        Self {
            config: base.config.clone(),
            tokenizer: std::sync::Arc::clone(&base.tokenizer),
            weights: base.weights.shallow(),
            rope: Rope::new(&base.config, base.config.max_positions, device),
            members: policies.len(),
            stacks,
            columns,
        }
    }

    pub(crate) fn device(&self) -> Device {
        self.weights.device()
    }

    /// The adapter of one member, for all rows alike.
    pub(crate) fn member_deltas(&self, member: usize) -> MemberDeltas<'_> {
        MemberDeltas { set: self, member }
    }

    /// The adapters for rows of these members (none: padding).
    pub(crate) fn deltas(&self, rows: &[Option<usize>]) -> RowDeltas<'_> {
        let masks = self.columns.each_ref().map(|columns| {
            let width = columns.last().map_or(0, |last| last.start + last.rank);
            (width > 0).then(|| {
                let mut mask = vec![0f32; rows.len() * width];
                for (row, member) in rows.iter().enumerate() {
                    for own in columns.iter().filter(|own| Some(own.member) == *member) {
                        let start = row * width + own.start;
                        mask[start..start + own.rank].fill(own.scale);
                    }
                }
                Tensor::from_slice(&mask)
                    .view([rows.len() as i64, width as i64])
                    .to_kind(Kind::Float)
                    .to_device(self.device())
            })
        });
        debug_assert!(rows.iter().flatten().all(|member| *member < self.members));
        RowDeltas { set: self, masks }
    }
}

/// Adapters by rows: the inner products of other rows' adapters are multiplied by zero, so that a row gets
/// exactly its own.
pub(crate) struct RowDeltas<'a> {
    set: &'a Set,
    /// Per projection `[rows, sum of ranks]`: the scale in a row's own columns, zero elsewhere.
    masks: [Option<Tensor>; 7],
}

impl Deltas for RowDeltas<'_> {
    fn add(&self, layer: usize, projection: Projection, x: &Tensor, mut y: Tensor) -> Tensor {
        let index = projection as usize;
        let (Some(stack), Some(mask)) = (&self.set.stacks[layer][index], &self.masks[index]) else {
            return y;
        };
        let inner = x.matmul(&stack.a.tr()) * mask;
        y.addmm_(&inner, &stack.b.tr())
    }
}

/// One member's adapter on all rows.
pub(crate) struct MemberDeltas<'a> {
    set: &'a Set,
    member: usize,
}

impl Deltas for MemberDeltas<'_> {
    fn add(&self, layer: usize, projection: Projection, x: &Tensor, mut y: Tensor) -> Tensor {
        let index = projection as usize;
        let own = self.set.columns[index].iter().find(|own| own.member == self.member);
        let (Some(stack), Some(own)) = (&self.set.stacks[layer][index], own) else { return y };
        let (start, rank) = (own.start as i64, own.rank as i64);
        let inner = x.matmul(&stack.a.narrow(0, start, rank).tr()) * f64::from(own.scale);
        y.addmm_(&inner, &stack.b.narrow(1, start, rank).tr())
    }
}
