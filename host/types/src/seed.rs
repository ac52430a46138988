//! Random streams of a run, one per purpose and position, so that no draw depends on the order of events.
//!
//! A stream is a ChaCha key: the hash of the run's seed, the purpose and the position. No two positions share
//! one.

use serde::{Deserialize, Serialize};

use crate::hash::PartHasher;

/// The purpose of an episode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Train,
    /// Evaluation, with the name of its block.
    Evaluate(String),
    Play,
}

/// The position of an episode (flat) or a tree in a run. All of its random streams are derived from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamKey {
    /// The run's seed.
    pub seed: u64,
    pub phase: Phase,
    pub step: u64,
    /// Position in the step's task list.
    pub task: u32,
    /// Flat: the episode of the task. Tree: 0.
    pub sample: u32,
    /// Number of earlier attempts at this episode that failed.
    pub attempt: u32,
}

impl StreamKey {
    /// The derivation that all samples and attempts of a task share.
    fn task_hasher(&self, purpose: &str, step: u64) -> PartHasher {
        let phase = match &self.phase {
            Phase::Train => "train",
            Phase::Evaluate(name) => name,
            Phase::Play => "play",
        };
        // Distinguishes an evaluation named "train" from training.
        let kind = u64::from(matches!(self.phase, Phase::Evaluate(_)));
        PartHasher::derive_key("pl-host random stream v1")
            .text(purpose)
            .text(phase)
            .u64(kind)
            .u64(self.seed)
            .u64(step)
            .u64(u64::from(self.task))
    }

    fn stream(&self, purpose: &str, step: u64, numbers: &[u32]) -> [u8; 32] {
        let hasher = self.task_hasher(purpose, step).u32(self.sample).u32(self.attempt);
        numbers.iter().fold(hasher, |hasher, number| hasher.u32(*number)).seed()
    }

    /// The step that an environment's randomness depends on. Evaluations of all steps have the same, so that they are
    /// compared on the same problems.
    fn environment_step(&self) -> u64 {
        match self.phase {
            Phase::Evaluate(_) => 0,
            Phase::Train | Phase::Play => self.step,
        }
    }

    /// The seed that the environment starts with. All episodes of a task share it, so that they are compared
    /// on the same problem.
    pub fn start_seed(&self) -> u64 {
        self.task_hasher("start", self.environment_step()).seed_u64()
    }

    /// The environment's stream. Copies of a tree node continue it from one position.
    pub fn environment(&self) -> [u8; 32] {
        self.stream("environment", self.environment_step(), &[])
    }

    /// The stream of one completion. `retry` counts earlier attempts at the same candidate, `call` earlier completions of
    /// the turn.
    pub fn completion(&self, node_visit: u32, agent: u32, branch: u32, retry: u32, call: u32) -> [u8; 32] {
        let numbers = [node_visit, agent, branch, retry, call];
        // Turns of one completion have had the streams without its number since before there were others.
        self.stream("completion", self.step, if call == 0 { &numbers[..4] } else { &numbers })
    }

    /// The stream that decides between candidates of equal reward.
    pub fn tie(&self, node_visit: u32) -> [u8; 32] {
        self.stream("tie", self.step, &[node_visit])
    }
}

/// The seed of one pass over a shuffled list of tasks.
pub fn task_order(seed: u64, pass: u64) -> [u8; 32] {
    PartHasher::derive_key("pl-host task order v1").u64(seed).u64(pass).seed()
}

/// The seed of a trainer's draws for `purpose`, distinguished by a name and numbers.
pub fn trainer(seed: u64, purpose: &str, name: &str, numbers: &[u64]) -> [u8; 32] {
    let hasher = PartHasher::derive_key("pl-trainer random stream v1").u64(seed).text(purpose).text(name);
    numbers.iter().fold(hasher, |hasher, number| hasher.u64(*number)).seed()
}

/// The randomness that WASI gives a plugin in one call: from the key of its episode's stream, the turn and
/// the function.
pub fn wasi(stream: &[u8; 32], turn: u32, function: &str) -> [u8; 32] {
    PartHasher::derive_key("pl-host 2026 WASI randomness")
        .fixed(stream)
        .u32(turn)
        .fixed(function.as_bytes())
        .seed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeSet, HashSet};

    fn key(task: u32, sample: u32, attempt: u32) -> StreamKey {
        StreamKey { seed: 7, phase: Phase::Train, step: 1, task, sample, attempt }
    }

    #[test]
    fn no_two_positions_share_a_stream() {
        let mut seen = HashSet::new();
        let mut add = |stream: [u8; 32]| assert!(seen.insert(stream));
        for task in 0..3 {
            for sample in 0..3 {
                for attempt in 0..2 {
                    let key = key(task, sample, attempt);
                    add(key.environment());
                    for number in 0..3 {
                        add(key.tie(number));
                        add(key.completion(number, 0, 1, 0, 0));
                        add(key.completion(0, number + 3, 1, 0, 0));
                        add(key.completion(0, 0, number + 6, 0, 0));
                        add(key.completion(0, 0, 1, number + 9, 0));
                    }
                }
            }
        }
        let evaluation = StreamKey { phase: Phase::Evaluate("train".into()), ..key(0, 0, 0) };
        add(evaluation.environment());
        add(StreamKey { seed: 8, ..key(0, 0, 0) }.environment());
        add(StreamKey { step: 2, ..key(0, 0, 0) }.environment());
    }

    #[test]
    fn samples_of_a_task_start_alike() {
        assert_eq!(key(1, 0, 0).start_seed(), key(1, 3, 2).start_seed());
        assert_ne!(key(1, 0, 0).start_seed(), key(2, 0, 0).start_seed());
    }

    /// Evaluations at different steps play the same problems. Completions are drawn anew.
    #[test]
    fn evaluations_start_alike_at_every_step() {
        let at = |phase: Phase, step| StreamKey { phase, step, ..key(1, 0, 0) };
        let evaluation = |step| at(Phase::Evaluate("test".into()), step);
        assert_eq!(evaluation(0).start_seed(), evaluation(10).start_seed());
        assert_eq!(evaluation(0).environment(), evaluation(10).environment());
        assert_ne!(evaluation(0).completion(0, 0, 0, 0, 0), evaluation(10).completion(0, 0, 0, 0, 0));
        assert_ne!(at(Phase::Train, 1).start_seed(), at(Phase::Train, 2).start_seed());
        assert_ne!(at(Phase::Train, 1).environment(), at(Phase::Train, 2).environment());
    }

    #[test]
    fn every_part_tells_a_trainers_streams_apart() {
        let seeds = [
            trainer(1, "a", "b", &[]),
            trainer(2, "a", "b", &[]),
            trainer(1, "ab", "", &[]),
            trainer(1, "", "ab", &[]),
            trainer(1, "a", "b", &[0]),
            trainer(1, "a", "b", &[0, 0]),
            trainer(1, "a", "b", &[1, 0]),
            trainer(1, "a", "b", &[0, 1]),
        ];
        assert_eq!(seeds.iter().collect::<BTreeSet<_>>().len(), seeds.len());
        assert_eq!(trainer(7, "x", "y", &[3]), trainer(7, "x", "y", &[3]));
    }

    /// Recorded runs depend on these values. They were computed with BLAKE3 directly, from the bytes that
    /// each derivation hashes.
    #[test]
    fn derivations_are_stable() {
        let hex = |seed: [u8; 32]| seed.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let phase = Phase::Evaluate("test".into());
        let key = StreamKey { seed: 7, phase, step: 3, task: 5, sample: 2, attempt: 1 };
        assert_eq!(key.start_seed(), 15_326_165_031_391_833_751);
        for (seed, expected) in [
            (key.environment(), "34c7804e35501384723d1b13e5bd609d7e15740994ea87a7b995f6dee908b2ef"),
            (
                key.completion(4, 1, 2, 0, 0),
                "05ed9e90ebbb932be60966087c6397477859453fe2766f306111e152ecd1e3b9",
            ),
            (key.tie(4), "424cb2920e01a248858067acf0e2c47ddae3661b29b3073d1c9eb0fe765191a5"),
            (
                trainer(7, "mini-batches", "coder", &[3, 0]),
                "6343556f17ba592b1027ad11522409aa6724f1ccb16bc02b3e47be01c22e5718",
            ),
            (task_order(7, 2), "ceddb0ef4abe8a20aa84b0cbaf8246ec794adc9aa05d189b1223f1b03eb97990"),
            (wasi(&[9; 32], 3, "apply"), "8b03a2e09f6b0a2aaae44cbc1f4485b440eb0e34cccc53a318d7d77a4f0e402e"),
        ] {
            assert_eq!(hex(seed), expected);
        }
    }
}
