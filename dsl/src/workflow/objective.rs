//! Training of one policy: its objective, its optimiser and its critic, with the defaults of the `train` block filled in.
//!
//! An objective is a choice of an advantage, a ratio level, a trust region, a correction for the distance between sampler and
//! trainer, and an aggregation over tokens; besides them it has a KL term and an entropy bonus. Published algorithms
//! ([`Algorithm`]) are names for combinations of these choices.

use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Lora, LrSchedule};

/// Settings of a trained policy: those of `train { … }`, and where it differs, of `policy NAME { train { … } }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyTraining {
    pub objective: Objective,
    pub optimizer: Optimizer,
    /// Number of steps at the beginning that leave the policy as it is.
    pub freeze: u32,
    /// Number of steps from one update of the policy to the next; 1 updates it in every step after `freeze`.
    pub update_every: u32,
    /// Number of steps whose tasks an update trains on. More than 1 only if `update_every` is 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub steps_per_update: u32,
    /// Staleness of its own. `None` for that of `train`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staleness: Option<u32>,
    /// `None` if no advantage needs one.
    pub critic: Option<Critic>,
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(count: &u32) -> bool {
    *count == 1
}

impl PolicyTraining {
    /// Returns the steps after which the policy is updated.
    pub fn update_steps(&self) -> UpdateSteps {
        UpdateSteps::new(self.freeze, self.update_every, self.steps_per_update)
    }

    /// Returns true if an update trains on the tasks of a step.
    pub fn trains_on(&self, step: u64) -> bool {
        let steps = self.update_steps();
        match steps.count {
            1 => steps.is_due(step),
            _ => step > u64::from(self.freeze),
        }
    }
}

/// Steps after which a policy is updated, counted from 1, and those that each update trains on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpdateSteps {
    /// Step of the first update.
    pub first: u64,
    /// Number of steps from one update to the next.
    pub every: u64,
    /// Number of steps that an update trains on: its own and those before.
    pub count: u64,
}

impl UpdateSteps {
    /// Updates after every step.
    pub const ALL: UpdateSteps = UpdateSteps { first: 1, every: 1, count: 1 };

    /// Updates after the first `freeze` steps: after every `every`th step, or on `count` steps at once.
    pub fn new(freeze: u32, every: u32, count: u32) -> UpdateSteps {
        let count = u64::from(count.max(1));
        UpdateSteps { first: u64::from(freeze) + count, every: u64::from(every.max(1)).max(count), count }
    }

    /// Returns true if the policy is updated after a step.
    pub fn is_due(&self, step: u64) -> bool {
        step >= self.first && (step - self.first).is_multiple_of(self.every)
    }

    /// Returns the step of the last update up to `step`; 0 if there was none.
    pub fn last(&self, step: u64) -> u64 {
        match step.checked_sub(self.first) {
            Some(after) => step - after % self.every,
            None => 0,
        }
    }

    /// Returns the steps that an update after `step` trains on. Empty if none is due.
    pub fn trained(&self, step: u64) -> RangeInclusive<u64> {
        if self.is_due(step) { step + 1 - self.count..=step } else { step + 1..=step }
    }

    /// Returns the oldest step that an update after later steps than `step` trains on.
    pub fn first_untrained(&self, step: u64) -> u64 {
        let last = self.last(step);
        let next = if last == 0 { self.first } else { last + self.every };
        next + 1 - self.count
    }
}

/// AdamW (Loshchilov and Hutter 2017, arXiv:1711.05101) and its learning rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Optimizer {
    pub learning_rate: f64,
    pub lr_schedule: LrSchedule,
    /// Steps of linear warm-up.
    pub warmup: u32,
    pub weight_decay: f64,
    /// Decay rate of the first moment.
    pub beta1: f64,
    /// Decay rate of the second moment.
    pub beta2: f64,
    /// Largest global gradient norm of the policy. 0 turns clipping off.
    pub max_grad_norm: f64,
}

/// `critic { learning_rate = 1e-4; clip = 0.5; warmup = 5 }`: a value head on the hidden states of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Critic {
    pub on: CriticBase,
    /// Position in the workflow's `models` of the model that the critic, or its adapter, is on. `None` for the policy's
    /// model. An adapter on the base that the policy's own adapter is on has `None` too.
    #[serde(default)]
    pub model: Option<usize>,
    /// Adapter of the critic's own. `None` unless it is on an adapter.
    #[serde(default)]
    pub lora: Option<Lora>,
    pub learning_rate: f64,
    /// Number of steps after `freeze` in which only the critic is trained.
    pub warmup: u32,
    /// Values are clipped to this distance from the value before the update. 0 turns it off.
    pub clip: f64,
    /// Weight of the value loss in the gradient of shared hidden states.
    pub weight: f64,
}

/// Hidden states that a critic's value head reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CriticBase {
    /// Those of the policy; the value loss changes the head alone.
    Policy,
    /// Those of the policy; the value loss changes the policy's weights too.
    Shared,
    /// Those of the policy's base, or of another model, with an adapter of the critic's own.
    Adapter,
    /// Those of a model of the critic's own, all of whose weights are trained.
    Model,
}

/// Loss and advantages of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Objective {
    /// Published combination of choices that sets the defaults of the others.
    pub algorithm: Algorithm,
    pub returns: Returns,
    /// Discount from one token to the next, with a critic.
    pub gamma: f64,
    /// Discount from one turn of an agent to its next.
    pub gamma_turn: f64,
    /// λ of generalized advantage estimation.
    pub lambda: f64,
    pub advantage: Advantage,
    pub group_by: GroupBy,
    pub baseline: Baseline,
    pub scale: Scale,
    pub ratio: Ratio,
    pub trust_region: TrustRegion,
    /// Lower bound of the trust region: 1 - `clip_low` for ratios; a difference of probabilities for `mask`.
    pub clip_low: f64,
    /// Upper bound of the trust region: 1 + `clip_high` for ratios; a difference of probabilities for `mask`.
    pub clip_high: f64,
    /// Bound of the loss of negative advantages in units of -A; 0 turns it off.
    pub dual_clip: f64,
    pub old_logprobs: OldLogprobs,
    pub correction: Correction,
    /// Smallest weight of a correction; smaller ones are dropped by `icepop` and `sequence_mask`.
    pub correction_low: f64,
    /// Largest weight of a correction; larger ones are truncated by `tis` and dropped by the others.
    pub correction_high: f64,
    pub aggregation: Aggregation,
    /// Tokens per completion that `constant` divides by. `None` for the largest `max_tokens` of the policy's agents.
    pub divisor: Option<u32>,
    /// Coefficient of the KL divergence from the reference policy; 0 needs no reference.
    pub kl: f64,
    pub kl_estimator: KlEstimator,
    pub kl_in: KlPlace,
    /// KL divergence per token that an adaptive coefficient aims at. `None` for a fixed coefficient.
    pub kl_target: Option<f64>,
    /// Number of completions over which an adaptive coefficient changes by its full amount (Ziegler et al. 2019, arXiv:1909.08593).
    pub kl_horizon: f64,
    /// Coefficient of the entropy bonus.
    pub entropy: f64,
    pub overlong: Overlong,
    /// Tokens before `max_tokens` over which the penalty of `penalize` rises from 0 to 1.
    pub overlong_buffer: u32,
    /// Largest penalty of an overlong completion.
    pub overlong_penalty: f64,
    /// Amount by which each token of a completion lowers its reward.
    #[serde(default)]
    pub token_penalty: f64,
    #[serde(default)]
    pub flat_groups: FlatGroups,
    /// Share of a step's groups that are left out, those with the smallest value of `drop_by`.
    #[serde(default)]
    pub drop_groups: f64,
    #[serde(default)]
    pub drop_by: DropBy,
    /// Distance from the mean of its group, in standard deviations, above which a completion is left out; 0 keeps all.
    #[serde(default)]
    pub outliers: f64,
}

impl Objective {
    /// Returns true if advantages are relative to the other episodes of a group. An episode alone in its group then has none.
    pub fn is_relative_to_group(&self) -> bool {
        let is_relative = self.baseline != Baseline::None || self.scale == Scale::Group;
        self.advantage == Advantage::Group && is_relative
    }
}

/// Published combinations of choices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// Agent- and turn-wise grouped advantages (Zhao et al. 2025, arXiv:2510.11062).
    AtGrpo,
    /// Shao et al. 2024, arXiv:2402.03300.
    Grpo,
    /// Liu et al. 2025, arXiv:2503.20783.
    DrGrpo,
    /// Ahmadian et al. 2024, arXiv:2402.14740.
    Rloo,
    /// Hu 2025, arXiv:2501.03262.
    ReinforcePp,
    /// Schulman et al. 2017, arXiv:1707.06347.
    Ppo,
    /// Yu et al. 2025, arXiv:2503.14476.
    Dapo,
    /// Zheng et al. 2025, arXiv:2507.18071.
    Gspo,
    /// MiniMax 2025, arXiv:2506.13585.
    Cispo,
    /// Rejection-sampling fine-tuning (Yuan et al. 2023, arXiv:2308.01825).
    Rft,
}

/// Reward that a completion is credited with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Returns {
    /// The reward of its own turn.
    Step,
    /// The sum of the agent's rewards over the episode.
    Episode,
    /// The agent's rewards from its turn on, discounted by `gamma_turn` per turn.
    Discounted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Advantage {
    /// Return relative to the returns of its group.
    Group,
    /// Generalized advantage estimation with a critic (Schulman et al. 2015, arXiv:1506.02438).
    Gae,
    /// The return itself.
    Return,
    /// Return minus a moving average per agent.
    Ema,
    /// 1 for a completion of a successful episode, 0 for others.
    Success,
}

/// Completions that are compared: those of a task that agree in the named properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupBy {
    pub agent: bool,
    pub turn: bool,
}

/// Baseline that is subtracted from a return.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Baseline {
    /// Mean of the group.
    Mean,
    /// Mean of the other members of the group.
    LeaveOneOut,
    None,
}

/// Standard deviation that an advantage is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Standard deviation of its group.
    Group,
    /// Standard deviation over all tokens of the policy's batch; their mean is subtracted too (whitening).
    Batch,
    None,
}

/// Level of the probability ratio between the trained policy and the one that sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ratio {
    Token,
    /// Geometric mean over the completion.
    Sequence,
    /// No ratio: the gradient of the log-probability (REINFORCE).
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TrustRegion {
    /// PPO's clipped surrogate.
    Clip,
    /// The clipped ratio as a constant weight of the log-probability; no token loses its gradient.
    Cispo,
    /// Drops tokens whose probability moved too far in the direction of their advantage (DPPO).
    Mask,
    None,
}

/// Log-probabilities that ratios are relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OldLogprobs {
    /// Those recorded when the tokens were sampled.
    Sampler,
    /// Computed by the trainer before the first optimiser step.
    Recompute,
}

/// Importance weight for the distance between the sampler and the policy that ratios are relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Correction {
    None,
    /// Truncated importance sampling per token.
    Tis,
    /// Tokens with weights outside the bounds are dropped.
    Icepop,
    /// Completions whose mean ratio is outside the bounds are dropped.
    SequenceMask,
}

/// Mean over tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    /// Mean over all tokens of the mini-batch.
    TokenMean,
    /// Mean over the tokens of a completion, then over completions.
    SequenceMean,
    /// Sum over tokens, divided by the number of completions times a constant.
    Constant,
}

/// Estimator of the KL divergence from the reference, per token, with d = logp - reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KlEstimator {
    /// d
    K1,
    /// d² / 2
    K2,
    /// exp(-d) - 1 + d
    K3,
    /// The value of `k3` with the gradient of `k2`.
    StraightThrough,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KlPlace {
    Loss,
    /// Subtracted from the reward of each token, before advantages.
    Reward,
}

/// Treatment of completions that were cut off at `max_tokens`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overlong {
    Keep,
    /// Trains on none of their tokens.
    Mask,
    /// Lowers the reward over the last `overlong_buffer` tokens (DAPO).
    Penalize,
}

/// Treatment of groups whose completions all have the same return.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FlatGroups {
    #[default]
    Keep,
    /// Leaves them out, and plays other tasks for those that have no other group (dynamic sampling, DAPO).
    Drop,
}

/// Property that `drop_groups` orders groups by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DropBy {
    /// Mean of the returns.
    Mean,
    /// Standard deviation of the returns.
    #[default]
    Spread,
}
