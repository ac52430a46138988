//! Steps in a row that teach next to nothing, because the samples of most groups have the same return, no completion has an
//! advantage, or a correction drops all that have one.

use pl_trainer::{StepMetrics, UpdateMetrics};

use crate::progress::Notice;

/// Share of flat groups from which on a step teaches next to nothing.
const SHARE: f64 = 0.8;

/// Number of such steps in a row that are worth a notice.
const STEPS: u32 = 5;

/// Number of the newest steps that taught next to nothing, all in a row, with their groups and completions.
#[derive(Debug, Default)]
pub(super) struct FlatSteps {
    count: u32,
    groups: u64,
    flat: u64,
    completions: u64,
    /// Steps whose completions were all dropped by a correction.
    dropped: u32,
}

impl FlatSteps {
    /// Adds a step. Returns a notice when the last steps taught next to nothing, once for each row of them. A step after
    /// which no policy `is_updated` neither counts nor ends a row. `success` is the share of the step's episodes that
    /// succeeded.
    pub(super) fn add(
        &mut self,
        metrics: &StepMetrics,
        is_updated: bool,
        success: Option<f64>,
    ) -> Option<Notice> {
        if !is_updated {
            return None;
        }
        let StepMetrics { groups, flat_groups: flat, policies, .. } = metrics;
        let is_dropped = |own: &&UpdateMetrics| own.effective_sample_size == Some(0.0);
        let has_advantage = policies
            .iter()
            .filter(|own| !is_dropped(own))
            .any(|own| own.advantage_mean != 0.0 || own.advantage_std != 0.0);
        let is_flat = *groups > 0 && *flat as f64 >= SHARE * *groups as f64;
        if has_advantage && !is_flat {
            *self = FlatSteps::default();
            return None;
        }
        self.count += 1;
        self.groups += groups;
        self.flat += flat;
        self.dropped += u32::from(policies.iter().any(|own| is_dropped(&own)));
        self.completions += policies.iter().map(|own| own.completions).sum::<u64>();
        // Filters may leave out all groups, and algorithms without groups compare none.
        let has_flat_groups = self.groups > 0 && self.flat as f64 >= SHARE * self.groups as f64;
        (self.count == STEPS).then(|| Notice::FlatSteps {
            steps: STEPS,
            completions: self.completions,
            dropped: self.dropped,
            share: has_flat_groups.then(|| self.flat as f64 / self.groups as f64),
            success: success.unwrap_or(0.0),
            entropy: policies.iter().filter_map(|own| own.entropy).reduce(f64::max),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A step with some groups, of which some are flat. Those that are not give its policy advantages.
    fn step(groups: u64, flat_groups: u64) -> StepMetrics {
        let policies = vec![policy(if groups > flat_groups { 0.5 } else { 0.0 })];
        StepMetrics { policies, groups, flat_groups, batches: 0, fed_tokens: 0 }
    }

    /// Metrics of the update of a policy whose advantages have a standard deviation.
    fn policy(advantage_std: f64) -> UpdateMetrics {
        let metrics = json!({
            "policy": "p", "version": 1, "completions": 8, "tokens": 80, "trained_tokens": 0, "completion_length": 10.0,
            "cut_off": 0.0, "advantage_mean": 0.0, "advantage_std": advantage_std, "optimizer_steps": 0,
            "skipped_steps": 0, "loss": 0.0, "grad_norm": 0.0, "clip_fraction": 0.0, "dual_clip_fraction": 0.0,
            "lr": 1e-5,
        });
        serde_json::from_value(metrics).unwrap()
    }

    /// A step whose update compares no groups: they were left out, or its algorithm has none.
    fn without_groups(policies: &[UpdateMetrics]) -> StepMetrics {
        StepMetrics { policies: policies.to_vec(), ..step(0, 0) }
    }

    /// Returns the numbers of the steps, from 1, that give a notice.
    fn told(steps: &[(u64, u64)]) -> Vec<usize> {
        let mut watched = FlatSteps::default();
        let notices = steps.iter().map(|(groups, flat)| watched.add(&step(*groups, *flat), true, Some(0.5)));
        notices.zip(1..).filter_map(|(notice, number)| notice.map(|_| number)).collect()
    }

    /// Returns the notice after as many equal steps as give one.
    fn notice(step: &StepMetrics) -> Option<String> {
        let mut watched = FlatSteps::default();
        let mut notices = (0..STEPS).filter_map(|_| watched.add(step, true, Some(0.0)));
        notices.next().map(|notice| notice.to_string())
    }

    #[test]
    fn a_row_of_flat_steps_is_told_once() {
        assert_eq!(told(&[(10, 8); 12]), [5]);
        assert!(told(&[(10, 7); 12]).is_empty());
        // One step that teaches begins a new row.
        let rows = [[(10, 9); 5].as_slice(), &[(10, 2)], &[(10, 10); 5]].concat();
        assert_eq!(told(&rows), [5, 11]);
    }

    #[test]
    fn steps_without_any_advantage_teach_nothing_also_if_no_groups_are_compared() {
        // As with a value head, or with groups that all differ.
        assert_eq!(notice(&without_groups(&[policy(0.5)])), None);
        assert_eq!(notice(&without_groups(&[policy(0.0), policy(0.5)])), None);
        // All groups are left out, or no sample succeeds.
        let own = notice(&without_groups(&[policy(0.0)])).unwrap();
        assert!(own.contains("in the last 5 steps, no completion had an advantage"), "{own}");
        // Every prompt is too long.
        let own = notice(&without_groups(&[])).unwrap();
        assert!(own.contains("in the last 5 steps, there was no completion to train on"), "{own}");
    }

    #[test]
    fn completions_that_a_correction_dropped_teach_nothing() {
        let with_weights = |size| UpdateMetrics { effective_sample_size: Some(size), ..policy(0.5) };
        assert_eq!(notice(&without_groups(&[with_weights(0.1)])), None);
        assert_eq!(notice(&without_groups(&[with_weights(0.0), policy(0.5)])), None);
        let own = notice(&without_groups(&[with_weights(0.0), policy(0.0)])).unwrap();
        assert!(
            own.contains("`correction` dropped all completions of a policy in 5 of the last 5 steps"),
            "{own}"
        );
        assert!(own.contains("`correction_high`"), "{own}");
    }

    #[test]
    fn steps_between_updates_neither_count_nor_end_a_row() {
        let mut watched = FlatSteps::default();
        let mut told = Vec::new();
        for number in 1..=12 {
            let is_updated = number % 2 == 0;
            let metrics = if is_updated { step(10, 10) } else { without_groups(&[]) };
            told.extend(watched.add(&metrics, is_updated, None).map(|_| number));
        }
        assert_eq!(told, [10]);
    }

    #[test]
    fn the_notice_has_the_share_of_all_its_steps_and_advice() {
        let shown = |success, entropy| {
            let (share, dropped) = (Some(0.925), 0);
            Notice::FlatSteps { steps: 5, completions: 80, dropped, share, success, entropy }.to_string()
        };
        let own = shown(0.4, Some(0.03));
        assert!(own.contains("in the last 5 steps, 92 % of the groups"), "{own}");
        assert!(own.contains("entropy 0.03") && own.contains("train.entropy"), "{own}");
        assert!(shown(0.95, Some(0.5)).contains("nearly solved"));
        assert!(shown(0.0, Some(0.9)).contains("`samples`"));
        assert!(!shown(0.0, None).contains("entropy"));
    }
}
