//! The published algorithms: the choices that each name stands for, its formula and its paper.
//!
//! The check, `pl-host explain` and the reference page read this table.

use serde_json::Value;

use super::kind::Choice;
use super::units::show_number;
use crate::workflow::objective::{
    Advantage, Aggregation, Algorithm, Baseline, Correction, DropBy, FlatGroups, GroupBy, KlEstimator,
    KlPlace, Objective, OldLogprobs, Overlong, Ratio, Returns, Scale, TrustRegion,
};

/// A published algorithm.
#[derive(Debug)]
pub struct PublishedAlgorithm {
    /// Value of `algorithm`.
    pub word: &'static str,
    /// Name and publication.
    pub source: &'static str,
    /// Short description.
    pub summary: &'static str,
    /// Advantage and loss as plain text.
    pub formula: &'static str,
    /// Differences from the paper, or from libraries that use the same name.
    pub differences: &'static str,
    /// Objective without further settings. `divisor` and `overlong_buffer` depend on the policy's agents.
    pub objective: Objective,
}

/// Choices that an `algorithm` in a policy's own `train` sets, even if the file's `train` has others.
pub(crate) const CHOICES: &[&str] = &[
    "returns",
    "advantage",
    "group_by",
    "baseline",
    "scale",
    "ratio",
    "trust_region",
    "clip_low",
    "clip_high",
    "dual_clip",
    "old_logprobs",
    "correction",
    "aggregation",
];

/// Objective of `at_grpo`, the default.
pub const AT_GRPO: Objective = Objective {
    algorithm: Algorithm::AtGrpo,
    returns: Returns::Step,
    gamma: 1.0,
    gamma_turn: 1.0,
    lambda: 1.0,
    advantage: Advantage::Group,
    group_by: GroupBy { agent: true, turn: true },
    baseline: Baseline::Mean,
    scale: Scale::Group,
    ratio: Ratio::Token,
    trust_region: TrustRegion::Clip,
    clip_low: 0.2,
    clip_high: 0.28,
    dual_clip: 3.0,
    old_logprobs: OldLogprobs::Sampler,
    correction: Correction::None,
    correction_low: 0.0,
    correction_high: 2.0,
    aggregation: Aggregation::TokenMean,
    divisor: None,
    kl: 0.0,
    kl_estimator: KlEstimator::K3,
    kl_in: KlPlace::Loss,
    kl_target: None,
    kl_horizon: 10_000.0,
    entropy: 0.0,
    overlong: Overlong::Keep,
    overlong_buffer: 0,
    overlong_penalty: 1.0,
    token_penalty: 0.0,
    flat_groups: FlatGroups::Keep,
    drop_groups: 0.0,
    drop_by: DropBy::Spread,
    outliers: 0.0,
};

const GRPO: Objective = Objective {
    algorithm: Algorithm::Grpo,
    returns: Returns::Episode,
    group_by: GroupBy { agent: true, turn: false },
    clip_high: 0.2,
    dual_clip: 0.0,
    aggregation: Aggregation::SequenceMean,
    ..AT_GRPO
};

const DR_GRPO: Objective = Objective {
    algorithm: Algorithm::DrGrpo,
    scale: Scale::None,
    aggregation: Aggregation::Constant,
    ..GRPO
};

const RLOO: Objective = Objective {
    algorithm: Algorithm::Rloo,
    baseline: Baseline::LeaveOneOut,
    scale: Scale::None,
    ratio: Ratio::None,
    trust_region: TrustRegion::None,
    clip_low: 0.0,
    clip_high: 0.0,
    aggregation: Aggregation::Constant,
    ..GRPO
};

const REINFORCE_PP: Objective = Objective {
    algorithm: Algorithm::ReinforcePp,
    returns: Returns::Discounted,
    advantage: Advantage::Return,
    baseline: Baseline::None,
    scale: Scale::Batch,
    clip_high: 0.2,
    dual_clip: 0.0,
    kl: 0.001,
    kl_estimator: KlEstimator::K1,
    kl_in: KlPlace::Reward,
    ..AT_GRPO
};

const PPO: Objective = Objective {
    algorithm: Algorithm::Ppo,
    advantage: Advantage::Gae,
    baseline: Baseline::None,
    scale: Scale::Batch,
    clip_high: 0.2,
    ..AT_GRPO
};

const DAPO: Objective = Objective {
    algorithm: Algorithm::Dapo,
    clip_high: 0.28,
    aggregation: Aggregation::TokenMean,
    overlong: Overlong::Penalize,
    ..GRPO
};

const GSPO: Objective =
    Objective { algorithm: Algorithm::Gspo, ratio: Ratio::Sequence, clip_low: 3e-4, clip_high: 4e-4, ..GRPO };

const CISPO: Objective = Objective {
    algorithm: Algorithm::Cispo,
    trust_region: TrustRegion::Cispo,
    clip_low: 1.0,
    clip_high: 4.0,
    aggregation: Aggregation::TokenMean,
    ..GRPO
};

const RFT: Objective = Objective {
    algorithm: Algorithm::Rft,
    advantage: Advantage::Success,
    baseline: Baseline::None,
    scale: Scale::None,
    ratio: Ratio::None,
    trust_region: TrustRegion::None,
    clip_low: 0.0,
    clip_high: 0.0,
    dual_clip: 0.0,
    ..AT_GRPO
};

/// All published algorithms.
pub static ALGORITHMS: [PublishedAlgorithm; 10] = [
    PublishedAlgorithm {
        word: "at_grpo",
        source: "AT-GRPO, Zhao et al. 2025, arXiv:2510.11062",
        summary: "advantages within groups of the same agent and turn",
        formula: "\
A = (R - mean(G)) / (std(G) + 1e-6)
    R: reward of the turn, G: completions of the same task, agent and turn
L = mean over the tokens of the batch of max(-A r, -A clip(r, 0.8, 1.28)), at most -3 A where A < 0
    r = p(token) / p_sampled(token)",
        differences: "The loss has the bounds of DAPO (clip-higher) and a dual clip, and is a mean over tokens.",
        objective: AT_GRPO,
    },
    PublishedAlgorithm {
        word: "grpo",
        source: "GRPO, Shao et al. 2024, arXiv:2402.03300",
        summary: "the sum of an agent's rewards in an episode, compared with that of other episodes of the task",
        formula: "\
A = (R - mean(G)) / (std(G) + 1e-6)
    R: sum of the agent's rewards in the episode, G: episodes of the same task
L = mean over completions of the mean over their tokens of max(-A r, -A clip(r, 0.8, 1.2))
    r = p(token) / p_sampled(token)",
        differences: "The paper adds a KL divergence to the loss: `kl = 0.04` restores it. As in TRL, `kl` is 0 by \
                      default. All turns of an agent in an episode have the episode's advantage, and the \
                      episode counts once in its group.",
        objective: GRPO,
    },
    PublishedAlgorithm {
        word: "dr_grpo",
        source: "Dr. GRPO, Liu et al. 2025, arXiv:2503.20783",
        summary: "GRPO without its biases: not divided by the deviation of the group, nor by the length of the completion",
        formula: "\
A = R - mean(G)
    R: sum of the agent's rewards in the episode, G: episodes of the same task
L = sum over tokens of max(-A r, -A clip(r, 0.8, 1.2)) / (completions · divisor)
    r = p(token) / p_sampled(token)",
        differences: "The constant is `divisor`, by default the largest `max_tokens` of the policy's agents; TRL's is \
                      its longest completion length. It only scales the gradient.",
        objective: DR_GRPO,
    },
    PublishedAlgorithm {
        word: "rloo",
        source: "RLOO, Ahmadian et al. 2024, arXiv:2402.14740",
        summary: "REINFORCE with the mean of the other episodes as the baseline",
        formula: "\
A = R - mean(G without the episode itself)
    R: sum of the agent's rewards in the episode, G: episodes of the same task
L = sum over tokens of -A log p(token) / (completions · divisor)",
        differences: "As in the paper, there is no ratio: one update per step. TRL clips a ratio of the whole \
                      completion; `ratio = token` clips that of tokens. The paper and TRL subtract a KL divergence \
                      from the reward (TRL: 0.05): set `kl` and `kl_in = reward`. The division by a constant only \
                      scales the gradient; verl's default, a mean over tokens, would favour long completions.",
        objective: RLOO,
    },
    PublishedAlgorithm {
        word: "reinforce_pp",
        source: "REINFORCE++, Hu 2025, arXiv:2501.03262",
        summary: "discounted returns, whitened over the batch, with a KL divergence in the reward",
        formula: "\
A = whitened over all tokens of the batch: R_t - 0.001 · (sum of k1 over this token and the later ones of the completion)
    R: rewards of the agent from this turn on, less the k1 of its later turns, each turn discounted by gamma_turn
L = mean over the tokens of the batch of max(-A r, -A clip(r, 0.8, 1.2))
    r = p(token) / p_sampled(token), k1 = log p(token) - log p_reference(token)",
        differences: "`kl = 0.001` is the paper's value for mathematics (0.01 in general). verl has no KL \
                      divergence by default. The variant with a baseline is `advantage = group; scale = batch`.",
        objective: REINFORCE_PP,
    },
    PublishedAlgorithm {
        word: "ppo",
        source: "PPO, Schulman et al. 2017, arXiv:1707.06347",
        summary: "advantages from a critic, per token",
        formula: "\
A = whitened over all tokens of the batch: sum of (gamma lambda)^k δ over this token and the later ones
    δ = reward + gamma V(next token) - V(token); the reward of a turn is that of its last token;
    between turns of an agent, gamma_turn takes the place of gamma
L = mean over the tokens of the batch of max(-A r, -A clip(r, 0.8, 1.2)), at most -3 A where A < 0
    r = p(token) / p_sampled(token)
V is trained to predict V(token) + A, before whitening (see the block `critic`)",
        differences: "The bound at -3 A (dual clip, Ye et al. 2020, verl's default) is not part of the paper: \
                      `dual_clip = 0` removes it. There is no KL divergence by default; PPO for language models \
                      often has one in the reward.",
        objective: PPO,
    },
    PublishedAlgorithm {
        word: "dapo",
        source: "DAPO, Yu et al. 2025, arXiv:2503.14476",
        summary: "GRPO with clip-higher, a mean over tokens, and a penalty for overlong completions",
        formula: "\
A = (R - mean(G)) / (std(G) + 1e-6)
    R: sum of the agent's rewards in the episode, less the penalty; G: episodes of the same task
penalty = overlong_penalty · clamp((tokens - (max_tokens - buffer)) / buffer, 0, 1)
L = mean over the tokens of the batch of max(-A r, -A clip(r, 0.8, 1.28))
    r = p(token) / p_sampled(token)",
        differences: "The buffer is a fifth of `max_tokens`, as in the paper. Its dynamic sampling, which replaces groups \
                      with equal rewards by new tasks, is a setting of its own: `flat_groups = drop`.",
        objective: DAPO,
    },
    PublishedAlgorithm {
        word: "gspo",
        source: "GSPO, Zheng et al. 2025, arXiv:2507.18071",
        summary: "GRPO with one ratio per completion",
        formula: "\
A = (R - mean(G)) / (std(G) + 1e-6)
    R: sum of the agent's rewards in the episode, G: episodes of the same task
L = mean over completions of max(-A s, -A clip(s, 1 - 3e-4, 1 + 4e-4))
    s = geometric mean of p(token) / p_sampled(token) over the completion",
        differences: "The bounds are those of the paper. Its gradient is computed per token as in GSPO-token, which \
                      is the same if the tokens of a completion share an advantage.",
        objective: GSPO,
    },
    PublishedAlgorithm {
        word: "cispo",
        source: "CISPO, MiniMax 2025, arXiv:2506.13585",
        summary: "GRPO with clipped ratios as weights, so that no token loses its gradient",
        formula: "\
A = (R - mean(G)) / (std(G) + 1e-6)
    R: sum of the agent's rewards in the episode, G: episodes of the same task
L = mean over the tokens of the batch of -w A log p(token)
    w = min(p(token) / p_sampled(token), 5), without a gradient",
        differences: "As in verl, the bounds are 1 - `clip_low` and 1 + `clip_high`. As in the paper, there is no \
                      lower bound (`clip_low = 1`). The paper doesn't state its upper bound; 5 is that of ScaleRL \
                      (arXiv:2510.13786). In TRL, `epsilon_high` is the bound itself: 5 there is `clip_high = 4`.",
        objective: CISPO,
    },
    PublishedAlgorithm {
        word: "rft",
        source: "Rejection-sampling fine-tuning, Yuan et al. 2023, arXiv:2308.01825",
        summary: "trains on the completions of successful agents alone",
        formula: "\
A = 1 if the agent succeeded in the episode, otherwise 0
L = mean over the tokens of the batch of -A log p(token)",
        differences: "The paper samples once and removes duplicates; here every step samples anew, from the policy as \
                      it is.",
        objective: RFT,
    },
];

/// Values of `algorithm`.
pub(crate) const ALGORITHM_WORDS: [Choice; ALGORITHMS.len()] = {
    let mut words = [Choice { word: "", doc: "" }; ALGORITHMS.len()];
    let mut index = 0;
    while index < words.len() {
        words[index] = Choice { word: ALGORITHMS[index].word, doc: ALGORITHMS[index].summary };
        index += 1;
    }
    words
};

/// Returns the published algorithm that a word of `algorithm` names.
pub fn published_algorithm(word: &str) -> Option<&'static PublishedAlgorithm> {
    ALGORITHMS.iter().find(|one| one.word == word)
}

impl Objective {
    /// Returns the value of a setting as it would be written, such as `[task, agent]`. Returns `None` if the algorithms
    /// don't differ in it.
    pub(crate) fn value_of(&self, key: &str) -> Option<String> {
        const VARYING: &[&str] = &["kl", "kl_in", "overlong"];
        if !CHOICES.contains(&key) && !VARYING.contains(&key) {
            return None;
        }
        if key == "group_by" {
            return Some(format!("[{}]", self.group_by.words().join(", ")));
        }
        match serde_json::to_value(self).ok()?.get(key)? {
            Value::String(word) => Some(word.clone()),
            Value::Number(number) => number.as_f64().map(show_number),
            _ => None,
        }
    }
}

impl GroupBy {
    /// Words of `group_by`.
    pub(crate) fn words(self) -> Vec<&'static str> {
        let others = [("agent", self.agent), ("turn", self.turn)];
        std::iter::once("task")
            .chain(others.into_iter().filter(|(_, has)| *has).map(|(word, _)| word))
            .collect()
    }
}
