//! A failure costs its episode or its candidate alone, is recorded with its cause, and is retried.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pl_dsl::workflow::{Rollout, Target};
use pl_rollout::{EpisodeContext, EpisodeFailure, Error, Fault};
use pl_types::{Phase, StreamKey};

use crate::common::{self, Script, World, fail_first, groups, line, plan, play};

fn positions(failures: &[EpisodeFailure]) -> Vec<(u32, u32, u32, u32, Option<u32>)> {
    failures.iter().map(|f| (f.task, f.sample, f.attempt, f.node_visit, f.branch)).collect()
}

/// No completion of a failed attempt is drawn again.
fn streams_are_fresh(world: &World) {
    let requests = world.requests.lock().unwrap();
    let seeds: Vec<_> = requests.iter().flat_map(|r| r.seeds.clone()).collect();
    assert_eq!(seeds.iter().collect::<HashSet<_>>().len(), seeds.len());
}

#[test]
fn an_episode_that_traps_is_retried_with_fresh_streams() {
    // The second step of the first episode traps, twice.
    let apply = fail_first(2, "apply", |state: &common::State| state.actions.len() == 2, (false, false));
    let world = World::new(Script { apply, ..Script::default() });
    let batch = play(&world.setup(1, line(3, &[&[0]], Target::Node(0))), &plan(Rollout::Flat, 2, 2)).unwrap();
    assert_eq!(batch.lost, 0);
    assert_eq!(positions(&batch.failures), [(0, 0, 0, 1, None), (0, 0, 1, 1, None)]);
    let first = &batch.failures[0];
    assert_eq!((first.step, first.task_id.as_str(), &first.agent), (3, "task:0", &None));
    assert_eq!(
        (first.stage.as_str(), first.cause.as_str(), first.reproducible),
        ("apply", "it trapped", true)
    );
    assert_eq!(batch.transitions.len(), 2 * 2 * 3);
    assert!(groups(&batch.transitions).values().all(|members| members.len() == 2));
    // Four episodes of three turns, and two turns of each failed attempt.
    assert_eq!(world.completions.lock().unwrap().len(), 12 + 4);
    streams_are_fresh(&world);
}

#[test]
fn a_candidate_that_traps_is_sampled_again_and_its_group_is_whole() {
    let apply = fail_first(3, "apply", |state: &common::State| state.actions.len() == 2, (false, false));
    let world = World::new(Script { apply, ..Script::default() });
    let setup = world.setup(2, line(2, &[&[0], &[1]], Target::Node(0)));
    let batch = play(&setup, &plan(Rollout::Tree, 1, 3)).unwrap();
    assert_eq!(batch.lost, 0);
    // All three candidates of the second node visit trap once, and the tree continues from there.
    assert_eq!(positions(&batch.failures), [0, 1, 2].map(|branch| (0, 0, 0, 1, Some(branch))));
    let groups = groups(&batch.transitions);
    assert_eq!(groups.len(), 4);
    for members in groups.values() {
        assert_eq!(members.iter().map(|t| t.key.branch).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(members.iter().all(|t| t.state == members[0].state));
    }
    assert_eq!(batch.episodes[0].tokens, (12 + 3) * 8, "tokens of failed candidates were sampled too");
    streams_are_fresh(&world);
}

#[test]
fn a_completion_that_can_not_be_parsed_costs_its_candidate_alone() {
    let parse = fail_first(1, "parse", |_: &String| true, ());
    let world = World::new(Script { parse, ..Script::default() });
    let setup = world.setup(2, line(1, &[&[0], &[1]], Target::End));
    let batch = play(&setup, &plan(Rollout::Tree, 1, 4)).unwrap();
    assert_eq!(positions(&batch.failures), [(0, 0, 0, 0, Some(0))]);
    assert_eq!(batch.failures[0].agent.as_deref(), Some("agent0"));
    assert!(groups(&batch.transitions).values().all(|members| members.len() == 4));
    assert_eq!(world.completions.lock().unwrap().len(), 9, "the other candidates are kept");
}

#[test]
fn after_three_attempts_a_group_continues_without_the_candidate() {
    let steps = AtomicU32::new(0);
    let script = Script {
        // Candidates 0, 1 and 2 are applied in turn, then 0 again, twice.
        apply: Arc::new(move |_| match steps.fetch_add(1, Ordering::Relaxed) {
            0 | 3 | 4 => Err(Fault::new("apply", "it trapped")),
            _ => Ok((false, false)),
        }),
        ..Script::default()
    };
    let world = World::new(script);
    let batch = play(&world.setup(1, line(2, &[&[0]], Target::Node(0))), &plan(Rollout::Tree, 1, 3)).unwrap();
    assert_eq!(positions(&batch.failures), [(0, 0, 0, 0, Some(0)); 3]);
    let branches: Vec<Vec<u32>> = groups(&batch.transitions)
        .values()
        .map(|members| members.iter().map(|t| t.key.branch).collect())
        .collect();
    assert_eq!(branches, [vec![1, 2], vec![0, 1, 2]]);
    assert_eq!(batch.lost, 0);
}

/// A node visit that loses all its candidates ends its tree, which is played again; both failures are
/// recorded.
#[test]
fn a_tree_that_fails_keeps_the_failures_of_its_candidates() {
    let apply = fail_first(6, "apply", |state: &common::State| state.actions.len() == 2, (false, false));
    let world = World::new(Script { apply, ..Script::default() });
    let batch = play(&world.setup(1, line(2, &[&[0]], Target::Node(0))), &plan(Rollout::Tree, 1, 2)).unwrap();
    assert_eq!(batch.lost, 0);
    let candidate = |branch| (0, 0, 0, 1, Some(branch));
    let tree = (0, 0, 0, 1, None);
    assert_eq!(
        positions(&batch.failures),
        [tree, candidate(0), candidate(0), candidate(0), candidate(1), candidate(1), candidate(1)]
    );
    assert!(groups(&batch.transitions).values().all(|members| members.len() == 2));
    streams_are_fresh(&world);
}

#[tokio::test]
async fn a_single_tree_reports_the_candidates_that_failed() {
    let apply = fail_first(1, "apply", |_: &common::State| true, (false, false));
    let world = World::new(Script { apply, ..Script::default() });
    let plan = plan(Rollout::Tree, 1, 2);
    let context = EpisodeContext {
        key: StreamKey { seed: 1, phase: Phase::Play, step: 0, task: 0, sample: 0, attempt: 0 },
        task: Arc::clone(&plan.tasks[0]),
        versions: Arc::clone(&plan.versions),
        mode: Rollout::Tree,
        candidates: 2,
        suspends: false,
        answers: None,
    };
    let attempt = pl_rollout::play_episode(&world.setup(1, line(1, &[&[0]], Target::End)), &context).await;
    assert_eq!(attempt.failure, None);
    assert_eq!(positions(&attempt.result.failures), [(0, 0, 0, 0, Some(0))]);
    assert_eq!(attempt.result.transitions.len(), 2);
}

#[test]
fn an_episode_is_lost_after_three_attempts_and_its_group_is_smaller() {
    // The first three starts are the three attempts at the first episode.
    let start = fail_first(3, "start", |_: &pl_plugin::Task| true, ());
    let world = World::new(Script { start, ..Script::default() });
    let batch = play(&world.setup(1, line(1, &[&[0]], Target::End)), &plan(Rollout::Flat, 1, 3)).unwrap();
    assert_eq!((batch.lost, batch.episodes.len()), (1, 2));
    assert_eq!(positions(&batch.failures), [0, 1, 2].map(|attempt| (0, 0, attempt, 0, None)));
    assert_eq!(batch.transitions.iter().map(|t| t.key.sample).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_batch_without_any_episode_names_the_first_cause() {
    for mode in [Rollout::Flat, Rollout::Tree] {
        let script = Script {
            parse: Arc::new(|text: &String| {
                Err(Fault::new("parse", format!("{} is not an answer", &text[1..])))
            }),
            ..Script::default()
        };
        let setup = World::new(script).setup(2, line(1, &[&[0], &[1]], Target::End));
        let error = play(&setup, &plan(mode, 2, 2)).unwrap_err();
        let Error::NoEpisode { episodes, step, ref cause, .. } = error else { panic!("{error}") };
        assert_eq!((episodes, step), (if mode == Rollout::Flat { 4 } else { 2 }, 3));
        assert_eq!(cause, "task task:0, agent agent0, parse:  ζ🦀 is not an answer");
        assert!(error.to_string().contains(cause));
    }
}

#[test]
fn an_empty_plan_is_an_empty_batch() {
    let setup = World::new(Script::default()).setup(1, line(1, &[&[0]], Target::End));
    let batch = play(&setup, &plan(Rollout::Tree, 0, 4)).unwrap();
    assert!(batch.transitions.is_empty() && batch.episodes.is_empty());
}

/// A wall clock may decide in any function of the environment, on a copy that is dropped right after.
#[test]
fn an_episode_in_which_a_clock_decided_is_not_reproducible() {
    for mode in [Rollout::Flat, Rollout::Tree] {
        let reproducible = |clocked: &'static str| {
            let script = Script { uses_clock: Arc::new(move |own| *own == clocked), ..Script::default() };
            let setup = World::new(script).setup(1, line(2, &[&[0]], Target::Node(0)));
            let batch = play(&setup, &plan(mode, 1, 2)).unwrap();
            batch.episodes.iter().all(|episode| episode.reproducible)
        };
        assert!(reproducible("nothing"), "{mode:?}");
        for function in ["start", "view", "apply"] {
            assert!(!reproducible(function), "{mode:?}, {function}");
        }
    }
}

/// A tree continues without the candidate, but another run may keep it.
#[test]
fn a_tree_that_lost_a_candidate_to_a_clock_is_not_reproducible() {
    for clocked in [false, true] {
        let steps = AtomicU32::new(0);
        let apply = Arc::new(move |_: &common::State| match steps.fetch_add(1, Ordering::Relaxed) {
            0 => Err(Fault { reproducible: !clocked, ..Fault::new("apply", "out of time") }),
            _ => Ok((false, false)),
        });
        let world = World::new(Script { apply, ..Script::default() });
        let setup = world.setup(1, line(1, &[&[0]], Target::End));
        let batch = play(&setup, &plan(Rollout::Tree, 1, 2)).unwrap();
        assert_eq!(batch.failures.len(), 1);
        assert_eq!(batch.episodes[0].reproducible, !clocked);
    }
}
