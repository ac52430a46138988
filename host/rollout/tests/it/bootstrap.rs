//! Prompts in the states of candidates that a tree did not continue from.

use std::sync::Arc;

use pl_dsl::workflow::{Rollout, Target, Turns};
use pl_plugin::Turn;
use pl_rollout::EpisodeSetup;
use pl_types::Transition;

use crate::common::{Script, World, line, plan, play, shown_state, when_odd};

/// A setup whose agents' policies have critics.
fn with_critics(script: Script, agents: usize, turns: Turns) -> Arc<EpisodeSetup> {
    let mut setup = (*World::new(script).setup(agents, turns)).clone();
    setup.agents.iter_mut().for_each(|runtime| runtime.bootstraps = true);
    Arc::new(setup)
}

fn transitions(setup: &Arc<EpisodeSetup>, mode: Rollout) -> Vec<Transition> {
    play(setup, &plan(mode, 2, 3)).unwrap().transitions
}

#[test]
fn a_sibling_has_the_prompt_of_its_own_state() {
    let turns = || line(3, &[&[0], &[1]], Target::Node(0));
    let all = transitions(&with_critics(Script::default(), 2, turns()), Rollout::Tree);
    assert!(all.len() > 20);
    for t in &all {
        // Every agent acts three times, and nothing else ends the episode.
        assert_eq!(t.next_prompt.is_some(), !t.chosen && t.turn < 2, "{:?}", t.key);
        let Some(next) = &t.next_prompt else { continue };
        let (before, after) = (shown_state(&t.prompt), shown_state(next));
        assert_eq!(after.actions.len(), before.actions.len() + 1);
        assert_eq!(after.actions.last().unwrap()[0].1, t.action);
        let header: String = next.iter().take(8).map(|&byte| byte as u8 as char).collect();
        assert_eq!(header, format!("{} {}", t.agent, t.turn + 1).chars().take(8).collect::<String>());
    }
    // Nothing else changes with a critic.
    let mut without = transitions(&World::new(Script::default()).setup(2, turns()), Rollout::Tree);
    for (t, with) in without.iter_mut().zip(&all) {
        t.next_prompt.clone_from(&with.next_prompt);
    }
    assert_eq!(without, all);
    // A flat episode has no siblings.
    let flat = transitions(&with_critics(Script::default(), 2, turns()), Rollout::Flat);
    assert!(flat.iter().all(|t| t.next_prompt.is_none()));
}

#[test]
fn a_sibling_that_could_not_go_on_has_none() {
    // The graph: a node that is not visited twice; an end that depends on the candidate's own step.
    let straight =
        transitions(&with_critics(Script::default(), 2, line(3, &[&[0], &[1]], Target::End)), Rollout::Tree);
    assert!(straight.iter().all(|t| t.next_prompt.is_none()));
    let mut turns = line(9, &[&[0]], Target::Node(0));
    turns.nodes[0].edges.insert(0, when_odd(Target::End));
    let conditional = transitions(&with_critics(Script::default(), 1, turns), Rollout::Tree);
    let siblings: Vec<&Transition> = conditional.iter().filter(|t| !t.chosen && t.turn < 8).collect();
    assert!(
        siblings.iter().any(|t| t.next_prompt.is_some()) && siblings.iter().any(|t| t.next_prompt.is_none())
    );
    for t in siblings {
        let number: u64 =
            serde_json::from_str::<serde_json::Value>(&t.action).unwrap()["number"].as_u64().unwrap();
        assert_eq!(t.next_prompt.is_some(), number.is_multiple_of(2));
    }
    // The environment ended the episode; the agent skips.
    for done in [true, false] {
        let script = Script { apply: Arc::new(move |_| Ok((done, !done))), ..Script::default() };
        let ended = transitions(&with_critics(script, 1, line(3, &[&[0]], Target::Node(0))), Rollout::Tree);
        assert!(ended.iter().all(|t| t.next_prompt.is_none()));
    }
    let skip = |turn: &Turn| turn.visit == 1;
    let skipping = Script { skip: Arc::new(skip), ..Script::default() };
    let skipped = transitions(&with_critics(skipping, 1, line(3, &[&[0]], Target::Node(0))), Rollout::Tree);
    assert!(skipped.iter().filter(|t| t.turn == 0).all(|t| t.next_prompt.is_none()));
}
