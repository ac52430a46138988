//! Which blocks of the key-value cache belong to whom.
//!
//! A block holds [`BLOCK`] tokens of one sequence. Whole blocks whose contents are known by name (the weights, all
//! tokens before, the block's own) stay when their sequence goes, and the next sequence that begins alike takes
//! them up instead of computing them: samples of one prompt, turns of one episode, prompts with the same
//! examples. When room is needed, what was used longest ago goes first.

use std::collections::{BTreeMap, HashMap};

/// Tokens of a block.
pub(crate) const BLOCK: usize = pl_kernels::cpu::BLOCK;

/// Names a state of weights.
pub(crate) type Identity = u64;

/// Names a block's contents: what came before it, and its own tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Name {
    identity: Identity,
    /// Serial number of the block before, 0 for the first: numbers are never used again, so that a name means
    /// one sequence of tokens for good.
    before: u64,
    tokens: [u32; BLOCK],
}

#[derive(Debug, Default)]
struct Block {
    /// Sequences that hold it.
    users: u32,
    /// Serial number and name, where its contents can be found.
    named: Option<(u64, Name)>,
    /// Its place among the unused.
    unused_since: u64,
}

/// All blocks of one base model.
#[derive(Debug)]
pub(crate) struct Blocks {
    limit: usize,
    all: Vec<Block>,
    /// Unused, without contents worth keeping.
    free: Vec<u32>,
    /// Unused, with contents, by when they fell out of use.
    kept: BTreeMap<u64, u32>,
    names: HashMap<Name, u32>,
    next_serial: u64,
    clock: u64,
}

/// The blocks of one sequence.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// In order; the last may be partly filled.
    pub(crate) blocks: Vec<u32>,
    /// Blocks from the front whose contents are named.
    named: usize,
    /// Serial number of the last of them.
    serial: u64,
}

impl Blocks {
    /// At most `limit` blocks.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            all: Vec::new(),
            free: Vec::new(),
            kept: BTreeMap::new(),
            names: HashMap::new(),
            next_serial: 1,
            clock: 0,
        }
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Blocks that a sequence could still get.
    pub(crate) fn available(&self) -> usize {
        self.limit - self.all.len() + self.free.len() + self.kept.len()
    }

    /// Blocks that are there from the front of `tokens`, all but the last token looked at: its logits are wanted.
    fn find(&self, identity: Identity, tokens: &[u32]) -> Vec<(u32, u64)> {
        let mut found = Vec::new();
        let mut before = 0;
        for chunk in tokens[..tokens.len().saturating_sub(1)].chunks_exact(BLOCK) {
            let Ok(tokens) = chunk.try_into() else { break };
            let Some(block) = self.names.get(&Name { identity, before, tokens }) else { break };
            let Some((serial, _)) = self.all[*block as usize].named else { break };
            found.push((*block, serial));
            before = serial;
        }
        found
    }

    /// How many blocks a sequence would find.
    pub(crate) fn known(&self, identity: Identity, tokens: &[u32]) -> usize {
        self.find(identity, tokens).len()
    }

    /// A table with what is there from the front of `tokens`.
    pub(crate) fn take_up(&mut self, identity: Identity, tokens: &[u32]) -> Table {
        let found = self.find(identity, tokens);
        for (block, _) in &found {
            self.hold(*block);
        }
        Table {
            named: found.len(),
            serial: found.last().map_or(0, |(_, serial)| *serial),
            blocks: found.into_iter().map(|(block, _)| block).collect(),
        }
    }

    /// Makes a table long enough for `tokens` tokens; false when there is no room.
    pub(crate) fn extend(&mut self, table: &mut Table, tokens: usize) -> bool {
        while table.blocks.len() * BLOCK < tokens {
            let Some(block) = self.fresh() else { return false };
            table.blocks.push(block);
        }
        true
    }

    /// A second holder of a table's whole blocks; what is left of the last is the caller's to copy. `tokens` are
    /// those that the table holds.
    pub(crate) fn fork(&mut self, table: &Table, tokens: usize) -> Table {
        let blocks = table.blocks[..tokens / BLOCK].to_vec();
        blocks.iter().for_each(|block| self.hold(*block));
        Table { named: table.named.min(blocks.len()), serial: table.serial, blocks }
    }

    /// Names the blocks that are whole now that the first `computed` of `tokens` are in the cache.
    pub(crate) fn name(&mut self, identity: Identity, table: &mut Table, tokens: &[u32], computed: usize) {
        while (table.named + 1) * BLOCK <= computed {
            let at = table.named * BLOCK;
            let Ok(own) = tokens[at..at + BLOCK].try_into() else { return };
            let name = Name { identity, before: table.serial, tokens: own };
            let block = table.blocks[table.named];
            table.serial = match self.names.get(&name).and_then(|twin| self.all[*twin as usize].named) {
                // Another sequence was faster: this block stays private.
                Some((serial, _)) => serial,
                None => {
                    let serial = self.next_serial;
                    self.next_serial += 1;
                    self.names.insert(name, block);
                    self.all[block as usize].named = Some((serial, name));
                    serial
                }
            };
            table.named += 1;
        }
    }

    /// Gives a table's blocks back.
    pub(crate) fn release(&mut self, table: Table) {
        // The front is worth more than the end: the end goes first.
        for block in table.blocks.into_iter().rev() {
            let entry = &mut self.all[block as usize];
            entry.users -= 1;
            if entry.users > 0 {
                continue;
            }
            if entry.named.is_some() {
                self.clock += 1;
                entry.unused_since = self.clock;
                self.kept.insert(self.clock, block);
            } else {
                self.free.push(block);
            }
        }
    }

    /// Forgets the contents of weights that no request can name any more.
    pub(crate) fn retain(&mut self, alive: impl Fn(Identity) -> bool) {
        let dead: Vec<Name> = self.names.keys().filter(|name| !alive(name.identity)).copied().collect();
        for name in dead {
            let Some(block) = self.names.remove(&name) else { continue };
            let entry = &mut self.all[block as usize];
            entry.named = None;
            if entry.users == 0 && self.kept.remove(&entry.unused_since).is_some() {
                self.free.push(block);
            }
        }
    }

    fn hold(&mut self, block: u32) {
        let entry = &mut self.all[block as usize];
        if entry.users == 0 {
            self.kept.remove(&entry.unused_since);
        }
        entry.users += 1;
    }

    fn fresh(&mut self) -> Option<u32> {
        let block = if let Some(block) = self.free.pop() {
            block
        } else if self.all.len() < self.limit {
            self.all.push(Block::default());
            u32::try_from(self.all.len() - 1).ok()?
        } else {
            let (_, block) = self.kept.pop_first()?;
            if let Some((_, name)) = self.all[block as usize].named.take() {
                self.names.remove(&name);
            }
            block
        };
        self.all[block as usize].users = 1;
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tokens(seed: u32, count: usize) -> Vec<u32> {
        (0..count as u32).map(|i| i * 7 + seed).collect()
    }

    /// A sequence that was computed whole.
    fn computed(blocks: &mut Blocks, identity: Identity, tokens: &[u32]) -> Table {
        let mut table = blocks.take_up(identity, tokens);
        assert!(blocks.extend(&mut table, tokens.len()));
        blocks.name(identity, &mut table, tokens, tokens.len());
        table
    }

    #[test]
    fn the_same_beginning_is_found_under_the_same_weights_alone() {
        let mut blocks = Blocks::new(100);
        let first = computed(&mut blocks, 1, &tokens(0, 50));
        assert_eq!(first.blocks.len(), 4);
        let mut other = tokens(0, 40);
        other[35] = 9999;
        assert_eq!(blocks.known(1, &other), 2);
        assert_eq!(
            blocks.known(1, &tokens(0, 32)),
            1,
            "the last token is computed anew: its logits are wanted"
        );
        assert_eq!(blocks.known(1, &tokens(0, 33)), 2);
        assert_eq!(blocks.known(2, &tokens(0, 50)), 0);
        // The same block after another beginning is another block.
        let mut shifted = tokens(5, 16);
        shifted.extend(&tokens(0, 50)[16..]);
        assert_eq!(blocks.known(1, &shifted), 0);
        blocks.release(first);
        assert_eq!(blocks.known(1, &tokens(0, 50)), 3, "what was whole stays");
        blocks.retain(|identity| identity == 2);
        assert_eq!((blocks.known(1, &tokens(0, 50)), blocks.free.len()), (0, blocks.all.len()));
    }

    #[test]
    fn what_was_used_longest_ago_goes_first_and_what_is_held_stays() {
        let mut blocks = Blocks::new(6);
        let a = computed(&mut blocks, 1, &tokens(0, 32));
        let b = computed(&mut blocks, 1, &tokens(1, 32));
        blocks.release(a);
        let held = b;
        let c = computed(&mut blocks, 1, &tokens(2, 32));
        assert_eq!(blocks.available(), 2);
        // Three more blocks than are free: the end of the first sequence goes, then its front, then no more.
        let mut d = Table::default();
        assert!(blocks.extend(&mut d, 16));
        assert_eq!(blocks.known(1, &tokens(0, 33)), 1);
        assert!(!blocks.extend(&mut d, 48));
        assert_eq!(blocks.known(1, &tokens(0, 33)), 0);
        assert_eq!(blocks.known(1, &tokens(1, 33)), 2);
        [held, c, d].into_iter().for_each(|table| blocks.release(table));
        assert_eq!(blocks.available(), 6);
    }

    proptest! {
        /// Whatever comes and goes: blocks are counted right, and no two sequences hold one that they do not share
        /// by name.
        #[test]
        fn counts_hold(
            steps in prop::collection::vec((0u32..3, 1usize..80, 0usize..6, 0u64..2), 1..60),
            limit in 5usize..12,
        ) {
            let mut blocks = Blocks::new(limit);
            let mut held: Vec<(Vec<u32>, Table)> = Vec::new();
            for (seed, count, gone, identity) in steps {
                if gone < held.len() {
                    let (_, table) = held.swap_remove(gone);
                    blocks.release(table);
                }
                let tokens = tokens(seed, count);
                let mut table = blocks.take_up(identity, &tokens);
                if blocks.extend(&mut table, count) {
                    blocks.name(identity, &mut table, &tokens, count);
                    let fork = blocks.fork(&table, count);
                    held.push((tokens.clone(), table));
                    held.push((tokens[..count / BLOCK * BLOCK].to_vec(), fork));
                } else {
                    blocks.release(table);
                }
                let mut users: HashMap<u32, Vec<&[u32]>> = HashMap::new();
                for (tokens, table) in &held {
                    for (i, block) in table.blocks.iter().enumerate() {
                        users.entry(*block).or_default().push(&tokens[..tokens.len().min((i + 1) * BLOCK)]);
                    }
                }
                for (block, users) in &users {
                    prop_assert_eq!(blocks.all[*block as usize].users as usize, users.len());
                    prop_assert!(users.iter().all(|tokens| *tokens == users[0]), "one block, two contents");
                }
                prop_assert_eq!(limit - blocks.available(), users.len());
                prop_assert!(blocks.all.len() <= limit);
            }
        }
    }
}
