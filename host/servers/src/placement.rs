//! Placement of prompts: equal beginnings on one server, whose prefix cache has them.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};

/// Number of tokens after which beginnings of prompts are compared. Prefix caches work with blocks of 16.
const BLOCK: usize = 64;

/// Number of requests that a server may have more than the least loaded one and still get a prompt that begins
/// like an earlier one.
const SLACK: usize = 8;

/// Number of beginnings to remember, 1 MB of them.
const MOST: usize = 1 << 16;

/// Server that each beginning was sent to last.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    servers: HashMap<u64, usize>,
}

/// Returns the hashes of a prompt's beginnings, shortest first: of every 64 tokens, and of the whole.
pub(crate) fn beginnings(prompt: &[u32]) -> Vec<u64> {
    let mut hasher = DefaultHasher::new();
    let block = |tokens: &[u32]| {
        tokens.iter().for_each(|token| hasher.write_u32(*token));
        hasher.finish()
    };
    prompt.chunks(BLOCK).map(block).collect()
}

impl Placement {
    /// Chooses one of `loads`, which has pairs of a server and its number of requests in progress: the server of
    /// the longest known beginning, or the least loaded one if that has too many requests. Returns `None` if
    /// `loads` is empty.
    pub(crate) fn choose(&mut self, beginnings: &[u64], loads: &[(usize, usize)]) -> Option<usize> {
        let (least, smallest) = loads.iter().copied().min_by_key(|(server, load)| (*load, *server))?;
        let known = beginnings.iter().rev().find_map(|hash| self.servers.get(hash).copied());
        let close = |(server, load): &&(usize, usize)| Some(*server) == known && *load <= smallest + SLACK;
        let chosen = loads.iter().find(close).map_or(least, |(server, _)| *server);
        if self.servers.len() + beginnings.len() > MOST {
            self.servers.clear();
        }
        self.servers.extend(beginnings.iter().map(|hash| (*hash, chosen)));
        Some(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_follow_their_longest_known_beginning() {
        let mut placement = Placement::default();
        let (long, other): (Vec<u32>, Vec<u32>) = ((0..130).collect(), (500..600).collect());
        let loads = |a, b| [(0, a), (1, b)];
        assert_eq!(placement.choose(&beginnings(&long), &loads(3, 2)), Some(1));
        assert_eq!(placement.choose(&beginnings(&other), &loads(2, 3)), Some(0));
        let continued: Vec<u32> = (0..200).collect();
        assert_eq!(placement.choose(&beginnings(&continued), &loads(0, 5)), Some(1), "128 tokens are equal");
        assert_eq!(placement.choose(&beginnings(&other), &loads(8, 0)), Some(0));
        assert_eq!(placement.choose(&beginnings(&other), &loads(9, 0)), Some(1), "too much load");
        assert_eq!(placement.choose(&beginnings(&other), &[]), None);
    }

    #[test]
    fn the_table_is_bounded() {
        let mut placement = Placement::default();
        for first in 0..(2 * MOST as u32) {
            placement.choose(&beginnings(&[first]), &[(0, 0)]);
        }
        assert!(placement.servers.len() <= MOST);
    }
}
