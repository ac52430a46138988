//! Settings of the training of a policy: its objective, its optimiser and its critic.
//!
//! Defaults are those of [`AT_GRPO`](super::algorithms::AT_GRPO); other algorithms change some of them.

use super::algorithms::ALGORITHM_WORDS;
use super::kind::{Choice, DefaultValue, Setting, SettingKind};
use super::rows::{count, number, per_policy, positive, setting, word};
use super::team::TARGETS;
use crate::syntax::block_kind::BlockKind::Critic;

/// Largest decay rate of a moment: at 1, the moment would never change.
const MAX_DECAY: f64 = 0.999_999;
/// Largest share of groups that may be left out: some must stay.
const MAX_DROPPED: f64 = 0.95;

const RETURNS: &[Choice] = &[
    word("step", "the reward of the completion's own turn"),
    word(
        "episode",
        "the sum of the agent's rewards in the episode; with `rollout = tree`, in the episode up to the \
         completion, and beyond it only if the episode continued from it",
    ),
    word(
        "discounted",
        "the agent's rewards from the completion's turn on, discounted by `gamma_turn` per turn",
    ),
];

const ADVANTAGES: &[Choice] = &[
    word("group", "the return compared with the returns of its group (`group_by`, `baseline`, `scale`)"),
    word("gae", "generalized advantage estimation with a critic (Schulman et al. 2015, arXiv:1506.02438)"),
    word("return", "the return itself"),
    word(
        "ema",
        "the return minus a moving average of the agent's earlier returns (Liu et al. 2025, arXiv:2506.24119)",
    ),
    word("success", "1 for the completions of successful agents, 0 for all others; rewards are not used"),
];

const GROUPS: &[Choice] = &[
    word("task", "the same task; always part of the list"),
    word("agent", "the same agent"),
    word("turn", "the same number of earlier visits of the agent; with `rollout = tree`, the same state too"),
];

const BASELINES: &[Choice] = &[
    word("mean", "the mean of the group"),
    word("leave_one_out", "the mean of the other members of the group"),
    word("none", "nothing is subtracted"),
];

const SCALES: &[Choice] = &[
    word("group", "the standard deviation of the group"),
    word("batch", "that of all tokens of the policy in the step; their mean is subtracted too (whitening)"),
    word("none", "nothing is divided"),
];

const RATIOS: &[Choice] = &[
    word("token", "a ratio for each token"),
    word("sequence", "one ratio for the completion: the geometric mean of its tokens' ratios"),
    word(
        "none",
        "no ratio: the gradient of the log-probability (REINFORCE), correct only for the first update",
    ),
];

const TRUST_REGIONS: &[Choice] = &[
    word("clip", "clipped surrogate of PPO: outside of the bounds, a token has no gradient"),
    word(
        "cispo",
        "the ratio, clipped to the bounds, is a constant weight of the log-probability: every token keeps its \
         gradient",
    ),
    word(
        "mask",
        "drops a token if its probability has moved by more than a bound in the direction of its advantage \
         (DPPO, arXiv:2602.04879)",
    ),
    word("none", "no bounds"),
];

const OLD_LOGPROBS: &[Choice] = &[
    word("sampler", "those recorded when the tokens were sampled"),
    word(
        "recompute",
        "computed by the trainer before the first update of the step, in one more forward pass",
    ),
];

const CORRECTIONS: &[Choice] = &[
    word("none", "no correction"),
    word("tis", "truncated importance sampling: weights above `correction_high` are reduced to it"),
    word("icepop", "drops tokens with a weight outside of the bounds (arXiv:2510.18855)"),
    word(
        "sequence_mask",
        "drops completions if the geometric mean of their weights is outside of the bounds",
    ),
];

const AGGREGATIONS: &[Choice] = &[
    word("token_mean", "over all tokens of the mini-batch: long completions count more"),
    word("sequence_mean", "over the tokens of each completion, then over completions: each counts the same"),
    word("constant", "sum over tokens, divided by the number of completions times `divisor`"),
];

const KL_ESTIMATORS: &[Choice] = &[
    word("k1", "d: unbiased, but noisy, and without a useful gradient in the loss"),
    word("k2", "d² / 2: biased, with the gradient of the divergence"),
    word("k3", "exp(-d) - 1 + d: unbiased and never negative"),
    word("straight_through", "the value of `k3` with the gradient of `k2`"),
];

const KL_PLACES: &[Choice] = &[
    word("loss", "added to the loss of each token"),
    word("reward", "subtracted from the reward of each token before advantages are computed"),
];

const OVERLONG: &[Choice] = &[
    word("keep", "completions are trained on, however long they are"),
    word("mask", "completions that were cut off at `max_tokens` are not trained on"),
    word("penalize", "the reward falls over the last `overlong_buffer` tokens before `max_tokens` (DAPO)"),
];

const FLAT_GROUPS: &[Choice] = &[
    word("keep", "they stay in the step; most advantages give them no weight"),
    word(
        "drop",
        "they are left out; a task without other groups is replaced by a new one, up to `max_refills` times \
         (dynamic sampling, DAPO)",
    ),
];

const DROP_BY: &[Choice] =
    &[word("mean", "the mean of its returns"), word("spread", "the standard deviation of its returns")];

const LR_SCHEDULES: &[Choice] = &[
    word("constant", "the same in every step after the warm-up"),
    word("cosine", "falls to zero along half a cosine after the warm-up"),
];

const CRITIC_BASES: &[Choice] = &[
    word("policy", "those of the policy; training the critic leaves the policy's weights as they are"),
    word("shared", "those of the policy; training the critic changes the policy's weights too"),
    word("adapter", "those of the policy's base with an adapter of the critic's own, or of `model` with one"),
    word("model", "those of a model of the critic's own, all of whose weights are trained"),
];

/// Settings of `train { … }` that may differ per policy.
pub(super) const TRAINING: &[Setting] = &[
    per_policy(
        "algorithm",
        SettingKind::Choice(&ALGORITHM_WORDS),
        DefaultValue::Word("at_grpo"),
        "Published combination of advantage, ratio, trust region, correction and aggregation. It sets the \
         defaults of these settings; those that are written keep their values. `at_grpo` by default: it needs \
         no critic and compares only completions of the same agent and turn. In a policy's own `train`, it \
         also replaces the choices of the file's `train`.",
    ),
    per_policy(
        "returns",
        SettingKind::Choice(RETURNS),
        DefaultValue::Word("step"),
        "Reward that a completion is credited with. `step` by default, for rewards that score every turn. Use \
         `episode` or `discounted` if early turns should be credited with later success. `advantage = gae` \
         always adds up the rewards of later turns itself.",
    ),
    per_policy(
        "gamma",
        number(0.0, 1.0),
        DefaultValue::Number(1.0),
        "Discount from one token to the next within a completion (`advantage = gae`). 1 by default: a \
         completion is one answer, whose first token matters as much as its last.",
    ),
    per_policy(
        "gamma_turn",
        number(0.0, 1.0),
        DefaultValue::Number(1.0),
        "Discount from one turn of an agent to its next (`returns = discounted` and `advantage = gae`). 1 by \
         default: success counts the same, however many turns it takes. Below 1, faster success is worth more.",
    ),
    per_policy(
        "lambda",
        number(0.0, 1.0),
        DefaultValue::Number(1.0),
        "λ of generalized advantage estimation (`advantage = gae`). 1 by default, as in verl and OpenRLHF: the rewards \
         alone, without the critic's bias, and a reward at the end of a long completion reaches its first token. 0 uses \
         the critic's next value alone: little noise, all of its bias. At 0.95, half of a reward is gone after 14 tokens, \
         unless the critic predicts it.",
    ),
    per_policy(
        "advantage",
        SettingKind::Choice(ADVANTAGES),
        DefaultValue::Word("group"),
        "Quantity that says how much better a completion was than expected. `group` by default: the other \
         completions of the group are a baseline that costs nothing.",
    ),
    per_policy(
        "group_by",
        SettingKind::Choices(GROUPS),
        DefaultValue::Words(&["task", "agent", "turn"]),
        "Properties that the completions of a group have in common (`advantage = group`). `[task, agent, turn]` \
         by default: completions of different agents or turns answer different prompts and can't be compared. \
         Use `[task, agent]` with `returns = episode`: an agent's turns in an episode then count as one.",
    ),
    per_policy(
        "baseline",
        SettingKind::Choice(BASELINES),
        DefaultValue::Word("mean"),
        "Number that is subtracted from a return (`advantage = group`). `mean` by default. `leave_one_out` gives \
         an unbiased gradient; without `scale = group`, it only differs by the factor n / (n - 1).",
    ),
    per_policy(
        "scale",
        SettingKind::Choice(SCALES),
        DefaultValue::Word("group"),
        "Standard deviation that an advantage is divided by. `group` by default, as in GRPO: tasks count the \
         same whatever the size of their rewards. `none` doesn't favour tasks that are almost always or almost \
         never solved (Liu et al. 2025, arXiv:2503.20783). Replaces `normalize` of earlier versions.",
    ),
    per_policy(
        "ratio",
        SettingKind::Choice(RATIOS),
        DefaultValue::Word("token"),
        "Level of the probability ratio between the trained policy and the one that sampled. `token` by default, \
         as in PPO. `sequence` matches rewards that score whole completions, and varies less (GSPO).",
    ),
    per_policy(
        "trust_region",
        SettingKind::Choice(TRUST_REGIONS),
        DefaultValue::Word("clip"),
        "Limit on the distance from the policy that sampled. `clip` by default, as in PPO. It has no effect in \
         the first update of a step, so it matters for several `epochs` or `mini_batches` and for stale samples.",
    ),
    per_policy(
        "clip_low",
        number(0.0, 1.0),
        DefaultValue::Number(0.2),
        "Lower bound of the trust region: 1 - `clip_low` for ratios, or the largest fall of a probability for \
         `mask`. 0.2 as in PPO (Schulman et al. 2017). 1 means no lower bound. Sequence ratios vary by \
         thousandths, and have bounds of that size (`gspo`).",
    ),
    per_policy(
        "clip_high",
        number(0.0, 100.0),
        DefaultValue::Number(0.28),
        "Upper bound of the trust region: 1 + `clip_high` for ratios, or the largest rise of a probability for \
         `mask`. 0.28, wider than below, preserves rare tokens (clip-higher, Yu et al. 2025).",
    ),
    per_policy(
        "dual_clip",
        number(0.0, 1000.0),
        DefaultValue::Number(3.0),
        "Bound on the loss of a negative advantage, as a multiple of the advantage (`trust_region = clip`; Ye et \
         al. 2020). 3 as in the paper. 0 turns it off; other values up to 1 take effect too early.",
    ),
    per_policy(
        "old_logprobs",
        SettingKind::Choice(OLD_LOGPROBS),
        DefaultValue::Word("sampler"),
        "Log-probabilities that ratios are relative to. `sampler` by default: they cost nothing, and the \
         embedded engine computes as the trainer does. Use `recompute` with a `correction` if a server with \
         other kernels or number formats samples.",
    ),
    per_policy(
        "correction",
        SettingKind::Choice(CORRECTIONS),
        DefaultValue::Word("none"),
        "Importance weight of a token for the distance between the sampler and the policy of `old_logprobs`. \
         `none` by default, because the embedded engine has no such distance. Needs `old_logprobs = recompute`, \
         or `ratio = none`.",
    ),
    per_policy(
        "correction_low",
        number(0.0, 1.0),
        DefaultValue::Absent("`0.5` for `icepop`, `0.99` for `sequence_mask`"),
        "Smallest weight of a correction (`icepop` and `sequence_mask`); tokens or completions below are dropped. \
         0.5 as in the paper of IcePop. The mean over a completion varies less, hence 0.99.",
    ),
    per_policy(
        "correction_high",
        number(1.0, 1e6),
        DefaultValue::Absent("`2` for `tis`, `5` for `icepop`, `1.01` for `sequence_mask`"),
        "Largest weight of a correction: `tis` reduces larger ones to it, the others drop them. 2 and 5 are the \
         values of the publications: one very unlikely token must not dominate a batch. The mean over a \
         completion varies less, hence 1.01.",
    ),
    per_policy(
        "aggregation",
        SettingKind::Choice(AGGREGATIONS),
        DefaultValue::Word("token_mean"),
        "Mean of the loss over tokens. `token_mean` by default: every token counts the same (DAPO). \
         `sequence_mean` favours short completions with positive advantages; `constant` has no bias towards a \
         length (Dr. GRPO).",
    ),
    per_policy(
        "divisor",
        count(1),
        DefaultValue::Absent("the largest `max_tokens` of the policy's agents"),
        "Number of tokens per completion that `aggregation = constant` divides by. It only scales the gradient, \
         which the optimiser (AdamW) compensates for.",
    ),
    per_policy(
        "kl",
        number(0.0, 1000.0),
        DefaultValue::Number(0.0),
        "Coefficient of the KL divergence from the reference policy: the policy as it was before training (the \
         base model without its adapter, or what `from` names). 0 by default: rewards that can be verified are \
         hard to game, and the reference needs one more forward pass, and without `lora` memory for a second \
         model. 0.001 to 0.05 are common for learned rewards.",
    ),
    per_policy(
        "kl_estimator",
        SettingKind::Choice(KL_ESTIMATORS),
        DefaultValue::Absent("`k3` in the loss, `k1` in the reward"),
        "Estimator of the KL divergence per token, with d = log-probability minus that of the reference \
         (Schulman 2020). `k3` in the loss as in GRPO; `k1` in the reward, where its noise averages out and it \
         has no bias.",
    ),
    per_policy(
        "kl_in",
        SettingKind::Choice(KL_PLACES),
        DefaultValue::Word("loss"),
        "Place of the KL divergence. `loss` by default, as in GRPO: advantages keep their meaning. `reward` \
         lets an advantage per token account for it, as in PPO for language models and REINFORCE++.",
    ),
    per_policy(
        "kl_target",
        positive(1000.0),
        DefaultValue::Absent("the coefficient is fixed"),
        "KL divergence per token that the coefficient aims at: it rises while the divergence is larger, and \
         falls while it is smaller (Ziegler et al. 2019, arXiv:1909.08593). `kl` is its first value.",
    ),
    per_policy(
        "kl_horizon",
        positive(1e12),
        DefaultValue::Number(10_000.0),
        "Number of completions over which the coefficient adapts (`kl_target`): a step changes it by at most \
         0.2 times the step's share of the horizon. 10,000 as in the paper.",
    ),
    per_policy(
        "entropy",
        number(0.0, 10.0),
        DefaultValue::Number(0.0),
        "Coefficient of the entropy bonus. 0 by default: over a large vocabulary, a bonus soon favours \
         nonsense. Widen `clip_high` first if samples become too similar.",
    ),
    per_policy(
        "overlong",
        SettingKind::Choice(OVERLONG),
        DefaultValue::Word("keep"),
        "Treatment of completions that reach `max_tokens` or come near it. `keep` by default: the reward \
         decides. `mask` doesn't punish thoughts that were only cut off; `penalize` teaches to be brief.",
    ),
    per_policy(
        "overlong_buffer",
        count(1),
        DefaultValue::Absent("a fifth of the smallest `max_tokens` of the policy's agents"),
        "Number of tokens before `max_tokens` over which the penalty rises (`overlong = penalize`), at most the smallest \
         `max_tokens` of the policy's agents. A fifth, as 4,096 of 20,480 in DAPO (Yu et al. 2025, arXiv:2503.14476).",
    ),
    per_policy(
        "overlong_penalty",
        positive(1000.0),
        DefaultValue::Number(1.0),
        "Amount by which the reward of a completion of `max_tokens` tokens is lowered (`overlong = penalize`). 1 \
         as in DAPO, where a correct answer has a reward of 1.",
    ),
    per_policy(
        "token_penalty",
        number(0.0, 1000.0),
        DefaultValue::Number(0.0),
        "Amount by which each token of a completion lowers its reward. 0 by default: the task decides about the \
         length. With a critic, each token has its own share.",
    ),
    per_policy(
        "flat_groups",
        SettingKind::Choice(FLAT_GROUPS),
        DefaultValue::Word("keep"),
        "Treatment of groups (`group_by`) whose completions all have the same return. `keep` by default: a step \
         takes as long as it takes. `drop` leaves them out, and replaces up to `max_refills` times the tasks of a step \
         whose groups are all left out by every policy that is updated (dynamic sampling, Yu et al. 2025, \
         arXiv:2503.14476, section 3.2). A completion alone in its group counts as such a group only if advantages \
         are relative to the group, which then says nothing about it. Penalties for length and the KL divergence \
         don't count.",
    ),
    per_policy(
        "drop_groups",
        number(0.0, MAX_DROPPED),
        DefaultValue::Number(0.0),
        "Share of the policy's groups in a step that are left out: those with the smallest mean or spread of \
         returns (`drop_by`), rounded down. 0 by default. 0.5 with `drop_by = spread` as in StarPO-S (Wang et al. \
         2025, arXiv:2504.20073).",
    ),
    per_policy(
        "drop_by",
        SettingKind::Choice(DROP_BY),
        DefaultValue::Word("spread"),
        "Property of a group that decides about `drop_groups`. `spread` by default: a group teaches by its \
         differences.",
    ),
    per_policy(
        "outliers",
        number(0.0, 1000.0),
        DefaultValue::Number(0.0),
        "Distance from the mean of its group, in standard deviations of the group, above which a completion is left \
         out, before advantages are computed. 0 keeps all. In a group of n, no distance exceeds (n - 1) / √n: 1.5 \
         for 4.",
    ),
    per_policy(
        "learning_rate",
        positive(1.0),
        DefaultValue::Number(5e-6),
        "Step size of the optimiser (AdamW). 5e-6 is safe for a whole model; adapters usually take ten times \
         as much or more.",
    ),
    per_policy(
        "lr_schedule",
        SettingKind::Choice(LR_SCHEDULES),
        DefaultValue::Word("constant"),
        "Change of the learning rate over the steps. `constant` by default: it doesn't depend on the number \
         of steps, so a run can be prolonged with `run --resume DIR --set train.steps=…` as if it had been \
         started with that number. Use `cosine` if the number of steps is final.",
    ),
    per_policy(
        "warmup",
        count(0),
        DefaultValue::Integer(0),
        "Number of steps over which the learning rate rises from zero, counted from the first step of the run, also \
         those in which the policy is frozen or not updated (`freeze`, `update_every`, `tasks_per_update`). 0 by \
         default; small learning rates need no warm-up.",
    ),
    per_policy(
        "weight_decay",
        number(0.0, 1.0),
        DefaultValue::Number(0.0),
        "Decoupled weight decay of the matrices; norms and biases have none. 0 by default: a short run should not \
         forget.",
    ),
    per_policy(
        "beta1",
        number(0.0, MAX_DECAY),
        DefaultValue::Number(0.9),
        "Decay rate of the optimiser's mean of gradients (AdamW). 0.9 as in the paper: about the last ten updates \
         count.",
    ),
    per_policy(
        "beta2",
        number(0.0, MAX_DECAY),
        DefaultValue::Number(0.999),
        "Decay rate of the optimiser's mean of squared gradients (AdamW). 0.999 as in the paper. Use 0.95 if \
         the size of gradients changes quickly.",
    ),
    per_policy(
        "max_grad_norm",
        number(0.0, 1e6),
        DefaultValue::Number(1.0),
        "Maximum norm of a policy's gradient; a larger gradient is scaled down. 1 is the common protection \
         against a single bad batch. 0 turns it off.",
    ),
    per_policy(
        "freeze",
        count(0),
        DefaultValue::Integer(0),
        "Number of steps at the beginning in which the policy is not updated. 0 by default. Use it to let a \
         partner learn first.",
    ),
    per_policy(
        "update_every",
        count(1),
        DefaultValue::Integer(1),
        "Number of steps from one update of the policy to the next, counted from the end of `freeze`. 1 by \
         default: every step. With `update_every = 2` for two policies and `freeze = 1` for one of them, they \
         learn in turns.",
    ),
    per_policy(
        "tasks_per_update",
        count(1),
        DefaultValue::Absent("`tasks_per_step`"),
        "Number of tasks that an update of the policy trains on: `tasks_per_step` by default, or a multiple of it. \
         `policy large { train { tasks_per_update = 32 } }` in a file with `tasks_per_step = 8` updates the policy \
         after every fourth step, on the tasks of all four, while others are updated after each. Use it if a large \
         model takes longer to train than to play, or needs larger batches.",
    ),
];

/// Settings of `critic { … }`.
pub(super) const CRITIC: &[Setting] = &[
    setting(
        Critic,
        "on",
        SettingKind::Choice(CRITIC_BASES),
        DefaultValue::Absent("`policy`, or `model` if the critic has a `model`"),
        "Hidden states that the value head reads. `policy` by default: it costs almost nothing and can't harm \
         the policy. `adapter` and `model` make stronger critics, which take passes of their own; `model` takes \
         as much memory as a policy without `lora`.",
    ),
    setting(
        Critic,
        "model",
        SettingKind::Model,
        DefaultValue::Absent("that of the policy"),
        "Model that a critic of its own starts from (`on = model`), or that its adapter is on (`on = adapter`). It \
         must have the tokenizer of the policy's model. A smaller model makes a cheaper critic.",
    ),
    setting(
        Critic,
        "rank",
        SettingKind::Integer { min: 1, max: 1024 },
        DefaultValue::Integer(16),
        "Rank of the critic's adapter (`on = adapter`). 16, as for a policy.",
    ),
    setting(
        Critic,
        "alpha",
        positive(65536.0),
        DefaultValue::Number(32.0),
        "Scale of the critic's adapter: its output is multiplied by alpha / rank. 32 gives the common factor of 2 \
         at the default rank.",
    ),
    setting(
        Critic,
        "targets",
        SettingKind::Choices(TARGETS),
        DefaultValue::AllWords,
        "Projections that get the critic's adapter. All seven by default, as for a policy.",
    ),
    setting(
        Critic,
        "learning_rate",
        positive(1.0),
        DefaultValue::Absent("`1e-4`, or `1e-5` with `on = model`"),
        "Step size of the critic's optimiser (AdamW). 1e-4, larger than that of a policy: the head starts from \
         zero, and advantages are useful only once it predicts something. A whole model is trained with 1e-5.",
    ),
    setting(
        Critic,
        "warmup",
        count(0),
        DefaultValue::Integer(0),
        "Number of steps after `freeze` in which only the critic is trained; steps without an update count. 0 by \
         default: while its values are zero, advantages are plain returns (with `lambda = 1`), which are useful too.",
    ),
    setting(
        Critic,
        "clip",
        number(0.0, 1000.0),
        DefaultValue::Number(0.5),
        "Largest distance of a value from the value before the update that lowers the loss. 0.5 suits \
         rewards between 0 and 1; increase it with the size of the rewards. 0 turns it off.",
    ),
    setting(
        Critic,
        "weight",
        positive(1000.0),
        DefaultValue::Number(0.1),
        "Weight of the value loss in the gradient of the shared hidden states (`on = shared`). 0.1: the policy's \
         own loss should dominate.",
    ),
];
