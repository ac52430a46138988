//! The generator: two random arrangements of the same blocks.

use std::ops::RangeInclusive;

use super::{Blocksworld, Stacks};
use crate::game::Game;
use crate::random::Draw;

/// Difficulty of a level.
struct Level {
    blocks: usize,
    /// Number of blocks that have to move at least once.
    misplaced: RangeInclusive<usize>,
}

/// Levels. From 3 on, a level is the number of its blocks without one. The reference has 3 and 4 blocks.
pub const LEVELS: RangeInclusive<u32> = 0..=11;

/// Percentage of blocks that start a new stack.
const NEW_STACK: usize = 40;

fn level(number: u32) -> Level {
    match number {
        0 => Level { blocks: 4, misplaced: 1..=2 },
        1 => Level { blocks: 5, misplaced: 1..=2 },
        2 => Level { blocks: 4, misplaced: 2..=4 },
        number => Level { blocks: number as usize + 1, misplaced: 3..=usize::MAX },
    }
}

/// Draws a puzzle of a level. Returns `None` if too few or too many blocks are misplaced.
pub fn puzzle(number: u32, draw: &mut Draw) -> Option<Blocksworld> {
    let Level { blocks, misplaced } = level(number);
    let (start, goal) = (arrangement(blocks, draw), arrangement(blocks, draw));
    let placed = start.iter().map(|stack| placed(stack, &goal)).sum::<usize>();
    let puzzle = Blocksworld { stacks: start.clone(), start, goal };
    (misplaced.contains(&(blocks - placed)) && !puzzle.solved()).then_some(puzzle)
}

fn arrangement(blocks: usize, draw: &mut Draw) -> Stacks {
    let mut names: Vec<String> = ('A'..='Z').take(blocks).map(String::from).collect();
    draw.shuffle(&mut names);
    let mut stacks: Stacks = Vec::new();
    for name in names {
        let new = draw.percent(NEW_STACK);
        let stack = draw.below(stacks.len());
        match stacks.get_mut(stack).filter(|_| !new) {
            Some(stack) => stack.push(name),
            None => stacks.push(vec![name]),
        }
    }
    stacks
}

/// Number of blocks from the bottom of a stack on that already stand as in the goal.
fn placed(stack: &[String], goal: &Stacks) -> usize {
    let wanted = goal.iter().find(|wanted| wanted.first() == stack.first());
    wanted.map_or(0, |wanted| stack.iter().zip(wanted).take_while(|(one, other)| one == other).count())
}
