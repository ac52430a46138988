//! A solver: best-first search over pushes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet, VecDeque};

use super::Sokoban;
use super::mask::{Mask, around, bits, cell, flood, has};
use crate::game::Game;
use crate::grid::{Cell, Direction};

/// Weight of the estimated pushes against those made: large enough to find some solution soon.
const GREED: u32 = 4;

/// A state and the push that led to it.
struct Node {
    boxes: Mask,
    player: usize,
    pushes: u32,
    /// Index of the state before.
    parent: Option<usize>,
    push: Option<(usize, Direction)>,
}

/// Returns a plan for a room of at most 128 cells that stays off its edge. Returns `None` if it finds none within `limit`
/// states.
pub fn solve(puzzle: &Sokoban, limit: usize) -> Option<Vec<Direction>> {
    let (height, width) = (puzzle.room.len(), puzzle.width());
    let inside = |cell: Cell| {
        (1..height.saturating_sub(1)).contains(&cell.row)
            && (1..width.saturating_sub(1)).contains(&cell.column)
    };
    let fits = height * width <= Mask::BITS as usize;
    if !fits || !puzzle.boxes.iter().chain([&puzzle.player]).all(|cell| inside(*cell)) {
        return None;
    }
    let index = |cell: Cell| cell.row * width + cell.column;
    let mask =
        |cells: &mut dyn Iterator<Item = Cell>| cells.fold(0, |mask: Mask, cell| mask | 1 << index(cell));
    // No step from a floor inside leaves a row at its end.
    let floor = mask(&mut puzzle.cells().filter(|cell| puzzle.is_floor(*cell) && inside(*cell)));
    let goals = mask(&mut puzzle.cells().filter(|cell| puzzle.is_goal(*cell) && inside(*cell)));
    let distances = distances(puzzle);
    let estimate = |boxes: Mask| bits(boxes).map(|cell| distances[cell]).sum::<Option<u32>>();
    let start = mask(&mut puzzle.boxes.iter().copied());
    let player = index(puzzle.player);
    let mut nodes = vec![Node { boxes: start, player, pushes: 0, parent: None, push: None }];
    let mut queue = BinaryHeap::from([Reverse((estimate(start)?, 0))]);
    let mut seen = HashSet::new();
    while let Some(Reverse((_, at))) = queue.pop() {
        let Node { boxes, player, pushes, .. } = nodes[at];
        if boxes & !goals == 0 {
            return Some(walk(puzzle, &trace(&nodes, at), width));
        }
        let free = floor & !boxes;
        let region = flood(free, player, width);
        // States with the same boxes and the same part of the room for the player are equal.
        if seen.len() >= limit || !seen.insert((boxes, region.trailing_zeros())) {
            continue;
        }
        for pushed in bits(boxes) {
            for direction in Direction::ALL {
                let (stand, target) = around(pushed, direction, width);
                if !has(region, stand) || !has(free, target) {
                    continue;
                }
                let boxes = boxes & !(1 << pushed) | 1 << target;
                let Some(left) = estimate(boxes) else { continue };
                queue.push(Reverse((pushes + 1 + GREED * left, nodes.len())));
                let push = Some((stand, direction));
                nodes.push(Node { boxes, player: pushed, pushes: pushes + 1, parent: Some(at), push });
            }
        }
    }
    None
}

/// Returns the number of pushes that take a lone box from each cell to its nearest goal, found by pulling one from every
/// goal. `None` stands for a cell from which it can't be pushed to any.
fn distances(puzzle: &Sokoban) -> Vec<Option<u32>> {
    let width = puzzle.width();
    let mut distances = vec![None; puzzle.room.len() * width];
    let mut queue: VecDeque<(Cell, u32)> =
        puzzle.cells().filter(|cell| puzzle.is_goal(*cell)).map(|cell| (cell, 0)).collect();
    while let Some((cell, distance)) = queue.pop_front() {
        let known = &mut distances[cell.row * width + cell.column];
        if known.is_some() {
            continue;
        }
        *known = Some(distance);
        for direction in Direction::ALL {
            let to = cell.step(direction).filter(|cell| puzzle.is_floor(*cell));
            let player = to.and_then(|to| to.step(direction)).filter(|cell| puzzle.is_floor(*cell));
            queue.extend(to.filter(|_| player.is_some()).map(|to| (to, distance + 1)));
        }
    }
    distances
}

/// Returns the pushes that led to a state.
fn trace(nodes: &[Node], at: usize) -> Vec<(usize, Direction)> {
    let mut pushes = Vec::new();
    let mut next = Some(at);
    while let Some(at) = next {
        pushes.extend(nodes[at].push);
        next = nodes[at].parent;
    }
    pushes.reverse();
    pushes
}

/// Adds the steps between pushes.
fn walk(puzzle: &Sokoban, pushes: &[(usize, Direction)], width: usize) -> Vec<Direction> {
    let mut state = puzzle.clone();
    let mut plan = Vec::new();
    for (stand, push) in pushes {
        let stand = cell(*stand, width);
        let mut queue = VecDeque::from([(state.player, Vec::new())]);
        let mut seen = HashSet::new();
        while let Some((cell, path)) = queue.pop_front() {
            if cell == stand {
                plan.extend(path);
                break;
            }
            for direction in Direction::ALL {
                let next = cell.step(direction).filter(|next| state.is_free(*next));
                if let Some(next) = next.filter(|next| seen.insert(*next)) {
                    queue.push_back((next, [path.as_slice(), &[direction]].concat()));
                }
            }
        }
        state.player = stand;
        state.play(push);
        plan.push(*push);
    }
    plan
}
