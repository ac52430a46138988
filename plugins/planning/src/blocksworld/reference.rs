//! The reference's rules. A step away from the goal costs less than the step back earns, and each move earns a tenth of
//! the similarity that it leaves, so that moving a block to and fro pays.

use super::{Blocksworld, Move, TABLE, move_block, neighbours};
use crate::game::{Game, ReferenceOutcome};

const STEP: f64 = -0.01;
const IMPOSSIBLE: f64 = -0.3;
const MALFORMED: f64 = -0.5;
const CLOSER: f64 = 0.5;
const FARTHER: f64 = 0.3;
const STATE: f64 = 0.1;
const FITS: f64 = 0.2;
const SOLVED: f64 = 2.0;
const EFFICIENT: f64 = 0.5;
const UNREADABLE: f64 = -1.0;

pub fn play(puzzle: &mut Blocksworld, plan: Option<&[Move]>, steps: &mut u32) -> ReferenceOutcome {
    let Some(plan) = plan else {
        return ReferenceOutcome { reward: UNREADABLE, done: false };
    };
    let mut reward = 0.0;
    for next in plan {
        reward += match next {
            Move::Malformed => MALFORMED,
            Move::Block { block, to } => match play_block(puzzle, block, to) {
                Some(reward) => {
                    *steps += 1;
                    reward
                }
                None => IMPOSSIBLE,
            },
        };
    }
    let done = puzzle.solved();
    if done {
        reward += SOLVED + if *steps as usize <= puzzle.blocks() * 2 { EFFICIENT } else { 0.0 };
    }
    ReferenceOutcome { reward, done }
}

/// Moves a block. Returns `None` if the block or its new place is not free. A block may be put where it stands.
fn play_block(puzzle: &mut Blocksworld, block: &String, to: &String) -> Option<f64> {
    let top = |name: &String| puzzle.stacks.iter().position(|stack| stack.last() == Some(name));
    let from = top(block)?;
    let onto = match to.as_str() {
        TABLE => None,
        _ => Some(top(to)?),
    };
    // The reference lifts the block before it looks for the place: a block that is put on itself is lost.
    if onto == Some(from) {
        puzzle.stacks[from].pop();
        puzzle.stacks.retain(|stack| !stack.is_empty());
        return Some(IMPOSSIBLE);
    }
    let before = puzzle.similarity();
    move_block(&mut puzzle.stacks, from, onto);
    let after = puzzle.similarity();
    let change = after - before;
    let shaping = if change > 0.0 { CLOSER * change } else { FARTHER * change };
    let alone = neighbours(&puzzle.goal, block) == [None, None];
    let fits = if puzzle.fits(block) && !alone { FITS } else { 0.0 };
    Some(STEP + shaping + STATE * after + fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocksworld::tests::puzzle;
    use crate::laws::close;

    fn block(block: &str, to: &str) -> Move {
        Move::Block { block: block.to_owned(), to: to.to_owned() }
    }

    #[test]
    fn a_table_of_moves() {
        let mut world = puzzle(&[&["A", "B"], &["C"]], &[&["C", "A"], &["B"]]).unwrap();
        let mut steps = 0;
        let table = [
            (Move::Malformed, -0.5),
            (block("A", "C"), -0.3),
            (block("B", "X"), -0.3),
            (block("X", "table"), -0.3),
            // B alone is right, and the goal knows no neighbours of it: no extra reward.
            (block("B", "table"), -0.01 + 0.5 / 3.0 + 0.1 / 3.0),
            (block("B", "A"), -0.01 - 0.3 / 3.0),
            (block("B", "table"), -0.01 + 0.5 / 3.0 + 0.1 / 3.0),
            // A on C: all three are right.
            (block("A", "C"), -0.01 + 0.5 * 2.0 / 3.0 + 0.1 + 0.2 + 2.0 + 0.5),
        ];
        for (next, expected) in table {
            let outcome = play(&mut world, Some(std::slice::from_ref(&next)), &mut steps);
            assert!(close(outcome.reward, expected), "{next:?}: {outcome:?}");
        }
        assert_eq!((steps, world.solved()), (4, true));
    }

    #[test]
    fn a_block_on_itself_is_lost() {
        let mut world = puzzle(&[&["A", "B"], &["C"]], &[&["C", "A"], &["B"]]).unwrap();
        let mut steps = 0;
        assert!(close(play(&mut world, Some(&[block("C", "C")]), &mut steps).reward, -0.3));
        assert_eq!((steps, world.stacks.len()), (1, 1));
        assert!(close(play(&mut world, Some(&[block("C", "table")]), &mut steps).reward, -0.3));
    }

    #[test]
    fn moving_to_and_fro_pays() {
        let mut world = puzzle(&[&["A", "B"], &["C"]], &[&["C", "A"], &["B"]]).unwrap();
        let fro = [block("B", "table"), block("B", "A")];
        let outcome = play(&mut world, Some(&fro.into_iter().cycle().take(20).collect::<Vec<_>>()), &mut 0);
        assert!(outcome.reward > 0.5 && !outcome.done, "{outcome:?}");
        assert!(close(play(&mut world, None, &mut 0).reward, -1.0));
    }
}
