//! The generator: a room from a random walk, boxes on their goals, and random pulls away from them. A pull undoes a
//! push, so every room can be solved, with at most as many pushes as pulls were made.

use std::ops::RangeInclusive;

use super::mask::{Mask, around, bits, cell, flood, has};
use super::{Sokoban, room_hash};
use crate::grid::Direction;
use crate::random::Draw;
use crate::splits::Split;

/// Difficulty of a level.
struct Level {
    /// Height and width, walls included.
    size: usize,
    /// Number of boxes.
    boxes: usize,
    /// Number of pulls.
    pulls: RangeInclusive<usize>,
    /// Minimum distance of a box to its nearest goal.
    distance: usize,
}

/// Levels. Level 3 is the paper's size.
pub const LEVELS: RangeInclusive<u32> = 0..=8;

fn level(number: u32) -> Level {
    let (size, boxes, pulls, distance) = match number {
        0 => (5, 1, 1..=1, 1),
        1 => (5, 1, 1..=2, 1),
        2 => (6, 1, 1..=3, 1),
        3 => (6, 1, 2..=20, 2),
        4 => (7, 1, 4..=30, 3),
        5 => (7, 2, 4..=40, 1),
        6 => (8, 2, 8..=60, 2),
        7 => (8, 3, 9..=50, 1),
        _ => (10, 4, 12..=60, 1),
    };
    Level { size, boxes, pulls, distance }
}

/// Percentage of steps at which the walk turns.
const TURNS: usize = 35;

/// Draws a puzzle of a level. Returns `None` if the room is too small or its boxes can't be pulled far enough.
pub fn puzzle(number: u32, split: Split, draw: &mut Draw) -> Option<Sokoban> {
    let Level { size, boxes: count, pulls, distance } = level(number);
    let floor = room(size, draw);
    let mut cells: Vec<usize> = bits(floor).collect();
    draw.shuffle(&mut cells);
    let goals = cells.get(..count)?.iter().fold(0, |goals: Mask, goal| goals | 1 << goal);
    let mut player = *cells.get(count)?;
    let symbol = |cell: usize| match (has(goals, cell), has(floor, cell)) {
        (true, _) => '.',
        (_, true) => ' ',
        _ => '#',
    };
    let row = |row: usize| (row * size..(row + 1) * size).map(symbol).collect();
    let rows: Vec<String> = (0..size).map(row).collect();
    // Pulling takes longer than drawing a room.
    if Split::new(room_hash(&rows)) != split {
        return None;
    }
    let mut boxes = goals;
    for _ in 0..draw.between(*pulls.start(), *pulls.end()) {
        (boxes, player) = pull(floor, boxes, player, size, draw)?;
    }
    let stands: Vec<usize> = bits(flood(floor & !boxes, player, size)).collect();
    let far =
        |place: usize| bits(goals).all(|goal| cell(place, size).manhattan(cell(goal, size)) >= distance);
    let puzzle = Sokoban {
        room: rows,
        boxes: bits(boxes).map(|place| cell(place, size)).collect(),
        player: cell(*draw.pick(&stands)?, size),
    };
    bits(boxes).all(far).then_some(puzzle)
}

/// Returns the floor of a connected room: the cells of a random walk.
fn room(size: usize, draw: &mut Draw) -> Mask {
    let area = (size - 2) * (size - 2);
    let wanted = (area * draw.between(55, 90) / 100) as u32;
    let (mut row, mut column) = (draw.between(1, size - 2), draw.between(1, size - 2));
    let mut direction = Direction::ALL[draw.below(4)];
    let mut floor: Mask = 0;
    // The walk turns at the border, so that it covers a room soon; the bound is for the unlucky ones.
    for _ in 0..20 * area {
        floor |= 1 << (row * size + column);
        if floor.count_ones() >= wanted {
            break;
        }
        if draw.percent(TURNS) {
            direction = Direction::ALL[draw.below(4)];
        }
        match direction {
            Direction::Up if row > 1 => row -= 1,
            Direction::Down if row < size - 2 => row += 1,
            Direction::Left if column > 1 => column -= 1,
            Direction::Right if column < size - 2 => column += 1,
            _ => direction = Direction::ALL[draw.below(4)],
        }
    }
    floor
}

/// Pulls a random box that the player can get to. Returns the boxes and the player, or `None` if no box can be pulled.
fn pull(floor: Mask, boxes: Mask, player: usize, width: usize, draw: &mut Draw) -> Option<(Mask, usize)> {
    let free = floor & !boxes;
    let stands = flood(free, player, width);
    let mut pulls = Vec::new();
    for from in bits(boxes) {
        for direction in Direction::ALL {
            let (_, to) = around(from, direction, width);
            if has(stands, to) {
                let (_, player) = around(to, direction, width);
                pulls.extend(has(free, player).then_some((boxes & !(1 << from) | 1 << to, player)));
            }
        }
    }
    draw.pick(&pulls).copied()
}
