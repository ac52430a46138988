//! The learning rate of a training step: linear warm-up, then constant or cosine.

use std::f64::consts::PI;

use pl_dsl::workflow::{LrSchedule, Train};

/// Learning rate of step `step`, counted from 0.
///
/// The rate rises linearly over the first `warmup` steps and reaches its full value at the last of them.
/// `cosine` (Loshchilov and Hutter 2016, arXiv:1608.03983, one cycle) then falls towards 0, which it would
/// reach one step after the last of `steps` steps; later steps have rate 0.
pub fn learning_rate(train: &Train, step: u64) -> f64 {
    let (warmup, steps) = (u64::from(train.warmup), u64::from(train.steps));
    if step < warmup {
        return train.learning_rate * (step + 1) as f64 / warmup as f64;
    }
    match train.lr_schedule {
        LrSchedule::Constant => train.learning_rate,
        LrSchedule::Cosine if step >= steps => 0.0,
        LrSchedule::Cosine => {
            let progress = (step - warmup) as f64 / (steps - warmup) as f64;
            train.learning_rate * 0.5 * (1.0 + (PI * progress).cos())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::train;

    #[test]
    fn warm_up_climbs_to_the_full_rate() {
        let train = Train { warmup: 4, learning_rate: 8.0, steps: 10, ..train() };
        let rates: Vec<f64> = (0..6).map(|step| learning_rate(&train, step)).collect();
        assert_eq!(rates, [2.0, 4.0, 6.0, 8.0, 8.0, 8.0]);
    }

    #[test]
    fn cosine_falls_from_the_full_rate_to_zero() {
        let train =
            Train { warmup: 2, learning_rate: 1.0, steps: 10, lr_schedule: LrSchedule::Cosine, ..train() };
        assert_eq!(learning_rate(&train, 1), 1.0);
        assert_eq!(learning_rate(&train, 2), 1.0);
        assert!((learning_rate(&train, 6) - 0.5).abs() < 1e-12);
        for step in 2..9 {
            assert!(learning_rate(&train, step + 1) < learning_rate(&train, step));
        }
        assert!(learning_rate(&train, 9) > 0.0);
        assert_eq!(learning_rate(&train, 10), 0.0);
    }

    #[test]
    fn warm_up_over_the_whole_run_does_not_divide_by_zero() {
        let train =
            Train { warmup: 5, steps: 5, lr_schedule: LrSchedule::Cosine, learning_rate: 1.0, ..train() };
        assert_eq!(learning_rate(&train, 4), 1.0);
        assert_eq!(learning_rate(&train, 5), 0.0);
    }
}
