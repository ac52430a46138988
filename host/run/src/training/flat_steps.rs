//! Steps in a row that teach next to nothing, because the samples of most groups have the same return.

use pl_trainer::StepMetrics;

use crate::progress::Notice;

/// Share of flat groups from which on a step teaches next to nothing.
const SHARE: f64 = 0.8;

/// Number of such steps in a row that are worth a notice.
const STEPS: u32 = 5;

/// Number of the newest steps that were flat, all in a row.
#[derive(Debug, Default)]
pub(super) struct FlatSteps {
    count: u32,
    groups: u64,
    flat: u64,
}

impl FlatSteps {
    /// Adds a step. Returns a notice when the last steps were flat, once for each row of them. `success` is the share of the
    /// step's episodes that succeeded.
    pub(super) fn add(&mut self, metrics: &StepMetrics, success: Option<f64>) -> Option<Notice> {
        let StepMetrics { groups, flat_groups: flat, policies, .. } = metrics;
        if (*flat as f64) < SHARE * *groups as f64 || *groups == 0 {
            *self = FlatSteps::default();
            return None;
        }
        self.count += 1;
        self.groups += groups;
        self.flat += flat;
        (self.count == STEPS).then(|| Notice::FlatSteps {
            steps: STEPS,
            share: self.flat as f64 / self.groups as f64,
            success: success.unwrap_or(0.0),
            entropy: policies.iter().filter_map(|own| own.entropy).reduce(f64::max),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(groups: u64, flat_groups: u64) -> StepMetrics {
        StepMetrics { policies: Vec::new(), groups, flat_groups, batches: 0, fed_tokens: 0 }
    }

    /// Returns the numbers of the steps, from 1, that give a notice.
    fn told(steps: &[(u64, u64)]) -> Vec<usize> {
        let mut watched = FlatSteps::default();
        let notices = steps.iter().map(|(groups, flat)| watched.add(&step(*groups, *flat), Some(0.5)));
        notices.zip(1..).filter_map(|(notice, number)| notice.map(|_| number)).collect()
    }

    #[test]
    fn a_row_of_flat_steps_is_told_once() {
        assert_eq!(told(&[(10, 8); 12]), [5]);
        assert!(told(&[(10, 7); 12]).is_empty());
        // One step that teaches begins a new row.
        let rows = [[(10, 9); 5].as_slice(), &[(10, 2)], &[(10, 10); 5]].concat();
        assert_eq!(told(&rows), [5, 11]);
        // Without groups, as with a value head, there is nothing to compare.
        assert!(told(&[(0, 0); 12]).is_empty());
    }

    #[test]
    fn the_notice_has_the_share_of_all_its_steps_and_advice() {
        let shown = |success, entropy| {
            let share = 0.925;
            Notice::FlatSteps { steps: 5, share, success, entropy }.to_string()
        };
        let own = shown(0.4, Some(0.03));
        assert!(own.contains("in the last 5 steps, 92 % of the groups"), "{own}");
        assert!(own.contains("entropy 0.03") && own.contains("train.entropy"), "{own}");
        assert!(shown(0.95, Some(0.5)).contains("nearly solved"));
        assert!(shown(0.0, Some(0.9)).contains("`samples`"));
        assert!(!shown(0.0, None).contains("entropy"));
    }
}
