//! Mistakes that spoil training without an error. Each test here fails on one of them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pl_dsl::workflow::{Rollout, Target};
use pl_rollout::{Fault, RolloutPlan};

use crate::common::{
    self, Event, Evidence, Script, World, digit, groups, line, plan, play, play_on_two, shown_state,
};

const MODES: [Rollout; 2] = [Rollout::Flat, Rollout::Tree];

#[test]
fn samples_of_different_problems_are_never_in_one_group() {
    for mode in MODES {
        let world = World::with_jitter(Script::default(), 5);
        let setup = world.setup(2, line(2, &[&[0], &[1]], Target::Node(0)));
        let batch = play_on_two(&setup, &RolloutPlan { in_flight: 6, ..plan(mode, 5, 3) }).unwrap();
        let groups = groups(&batch.transitions);
        assert_eq!(groups.len(), 5 * 2 * 2, "{mode:?}: one per task, agent and turn");
        for (group, members) in groups {
            assert_eq!(members.len(), 3);
            let problem = format!("task:{}", group.task);
            assert!(members.iter().all(|t| t.task_id == problem && shown_state(&t.prompt).task == problem));
        }
    }
}

/// The reward of a candidate depends on the state after its own action, and no copy of the environment
/// receives the action of more than one candidate.
#[test]
fn a_candidate_is_scored_right_after_it_was_applied_on_its_own_copy() {
    // The team earns the sum of all actions so far: a score on another candidate's state would be another
    // number.
    let team = |state: &common::State| {
        state.actions.iter().flatten().map(|(_, action)| digit(action) as f64).sum::<f64>()
    };
    let world = World::with_jitter(Script { team: Arc::new(team), ..Script::default() }, 9);
    let setup = world.setup(2, line(2, &[&[0], &[1]], Target::Node(0)));
    let batch = play_on_two(&setup, &RolloutPlan { in_flight: 3, ..plan(Rollout::Tree, 3, 4) }).unwrap();
    for t in &batch.transitions {
        let before: u64 =
            shown_state(&t.prompt).actions.iter().flatten().map(|(_, action)| digit(action)).sum();
        assert_eq!(t.team_reward, (before + digit(&t.action)) as f64, "{:?}", t.key);
        assert_eq!(t.local_reward, digit(&t.action) as f64 / 10.0);
        assert_eq!(t.reward, t.team_reward + 0.5 * t.local_reward, "weights of the setup");
    }
    let mut applied = HashMap::new();
    for event in world.events.lock().unwrap().iter() {
        match event {
            Event::Applied { copy, before, actions } => {
                let other = applied.insert(*copy, (before.clone(), actions.clone()));
                assert_eq!(other, None, "copy {copy} received the actions of two candidates");
            }
            Event::Scored { actions, evidence: Evidence { copy, state } } => {
                let (mut after, own) = applied.remove(copy).unwrap();
                after.actions.push(own.clone());
                assert_eq!(
                    (actions, &state.actions),
                    (&own, &after.actions),
                    "copy {copy} was scored on something else"
                );
                applied.insert(*copy, (after, own));
            }
        }
    }
    assert_eq!(applied.len(), batch.transitions.len());
}

#[test]
fn a_later_agent_sees_the_action_of_the_earlier_one() {
    for mode in MODES {
        let world = World::new(Script::default());
        let setup = world.setup(2, line(2, &[&[0], &[1]], Target::Node(0)));
        let batch = play(&setup, &plan(mode, 2, 3)).unwrap();
        for later in batch.transitions.iter().filter(|t| t.key.node_visit > 0) {
            let seen = shown_state(&later.prompt).actions;
            assert_eq!(seen.len(), later.key.node_visit as usize);
            let earlier = batch.transitions.iter().find(|t| {
                (t.key.task, t.key.sample, t.key.node_visit + 1)
                    == (later.key.task, later.key.sample, later.key.node_visit)
                    && t.chosen
            });
            let earlier = earlier.unwrap();
            assert_ne!(earlier.agent, later.agent);
            assert_eq!(seen.last().unwrap(), &[(earlier.agent.clone(), earlier.action.clone())]);
        }
    }
}

#[test]
fn agents_of_one_node_act_on_one_view_and_together() {
    for mode in MODES {
        let world = World::new(Script::default());
        let setup = world.setup(2, line(1, &[&[0, 1]], Target::End));
        let batch = play(&setup, &plan(mode, 3, 3)).unwrap();
        assert_eq!(batch.transitions.len(), 3 * 3 * 2);
        assert!(batch.transitions.iter().all(|t| shown_state(&t.prompt).actions.is_empty()));
        for event in world.events.lock().unwrap().iter() {
            let (Event::Applied { actions, .. } | Event::Scored { actions, .. }) = event;
            assert_eq!(
                actions.iter().map(|(agent, _)| agent.as_str()).collect::<Vec<_>>(),
                ["agent0", "agent1"]
            );
        }
        // Candidate k of each agent is part of joint action k, and the team part is that of the pair.
        let mut pairs: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for t in &batch.transitions {
            pairs.entry((t.key.task, t.key.sample, t.key.branch)).or_default().push(t);
        }
        for pair in pairs.values() {
            let sum: u64 = pair.iter().map(|t| digit(&t.action)).sum();
            assert!(pair.len() == 2 && pair.iter().all(|t| t.team_reward == sum as f64));
        }
    }
}

/// A candidate that ends the episode is a candidate like the others: its group stays whole, the tree
/// continues from the best one, and the next agent gets a whole group too.
#[test]
fn a_candidate_that_ends_the_episode_takes_no_samples_from_others() {
    let script = Script {
        // The worse half of the actions ends the episode.
        apply: Arc::new(|state| Ok((state.last(0).is_some_and(|number| number < 5), false))),
        ..Script::default()
    };
    let world = World::new(script);
    let setup = world.setup(2, line(1, &[&[0], &[1]], Target::End));
    let batch = play(&setup, &plan(Rollout::Tree, 24, 4)).unwrap();
    let groups = groups(&batch.transitions);
    let (mut continued, mut first_ended) = (0, 0);
    for task in 0..24 {
        let group_of =
            |agent: u32| groups.iter().find(|(g, _)| g.task == task && g.agent == agent).map(|(_, m)| m);
        let first = group_of(0).unwrap();
        assert_eq!(first.len(), 4);
        let best = first.iter().map(|t| digit(&t.action)).max().unwrap();
        let chosen = first.iter().find(|t| t.chosen).unwrap();
        assert_eq!(digit(&chosen.action), best);
        assert_eq!(group_of(1).map(|second| second.len()), (best >= 5).then_some(4), "task {task}");
        if best >= 5 && first.iter().any(|t| digit(&t.action) < 5) {
            continued += 1;
            first_ended += usize::from(digit(&first[0].action) < 5);
        }
    }
    assert!(continued > 0 && first_ended > 0, "the case has to come up");
}

#[test]
fn a_group_with_a_sample_missing_is_not_padded() {
    // Flat: the second episode never starts. One episode runs at a time, so its attempts are starts 2, 3 and
    // 4.
    let starts = AtomicU32::new(0);
    let script = Script {
        start: Arc::new(move |_| match starts.fetch_add(1, Ordering::Relaxed) {
            1..=3 => Err(Fault::new("start", "it trapped")),
            _ => Ok(()),
        }),
        ..Script::default()
    };
    let setup = World::new(script).setup(1, line(2, &[&[0]], Target::Node(0)));
    let batch = play(&setup, &plan(Rollout::Flat, 1, 4)).unwrap();
    assert_eq!((batch.lost, batch.episodes.len()), (1, 3));
    for members in groups(&batch.transitions).values() {
        assert_eq!(members.iter().map(|t| t.key.sample).collect::<Vec<_>>(), [0, 2, 3]);
        let completions: HashSet<_> = members.iter().map(|t| &t.completion).collect();
        assert_eq!(completions.len(), 3, "no sample replaces another");
    }
}

/// Token ids, log-probs, temperature and versions reach the learner as the model returned them: no text is
/// tokenised again on the way.
#[test]
fn the_learner_gets_exactly_what_was_sampled() {
    for mode in MODES {
        let world = World::new(Script::default());
        let setup = world.setup(2, line(2, &[&[0], &[1]], Target::Node(0)));
        let batch = play(&setup, &plan(mode, 2, 3)).unwrap();
        let completions = world.completions.lock().unwrap();
        let mut sent = HashMap::new();
        for request in world.requests.lock().unwrap().iter() {
            for seed in &request.seeds {
                sent.insert(completions[seed].tokens.clone(), (request.clone(), completions[seed].clone()));
            }
        }
        for t in &batch.transitions {
            let (request, completion) = sent.remove(&t.completion).unwrap();
            let bits = |numbers: &[f32]| numbers.iter().map(|n| n.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&t.logprobs), bits(&completion.logprobs));
            assert_eq!(t.logprobs.len(), t.completion.len());
            assert_eq!(t.prompt, *request.prompt);
            assert_eq!((t.policy, t.temperature), (request.policy as u32, request.sampling.temperature));
            assert_eq!((t.version, t.policy), (completion.version, t.key.agent));
            assert_eq!(t.versions, [40, 41, 42, 43]);
        }
        assert!(sent.is_empty(), "completions without a transition");
    }
}
