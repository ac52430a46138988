//! Sets of a room's cells as bit masks: bit `row * width + column`. Rooms have at most 128 cells, and the cells of a set lie
//! off the edge, so that no step leaves a row at its end.

use crate::grid::{Cell, Direction};

/// A set of cells.
pub type Mask = u128;

/// Iterates over the cells of a mask.
pub fn bits(mut mask: Mask) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (bit < Mask::BITS as usize).then_some(bit)
    })
}

/// Returns true if a mask has the cell.
pub fn has(mask: Mask, cell: usize) -> bool {
    mask & 1 << cell != 0
}

/// Returns the cell behind a cell inside the room and the cell before it.
pub fn around(cell: usize, direction: Direction, width: usize) -> (usize, usize) {
    match direction {
        Direction::Up => (cell + width, cell - width),
        Direction::Down => (cell - width, cell + width),
        Direction::Left => (cell + 1, cell - 1),
        Direction::Right => (cell - 1, cell + 1),
    }
}

/// Returns the free cells that are connected to a cell.
pub fn flood(free: Mask, cell: usize, width: usize) -> Mask {
    let mut mask = 1 << cell;
    loop {
        let next = (mask | mask << 1 | mask >> 1 | mask << width | mask >> width) & free;
        if next == mask {
            return mask;
        }
        mask = next;
    }
}

/// Returns the cell of a bit.
pub fn cell(bit: usize, width: usize) -> Cell {
    Cell { row: bit / width, column: bit % width }
}
