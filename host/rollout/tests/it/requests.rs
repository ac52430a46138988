//! Requests of agents reach the model, and an observer receives events while they happen.

use std::sync::Arc;

use pl_dsl::workflow::{Rollout, Target};
use pl_plugin::Tool;
use pl_rollout::{EpisodeEvent, EpisodeSetup};
use tokio::sync::mpsc::unbounded_channel;

use crate::common::{Script, World, line, plan, play};

#[test]
fn tools_go_into_the_prompt() {
    let tool = |name: &str| Tool {
        name: name.to_owned(),
        description: "Looks something up.".to_owned(),
        parameters: r#"{"type": "object"}"#.to_owned(),
    };
    let script = Script { tools: vec![tool("look"), tool("up")], ..Script::default() };
    let world = World::new(script);
    let batch = play(&world.setup(1, line(1, &[&[0]], Target::End)), &plan(Rollout::Flat, 1, 1)).unwrap();
    let prompt: Vec<u8> = batch.transitions[0].prompt.iter().map(|&token| token as u8).collect();
    assert!(prompt.ends_with(b"lookup"), "{}", String::from_utf8_lossy(&prompt));
}

#[test]
fn stop_strings_of_the_workflow_are_added_to_those_of_the_agent() {
    let world = World::new(Script::default());
    let mut setup = EpisodeSetup::clone(&world.setup(1, line(1, &[&[0]], Target::End)));
    // The agent asks for the second one too.
    setup.agents[0].stop = vec!["###".to_owned(), "\n".to_owned()];
    play(&Arc::new(setup), &plan(Rollout::Flat, 1, 1)).unwrap();
    let requests = world.requests.lock().unwrap();
    assert_eq!(*requests[0].stop, ["\n".to_owned(), "###".to_owned()]);
}

#[test]
fn an_observer_receives_prompts_before_actions_and_changes_nothing() {
    let turns = || line(2, &[&[0], &[1]], Target::End);
    let plan = plan(Rollout::Flat, 1, 1);
    let alone = play(&World::new(Script::default()).setup(2, turns()), &plan).unwrap();

    let world = World::new(Script::default());
    let mut setup = EpisodeSetup::clone(&world.setup(2, turns()));
    let (sender, mut events) = unbounded_channel();
    setup.observer = Some(sender);
    let batch = play(&Arc::new(setup), &plan).unwrap();
    assert_eq!(batch.transitions, alone.transitions);
    assert!(world.requests.lock().unwrap().iter().all(|request| request.listener.is_some()));

    let mut order = Vec::new();
    while let Ok(event) = events.try_recv() {
        order.push(match event {
            EpisodeEvent::Prompted { agent, messages, .. } => format!("{} to {agent}", messages.len()),
            EpisodeEvent::Acted(step) => format!("{} by {}", step.action, step.agent),
            EpisodeEvent::Drawn(drawing) => drawing,
            EpisodeEvent::Restarted(failure) => failure,
            EpisodeEvent::PromptTooLong { agent, .. } => format!("a long prompt of {agent}"),
        });
    }
    let actions: Vec<&str> = alone.transitions.iter().map(|t| t.action.as_str()).collect();
    let expected = [
        "0 steps",
        "1 to agent0",
        &format!("{} by agent0", actions[0]),
        "1 steps",
        "1 to agent1",
        &format!("{} by agent1", actions[1]),
        "2 steps",
    ];
    assert_eq!(order, expected);
}
