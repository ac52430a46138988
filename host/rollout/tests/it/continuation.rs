//! Episodes that go on from a turn of a recorded one.

use std::collections::HashMap;
use std::sync::Arc;

use pl_dsl::workflow::{Rollout, Target};
use pl_rollout::{Attempt, Continuation, EpisodeSetup, EventKind, Trace, TraceEvent, continue_episode};

use crate::common::{Script, World, line, plan, play, shown_state};

const MODES: [Rollout; 2] = [Rollout::Flat, Rollout::Tree];

/// Two agents, one after the other, twice each.
fn world() -> (Arc<World>, Arc<EpisodeSetup>) {
    let world = World::new(Script { names_copy: false, ..Script::default() });
    let setup = world.setup(2, line(2, &[&[0], &[1]], Target::Node(0)));
    (world, setup)
}

fn recorded(mode: Rollout) -> Trace {
    play(&world().1, &plan(mode, 1, 3)).unwrap().traces.remove(0)
}

fn go_on(setup: &EpisodeSetup, trace: &Trace, from: &Continuation) -> Attempt {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(continue_episode(setup, trace, from))
}

/// The prompts of an episode, or of the path that a tree took.
fn prompts(trace: &Trace) -> Vec<Vec<u32>> {
    let prompt = |kind: &EventKind| match kind {
        EventKind::Prompted { prompt, .. } => Some(prompt.clone()),
        _ => None,
    };
    trace.events.iter().filter_map(|event| prompt(&event.kind)).collect()
}

/// The tokens of all completions with their node visits.
fn completions(trace: &Trace) -> Vec<(u32, Vec<u32>)> {
    let tokens = |event: &TraceEvent| match &event.kind {
        EventKind::Completion { tokens, .. } => Some((event.position.node_visit, tokens.clone())),
        _ => None,
    };
    trace.events.iter().filter_map(tokens).collect()
}

#[test]
fn turns_before_the_chosen_one_are_those_of_the_recording_and_later_ones_are_new() {
    for mode in MODES {
        let trace = recorded(mode);
        for node_visit in 0..4 {
            let (world, setup) = world();
            let from = Continuation { node_visit, draw: 1, ..Continuation::default() };
            let attempt = go_on(&setup, &trace, &from);
            assert!(attempt.failure.is_none(), "{mode:?}: {:?}", attempt.failure);
            let (before, now) = (prompts(&trace), prompts(&attempt.trace));
            let same = node_visit as usize + 1;
            assert_eq!(before[..same], now[..same], "{mode:?} {node_visit}: the same states up to the turn");
            let is_new = |(visit, tokens): &(u32, Vec<u32>)| {
                *visit < node_visit || completions(&trace).iter().all(|(_, recorded)| recorded != tokens)
            };
            assert!(completions(&attempt.trace).iter().all(is_new), "{mode:?}");
            assert_eq!(world.requests.lock().unwrap().len(), 4 - node_visit as usize, "new completions");
        }
    }
}

#[test]
fn without_another_draw_an_episode_goes_on_as_it_was_recorded() {
    let trace = recorded(Rollout::Flat);
    let from = Continuation { node_visit: 2, ..Continuation::default() };
    assert_eq!(go_on(&world().1, &trace, &from).trace.events, trace.events);
}

#[test]
fn a_changed_prompt_is_what_the_model_is_given_at_that_turn_alone() {
    let trace = recorded(Rollout::Tree);
    let (world, setup) = world();
    let prompts = HashMap::from([("agent1".to_owned(), vec![1, 2, 3])]);
    let from = Continuation { node_visit: 1, prompts, ..Continuation::default() };
    assert!(go_on(&setup, &trace, &from).failure.is_none());
    let requests = world.requests.lock().unwrap();
    assert_eq!(*requests[0].prompt, [1, 2, 3]);
    assert_eq!(shown_state(&requests[1].prompt).actions.len(), 2, "later prompts are the agents' own");
}

#[test]
fn a_state_that_is_not_reached_again_ends_the_episode_with_the_reason() {
    let mut trace = recorded(Rollout::Flat);
    let changed = trace.events.iter_mut().rev().find_map(|event| match &mut event.kind {
        EventKind::Prompted { prompt, .. } if event.position.node_visit == 1 => Some(prompt),
        _ => None,
    });
    changed.unwrap().push(0);
    let from = Continuation { node_visit: 3, ..Continuation::default() };
    let failure = go_on(&world().1, &trace, &from).failure.unwrap();
    assert!(failure.cause.contains("a prompt differs from the recorded one"), "{}", failure.cause);
}
