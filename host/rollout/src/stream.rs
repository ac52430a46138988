//! Random streams, one per place in a run, so that nothing depends on the order in which things happen.
//!
//! A stream is a ChaCha key: the hash of the seed and of the place. Two places never share one.

use blake3::Hasher;
use serde::{Deserialize, Serialize};

/// What an episode is played for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Train,
    /// By the name of the evaluation.
    Evaluate(String),
    Play,
}

/// Where an episode (flat) or a tree stands in a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub seed: u64,
    pub phase: Phase,
    pub step: u64,
    /// Position in the step's task list.
    pub task: u32,
    /// Flat: the episode of the task. Tree: 0.
    pub sample: u32,
    /// Earlier tries at this episode that failed.
    pub attempt: u32,
}

impl Place {
    fn hasher(&self, purpose: &str) -> Hasher {
        let mut hasher = Hasher::new_derive_key("pl-host random stream v1");
        let phase = match &self.phase {
            Phase::Train => "train",
            Phase::Evaluate(name) => name,
            Phase::Play => "play",
        };
        let kind = matches!(self.phase, Phase::Evaluate(_)) as u64;
        for text in [purpose, phase] {
            hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        }
        for number in [kind, self.seed, self.step, u64::from(self.task)] {
            hasher.update(&number.to_le_bytes());
        }
        hasher
    }

    fn own(&self, purpose: &str, numbers: &[u32]) -> [u8; 32] {
        let mut hasher = self.hasher(purpose);
        for number in [self.sample, self.attempt].iter().chain(numbers) {
            hasher.update(&number.to_le_bytes());
        }
        *hasher.finalize().as_bytes()
    }

    /// The seed with which the environment starts: one for all episodes of a task, so that they are compared
    /// on the same problem.
    pub fn start_seed(&self) -> u64 {
        let hash = self.hasher("start").finalize();
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&hash.as_bytes()[..8]);
        u64::from_le_bytes(bytes)
    }

    /// The environment's stream. Copies of a tree node continue it from one position.
    pub fn environment(&self) -> [u8; 32] {
        self.own("environment", &[])
    }

    /// The stream of one completion. `retry` counts earlier tries at the same candidate.
    pub fn completion(&self, node_visit: u32, agent: u32, branch: u32, retry: u32) -> [u8; 32] {
        self.own("completion", &[node_visit, agent, branch, retry])
    }

    /// Decides between candidates of equal reward.
    pub fn tie(&self, node_visit: u32) -> [u8; 32] {
        self.own("tie", &[node_visit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn place(task: u32, sample: u32, attempt: u32) -> Place {
        Place { seed: 7, phase: Phase::Train, step: 1, task, sample, attempt }
    }

    #[test]
    fn no_two_places_share_a_stream() {
        let mut seen = HashSet::new();
        let mut add = |key: [u8; 32]| assert!(seen.insert(key));
        for task in 0..3 {
            for sample in 0..3 {
                for attempt in 0..2 {
                    let place = place(task, sample, attempt);
                    add(place.environment());
                    for number in 0..3 {
                        add(place.tie(number));
                        add(place.completion(number, 0, 1, 0));
                        add(place.completion(0, number + 3, 1, 0));
                        add(place.completion(0, 0, number + 6, 0));
                        add(place.completion(0, 0, 1, number + 9));
                    }
                }
            }
        }
        let evaluation = Place { phase: Phase::Evaluate("train".into()), ..place(0, 0, 0) };
        add(evaluation.environment());
        add(Place { seed: 8, ..place(0, 0, 0) }.environment());
        add(Place { step: 2, ..place(0, 0, 0) }.environment());
    }

    #[test]
    fn samples_of_a_task_start_alike() {
        assert_eq!(place(1, 0, 0).start_seed(), place(1, 3, 2).start_seed());
        assert_ne!(place(1, 0, 0).start_seed(), place(2, 0, 0).start_seed());
    }
}
