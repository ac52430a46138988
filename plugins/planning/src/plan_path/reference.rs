//! The reference's rules. Their shaping discounts the potential after a move but sums it without a discount, so that a
//! move that changes nothing earns a hundredth of the distance; the episode also counts as solved after 10,000 moves.

use super::PlanPath;
use crate::game::{Game, ReferenceOutcome};
use crate::grid::Direction;

const STEP: f64 = -0.01;
const INVALID: f64 = -0.1;
const GOAL: f64 = 1.0;
const SHORTEST: f64 = 0.5;
const FAIL: f64 = -1.0;
const GAMMA: f64 = 0.99;
const MAX_STEPS: u32 = 10_000;
/// Something other than a list of moves.
const UNREADABLE: f64 = -1.0;

pub fn play(puzzle: &mut PlanPath, plan: Option<&[Direction]>, steps: &mut u32) -> ReferenceOutcome {
    let Some(plan) = plan else {
        return ReferenceOutcome { reward: UNREADABLE, done: false };
    };
    let mut reward = 0.0;
    for next in plan {
        let before = puzzle.potential();
        reward += if puzzle.play(next) { STEP } else { INVALID };
        reward += GAMMA * puzzle.potential() - before;
        *steps += 1;
        if puzzle.solved() {
            reward += GOAL + if *steps == puzzle.shortest { SHORTEST } else { 0.0 };
            return ReferenceOutcome { reward, done: true };
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
    use crate::plan_path::Record;

    fn open(size: usize, goal: [usize; 2]) -> PlanPath {
        let grid = vec![".".repeat(size); size];
        PlanPath::start(Record { grid, start: Some([0, 0]), goal: Some(goal) }).unwrap()
    }

    /// Plays a plan. Returns the sum of its rewards.
    fn reward(puzzle: &mut PlanPath, plan: &[Direction]) -> (f64, bool) {
        let ReferenceOutcome { reward, done } = play(puzzle, Some(plan), &mut 0);
        (reward, done)
    }

    /// Worked by hand: the distance is 2, then 1, then 0.
    #[test]
    fn a_short_walk() {
        let walk = [
            (Up, -0.10 + 0.99 * -2.0 + 2.0),
            (Right, -0.01 - 0.99 + 2.0),
            (Left, -0.01 + 0.99 * -2.0 + 1.0),
            (Right, -0.01 - 0.99 + 2.0),
            (Right, -0.01 + 0.0 + 1.0 + 1.0),
        ];
        let mut puzzle = open(3, [0, 2]);
        let mut steps = 0;
        for (next, expected) in walk {
            let outcome = play(&mut puzzle, Some(&[next]), &mut steps);
            assert!(close(outcome.reward, expected), "{next:?}: {outcome:?}");
        }
        assert_eq!((steps, puzzle.solved()), (5, true));
        let (shortest, done) = reward(&mut open(3, [0, 2]), &[Right, Right, Down]);
        assert!(done && close(shortest, 1.0 + 2.49), "{shortest}");
    }

    #[test]
    fn dithering_pays_more_than_arriving() {
        let straight = [[Right; 9], [Down; 9]].concat();
        assert!(close(reward(&mut open(10, [9, 9]), &straight).0, 20.85));
        assert!(close(reward(&mut open(10, [9, 9]), &[Right, Left].repeat(200)).0, 66.0));
        assert!(close(reward(&mut open(10, [9, 9]), &[Up; 100]).0, 8.0));
    }

    #[test]
    fn ten_thousand_moves_count_as_solved() {
        let mut puzzle = open(3, [2, 2]);
        let outcome = play(&mut puzzle, Some(&[Up; 10_001]), &mut 0);
        assert!(outcome.done && !puzzle.solved());
        assert!(close(outcome.reward, 10_000.0 * (-0.1 + 0.04) - 1.0), "{outcome:?}");
        assert_eq!(play(&mut puzzle, None, &mut 0), ReferenceOutcome { reward: -1.0, done: false });
        assert_eq!(play(&mut puzzle, Some(&[]), &mut 0), ReferenceOutcome { reward: 0.0, done: false });
    }
}
