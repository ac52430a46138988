//! What an agent asks for reaches the model, and who listens hears it as it happens.

use std::sync::Arc;

use pl_dsl::workflow::{Rollout, Target};
use pl_plugin::Tool;
use pl_rollout::{Cast, Heard};
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
    let batch = play(&world.cast(1, line(1, &[&[0]], Target::End)), &plan(Rollout::Flat, 1, 1)).unwrap();
    let prompt: Vec<u8> = batch.transitions[0].prompt.iter().map(|&token| token as u8).collect();
    assert!(prompt.ends_with(b"lookup"), "{}", String::from_utf8_lossy(&prompt));
}

#[test]
fn stop_strings_of_the_workflow_come_beside_those_of_the_agent() {
    let world = World::new(Script::default());
    let mut cast = Cast::clone(&world.cast(1, line(1, &[&[0]], Target::End)));
    // One that the agent asks for too.
    cast.players[0].stop = vec!["###".to_owned(), "\n".to_owned()];
    play(&Arc::new(cast), &plan(Rollout::Flat, 1, 1)).unwrap();
    let requests = world.requests.lock().unwrap();
    assert_eq!(*requests[0].stop, ["\n".to_owned(), "###".to_owned()]);
}

#[test]
fn a_listener_hears_questions_before_answers_and_changes_nothing() {
    let turns = || line(2, &[&[0], &[1]], Target::End);
    let plan = plan(Rollout::Flat, 1, 1);
    let alone = play(&World::new(Script::default()).cast(2, turns()), &plan).unwrap();

    let world = World::new(Script::default());
    let mut cast = Cast::clone(&world.cast(2, turns()));
    let (sender, mut heard) = unbounded_channel();
    cast.listener = Some(sender);
    let batch = play(&Arc::new(cast), &plan).unwrap();
    assert_eq!(batch.transitions, alone.transitions);
    assert!(world.requests.lock().unwrap().iter().all(|request| request.listener.is_some()));

    let mut order = Vec::new();
    while let Ok(heard) = heard.try_recv() {
        order.push(match heard {
            Heard::Asked { agent, messages, .. } => format!("{} to {agent}", messages.len()),
            Heard::Done(said) => format!("{} by {}", said.action, said.agent),
        });
    }
    let actions: Vec<&str> = alone.transitions.iter().map(|t| t.action.as_str()).collect();
    let expected = [
        "1 to agent0",
        &format!("{} by agent0", actions[0]),
        "1 to agent1",
        &format!("{} by agent1", actions[1]),
    ];
    assert_eq!(order, expected);
}
