//! The reference's rules, which know no given queens.

use super::Queens;
use crate::game::{Game, ReferenceOutcome};

const STEP: f64 = -0.01;
const NO_ATTACK: f64 = 0.5;
const SOLVED: f64 = 2.0;
const EFFICIENT: f64 = 0.5;
const ATTACKED: f64 = -0.5;
const PER_ATTACK: f64 = -0.1;
const INVALID: f64 = -1.0;

pub fn play(puzzle: &mut Queens, plan: Option<&[Vec<i64>]>, steps: &mut u32) -> ReferenceOutcome {
    let board = plan.and_then(<[_]>::last).and_then(|board| puzzle.read(board));
    let Some(board) = board else {
        return ReferenceOutcome { reward: INVALID, done: false };
    };
    puzzle.columns = board.into_iter().map(Some).collect();
    *steps += 1;
    let attacks = puzzle.attacks();
    if attacks > 0 {
        return ReferenceOutcome { reward: ATTACKED + PER_ATTACK * attacks as f64, done: false };
    }
    // The reference counts the step that solves the board twice.
    let efficient = if *steps as usize <= puzzle.given.len() { EFFICIENT } else { 0.0 };
    *steps += 1;
    ReferenceOutcome { reward: STEP + NO_ATTACK + SOLVED + efficient, done: puzzle.solved() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::close;
    use crate::queens::Record;

    fn board(queens: [Option<i64>; 4]) -> Queens {
        Queens::start(Record { queens: queens.to_vec() }).unwrap()
    }

    #[test]
    fn a_table_of_boards() {
        let mut puzzle = board([Some(1), None, None, None]);
        let mut steps = 0;
        let table: [(&[i64], f64); 5] = [
            (&[1, 3, 0], -1.0),
            (&[1, 3, 0, 4], -1.0),
            // All six pairs share a column.
            (&[2, 2, 2, 2], -0.5 - 0.6),
            // The three pairs beside each other share a diagonal, and so do all others.
            (&[0, 1, 2, 3], -0.5 - 0.6),
            // Two pairs on diagonals: rows 0 and 3, rows 1 and 2.
            (&[3, 1, 2, 0], -0.5 - 0.1 * 2.0),
        ];
        for (columns, expected) in table {
            let outcome = play(&mut puzzle, Some(&[columns.to_vec()]), &mut steps);
            assert!(close(outcome.reward, expected) && !outcome.done, "{columns:?}: {outcome:?}");
        }
        // A solution that moves the given queen, with the fourth valid board.
        let outcome = play(&mut puzzle, Some(&[vec![2, 0, 3, 1]]), &mut steps);
        assert!(close(outcome.reward, -0.01 + 0.5 + 2.0 + 0.5) && outcome.done, "{outcome:?}");
        let late = play(&mut board([Some(1), None, None, None]), Some(&[vec![1, 3, 0, 2]]), &mut 4);
        assert!(close(late.reward, -0.01 + 0.5 + 2.0), "{late:?}");
        assert!(close(play(&mut puzzle, None, &mut 0).reward, -1.0));
    }
}
