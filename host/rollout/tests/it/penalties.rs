//! Completions that make a plugin fail are penalised instead of drawn again, if the setup says so; rewards that score
//! the end count for every agent's last turn.

use std::sync::Arc;

use pl_dsl::workflow::{Rollout, Target, Turns};
use pl_rollout::{Agreement, EpisodeSetup, Fault, replay};

use crate::common::{Script, State, World, agent_name, fail_first, groups, line, plan, play};

fn penalizing(script: Script, agents: usize, turns: Turns) -> Arc<EpisodeSetup> {
    let setup = World::new(script).setup(agents, turns);
    Arc::new(EpisodeSetup { fault_penalty: Some(2.0), ..(*setup).clone() })
}

/// A joint action with an odd sum makes the environment fail.
fn fails_on_odd(state: &State) -> Result<(bool, bool), Fault> {
    let sum: u64 = (0..2).filter_map(|agent| state.last(agent)).sum();
    if sum % 2 == 1 { Err(Fault::new("apply", "it trapped")) } else { Ok((false, false)) }
}

#[test]
fn a_candidate_that_traps_is_penalised_and_the_tree_continues_from_the_others() {
    let script = Script { apply: Arc::new(fails_on_odd), ..Script::default() };
    let setup = penalizing(script, 2, line(3, &[&[0], &[1]], Target::Node(0)));
    let batch = play(&setup, &plan(Rollout::Tree, 3, 6)).unwrap();
    assert_eq!(batch.lost, 0);
    let penalised: Vec<_> = batch.transitions.iter().filter(|t| t.reward == -2.0).collect();
    assert_eq!(penalised.len(), batch.failures.len());
    assert!(!penalised.is_empty() && penalised.len() < batch.transitions.len());
    assert!(penalised.iter().all(|t| !t.chosen && !t.success && !t.completion.is_empty()));
    // Nothing was drawn twice, and no group lacks a member.
    assert!(groups(&batch.transitions).values().all(|members| members.len() == 6));
    assert!(batch.failures.iter().all(|failure| failure.attempt == 0));
}

#[test]
fn a_flat_episode_ends_with_the_fault_of_its_completion() {
    let apply = fail_first(1, "apply", |state: &State| state.actions.len() == 2, (false, false));
    let setup = penalizing(Script { apply, ..Script::default() }, 1, line(3, &[&[0]], Target::Node(0)));
    let batch = play(&setup, &plan(Rollout::Flat, 1, 2)).unwrap();
    let rewards = |sample: u32| {
        let own = batch.transitions.iter().filter(|t| t.key.sample == sample);
        own.map(|t| t.reward).collect::<Vec<_>>()
    };
    assert_eq!((rewards(0).len(), rewards(0)[1], rewards(1).len()), (2, -2.0, 3));
    assert_eq!((batch.lost, batch.failures.len(), batch.episodes.len()), (0, 1, 2));
    assert_eq!((batch.episodes[0].success, batch.episodes[0].agents[0]), (false, Some((-2.0, false))));
    assert_eq!(batch.episodes[0].tokens, 2 * 8);
}

/// The other agent of a node has no part in the fault.
#[test]
fn the_agent_whose_plugin_failed_is_penalised_alone() {
    for mode in [Rollout::Flat, Rollout::Tree] {
        let parse = fail_first(1, "parse", |_: &String| true, ());
        let setup = penalizing(Script { parse, ..Script::default() }, 2, line(1, &[&[0, 1]], Target::End));
        let batch = play(&setup, &plan(mode, 1, 3)).unwrap();
        let [failure] = &batch.failures[..] else { panic!("{:?}", batch.failures) };
        let blamed = failure.agent.clone().unwrap();
        let own: Vec<_> = batch.transitions.iter().filter(|t| t.reward == -2.0).collect();
        assert_eq!(own.iter().map(|t| &t.agent).collect::<Vec<_>>(), [&blamed], "{mode:?}");
        let counts =
            [0, 1].map(|agent| batch.transitions.iter().filter(|t| t.agent == agent_name(agent)).count());
        let expected = if blamed == agent_name(0) { [3, 2] } else { [2, 3] };
        assert_eq!(counts, expected, "{mode:?}");
    }
}

#[test]
fn a_tree_whose_candidates_all_trap_ends_there() {
    let apply = fail_first(9, "apply", |state: &State| state.actions.len() == 2, (false, false));
    let setup = penalizing(Script { apply, ..Script::default() }, 1, line(3, &[&[0]], Target::Node(0)));
    let batch = play(&setup, &plan(Rollout::Tree, 1, 3)).unwrap();
    assert_eq!((batch.lost, batch.failures.len(), batch.transitions.len()), (0, 3, 6));
    assert!(batch.transitions[3..].iter().all(|t| t.reward == -2.0));
    assert_eq!((batch.episodes[0].success, batch.episodes[0].turns), (false, 2));
}

/// A clock or a lost worker is not the completion's fault.
#[test]
fn faults_that_no_completion_caused_are_drawn_again() {
    let clock = |stage: &'static str| Fault { reproducible: false, ..Fault::new(stage, "out of time") };
    for mode in [Rollout::Flat, Rollout::Tree] {
        for stage in ["apply", "start"] {
            let failed = std::sync::atomic::AtomicU32::new(0);
            let first = move || failed.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
            let script = match stage {
                "apply" => Script {
                    apply: Arc::new(move |_| if first() { Err(clock("apply")) } else { Ok((false, false)) }),
                    ..Script::default()
                },
                _ => Script {
                    start: Arc::new(
                        move |_| if first() { Err(Fault::new("start", "broken")) } else { Ok(()) },
                    ),
                    ..Script::default()
                },
            };
            let setup = penalizing(script, 1, line(1, &[&[0]], Target::End));
            let batch = play(&setup, &plan(mode, 1, 2)).unwrap();
            assert_eq!((batch.lost, batch.failures.len(), batch.transitions.len()), (0, 1, 2));
            assert!(batch.transitions.iter().all(|t| t.reward >= 0.0), "{mode:?}, {stage}");
        }
    }
}

/// A fault of the shared path, in every attempt, costs no group that was whole before it.
#[test]
fn a_tree_that_fails_for_good_keeps_the_groups_before() {
    // The second task has only its first turn, so the step has an episode.
    let ends = |state: &State| match (state.task.as_str(), state.actions.len()) {
        ("task:1", _) => Ok((true, false)),
        (_, 2) => Err(Fault { reproducible: false, ..Fault::new("apply", "clock") }),
        _ => Ok((false, false)),
    };
    let setup = World::new(Script { apply: Arc::new(ends), ..Script::default() })
        .setup(1, line(3, &[&[0]], Target::Node(0)));
    let batch = play(&setup, &plan(Rollout::Tree, 2, 3)).unwrap();
    assert_eq!((batch.lost, batch.episodes.len()), (1, 1));
    let groups = groups(&batch.transitions);
    assert_eq!(groups.len(), 2);
    assert!(groups.values().all(|members| members.len() == 3));
}

#[tokio::test]
async fn a_replay_of_a_penalised_episode_has_the_same_events() {
    for mode in [Rollout::Flat, Rollout::Tree] {
        let script = || Script { apply: Arc::new(fails_on_odd), names_copy: false, ..Script::default() };
        let setup = penalizing(script(), 2, line(2, &[&[0], &[1]], Target::Node(0)));
        let (played, recorded) = tokio::task::spawn_blocking(move || {
            let batch = play(&setup, &plan(mode, 4, 3)).unwrap();
            (batch.failures.len(), batch.traces)
        })
        .await
        .unwrap();
        assert!(played > 0);
        for trace in recorded {
            let again = penalizing(script(), 2, line(2, &[&[0], &[1]], Target::Node(0)));
            let agreement = replay(&again, &trace).await.agreement;
            assert_eq!(agreement, Agreement::Full, "{mode:?} {:?}", trace.key);
        }
    }
}

#[test]
fn a_reward_of_the_end_counts_for_the_last_turn_of_every_agent() {
    // The team earns 4 in the last of three steps, and 0 before.
    let script = || Script {
        team: Arc::new(|state: &State| if state.actions.len() == 3 { 4.0 } else { 0.0 }),
        ..Script::default()
    };
    let turns = || line(2, &[&[0], &[1], &[0]], Target::End);
    let team = |scores_end: bool| {
        let setup = World::new(script()).setup(2, turns());
        let setup = Arc::new(EpisodeSetup { scores_end, ..(*setup).clone() });
        let batch = play(&setup, &plan(Rollout::Flat, 1, 1)).unwrap();
        batch.transitions.iter().map(|t| t.team_reward).collect::<Vec<_>>()
    };
    assert_eq!(team(false), [0.0, 0.0, 4.0]);
    assert_eq!(team(true), [0.0, 4.0, 4.0]);
}

/// The reward may score only the agents that acted, so that the others have the team's part and its success.
#[test]
fn the_end_of_a_successful_team_is_a_success_of_agents_that_acted_before() {
    let script = |won: f64| Script {
        team: Arc::new(move |state: &State| if state.actions.len() == 2 { won } else { 0.0 }),
        ..Script::default()
    };
    for (won, success) in [(5.0, true), (4.0, false)] {
        let setup = World::new(script(won)).setup(2, line(1, &[&[0], &[1]], Target::End));
        let setup = Arc::new(EpisodeSetup { scores_end: true, ..(*setup).clone() });
        let batch = play(&setup, &plan(Rollout::Flat, 1, 1)).unwrap();
        let first = &batch.transitions[0];
        // The local part is that of its own turn.
        assert_eq!((first.reward, first.success), (0.5 * first.local_reward + won, success));
        assert_eq!(batch.episodes[0].agents[0], Some((first.reward, first.success)));
    }
}
