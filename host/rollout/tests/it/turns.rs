//! Turns: agents that skip one, episodes that end or are truncated, and ties.

use std::collections::BTreeSet;
use std::sync::Arc;

use pl_dsl::workflow::{Comparison, Condition, Edge, Rollout, Target};
use pl_plugin::Turn;
use pl_rollout::RolloutPlan;

use crate::common::{self, Script, World, line, plan, play, shown_state};

const MODES: [Rollout; 2] = [Rollout::Flat, Rollout::Tree];

fn skipping(agent: &'static str, visits: std::ops::Range<u32>) -> Script {
    let skip = move |turn: &Turn| turn.agent == agent && visits.contains(&turn.visit);
    Script { skip: Arc::new(skip), ..Script::default() }
}

#[test]
fn an_agent_that_skips_its_turn_leaves_the_episode_as_it_was() {
    for mode in MODES {
        let world = World::new(skipping("agent1", 0..1));
        let setup = world.setup(2, line(2, &[&[0], &[1]], Target::Node(0)));
        let batch = play(&setup, &plan(mode, 1, 1)).unwrap();
        // The visit counts, but there is no prompt and no transition.
        let visits: Vec<_> =
            batch.transitions.iter().map(|t| (t.key.node_visit, t.key.agent, t.turn)).collect();
        assert_eq!(visits, [(0, 0, 0), (2, 0, 1), (3, 1, 1)]);
        assert_eq!(shown_state(&batch.transitions[1].prompt).actions.len(), 1);
        assert_eq!(batch.episodes[0].turns, 4);
    }
}

#[test]
fn the_other_agents_of_a_node_act_without_the_one_that_skips() {
    for mode in MODES {
        let world = World::new(skipping("agent0", 0..1));
        let setup = world.setup(2, line(1, &[&[0, 1]], Target::End));
        let batch = play(&setup, &plan(mode, 1, 3)).unwrap();
        assert!(batch.transitions.len() == 3 && batch.transitions.iter().all(|t| t.agent == "agent1"));
        let agents = &batch.episodes[0].agents;
        assert!(agents[0].is_none() && agents[1].is_some());
    }
}

#[test]
fn an_agent_that_skipped_has_no_reward_for_conditions() {
    for mode in MODES {
        let world = World::new(skipping("agent0", 0..1));
        let mut turns = line(2, &[&[0, 1]], Target::Node(0));
        // Any reward at all would end the episode, but a missing one must not.
        let has_reward = Condition::Compare(
            Comparison::GreaterOrEqual,
            Box::new(Condition::Reward("agent0".to_owned())),
            Box::new(Condition::Literal((-1.0e9).into())),
        );
        turns.nodes[0].edges.insert(0, Edge { to: Target::End, when: Some(has_reward) });
        let batch = play(&world.setup(2, turns), &plan(mode, 1, 2)).unwrap();
        assert_eq!(batch.episodes[0].turns, 2, "{mode:?}: it ends after the turn in which agent0 acted");
        assert!(!batch.episodes[0].truncated);
    }
}

#[test]
fn an_agent_that_always_skips_can_not_extend_an_episode_forever() {
    for mode in MODES {
        let world = World::new(skipping("agent0", 0..u32::MAX));
        let batch = play(&world.setup(1, line(5, &[&[0]], Target::Node(0))), &plan(mode, 1, 1)).unwrap();
        assert!(batch.transitions.is_empty());
        assert_eq!((batch.episodes[0].turns, batch.episodes[0].truncated), (5, true));
        assert_eq!(batch.episodes[0].agents, [None]);
    }
}

#[test]
fn an_agent_acts_at_most_max_times_and_then_the_episode_is_truncated() {
    for mode in MODES {
        let world = World::new(Script::default());
        let setup = world.setup(2, line(3, &[&[0], &[1]], Target::Node(0)));
        let batch = play(&setup, &plan(mode, 1, 2)).unwrap();
        for agent in 0..2 {
            let visits = batch.transitions.iter().filter(|t| t.key.agent == agent).map(|t| t.turn);
            assert_eq!(visits.collect::<BTreeSet<_>>(), BTreeSet::from([0, 1, 2]));
        }
        assert!(batch.episodes.iter().all(|e| e.truncated && e.turns == 6));

        let straight = World::new(Script::default()).setup(2, line(3, &[&[0], &[1]], Target::End));
        let batch = play(&straight, &plan(mode, 1, 2)).unwrap();
        assert!(batch.episodes.iter().all(|e| !e.truncated && e.turns == 2));
    }
}

#[test]
fn the_environment_ends_or_truncates_an_episode() {
    for mode in MODES {
        for truncated in [false, true] {
            let script = Script {
                apply: Arc::new(move |state| {
                    Ok((!truncated && state.actions.len() == 2, truncated && state.actions.len() == 2))
                }),
                ..Script::default()
            };
            let setup = World::new(script).setup(1, line(4, &[&[0]], Target::Node(0)));
            let batch = play(&setup, &plan(mode, 1, 2)).unwrap();
            assert!(batch.episodes.iter().all(|e| e.turns == 2 && e.truncated == truncated));
            assert_eq!(batch.transitions.len(), 4);
        }
    }
}

#[test]
fn the_seed_decides_between_equal_candidates() {
    let played = |seed| {
        let script = Script { team: Arc::new(|_| 1.0), ..Script::default() };
        let mut setup = (*World::new(script).setup(1, line(1, &[&[0]], Target::End))).clone();
        setup.local_weight = 0.0;
        let plan = RolloutPlan { seed, ..plan(Rollout::Tree, 1, 3) };
        let batch = play(&Arc::new(setup), &plan).unwrap();
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

/// If one of two agents of a node skips the turn, only the other's reward decides.
#[test]
fn the_best_candidate_is_best_for_those_that_acted() {
    let mut script = skipping("agent0", 0..1);
    script.team = Arc::new(|state| -(state.last(1).unwrap_or(0) as f64));
    let mut setup = (*World::new(script).setup(2, line(1, &[&[0, 1]], Target::End))).clone();
    // The agent's local part, a tenth of its number, outweighs the team's loss of the number.
    setup.local_weight = 15.0;
    let batch = play(&Arc::new(setup), &plan(Rollout::Tree, 8, 4)).unwrap();
    for members in common::groups(&batch.transitions).values() {
        let best = members.iter().map(|t| t.reward).fold(f64::NEG_INFINITY, f64::max);
        assert!(members.iter().any(|t| t.chosen && t.reward == best));
    }
}
