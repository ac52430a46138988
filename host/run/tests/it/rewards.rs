//! Rewards that the plugin contract refuses.

use pl_dsl::workflow::objective::{Baseline, Scale};
use pl_trainer::advantage::{TurnReturn, group_advantages};

/// The control of the range that rewards must be in: beyond it, one reward spoils the advantages of its whole group.
#[test]
fn rewards_beyond_the_range_spoil_the_advantages() {
    let all_finite = |rewards: [f64; 4]| {
        let returns: Vec<TurnReturn> =
            rewards.iter().enumerate().map(|(episode, &value)| TurnReturn { episode, value }).collect();
        let advantages = [Baseline::Mean, Baseline::LeaveOneOut]
            .map(|baseline| group_advantages(&returns, baseline, Scale::Group));
        advantages.iter().flatten().all(|advantage| advantage.is_finite())
    };
    for beyond in [f64::NAN, f64::INFINITY, 1.7e308] {
        assert!(!all_finite([beyond, beyond, 0.0, 1.0]), "{beyond}");
    }
    for within in [1e6, -1e6, 5e-324, -0.0] {
        assert!(all_finite([within, within, 0.0, 1.0]), "{within}");
    }
}
