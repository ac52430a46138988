//! Laws that hold for every game, checked against its solver.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::{HashMap, HashSet};

use pl_sdk::services::testing;
use pl_sdk::{DrawingForm, Environment, TaskRequest};
use serde_json::json;

use crate::environment::{Action, Puzzle, Settings};
use crate::game::Game;
use crate::random::Draw;
use crate::rules::{Play, Rules};
use crate::splits::Split;
use crate::tasks::tasks;
use crate::text;

/// Knowledge of a game that only tests need.
pub trait Oracle: Game {
    /// Returns a random image of the puzzle at its start under the symmetries of the game.
    fn image(&self, draw: &mut Draw) -> Self;

    /// Returns a random move. It may be invalid.
    fn any_move(&self, draw: &mut Draw) -> Self::Move;
}

const SPLITS: [&str; 3] = ["train", "validation", "test"];

/// Returns true if two rewards are equal up to rounding.
pub fn close(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-9
}

fn request(split: &str, start: u64, count: u32, level: u32) -> TaskRequest {
    TaskRequest { split: split.to_owned(), start, count, level }
}

fn puzzles<G: Game>(split: &str, count: u32, level: u32) -> Vec<G> {
    let tasks = tasks::<G>(1, &request(split, 0, count, level)).unwrap();
    tasks.iter().map(|task| G::start(task.read().unwrap()).unwrap()).collect()
}

/// The oracle's plan, written and read back, solves every generated puzzle without an invalid move.
pub fn puzzles_are_solvable<G: Oracle>() {
    for level in G::LEVELS {
        for split in SPLITS {
            for puzzle in puzzles::<G>(split, 4, level) {
                assert!(!puzzle.solved() && puzzle.potential().is_finite(), "{puzzle:?}");
                let plan = puzzle.solution().unwrap();
                let answer = format!("#### {}", G::write(&plan));
                let moves = text::find::<G>(&answer).unwrap().moves;
                assert_eq!(moves, plan);
                let mut play = Play::new(puzzle);
                let worth = play.run(Some(&moves));
                assert!(play.solved && worth.first_invalid.is_none(), "level {level}: {play:?}");
                assert!(worth.total() > 1.0 && worth.ending >= G::VALUES.goal, "level {level}: {worth:?}");
            }
        }
    }
}

/// Tasks depend only on their index, and each of them is one that the environment accepts as a file's record.
pub fn tasks_are_repeatable<G: Oracle>() {
    let level = *G::LEVELS.start() + 1;
    let ask = |start, count| tasks::<G>(1, &request("train", start, count, level)).unwrap();
    let whole = ask(0, 12);
    let parts = [ask(0, 5), ask(5, 7)].concat();
    let fields = |task: &pl_sdk::Task| (task.id.clone(), task.data.clone());
    assert_eq!(whole.iter().map(fields).collect::<Vec<_>>(), parts.iter().map(fields).collect::<Vec<_>>());
    let data = |tasks: &[pl_sdk::Task]| tasks.iter().map(|task| task.data.clone()).collect::<Vec<_>>();
    assert_ne!(data(&tasks::<G>(2, &request("train", 0, 12, level)).unwrap()), data(&whole), "another set");
    for task in &whole {
        let puzzle = G::start(task.read().unwrap()).unwrap();
        assert_eq!(json!(puzzle.record()), task.read::<serde_json::Value>().unwrap());
    }
    let refusal = |split: &str, level| tasks::<G>(0, &request(split, 0, 1, level)).unwrap_err().message;
    assert!(refusal("train", G::LEVELS.end() + 1).contains(&format!("to {}", G::LEVELS.end())));
    assert!(refusal("dev", level).ends_with("not `dev`"));
}

/// Images of a puzzle have its hash, and puzzles of different splits have different hashes.
pub fn splits_share_no_puzzle_up_to_symmetry<G: Oracle>() {
    let mut draw = Draw::new(7);
    for level in G::LEVELS {
        let mut hashes = [HashSet::new(), HashSet::new(), HashSet::new()];
        for (split, hashes) in SPLITS.into_iter().zip(&mut hashes) {
            for puzzle in puzzles::<G>(split, 8, level) {
                let hash = puzzle.symmetry_hash();
                assert_eq!(puzzle.image(&mut draw).symmetry_hash(), hash, "{puzzle:?}");
                let name = match Split::new(hash) {
                    Split::Train => "train",
                    Split::Validation => "validation",
                    Split::Test => "test",
                };
                assert_eq!(name, split);
                hashes.insert(hash);
            }
        }
        let [train, validation, test] = &hashes;
        assert!(train.is_disjoint(test) && train.is_disjoint(validation) && test.is_disjoint(validation));
    }
}

/// An episode and its restored copy continue in the same way, by both sets of rules.
pub fn snapshots_continue<G: Oracle>() {
    for rules in [Rules::Sound, Rules::Reference] {
        let settings = Settings { seed: 1, rules, ..Settings::default() };
        for (index, task) in
            (0..).zip(tasks::<G>(1, &request("train", 0, 6, *G::LEVELS.start() + 2)).unwrap())
        {
            let mut draw = Draw::new(index);
            let mut episode = Puzzle::<G>::start(&settings, &task, 0).unwrap();
            for _ in 0..6 {
                let puzzle = G::start(task.read().unwrap()).unwrap();
                let answer = G::write(&[puzzle.any_move(&mut draw)]);
                let action = [pl_sdk::Action { agent: "a".to_owned(), action: Action::Answer(answer) }];
                let snapshot = serde_json::to_vec(&episode).unwrap();
                let mut restored: Puzzle<G> = serde_json::from_slice(&snapshot).unwrap();
                assert_eq!(restored, episode);
                let outcome = episode.apply(&settings, &action).unwrap();
                assert_eq!(restored.apply(&settings, &action).unwrap(), outcome);
                let view = |episode: &Puzzle<G>| episode.view(&settings, "a").unwrap();
                assert_eq!(view(&restored), view(&episode));
                if outcome.done {
                    break;
                }
            }
        }
    }
}

/// Every way back to an earlier state has a negative reward on random walks, and so has every answer without a plan.
pub fn no_loop_pays<G: Oracle>() {
    let mut draw = Draw::new(3);
    let mut loops = 0;
    for level in G::LEVELS.take(4) {
        for puzzle in puzzles::<G>("train", 8, level) {
            let mut play = Play::new(puzzle);
            let mut sum = 0.0;
            // The last sum of rewards at each state.
            let mut seen = HashMap::from([(json!(play.game).to_string(), sum)]);
            for _ in 0..100 {
                let next = play.game.any_move(&mut draw);
                sum += play.run((!draw.percent(5)).then_some(std::slice::from_ref(&next))).total();
                if play.solved || play.at_horizon() {
                    break;
                }
                if let Some(before) = seen.insert(json!(play.game).to_string(), sum) {
                    assert!(sum < before - 1e-12, "{play:?} pays {}", sum - before);
                    loops += 1;
                }
            }
        }
    }
    assert!(loops > 100, "only {loops} loops were walked");
}

/// The programs of an agent earn the worth of the last one, however many there are and whatever is played in between.
pub fn only_the_last_program_pays<G: Oracle>() {
    testing::set_sandbox(|job| testing::printed(&job.source));
    let settings = Settings { seed: 1, ..Settings::default() };
    let mut draw = Draw::new(11);
    for (index, task) in (0..).zip(tasks::<G>(1, &request("train", 0, 12, *G::LEVELS.start() + 1)).unwrap()) {
        let mut episode = Puzzle::<G>::start(&settings, &task, 0).unwrap();
        let puzzle = G::start(task.read().unwrap()).unwrap();
        let solution = G::write(&puzzle.solution().unwrap());
        let mut any = || G::write(&[puzzle.any_move(&mut draw)]);
        let (mut paid, mut earned) = (0.0, 0.0);
        for round in 0..8 {
            let program = if round % 2 == 0 { solution.clone() } else { any() };
            let mut trial = episode.clone();
            let act = |episode: &mut Puzzle<G>, agent: &str, action| {
                let action = [pl_sdk::Action { agent: agent.to_owned(), action }];
                let outcome = episode.apply(&settings, &action).unwrap();
                let own = outcome.evidence.own.get(agent).unwrap().reward;
                (own, outcome.evidence.team, outcome.done)
            };
            paid += act(&mut episode, "tool", Action::Python(program.clone())).0;
            let (own, team, _) = act(&mut trial, "planner", Action::Answer(format!("#### {program}")));
            assert!(close(paid, earned + own + team), "task {index}, program {round}: {paid}");
            if round % 3 == 2 {
                let (own, team, done) =
                    act(&mut episode, "planner", Action::Answer(format!("#### {}", any())));
                earned += own + team;
                if done {
                    break;
                }
            }
        }
    }
}

/// The oracle ends an episode with success in one step, by both sets of rules, also after moves of somebody else; and
/// every state is drawn.
pub fn the_oracle_solves_and_states_are_drawn<G: Oracle>() {
    for rules in [Rules::Sound, Rules::Reference] {
        let settings = Settings { seed: 1, rules, ..Settings::default() };
        let mut draw = Draw::new(5);
        for task in tasks::<G>(1, &request("train", 0, 8, *G::LEVELS.start() + 1)).unwrap() {
            let mut episode = Puzzle::<G>::start(&settings, &task, 0).unwrap();
            let puzzle = G::start(task.read().unwrap()).unwrap();
            let act = |action| [pl_sdk::Action { agent: "a".to_owned(), action }];
            let any = Action::Answer(G::write(&[puzzle.any_move(&mut draw)]));
            let drawn = |episode: &Puzzle<G>| episode.draw(&settings, DrawingForm::Svg).unwrap().unwrap();
            let before = drawn(&episode);
            assert!(before.starts_with("<svg ") && before.len() < 64 << 10, "{} bytes", before.len());
            let mut moved = episode.clone();
            if rules == Rules::Sound && !moved.apply(&settings, &act(any)).unwrap().done {
                episode = moved;
            }
            // A random push may have made a room unsolvable.
            let Some(advice) = episode.oracle(&settings, "a").unwrap() else { continue };
            let action: Action = serde_json::from_value(advice).unwrap();
            let outcome = episode.apply(&settings, &act(action)).unwrap();
            assert!(outcome.facts.solved && outcome.evidence.solved, "{episode:?}");
            assert_ne!(drawn(&episode), before);
            assert_eq!(episode.oracle(&settings, "a").unwrap(), None, "nothing is left to do");
            let text = episode.draw(&settings, DrawingForm::Text).unwrap().unwrap();
            assert_eq!(text, episode.view(&settings, "a").unwrap().state);
        }
    }
}

/// Tests of a game for each law.
macro_rules! laws {
    ($game:ty) => {
        #[test]
        fn puzzles_are_solvable() {
            crate::laws::puzzles_are_solvable::<$game>();
        }

        #[test]
        fn tasks_are_repeatable() {
            crate::laws::tasks_are_repeatable::<$game>();
        }

        #[test]
        fn splits_share_no_puzzle_up_to_symmetry() {
            crate::laws::splits_share_no_puzzle_up_to_symmetry::<$game>();
        }

        #[test]
        fn snapshots_continue() {
            crate::laws::snapshots_continue::<$game>();
        }

        #[test]
        fn the_oracle_solves_and_states_are_drawn() {
            crate::laws::the_oracle_solves_and_states_are_drawn::<$game>();
        }

        #[test]
        fn no_loop_pays() {
            crate::laws::no_loop_pays::<$game>();
        }

        #[test]
        fn only_the_last_program_pays() {
            crate::laws::only_the_last_program_pays::<$game>();
        }
    };
}
pub(crate) use laws;
