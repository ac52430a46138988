//! Turns with tool calls: the model is asked again, every completion is recorded, and the last one acts.

use std::collections::BTreeMap;
use std::sync::Arc;

use pl_dsl::workflow::{Rollout, Target};
use pl_plugin::{Tool, ToolCall};
use pl_rollout::{
    Agreement, Continuation, DisabledGenerator, EpisodeSetup, EventKind, Fault, RolloutBatch,
    continue_episode, replay,
};
use pl_types::{Key, Transition};

use crate::common::{Script, World, line, plan, play, play_on_two};

const MODES: [Rollout; 2] = [Rollout::Flat, Rollout::Tree];

fn tool() -> Tool {
    Tool {
        name: "look".to_owned(),
        description: "Looks something up.".to_owned(),
        parameters: r#"{"type": "object"}"#.to_owned(),
    }
}

/// Tools that answer with their arguments.
fn script() -> Script {
    let answer = |calls: &Vec<ToolCall>| Ok(Some(calls.iter().map(|call| call.arguments.clone()).collect()));
    Script { tools: vec![tool()], call_tools: Arc::new(answer), names_copy: false, ..Script::default() }
}

fn setup(script: Script) -> Arc<EpisodeSetup> {
    World::new(script).setup(2, line(2, &[&[0, 1]], Target::Node(0)))
}

/// The transitions of each turn, in the order of its model calls.
fn turns(batch: &RolloutBatch) -> Vec<Vec<&Transition>> {
    let mut turns: BTreeMap<Key, Vec<&Transition>> = BTreeMap::new();
    for transition in &batch.transitions {
        turns.entry(Key { call: 0, ..transition.key.clone() }).or_default().push(transition);
    }
    turns.into_values().collect()
}

/// The number that a completion of the scripted model writes.
fn number(transition: &Transition) -> u32 {
    (transition.completion[0] & 0xff) % 10
}

fn text(tokens: &[u32]) -> String {
    tokens.iter().map(|&token| char::from(token as u8)).collect()
}

#[test]
fn the_model_is_asked_again_with_the_results_until_it_calls_no_tool() {
    for mode in MODES {
        let batch = play(&setup(script()), &plan(mode, 3, 4)).unwrap();
        let turns = turns(&batch);
        assert!(turns.iter().any(|turn| turn.len() == 1) && turns.iter().any(|turn| turn.len() > 2));
        for turn in turns {
            let (last, earlier) = turn.split_last().unwrap();
            assert!(
                earlier
                    .iter()
                    .all(|call| number(call).is_multiple_of(2) && !call.final_call && call.action == "null")
            );
            // The limit of three rounds may end a turn with a call.
            assert!(last.final_call && (number(last) % 2 == 1 || turn.len() == 4));
            assert_eq!(last.action, format!("{{\"number\":{}}}", number(last)));
            for (index, call) in turn.iter().enumerate() {
                assert_eq!((call.key.call as usize, &call.group), (index, &last.group));
                assert_eq!(
                    (call.reward, call.success, call.chosen),
                    (last.reward, last.success, last.chosen)
                );
            }
            for pair in turn.windows(2) {
                let grown = text(&pair[1].prompt);
                let before = text(&pair[0].prompt);
                let before = before.strip_suffix("look").unwrap();
                assert!(
                    grown.starts_with(before)
                        && grown.ends_with(&format!("{{\"at\":{}}}look", number(pair[0])))
                );
            }
        }
        let sampled: usize = batch.transitions.iter().map(|t| t.completion.len()).sum();
        assert_eq!(batch.episodes.iter().map(|e| e.tokens).sum::<u64>(), sampled as u64);
    }
}

#[test]
fn timing_changes_nothing() {
    for mode in MODES {
        let plan = plan(mode, 3, 4);
        let alone = play(&setup(script()), &plan).unwrap();
        let world = World::with_jitter(script(), 7);
        let late = play_on_two(&world.setup(2, line(2, &[&[0, 1]], Target::Node(0))), &plan).unwrap();
        assert_eq!((late.transitions, late.traces), (alone.transitions, alone.traces));
    }
}

#[test]
fn an_agent_may_take_a_completion_with_calls_as_it_is() {
    for mode in MODES {
        let script = Script { call_tools: Arc::new(|_| Ok(None)), ..script() };
        let batch = play(&setup(script), &plan(mode, 2, 3)).unwrap();
        assert!(batch.transitions.iter().all(|t| t.final_call && t.key.call == 0));
        let mut unlimited = EpisodeSetup::clone(&setup(self::script()));
        unlimited.agents.iter_mut().for_each(|agent| agent.tool_rounds = 0);
        let batch = play(&Arc::new(unlimited), &plan(mode, 2, 3)).unwrap();
        assert!(batch.transitions.iter().all(|t| t.final_call && t.key.call == 0));
    }
}

#[test]
fn a_replay_asks_the_same_questions() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for mode in MODES {
        let batch = play(&setup(script()), &plan(mode, 2, 3)).unwrap();
        let results = |event: &pl_rollout::TraceEvent| matches!(event.kind, EventKind::ToolResults(_));
        for trace in &batch.traces {
            assert!(trace.events.iter().any(results));
            let replayed =
                EpisodeSetup { generator: Arc::new(DisabledGenerator), ..(*setup(script())).clone() };
            let result = runtime.block_on(replay(&replayed, trace));
            assert_eq!(result.agreement, Agreement::Full);
            // Other results are found.
            let other = Script { call_tools: Arc::new(|_| Ok(Some(vec!["?".to_owned()]))), ..script() };
            let replayed = EpisodeSetup { generator: Arc::new(DisabledGenerator), ..(*setup(other)).clone() };
            assert_ne!(runtime.block_on(replay(&replayed, trace)).agreement, Agreement::Full);
            // An episode goes on after turns with tool calls.
            let from = Continuation { node_visit: 1, versions: vec![0; 2].into(), ..Continuation::default() };
            let attempt = runtime.block_on(continue_episode(&setup(script()), trace, &from));
            assert_eq!(attempt.failure.map(|failure| failure.describe()), None);
        }
    }
}

#[test]
fn a_tool_that_fails_is_the_fault_of_its_turn_alone() {
    let fails = |calls: &Vec<ToolCall>| match calls[0].arguments.contains('4') {
        true => Err(Fault::new("call_tools", "it trapped")),
        false => Ok(Some(vec!["seen".to_owned()])),
    };
    for mode in MODES {
        let script = Script { call_tools: Arc::new(fails), ..script() };
        let mut setup = EpisodeSetup::clone(&setup(script));
        setup.fault_penalty = Some(2.0);
        let batch = play(&Arc::new(setup), &plan(mode, 4, 4)).unwrap();
        let penalized: Vec<_> = turns(&batch).into_iter().filter(|turn| turn[0].reward == -2.0).collect();
        assert!(!penalized.is_empty());
        for turn in penalized {
            // Every completion up to the fault is trained on.
            assert_eq!(number(turn[turn.len() - 1]), 4);
            assert!(turn.iter().all(|call| call.reward == -2.0) && turn[turn.len() - 1].final_call);
        }
    }
}
