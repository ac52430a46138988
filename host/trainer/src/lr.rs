//! The learning rate of a training step: linear warm-up, then constant or cosine.

use std::f64::consts::PI;

use pl_dsl::workflow::LrSchedule;
use pl_dsl::workflow::objective::Optimizer;

/// Learning rate of step `step`, counted from 0, in a run of `steps` steps.
///
/// The rate rises linearly over the first `warmup` steps and reaches its full value at the last of them.
/// `cosine` (Loshchilov and Hutter 2016, arXiv:1608.03983, one cycle) then falls towards 0, which it would
/// reach one step after the last of `steps` steps; later steps have rate 0.
pub fn learning_rate(optimizer: &Optimizer, steps: u32, step: u64) -> f64 {
    let (warmup, steps) = (u64::from(optimizer.warmup), u64::from(steps));
    if step < warmup {
        return optimizer.learning_rate * (step + 1) as f64 / warmup as f64;
    }
    match optimizer.lr_schedule {
        LrSchedule::Constant => optimizer.learning_rate,
        LrSchedule::Cosine if step >= steps => 0.0,
        LrSchedule::Cosine => {
            let progress = (step - warmup) as f64 / (steps - warmup) as f64;
            optimizer.learning_rate * 0.5 * (1.0 + (PI * progress).cos())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::optimizer;

    #[test]
    fn warm_up_climbs_to_the_full_rate() {
        let optimizer = Optimizer { warmup: 4, learning_rate: 8.0, ..optimizer() };
        let rates: Vec<f64> = (0..6).map(|step| learning_rate(&optimizer, 10, step)).collect();
        assert_eq!(rates, [2.0, 4.0, 6.0, 8.0, 8.0, 8.0]);
    }

    #[test]
    fn cosine_falls_from_the_full_rate_to_zero() {
        let optimizer =
            Optimizer { warmup: 2, learning_rate: 1.0, lr_schedule: LrSchedule::Cosine, ..optimizer() };
        let rate = |step| learning_rate(&optimizer, 10, step);
        assert_eq!(rate(1), 1.0);
        assert_eq!(rate(2), 1.0);
        assert!((rate(6) - 0.5).abs() < 1e-12);
        for step in 2..9 {
            assert!(rate(step + 1) < rate(step));
        }
        assert!(rate(9) > 0.0);
        assert_eq!(rate(10), 0.0);
    }

    #[test]
    fn warm_up_over_the_whole_run_does_not_divide_by_zero() {
        let optimizer =
            Optimizer { warmup: 5, lr_schedule: LrSchedule::Cosine, learning_rate: 1.0, ..optimizer() };
        assert_eq!(learning_rate(&optimizer, 5, 4), 1.0);
        assert_eq!(learning_rate(&optimizer, 5, 5), 0.0);
    }
}
