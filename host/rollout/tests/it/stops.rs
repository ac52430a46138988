//! What a turn means: agents that sit one out, episodes that end or are cut short, and ties.

use std::collections::BTreeSet;
use std::sync::Arc;

use pl_dsl::workflow::{Comparison, Condition, Edge, Rollout, Target};
use pl_plugin::Turn;
use pl_rollout::Plan;

use crate::common::{self, Script, World, line, plan, play, shown};

const MODES: [Rollout; 2] = [Rollout::Flat, Rollout::Tree];

fn skip(agent: &'static str, visits: std::ops::Range<u32>) -> Script {
    let skip = move |turn: &Turn| turn.agent == agent && visits.contains(&turn.visit);
    Script { skip: Arc::new(skip), ..Script::default() }
}

#[test]
fn an_agent_that_skips_its_turn_leaves_the_episode_as_it_was() {
    for mode in MODES {
        let world = World::new(skip("agent1", 0..1));
        let cast = world.cast(2, line(2, &[&[0], &[1]], Target::Node(0)));
        let batch = play(&cast, &plan(mode, 1, 1)).unwrap();
        // The visit counts, and so does the stop; nothing is asked and nothing trained on.
        let stops: Vec<_> =
            batch.transitions.iter().map(|t| (t.key.node_visit, t.key.agent, t.turn)).collect();
        assert_eq!(stops, [(0, 0, 0), (2, 0, 1), (3, 1, 1)]);
        assert_eq!(shown(&batch.transitions[1].prompt).did.len(), 1);
        assert_eq!(batch.episodes[0].turns, 4);
    }
}

#[test]
fn the_others_of_a_stop_act_without_the_one_that_skips() {
    for mode in MODES {
        let world = World::new(skip("agent0", 0..1));
        let cast = world.cast(2, line(1, &[&[0, 1]], Target::End));
        let batch = play(&cast, &plan(mode, 1, 3)).unwrap();
        assert!(batch.transitions.len() == 3 && batch.transitions.iter().all(|t| t.agent == "agent1"));
        let agents = &batch.episodes[0].agents;
        assert!(agents[0].is_none() && agents[1].is_some());
    }
}

#[test]
fn an_agent_that_skipped_has_no_reward_for_conditions() {
    for mode in MODES {
        let world = World::new(skip("agent0", 0..1));
        let mut turns = line(2, &[&[0, 1]], Target::Node(0));
        // Any reward at all would end the episode, and only a reward that is there can.
        let there = Condition::Compare(
            Comparison::GreaterOrEqual,
            Box::new(Condition::Reward("agent0".to_owned())),
            Box::new(Condition::Literal((-1.0e9).into())),
        );
        turns.nodes[0].edges.insert(0, Edge { to: Target::End, when: Some(there) });
        let batch = play(&world.cast(2, turns), &plan(mode, 1, 2)).unwrap();
        assert_eq!(batch.episodes[0].turns, 2, "{mode:?}: it ends after the turn in which agent0 acted");
        assert!(!batch.episodes[0].truncated);
    }
}

#[test]
fn an_agent_that_always_skips_does_not_keep_an_episode_going_for_ever() {
    for mode in MODES {
        let world = World::new(skip("agent0", 0..u32::MAX));
        let batch = play(&world.cast(1, line(5, &[&[0]], Target::Node(0))), &plan(mode, 1, 1)).unwrap();
        assert!(batch.transitions.is_empty());
        assert_eq!((batch.episodes[0].turns, batch.episodes[0].truncated), (5, true));
        assert_eq!(batch.episodes[0].agents, [None]);
    }
}

#[test]
fn an_agent_acts_at_most_max_times_and_then_the_episode_is_truncated() {
    for mode in MODES {
        let world = World::new(Script::default());
        let cast = world.cast(2, line(3, &[&[0], &[1]], Target::Node(0)));
        let batch = play(&cast, &plan(mode, 1, 2)).unwrap();
        for agent in 0..2 {
            let visits = batch.transitions.iter().filter(|t| t.key.agent == agent).map(|t| t.turn);
            assert_eq!(visits.collect::<BTreeSet<_>>(), BTreeSet::from([0, 1, 2]));
        }
        assert!(batch.episodes.iter().all(|e| e.truncated && e.turns == 6));

        let straight = World::new(Script::default()).cast(2, line(3, &[&[0], &[1]], Target::End));
        let batch = play(&straight, &plan(mode, 1, 2)).unwrap();
        assert!(batch.episodes.iter().all(|e| !e.truncated && e.turns == 2));
    }
}

#[test]
fn the_environment_ends_an_episode_or_cuts_it_short() {
    for mode in MODES {
        for truncated in [false, true] {
            let script = Script {
                apply: Arc::new(move |state| {
                    Ok((!truncated && state.did.len() == 2, truncated && state.did.len() == 2))
                }),
                ..Script::default()
            };
            let cast = World::new(script).cast(1, line(4, &[&[0]], Target::Node(0)));
            let batch = play(&cast, &plan(mode, 1, 2)).unwrap();
            assert!(batch.episodes.iter().all(|e| e.turns == 2 && e.truncated == truncated));
            assert_eq!(batch.transitions.len(), 4);
        }
    }
}

#[test]
fn equal_candidates_are_drawn_between_by_the_seed() {
    let played = |seed| {
        let script = Script { team: Arc::new(|_| 1.0), ..Script::default() };
        let mut cast = (*World::new(script).cast(1, line(1, &[&[0]], Target::End))).clone();
        cast.local_weight = 0.0;
        let plan = Plan { seed, ..plan(Rollout::Tree, 1, 3) };
        let batch = play(&Arc::new(cast), &plan).unwrap();
        let chosen: Vec<u32> = batch.transitions.iter().filter(|t| t.chosen).map(|t| t.key.branch).collect();
        assert_eq!(chosen.len(), 1);
        chosen[0]
    };
    let winners: Vec<u32> = (0..40).map(played).collect();
    assert_eq!(winners, (0..40).map(played).collect::<Vec<_>>());
    for branch in 0..3 {
        assert!(winners.iter().filter(|&&winner| winner == branch).count() >= 4, "{winners:?}");
    }
}

/// Of side-by-side agents, one of which sat the turn out, only the other's reward decides.
#[test]
fn the_best_candidate_is_best_for_those_that_acted() {
    let mut script = skip("agent0", 0..1);
    script.team = Arc::new(|state| -(state.last(1).unwrap_or(0) as f64));
    let mut cast = (*World::new(script).cast(2, line(1, &[&[0, 1]], Target::End))).clone();
    // The agent's own part, a tenth of its number, weighs a little more than the team's loss of the number.
    cast.local_weight = 15.0;
    let batch = play(&Arc::new(cast), &plan(Rollout::Tree, 8, 4)).unwrap();
    for members in common::groups(&batch.transitions).values() {
        let best = members.iter().map(|t| t.reward).fold(f64::NEG_INFINITY, f64::max);
        assert!(members.iter().any(|t| t.chosen && t.reward == best));
    }
}
