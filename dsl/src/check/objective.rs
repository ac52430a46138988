//! Resolves the training of a policy: its own settings, then those of the file, then the defaults of the algorithm.

use serde::de::DeserializeOwned;
use serde::de::value::{Error, StrDeserializer};

use super::block::BlockSettings;
use crate::settings::ALGORITHMS;
use crate::settings::algorithms::{AT_GRPO, CHOICES};
use crate::source::Location;
use crate::workflow::objective::{
    Advantage, Aggregation, Algorithm, Baseline, Correction, Critic, CriticBase, GroupBy, KlEstimator,
    KlPlace, Objective, Optimizer, Ratio, Scale, TrustRegion,
};
use crate::workflow::{Agent, Lora, LrSchedule};

/// Share of `max_tokens` that the buffer of `overlong = penalize` takes by default, as its divisor.
const DEFAULT_BUFFER_DIVISOR: u32 = 5;

/// Settings of the training of a policy.
#[derive(Clone, Copy)]
pub(super) struct TrainingSettings<'s> {
    /// Settings of `train { … }`.
    pub file: &'s BlockSettings,
    /// Settings of the policy's own `train { … }`.
    pub own: Option<&'s BlockSettings>,
}

/// A setting that was written, and its place.
#[derive(Clone, Copy)]
pub(super) struct Written {
    pub location: Location,
    /// True if it is in the policy's own `train { … }`.
    pub own: bool,
}

impl<'s> TrainingSettings<'s> {
    /// Block that has written a key and counts.
    fn block(&self, key: &str) -> Option<(&'s BlockSettings, bool)> {
        let has = |block: &&BlockSettings| block.location(key).is_some();
        if let Some(own) = self.own {
            if has(&own) {
                return Some((own, true));
            }
            // The policy's algorithm replaces the choices of the file.
            if own.location("algorithm").is_some() && CHOICES.contains(&key) {
                return None;
            }
        }
        Some((self.file, false)).filter(|(file, _)| has(file))
    }

    /// Returns the place of a setting that was written.
    pub fn written(&self, key: &str) -> Option<Written> {
        let (block, own) = self.block(key)?;
        Some(Written { location: block.location(key)?, own })
    }

    /// Returns the words of a list that was written, and its place.
    pub fn words(&self, key: &str) -> Option<(Vec<String>, Written)> {
        let (block, _) = self.block(key)?;
        Some((block.words(key)?, self.written(key)?))
    }

    /// Returns a number if it was written. `None` if it is invalid, which was already reported.
    fn number(&self, key: &str) -> Option<Option<f64>> {
        self.value(key, |block| block.number(key))
    }

    pub fn integer(&self, key: &str) -> Option<Option<u32>> {
        self.value(key, |block| block.integer(key))
    }

    fn word<T: DeserializeOwned>(&self, key: &str) -> Option<Option<T>> {
        self.value(key, |block| parse_word(block.text(key)?))
    }

    fn value<T>(&self, key: &str, read: impl Fn(&BlockSettings) -> Option<T>) -> Option<Option<T>> {
        match self.block(key) {
            Some((block, _)) => read(block).map(Some),
            None => Some(None),
        }
    }

    /// Returns a number, or its default in the table.
    fn number_or_default(&self, key: &str) -> Option<f64> {
        self.block(key).map_or(self.file, |(block, _)| block).number(key)
    }

    pub fn integer_or_default(&self, key: &str) -> Option<u32> {
        self.block(key).map_or(self.file, |(block, _)| block).integer(key)
    }
}

/// Converts a word of a setting to its variant.
fn parse_word<T: DeserializeOwned>(word: &str) -> Option<T> {
    T::deserialize(StrDeserializer::<Error>::new(word)).ok()
}

/// Objective of an algorithm without further settings.
pub(super) fn preset(algorithm: Algorithm) -> &'static Objective {
    ALGORITHMS
        .iter()
        .map(|one| &one.objective)
        .find(|objective| objective.algorithm == algorithm)
        .unwrap_or(&AT_GRPO)
}

/// Resolves the objective of a policy that `agents` use. Returns `None` if a setting is invalid, which was already reported.
pub(super) fn objective(settings: &TrainingSettings, agents: &[&Agent]) -> Option<Objective> {
    let preset = *preset(settings.word("algorithm")?.unwrap_or(Algorithm::AtGrpo));
    let mut out = preset;
    advantage(settings, &preset, &mut out)?;
    ratio_and_bounds(settings, &preset, &mut out)?;
    correction(settings, &mut out)?;
    divergence(settings, &preset, &mut out)?;
    out.divisor = settings.integer("divisor")?;
    out.entropy = settings.number_or_default("entropy")?;
    out.overlong = settings.word("overlong")?.unwrap_or(preset.overlong);
    out.overlong_penalty = settings.number_or_default("overlong_penalty")?;
    let shortest = agents.iter().map(|agent| agent.max_tokens).min().unwrap_or(0);
    out.overlong_buffer =
        settings.integer("overlong_buffer")?.unwrap_or((shortest / DEFAULT_BUFFER_DIVISOR).max(1));
    out.token_penalty = settings.number_or_default("token_penalty")?;
    filters(settings, &mut out)?;
    Some(out)
}

/// Resolves the groups and completions that are left out.
fn filters(settings: &TrainingSettings, out: &mut Objective) -> Option<()> {
    out.flat_groups = settings.word("flat_groups")?.unwrap_or_default();
    out.drop_groups = settings.number_or_default("drop_groups")?;
    out.drop_by = settings.word("drop_by")?.unwrap_or_default();
    out.outliers = settings.number_or_default("outliers")?;
    Some(())
}

fn advantage(settings: &TrainingSettings, preset: &Objective, out: &mut Objective) -> Option<()> {
    out.gamma = settings.number_or_default("gamma")?;
    out.gamma_turn = settings.number_or_default("gamma_turn")?;
    out.lambda = settings.number_or_default("lambda")?;
    out.advantage = settings.word("advantage")?.unwrap_or(preset.advantage);
    // With another advantage than the algorithm's, the choices that depend on it are those of the algorithm that has it.
    let usual = match out.advantage {
        same if same == preset.advantage => *preset,
        Advantage::Group => Objective { returns: preset.returns, ..AT_GRPO },
        Advantage::Gae => *self::preset(Algorithm::Ppo),
        Advantage::Return => Objective { returns: preset.returns, ..*self::preset(Algorithm::ReinforcePp) },
        Advantage::Ema => {
            Objective { returns: preset.returns, baseline: Baseline::None, scale: Scale::None, ..AT_GRPO }
        }
        Advantage::Success => *self::preset(Algorithm::Rft),
    };
    out.returns = settings.word("returns")?.unwrap_or(usual.returns);
    out.group_by = match settings.block("group_by") {
        Some((block, _)) => {
            let words = block.words("group_by")?;
            let has = |word: &str| words.iter().any(|one| one == word);
            GroupBy { agent: has("agent"), turn: has("turn") }
        }
        None => usual.group_by,
    };
    out.baseline = settings.word("baseline")?.unwrap_or(usual.baseline);
    out.scale = settings.word("scale")?.unwrap_or(usual.scale);
    Some(())
}

fn ratio_and_bounds(settings: &TrainingSettings, preset: &Objective, out: &mut Objective) -> Option<()> {
    out.ratio = settings.word("ratio")?.unwrap_or(preset.ratio);
    out.trust_region = settings.word("trust_region")?.unwrap_or(match (out.ratio, preset.trust_region) {
        (Ratio::None, _) => TrustRegion::None,
        (same, usual) if same == preset.ratio => usual,
        (_, TrustRegion::None) => TrustRegion::Clip,
        (_, usual) => usual,
    });
    let same = (out.ratio, out.trust_region) == (preset.ratio, preset.trust_region);
    let bounds = |other: &Objective| (other.clip_low, other.clip_high, other.dual_clip);
    let (low, high, dual) = match (out.trust_region, out.ratio) {
        _ if same => bounds(preset),
        (TrustRegion::None, _) => bounds(self::preset(Algorithm::Rft)),
        (TrustRegion::Cispo, _) => bounds(self::preset(Algorithm::Cispo)),
        (TrustRegion::Clip, Ratio::Sequence) => bounds(self::preset(Algorithm::Gspo)),
        (TrustRegion::Clip | TrustRegion::Mask, _) => bounds(self::preset(Algorithm::Grpo)),
    };
    out.clip_low = settings.number("clip_low")?.unwrap_or(low);
    out.clip_high = settings.number("clip_high")?.unwrap_or(high);
    out.dual_clip = settings.number("dual_clip")?.unwrap_or(dual);
    out.aggregation = settings.word("aggregation")?.unwrap_or(match out.ratio {
        same if same == preset.ratio => preset.aggregation,
        Ratio::Sequence => Aggregation::SequenceMean,
        Ratio::Token | Ratio::None => AT_GRPO.aggregation,
    });
    Some(())
}

fn correction(settings: &TrainingSettings, out: &mut Objective) -> Option<()> {
    out.old_logprobs = settings.word("old_logprobs")?.unwrap_or(out.old_logprobs);
    out.correction = settings.word("correction")?.unwrap_or(out.correction);
    let (low, high) = match out.correction {
        Correction::None | Correction::Tis => (0.0, 2.0),
        Correction::Icepop => (0.5, 5.0),
        Correction::SequenceMask => (0.99, 1.01),
    };
    out.correction_low = settings.number("correction_low")?.unwrap_or(low);
    out.correction_high = settings.number("correction_high")?.unwrap_or(high);
    Some(())
}

fn divergence(settings: &TrainingSettings, preset: &Objective, out: &mut Objective) -> Option<()> {
    out.kl = settings.number("kl")?.unwrap_or(preset.kl);
    out.kl_in = settings.word("kl_in")?.unwrap_or(preset.kl_in);
    out.kl_estimator = settings.word("kl_estimator")?.unwrap_or(match out.kl_in {
        KlPlace::Loss => KlEstimator::K3,
        KlPlace::Reward => KlEstimator::K1,
    });
    out.kl_target = settings.number("kl_target")?;
    out.kl_horizon = settings.number_or_default("kl_horizon")?;
    Some(())
}

/// Resolves the optimiser of a policy.
pub(super) fn optimizer(settings: &TrainingSettings) -> Option<Optimizer> {
    Some(Optimizer {
        learning_rate: settings.number_or_default("learning_rate")?,
        lr_schedule: settings.word("lr_schedule")?.unwrap_or(LrSchedule::Constant),
        warmup: settings.integer_or_default("warmup")?,
        weight_decay: settings.number_or_default("weight_decay")?,
        beta1: settings.number_or_default("beta1")?,
        beta2: settings.number_or_default("beta2")?,
        max_grad_norm: settings.number_or_default("max_grad_norm")?,
    })
}

/// Learning rate of a critic that is a value head or an adapter, if none is written.
const CRITIC_LEARNING_RATE: f64 = 1e-4;
/// Learning rate of a critic that is a whole model, if none is written.
const CRITIC_MODEL_LEARNING_RATE: f64 = 1e-5;

/// Resolves a critic. `model` is the index of its model, if it has one of its own.
pub(super) fn critic(own: &BlockSettings, model: Option<usize>) -> Option<Critic> {
    let on = match (own.text("on"), own.location("on"), model) {
        (Some(word), ..) => parse_word::<CriticBase>(word)?,
        // The word is wrong, which was reported.
        (None, Some(_), _) => return None,
        (None, None, Some(_)) => CriticBase::Model,
        (None, None, None) => CriticBase::Policy,
    };
    let default_rate =
        if on == CriticBase::Model { CRITIC_MODEL_LEARNING_RATE } else { CRITIC_LEARNING_RATE };
    let learning_rate = match own.location("learning_rate") {
        Some(_) => own.number("learning_rate")?,
        None => default_rate,
    };
    let lora =
        Lora { rank: own.integer("rank")?, alpha: own.number("alpha")?, targets: own.words("targets")? };
    Some(Critic {
        on,
        model,
        lora: (on == CriticBase::Adapter).then_some(lora),
        learning_rate,
        warmup: own.integer("warmup")?,
        clip: own.number("clip")?,
        weight: own.number("weight")?,
    })
}

/// Returns the algorithm's word, for messages.
pub(super) fn algorithm_word(algorithm: Algorithm) -> &'static str {
    ALGORITHMS.iter().find(|one| one.objective.algorithm == algorithm).map_or("at_grpo", |one| one.word)
}
