//! Ownership of the blocks of the KV cache.
//!
//! A block holds [`BLOCK`] tokens of one sequence. A full block is published under a [`PrefixKey`] (the
//! snapshot of weights, all tokens before it, its own tokens) and outlives its sequence. The next sequence
//! with the same prefix acquires it instead of recomputing it: samples of one prompt, turns of one episode,
//! prompts with the same examples. When room is needed, the least recently used unreferenced block is evicted
//! first.

use std::collections::{BTreeMap, HashMap};

/// Number of tokens in a block.
pub(crate) const BLOCK: usize = pl_kernels::cpu::BLOCK;

/// Identifies a snapshot of a policy's weights.
pub(crate) type SnapshotId = u64;

/// Identifies a block's contents: the blocks before it, and its own tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct PrefixKey {
    snapshot: SnapshotId,
    /// Serial number of the preceding block, 0 for the first. Serial numbers are never reused, so that a key
    /// denotes one sequence of tokens forever.
    previous: u64,
    tokens: [u32; BLOCK],
}

#[derive(Debug, Default)]
struct Block {
    /// Number of sequences that reference it.
    references: u32,
    /// Serial number and key, if its contents are published.
    published: Option<(u64, PrefixKey)>,
    /// Key into [`BlockPool::cached`] while it is unreferenced.
    released_at: u64,
}

/// All cache blocks of one base model.
#[derive(Debug)]
pub(crate) struct BlockPool {
    capacity: usize,
    blocks: Vec<Block>,
    /// Unreferenced blocks without published contents.
    free_list: Vec<u32>,
    /// Unreferenced blocks with published contents, by the time of their release.
    cached: BTreeMap<u64, u32>,
    prefixes: HashMap<PrefixKey, u32>,
    next_serial: u64,
    clock: u64,
}

/// The blocks of one sequence.
#[derive(Debug, Default)]
pub(crate) struct BlockTable {
    /// Blocks in order; the last may be partly filled.
    pub(crate) blocks: Vec<u32>,
    /// Number of leading blocks that have been published.
    published: usize,
    /// Serial number of the last published block.
    serial: u64,
}

impl BlockPool {
    /// A pool of at most `capacity` blocks.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            blocks: Vec::new(),
            free_list: Vec::new(),
            cached: BTreeMap::new(),
            prefixes: HashMap::new(),
            next_serial: 1,
            clock: 0,
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Number of blocks that can still be allocated.
    pub(crate) fn available(&self) -> usize {
        self.capacity - self.blocks.len() + self.free_list.len() + self.cached.len()
    }

    /// Published blocks of the longest cached prefix of `tokens`, with serial numbers. Excludes the last
    /// token, whose logits are needed.
    fn find_prefix(&self, snapshot: SnapshotId, tokens: &[u32]) -> Vec<(u32, u64)> {
        let mut found = Vec::new();
        let mut previous = 0;
        for chunk in tokens[..tokens.len().saturating_sub(1)].chunks_exact(BLOCK) {
            let Ok(tokens) = chunk.try_into() else { break };
            let Some(block) = self.prefixes.get(&PrefixKey { snapshot, previous, tokens }) else { break };
            let Some((serial, _)) = self.blocks[*block as usize].published else { break };
            found.push((*block, serial));
            previous = serial;
        }
        found
    }

    /// Number of cached blocks that a sequence of `tokens` would acquire.
    pub(crate) fn prefix_hit(&self, snapshot: SnapshotId, tokens: &[u32]) -> usize {
        self.find_prefix(snapshot, tokens).len()
    }

    /// Acquires the cached prefix of `tokens`.
    pub(crate) fn acquire_prefix(&mut self, snapshot: SnapshotId, tokens: &[u32]) -> BlockTable {
        let found = self.find_prefix(snapshot, tokens);
        for (block, _) in &found {
            self.add_reference(*block);
        }
        BlockTable {
            published: found.len(),
            serial: found.last().map_or(0, |(_, serial)| *serial),
            blocks: found.into_iter().map(|(block, _)| block).collect(),
        }
    }

    /// Allocates blocks until `table` holds `tokens` tokens. Returns false if the pool is exhausted; blocks
    /// allocated so far stay in the table.
    pub(crate) fn allocate(&mut self, table: &mut BlockTable, tokens: usize) -> bool {
        while table.blocks.len() * BLOCK < tokens {
            let Some(block) = self.allocate_block() else { return false };
            table.blocks.push(block);
        }
        true
    }

    /// A second table over the full blocks of `table`, which holds `tokens` tokens. The caller copies the
    /// rest of a partly filled block.
    pub(crate) fn fork(&mut self, table: &BlockTable, tokens: usize) -> BlockTable {
        let blocks = table.blocks[..tokens / BLOCK].to_vec();
        blocks.iter().for_each(|block| self.add_reference(*block));
        BlockTable { published: table.published.min(blocks.len()), serial: table.serial, blocks }
    }

    /// Publishes the blocks that are full now that the first `computed` of `tokens` are in the cache.
    pub(crate) fn publish_blocks(
        &mut self,
        snapshot: SnapshotId,
        table: &mut BlockTable,
        tokens: &[u32],
        computed: usize,
    ) {
        while (table.published + 1) * BLOCK <= computed {
            let start = table.published * BLOCK;
            let Ok(own) = tokens[start..start + BLOCK].try_into() else { return };
            let key = PrefixKey { snapshot, previous: table.serial, tokens: own };
            let block = table.blocks[table.published];
            let duplicate = self.prefixes.get(&key).and_then(|other| self.blocks[*other as usize].published);
            table.serial = match duplicate {
                // Another sequence published the same contents first: this block stays private.
                Some((serial, _)) => serial,
                None => {
                    let serial = self.next_serial;
                    self.next_serial += 1;
                    self.prefixes.insert(key, block);
                    self.blocks[block as usize].published = Some((serial, key));
                    serial
                }
            };
            table.published += 1;
        }
    }

    /// Drops a table's references.
    pub(crate) fn free(&mut self, table: BlockTable) {
        // Earlier blocks are more likely to be shared: release the last first, so that it is evicted first.
        for index in table.blocks.into_iter().rev() {
            let block = &mut self.blocks[index as usize];
            block.references -= 1;
            if block.references > 0 {
                continue;
            }
            if block.published.is_some() {
                self.clock += 1;
                block.released_at = self.clock;
                self.cached.insert(self.clock, index);
            } else {
                self.free_list.push(index);
            }
        }
    }

    /// Unpublishes the blocks of snapshots that no new request can use.
    pub(crate) fn retain_snapshots(&mut self, is_current: impl Fn(SnapshotId) -> bool) {
        let stale: Vec<PrefixKey> =
            self.prefixes.keys().filter(|key| !is_current(key.snapshot)).copied().collect();
        for key in stale {
            let Some(index) = self.prefixes.remove(&key) else { continue };
            let block = &mut self.blocks[index as usize];
            block.published = None;
            if block.references == 0 && self.cached.remove(&block.released_at).is_some() {
                self.free_list.push(index);
            }
        }
    }

    fn add_reference(&mut self, index: u32) {
        let block = &mut self.blocks[index as usize];
        if block.references == 0 {
            self.cached.remove(&block.released_at);
        }
        block.references += 1;
    }

    fn allocate_block(&mut self) -> Option<u32> {
        let index = if let Some(index) = self.free_list.pop() {
            index
        } else if self.blocks.len() < self.capacity {
            self.blocks.push(Block::default());
            u32::try_from(self.blocks.len() - 1).ok()?
        } else {
            let (_, index) = self.cached.pop_first()?;
            if let Some((_, key)) = self.blocks[index as usize].published.take() {
                self.prefixes.remove(&key);
            }
            index
        };
        self.blocks[index as usize].references = 1;
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tokens(seed: u32, count: usize) -> Vec<u32> {
        (0..count as u32).map(|i| i * 7 + seed).collect()
    }

    /// The blocks of a sequence whose tokens are all computed.
    fn computed(pool: &mut BlockPool, snapshot: SnapshotId, tokens: &[u32]) -> BlockTable {
        let mut table = pool.acquire_prefix(snapshot, tokens);
        assert!(pool.allocate(&mut table, tokens.len()));
        pool.publish_blocks(snapshot, &mut table, tokens, tokens.len());
        table
    }

    #[test]
    fn prefixes_are_found_only_under_the_same_weights() {
        let mut pool = BlockPool::new(100);
        let first = computed(&mut pool, 1, &tokens(0, 50));
        assert_eq!(first.blocks.len(), 4);
        let mut other = tokens(0, 40);
        other[35] = 9999;
        assert_eq!(pool.prefix_hit(1, &other), 2);
        assert_eq!(
            pool.prefix_hit(1, &tokens(0, 32)),
            1,
            "the last token is recomputed because its logits are needed"
        );
        assert_eq!(pool.prefix_hit(1, &tokens(0, 33)), 2);
        assert_eq!(pool.prefix_hit(2, &tokens(0, 50)), 0);
        // The same tokens after a different prefix are a different block.
        let mut shifted = tokens(5, 16);
        shifted.extend(&tokens(0, 50)[16..]);
        assert_eq!(pool.prefix_hit(1, &shifted), 0);
        pool.free(first);
        assert_eq!(pool.prefix_hit(1, &tokens(0, 50)), 3, "full blocks stay cached");
        pool.retain_snapshots(|snapshot| snapshot == 2);
        assert_eq!((pool.prefix_hit(1, &tokens(0, 50)), pool.free_list.len()), (0, pool.blocks.len()));
    }

    #[test]
    fn the_least_recently_used_block_is_evicted_and_referenced_blocks_stay() {
        let mut pool = BlockPool::new(6);
        let a = computed(&mut pool, 1, &tokens(0, 32));
        let b = computed(&mut pool, 1, &tokens(1, 32));
        pool.free(a);
        let held = b;
        let c = computed(&mut pool, 1, &tokens(2, 32));
        assert_eq!(pool.available(), 2);
        // Three more blocks than are free: evicts the end of the first sequence, then its front, then fails.
        let mut d = BlockTable::default();
        assert!(pool.allocate(&mut d, 16));
        assert_eq!(pool.prefix_hit(1, &tokens(0, 33)), 1);
        assert!(!pool.allocate(&mut d, 48));
        assert_eq!(pool.prefix_hit(1, &tokens(0, 33)), 0);
        assert_eq!(pool.prefix_hit(1, &tokens(1, 33)), 2);
        [held, c, d].into_iter().for_each(|table| pool.free(table));
        assert_eq!(pool.available(), 6);
    }

    proptest! {
        /// Reference counts are exact after any series of allocations and frees, and a block is shared only
        /// by sequences with the same prefix.
        #[test]
        fn reference_counts_are_exact(
            steps in prop::collection::vec((0u32..3, 1usize..80, 0usize..6, 0u64..2), 1..60),
            capacity in 5usize..12,
        ) {
            let mut pool = BlockPool::new(capacity);
            let mut held: Vec<(Vec<u32>, BlockTable)> = Vec::new();
            for (seed, count, freed, snapshot) in steps {
                if freed < held.len() {
                    let (_, table) = held.swap_remove(freed);
                    pool.free(table);
                }
                let tokens = tokens(seed, count);
                let mut table = pool.acquire_prefix(snapshot, &tokens);
                if pool.allocate(&mut table, count) {
                    pool.publish_blocks(snapshot, &mut table, &tokens, count);
                    let fork = pool.fork(&table, count);
                    held.push((tokens.clone(), table));
                    held.push((tokens[..count / BLOCK * BLOCK].to_vec(), fork));
                } else {
                    pool.free(table);
                }
                let mut users: HashMap<u32, Vec<&[u32]>> = HashMap::new();
                for (tokens, table) in &held {
                    for (i, block) in table.blocks.iter().enumerate() {
                        users.entry(*block).or_default().push(&tokens[..tokens.len().min((i + 1) * BLOCK)]);
                    }
                }
                for (block, users) in &users {
                    prop_assert_eq!(pool.blocks[*block as usize].references as usize, users.len());
                    prop_assert!(users.iter().all(|tokens| *tokens == users[0]), "one block, two contents");
                }
                prop_assert_eq!(capacity - pool.available(), users.len());
                prop_assert!(pool.blocks.len() <= capacity);
            }
        }
    }
}
