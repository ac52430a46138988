//! Seeds of the trainer's random streams. Each purpose has its own, derived from the run's seed, so that no
//! draw depends on other draws.

use pl_types::seed::trainer;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// Random stream that shuffles `policy`'s transitions into mini-batches.
pub fn mini_batch_rng(run: u64, policy: &str, step: u64, epoch: u64) -> ChaCha8Rng {
    ChaCha8Rng::from_seed(trainer(run, "mini-batches", policy, &[step, epoch]))
}

/// Seed of a new adapter.
pub fn adapter_seed(run: u64, policy: &str) -> [u8; 32] {
    trainer(run, "adapter", policy, &[])
}

/// Seed of a new adapter of `policy`'s critic.
pub fn critic_adapter_seed(run: u64, policy: &str) -> [u8; 32] {
    trainer(run, "critic adapter", policy, &[])
}
