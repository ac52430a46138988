//! Combinations of training settings that make no sense.
//!
//! A choice that an algorithm stands for counts like one that was written: the message points to the algorithm.

use std::collections::HashMap;

use super::objective::{TrainingSettings, algorithm_word};
use crate::diagnostic::reports::Reports;
use crate::diagnostic::{DiagnosticCode, Severity};
use crate::source::Location;
use crate::workflow::objective::{
    Advantage, Aggregation, Baseline, Correction, FlatGroups, KlEstimator, KlPlace, Objective, OldLogprobs,
    Overlong, Ratio, Returns, Scale, TrustRegion,
};

/// A policy to check.
pub(super) struct TrainedCase<'s> {
    pub settings: TrainingSettings<'s>,
    pub objective: Objective,
    /// Smallest `max_tokens` of the policy's agents. `None` if it has none.
    pub max_tokens: Option<u32>,
    /// Number of completions of an agent's turn that may be compared. `None` if designers decide about it.
    pub samples: Option<u32>,
}

/// A mistake, not reported yet: a setting of the file may apply to several policies.
struct Problem {
    severity: Severity,
    code: DiagnosticCode,
    location: Location,
    message: String,
    also: Option<(Location, String)>,
    help: String,
    /// True if the setting is a default for several policies, and useless for this one.
    only_if_for_all: bool,
}

/// Checks the objectives of all trained policies.
pub(super) fn check_objectives(cases: &[TrainedCase], reports: &mut Reports) {
    // Problems in order, with the number of policies that have them.
    let mut found: Vec<(Problem, usize)> = Vec::new();
    let mut index: HashMap<(DiagnosticCode, Location), usize> = HashMap::new();
    for problem in cases.iter().flat_map(TrainedCase::problems) {
        let at = *index.entry((problem.code, problem.location)).or_insert(found.len());
        match found.get_mut(at) {
            Some((_, count)) => *count += 1,
            None => found.push((problem, 1)),
        }
    }
    for (Problem { severity, code, location, message, also, help, only_if_for_all }, count) in found {
        if only_if_for_all && count < cases.len() {
            continue;
        }
        let diagnostic = match severity {
            Severity::Error => reports.error(code, location, message, ""),
            Severity::Warning => reports.warning(code, location, message, ""),
        };
        if let Some((also, text)) = also {
            diagnostic.also(also, text);
        }
        diagnostic.help(help);
    }
}

impl TrainedCase<'_> {
    fn problems(&self) -> Vec<Problem> {
        let mut out = Vec::new();
        self.advantage(&mut out);
        self.groups(&mut out);
        self.ratio(&mut out);
        self.correction(&mut out);
        self.divergence(&mut out);
        self.overlong_buffer(&mut out);
        self.without_effect(&mut out);
        self.flat_groups(&mut out);
        self.outliers(&mut out);
        self.gradient(&mut out);
        out
    }

    fn advantage(&self, out: &mut Vec<Problem>) {
        let Objective { advantage, baseline, scale, returns, .. } = self.objective;
        let word = |advantage| match advantage {
            Advantage::Group => "group",
            Advantage::Gae => "gae",
            Advantage::Return => "return",
            Advantage::Ema => "ema",
            Advantage::Success => "success",
        };
        let mut mismatch = |key: &str, message: &str, help: &str| {
            let message = format!("{message}, but the advantage is `{}`", word(advantage));
            out.extend(self.conflict(DiagnosticCode::AdvantageMismatch, [key, "advantage"], message, help));
        };
        if advantage != Advantage::Group && baseline != Baseline::None {
            mismatch(
                "baseline",
                "a baseline is that of a group",
                "set `baseline = none`, or `advantage = group`",
            );
        }
        if advantage != Advantage::Group && scale == Scale::Group {
            mismatch(
                "scale",
                "`scale = group` divides by the deviation of a group",
                "set `scale = batch` or `scale = none`, or `advantage = group`",
            );
        }
        if advantage == Advantage::Success && scale == Scale::Batch {
            mismatch(
                "scale",
                "`scale = batch` subtracts the mean, which would push failures away",
                "set `scale = none`, or `advantage = return`",
            );
        }
        if advantage == Advantage::Gae && returns != Returns::Step {
            mismatch(
                "returns",
                "`returns` adds up the rewards of several turns, which `gae` does itself",
                "remove `returns`",
            );
        }
    }

    fn groups(&self, out: &mut Vec<Problem>) {
        let (Some((words, written)), Advantage::Group) =
            (self.settings.words("group_by"), self.objective.advantage)
        else {
            return;
        };
        let has = |word: &str| words.iter().any(|one| one == word);
        let mut bad = |message: &str, help: &str| {
            out.push(Problem {
                severity: Severity::Error,
                code: DiagnosticCode::BadGroup,
                location: written.location,
                message: message.to_owned(),
                also: None,
                help: help.to_owned(),
                only_if_for_all: false,
            });
        };
        if !has("task") {
            bad("`group_by` lacks `task`: completions of different tasks can't be compared", "add `task`");
        }
        if has("turn") && !has("agent") {
            bad(
                "`group_by` has `turn` without `agent`: a turn is one of an agent, and different agents answer different \
                 prompts",
                "add `agent`, or remove `turn`",
            );
        }
    }

    fn ratio(&self, out: &mut Vec<Problem>) {
        let Objective { ratio, trust_region, dual_clip, aggregation, .. } = self.objective;
        if ratio == Ratio::Sequence && aggregation != Aggregation::SequenceMean {
            let word = self.objective.value_of("aggregation").unwrap_or_default();
            let message = format!(
                "`ratio = sequence` treats a completion as a whole, but `aggregation = {word}` weights it by its length"
            );
            let help = "use `aggregation = sequence_mean`, or `ratio = token`";
            out.extend(self.conflict(DiagnosticCode::SequenceRatio, ["aggregation", "ratio"], message, help));
        }
        let word = match trust_region {
            TrustRegion::Clip => "clip",
            TrustRegion::Cispo => "cispo",
            TrustRegion::Mask => "mask",
            TrustRegion::None => "none",
        };
        let mut mismatch = |keys: [&str; 2], message: String, help: &str| {
            out.extend(self.conflict(DiagnosticCode::TrustRegionMismatch, keys, message, help));
        };
        if ratio == Ratio::None && trust_region != TrustRegion::None {
            let message = format!("`trust_region = {word}` is relative to a ratio, but `ratio = none`");
            mismatch(["trust_region", "ratio"], message, "set `trust_region = none`, or `ratio = token`");
        }
        if ratio == Ratio::Sequence && trust_region == TrustRegion::Mask {
            let message =
                "`trust_region = mask` compares probabilities of tokens, but `ratio = sequence`".to_owned();
            mismatch(["trust_region", "ratio"], message, "set `ratio = token`, or `trust_region = clip`");
        }
        if trust_region != TrustRegion::Clip && dual_clip > 0.0 {
            let message =
                format!("`dual_clip` is a part of `trust_region = clip`, but the trust region is `{word}`");
            mismatch(
                ["dual_clip", "trust_region"],
                message,
                "remove `dual_clip`, or set `trust_region = clip`",
            );
        }
    }

    fn correction(&self, out: &mut Vec<Problem>) {
        let Objective { ratio, old_logprobs, correction, .. } = self.objective;
        if correction != Correction::None && old_logprobs == OldLogprobs::Sampler && ratio != Ratio::None {
            let message = "the ratio is relative to the sampler already: with a correction, the distance from the \
                           sampler would count twice";
            let help = "set `old_logprobs = recompute`, or `correction = none`";
            out.extend(self.conflict(
                DiagnosticCode::DoubleWeight,
                ["correction", "old_logprobs"],
                message.to_owned(),
                help,
            ));
        }
    }

    fn divergence(&self, out: &mut Vec<Problem>) {
        let Objective { kl, kl_in, kl_estimator, .. } = self.objective;
        if kl > 0.0 && kl_in == KlPlace::Reward && kl_estimator == KlEstimator::StraightThrough {
            let message = "`kl_estimator = straight_through` is about the gradient of the estimate, but rewards have no \
                           gradient";
            let help = "use `kl_estimator = k1` or `k3`, or `kl_in = loss`";
            out.extend(self.conflict(
                DiagnosticCode::BadSetting,
                ["kl_estimator", "kl_in"],
                message.to_owned(),
                help,
            ));
        }
    }

    /// Finds a penalty for length that every completion has, however short it is.
    fn overlong_buffer(&self, out: &mut Vec<Problem>) {
        let buffer = self.objective.overlong_buffer;
        let (Overlong::Penalize, Some(written), Some(max_tokens)) =
            (self.objective.overlong, self.settings.written("overlong_buffer"), self.max_tokens)
        else {
            return;
        };
        if buffer > max_tokens {
            out.push(Problem {
                severity: Severity::Error,
                code: DiagnosticCode::BadSetting,
                location: written.location,
                message: format!(
                    "`overlong_buffer` is {buffer}, but an agent has `max_tokens = {max_tokens}`: its shortest completions \
                     would be penalized too"
                ),
                also: None,
                help: "remove it, or reduce it: a fifth of `max_tokens` is usual".to_owned(),
                only_if_for_all: false,
            });
        }
    }

    /// Finds losses whose gradient is biased or only noise. They are trained on all the same.
    fn gradient(&self, out: &mut Vec<Problem>) {
        let Objective { ratio, correction, kl, kl_in, kl_estimator, .. } = self.objective;
        let mut warn = |keys: [&str; 2], message: String, help: &str| {
            let problem = self.conflict(DiagnosticCode::DoubtfulGradient, keys, message, help);
            out.extend(problem.map(|problem| Problem { severity: Severity::Warning, ..problem }));
        };
        if kl > 0.0 && kl_in == KlPlace::Loss && kl_estimator == KlEstimator::K1 {
            let message =
                "`kl_estimator = k1` in the loss has a gradient of mean 0, which holds no policy back";
            let help = "use `kl_estimator = k2` or `k3`, or `kl_in = reward`";
            warn(["kl_estimator", "kl_in"], message.to_owned(), help);
        }
        if ratio != Ratio::None || correction != Correction::None {
            return;
        }
        let file = self.settings.file;
        for key in ["epochs", "mini_batches"] {
            if file.integer::<u32>(key).is_some_and(|count| count > 1) {
                let message = "`ratio = none` ignores that the later updates of a step change a policy other than the \
                               sampler";
                warn([key, "ratio"], message.to_owned(), "set `ratio = token`, or a `correction`");
                return;
            }
        }
        if file.text("schedule").is_some_and(|word| word != "sync") {
            let message = "`ratio = none` ignores that completions are older than the policy that is updated";
            warn(["schedule", "ratio"], message.to_owned(), "set `ratio = token`, or a `correction`");
        }
    }

    /// Finds settings that were written and change nothing beside the others.
    fn without_effect(&self, out: &mut Vec<Problem>) {
        for Effect { key, needs, decided_by, has } in EFFECTS {
            let Some(written) = self.settings.written(key).filter(|_| !has(&self.objective)) else {
                continue;
            };
            if self.is_from_outside(["algorithm"].iter().chain(*decided_by)) {
                continue;
            }
            out.push(Problem {
                severity: Severity::Error,
                code: DiagnosticCode::NoEffect,
                location: written.location,
                message: format!("`{key}` has no effect without {needs}"),
                also: decided_by.first().and_then(|key| self.cause(key)),
                help: format!("remove it, or set {needs}"),
                only_if_for_all: !written.own,
            });
        }
    }

    /// Finds a filter of flat groups that leaves out none, because each group has a single completion and keeps it.
    fn flat_groups(&self, out: &mut Vec<Problem>) {
        let Objective { flat_groups, advantage, group_by, .. } = self.objective;
        // Groups across agents have several members also with one sample.
        let is_alone = self.samples == Some(1) && (advantage != Advantage::Group || group_by.agent);
        let is_kept = is_alone && !self.objective.is_relative_to_group();
        let (FlatGroups::Drop, true, Some(written)) =
            (flat_groups, is_kept, self.settings.written("flat_groups"))
        else {
            return;
        };
        if self.is_from_outside(["algorithm", "samples", "advantage", "group_by", "baseline", "scale"].iter())
        {
            return;
        }
        out.push(Problem {
            severity: Severity::Error,
            code: DiagnosticCode::NoEffect,
            location: written.location,
            message: "`flat_groups = drop` has no effect with `samples = 1`: a completion alone in its group is left out \
                      only if its advantage is relative to the group"
                .to_owned(),
            also: self.cause("samples"),
            help: "remove it, or set `samples` to 2 or more".to_owned(),
            only_if_for_all: !written.own,
        });
    }

    /// Finds a distance of outliers that no completion of a group can exceed.
    fn outliers(&self, out: &mut Vec<Problem>) {
        let Objective { outliers, advantage, group_by, .. } = self.objective;
        // Groups across agents or turns have more members than samples.
        let is_of_samples = advantage != Advantage::Group || group_by.agent && group_by.turn;
        let (Some(samples), true, Some(written)) =
            (self.samples, is_of_samples && outliers > 0.0, self.settings.written("outliers"))
        else {
            return;
        };
        let n = f64::from(samples);
        let largest = (n - 1.0) / n.sqrt();
        if outliers < largest
            || self.is_from_outside(["algorithm", "samples", "advantage", "group_by"].iter())
        {
            return;
        }
        // Rounded up, so that what is shown is no less than what counts.
        let shown = (largest * 100.0).ceil() / 100.0;
        out.push(Problem {
            severity: Severity::Error,
            code: DiagnosticCode::NoEffect,
            location: written.location,
            message: format!(
                "`outliers = {outliers}` has no effect with `samples = {samples}`: no completion is further than {shown} \
                 standard deviations from the mean of its group"
            ),
            also: self.cause("samples"),
            help: "reduce it, or increase `samples`".to_owned(),
            only_if_for_all: !written.own,
        });
    }

    /// Returns true if one of some settings has a value from outside, which may switch off what the file prepares.
    fn is_from_outside<'k>(&self, keys: impl Iterator<Item = &'k &'static str>) -> bool {
        keys.filter_map(|key| self.settings.written(key))
            .any(|one| matches!(one.location, Location::Override(_)))
    }

    /// A problem of two settings that exclude each other. It is reported at the one that is the policy's own or, if both
    /// are, at the first.
    fn conflict(
        &self,
        code: DiagnosticCode,
        keys: [&str; 2],
        message: String,
        help: &str,
    ) -> Option<Problem> {
        let written = keys.map(|key| self.settings.written(key));
        let own = |index: usize| written[index].is_some_and(|one| one.own);
        let first = if !own(0) && (own(1) || written[0].is_none()) { 1 } else { 0 };
        let also = self.cause(keys[1 - first]);
        // If neither was written, both are choices of the algorithm.
        let location = match written[first] {
            Some(one) => one.location,
            None => self.settings.written("algorithm")?.location,
        };
        let (severity, help) = (Severity::Error, help.to_owned());
        Some(Problem { severity, code, location, message, also, help, only_if_for_all: false })
    }

    /// Place that decides on a setting: its own, or that of the algorithm.
    fn cause(&self, key: &str) -> Option<(Location, String)> {
        if let Some(written) = self.settings.written(key) {
            return Some((written.location, format!("`{key}` is set here")));
        }
        let algorithm = self.settings.written("algorithm")?;
        let value = self.objective.value_of(key)?;
        let word = algorithm_word(self.objective.algorithm);
        Some((algorithm.location, format!("`{word}` stands for `{key} = {value}`")))
    }
}

/// Condition under which a setting has an effect.
struct Effect {
    key: &'static str,
    /// Condition in words, after "without".
    needs: &'static str,
    /// Settings that decide, besides `algorithm`.
    decided_by: &'static [&'static str],
    has: fn(&Objective) -> bool,
}

const EFFECTS: &[Effect] = &[
    Effect {
        key: "gamma",
        needs: "`advantage = gae`",
        decided_by: &["advantage"],
        has: |o| o.advantage == Advantage::Gae,
    },
    Effect {
        key: "lambda",
        needs: "`advantage = gae`",
        decided_by: &["advantage"],
        has: |o| o.advantage == Advantage::Gae,
    },
    Effect {
        key: "gamma_turn",
        needs: "`returns = discounted` or `advantage = gae`",
        decided_by: &["returns", "advantage"],
        has: |o| {
            o.advantage == Advantage::Gae
                || o.returns == Returns::Discounted && o.advantage != Advantage::Success
        },
    },
    Effect {
        key: "returns",
        needs: "an advantage that uses rewards",
        decided_by: &["advantage"],
        has: |o| o.advantage != Advantage::Success,
    },
    Effect {
        key: "group_by",
        needs: "`advantage = group`",
        decided_by: &["advantage"],
        has: |o| o.advantage == Advantage::Group,
    },
    Effect {
        key: "clip_low",
        needs: "a trust region",
        decided_by: &["trust_region", "ratio"],
        has: |o| o.trust_region != TrustRegion::None,
    },
    Effect {
        key: "clip_high",
        needs: "a trust region",
        decided_by: &["trust_region", "ratio"],
        has: |o| o.trust_region != TrustRegion::None,
    },
    Effect {
        key: "old_logprobs",
        needs: "a ratio or a correction",
        decided_by: &["ratio", "correction"],
        has: |o| o.ratio != Ratio::None || o.correction != Correction::None,
    },
    Effect {
        key: "correction_low",
        needs: "`correction = icepop` or `correction = sequence_mask`",
        decided_by: &["correction"],
        has: |o| matches!(o.correction, Correction::Icepop | Correction::SequenceMask),
    },
    Effect {
        key: "correction_high",
        needs: "a `correction`",
        decided_by: &["correction"],
        has: |o| o.correction != Correction::None,
    },
    Effect {
        key: "divisor",
        needs: "`aggregation = constant`",
        decided_by: &["aggregation"],
        has: |o| o.aggregation == Aggregation::Constant,
    },
    Effect { key: "kl_estimator", needs: "`kl`", decided_by: &["kl"], has: |o| o.kl > 0.0 },
    Effect { key: "kl_in", needs: "`kl`", decided_by: &["kl"], has: |o| o.kl > 0.0 },
    Effect { key: "kl_target", needs: "`kl`", decided_by: &["kl"], has: |o| o.kl > 0.0 },
    Effect {
        key: "kl_horizon",
        needs: "`kl_target`",
        decided_by: &["kl_target", "kl"],
        has: |o| o.kl > 0.0 && o.kl_target.is_some(),
    },
    Effect {
        key: "kl",
        needs: "`kl_in = loss`, because `advantage = success` doesn't use rewards",
        decided_by: &["kl_in", "advantage"],
        has: |o| !(o.advantage == Advantage::Success && o.kl_in == KlPlace::Reward && o.kl > 0.0),
    },
    Effect {
        key: "overlong",
        needs: "an advantage that uses rewards",
        decided_by: &["advantage"],
        has: |o| !(o.advantage == Advantage::Success && o.overlong == Overlong::Penalize),
    },
    Effect {
        key: "overlong_buffer",
        needs: "`overlong = penalize`",
        decided_by: &["overlong"],
        has: |o| o.overlong == Overlong::Penalize,
    },
    Effect {
        key: "overlong_penalty",
        needs: "`overlong = penalize`",
        decided_by: &["overlong"],
        has: |o| o.overlong == Overlong::Penalize,
    },
    Effect {
        key: "token_penalty",
        needs: "an advantage that uses rewards",
        decided_by: &["advantage"],
        has: |o| o.advantage != Advantage::Success || o.token_penalty == 0.0,
    },
    Effect {
        key: "drop_by",
        needs: "`drop_groups`",
        decided_by: &["drop_groups"],
        has: |o| o.drop_groups > 0.0,
    },
];
