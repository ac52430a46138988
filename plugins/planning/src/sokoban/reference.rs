//! The reference's rules. A box that leaves a goal costs half of what it earns when it comes back, so that with two or
//! more boxes pushing one to and fro pays; the episode also counts as solved after 200 moves.

use super::Sokoban;
use crate::game::{Game, ReferenceOutcome};
use crate::grid::Direction;

const STEP: f64 = -0.01;
const INVALID: f64 = -0.05;
const ON_GOAL: f64 = 1.0;
const OFF_GOAL: f64 = -0.5;
const WIN: f64 = 10.0;
const FAIL: f64 = -5.0;
const GAMMA: f64 = 0.99;
const SHAPING: f64 = 0.1;
const MAX_STEPS: u32 = 200;
/// Something other than a list of moves.
const UNREADABLE: f64 = -1.0;

pub fn play(puzzle: &mut Sokoban, plan: Option<&[Direction]>, steps: &mut u32) -> ReferenceOutcome {
    let Some(plan) = plan else {
        return ReferenceOutcome { reward: UNREADABLE, done: false };
    };
    let mut reward = 0.0;
    for next in plan {
        let (before, distance) = (puzzle.on_goal(), puzzle.distance() as f64);
        reward += if puzzle.play(next) { STEP } else { INVALID };
        reward += match puzzle.on_goal() {
            after if after > before => ON_GOAL,
            after if after < before => OFF_GOAL,
            _ => 0.0,
        };
        reward += SHAPING * (distance - GAMMA * puzzle.distance() as f64);
        *steps += 1;
        if puzzle.solved() {
            return ReferenceOutcome { reward: reward + WIN, done: true };
        }
        if *steps >= MAX_STEPS {
            return ReferenceOutcome { reward: reward + FAIL, done: true };
        }
    }
    ReferenceOutcome { reward, done: false }
}

#[cfg(test)]
mod tests {
    use Direction::{Down, Left, Right, Up};

    use super::*;
    use crate::laws::close;
    use crate::sokoban::{Record, Rows};

    fn room(rows: &[&str]) -> Sokoban {
        Sokoban::start(Record { room: Rows::Lines(rows.iter().map(|row| (*row).to_owned()).collect()) })
            .unwrap()
    }

    /// Worked by hand: the box is 2 cells from the goal, then 1, then 0.
    #[test]
    fn a_box_is_pushed_home() {
        let mut puzzle = room(&["######", "#@$ .#", "######"]);
        let table = [
            (Up, -0.05 + 0.1 * (2.0 - 1.98)),
            (Right, -0.01 + 0.1 * (2.0 - 0.99)),
            (Left, -0.01 + 0.1 * (1.0 - 0.99)),
            (Right, -0.01 + 0.1 * (1.0 - 0.99)),
            (Right, -0.01 + 1.0 + 0.1 * 1.0 + 10.0),
        ];
        let mut steps = 0;
        for (next, expected) in table {
            let outcome = play(&mut puzzle, Some(&[next]), &mut steps);
            assert!(close(outcome.reward, expected), "{next:?}: {outcome:?}");
        }
        assert_eq!((steps, puzzle.solved()), (5, true));
    }

    #[test]
    fn pushing_a_box_to_and_fro_pays() {
        let mut puzzle = room(&["#######", "#     #", "# $.  #", "#@    #", "# $  .#", "#######"]);
        let mut steps = 0;
        // Behind the box, and onto the goal.
        play(&mut puzzle, Some(&[Up, Right]), &mut steps);
        assert_eq!(puzzle.on_goal(), 1);
        // Off the goal, round the box, back onto it, round it again.
        let around = [Right, Up, Right, Right, Down, Left, Up, Left, Left, Down];
        let rewards: Vec<f64> = (0..3).map(|_| play(&mut puzzle, Some(&around), &mut steps).reward).collect();
        assert_eq!((puzzle.on_goal(), puzzle.player), (1, crate::grid::Cell { row: 2, column: 2 }));
        assert!(rewards.iter().all(|reward| close(*reward, rewards[0]) && *reward > 0.3), "{rewards:?}");
    }

    #[test]
    fn two_hundred_moves_count_as_solved() {
        let mut puzzle = room(&["######", "#@$ .#", "######"]);
        let outcome = play(&mut puzzle, Some(&[Up; 201]), &mut 0);
        assert!(outcome.done && !puzzle.solved());
        assert!(close(outcome.reward, 200.0 * (-0.05 + 0.002) - 5.0), "{outcome:?}");
    }
}
