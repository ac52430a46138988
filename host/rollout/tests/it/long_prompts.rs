//! Prompts that are longer than the model's context follow the agent's rule, and never vanish from the counts.

use std::sync::Arc;

use pl_dsl::workflow::{LongPrompt, Rollout, Target};
use pl_plugin::Tool;
use pl_rollout::{Agreement, DisabledGenerator, EpisodeSetup, EventKind, RolloutBatch, replay};
use pl_types::Transition;

use crate::common::{Bytes, Script, World, line, plan, play};

const MODES: [Rollout; 2] = [Rollout::Flat, Rollout::Tree];

/// Plays ten turns. Every turn makes the state longer, and so the prompt.
fn batch(mode: Rollout, long_prompt: LongPrompt, context: usize) -> RolloutBatch {
    let mut setup =
        EpisodeSetup::clone(&World::new(Script::default()).setup(1, line(10, &[&[0]], Target::Node(0))));
    setup.agents[0].long_prompt = long_prompt;
    setup.agents[0].encoder = Arc::new(Bytes { context: Some(context) });
    play(&Arc::new(setup), &plan(mode, 2, 2)).unwrap()
}

#[test]
fn the_episode_ends_as_truncated() {
    for mode in MODES {
        let batch = batch(mode, LongPrompt::End, 200);
        assert!(!batch.episodes.is_empty() && batch.failures.is_empty() && batch.lost == 0);
        for episode in &batch.episodes {
            assert!(episode.truncated && (1..10).contains(&episode.turns));
        }
        assert!(!batch.transitions.is_empty() && batch.transitions.iter().all(|t| t.prompt.len() < 200));
        let is_long =
            |kind: &EventKind| matches!(kind, EventKind::PromptTooLong { tokens: 200.., context: 200 });
        assert!(batch.traces.iter().all(|trace| trace.events.iter().any(|event| is_long(&event.kind))));
        let long = batch.long_prompts().unwrap();
        assert_eq!((long.episodes, long.agent.as_str(), long.context), (batch.episodes.len(), "agent0", 200));
        assert_eq!(self::batch(mode, LongPrompt::End, usize::MAX).long_prompts(), None);
        // Not even the first prompt fits: the episode counts, without a turn.
        let none = self::batch(mode, LongPrompt::End, 10);
        assert!(none.transitions.is_empty() && none.episodes.iter().all(|e| e.truncated && !e.success));
    }
}

/// A prompt that fits, but leaves less room than a completion may take, is cut too. `end` takes it as it is.
#[test]
fn a_prompt_that_is_cut_leaves_room_for_a_completion() {
    let first = |rule: LongPrompt, context: usize| {
        let transitions = batch(Rollout::Flat, rule, context).transitions;
        transitions[0].prompt.clone()
    };
    let whole = first(LongPrompt::End, usize::MAX);
    let context = whole.len() + 1;
    assert_eq!(first(LongPrompt::End, context), whole);
    // Completions may have 8 tokens.
    assert_eq!(first(LongPrompt::Left, context), whole[7..]);
    assert_eq!(first(LongPrompt::Middle, context).len(), whole.len() - 7);
}

#[test]
fn tokens_are_left_out_at_the_beginning_or_in_the_middle() {
    for mode in MODES {
        // Completions may have 8 tokens.
        let whole = batch(mode, LongPrompt::Left, usize::MAX);
        let left = batch(mode, LongPrompt::Left, 200);
        let middle = batch(mode, LongPrompt::Middle, 200);
        assert!(left.episodes.iter().chain(&middle.episodes).all(|episode| episode.turns == 10));
        let mut cut = 0;
        for ((whole, left), middle) in
            whole.transitions.iter().zip(&left.transitions).zip(&middle.transitions)
        {
            let prompt = &whole.prompt;
            // A prompt of up to 192 tokens leaves room for a whole completion.
            if prompt.len() <= 192 {
                assert_eq!((&left.prompt, &middle.prompt), (prompt, prompt));
                continue;
            }
            cut += 1;
            assert_eq!(left.prompt, prompt[prompt.len() - 192..]);
            assert_eq!(middle.prompt, [&prompt[..96], &prompt[prompt.len() - 96..]].concat());
        }
        assert!(cut > 0);
    }
}

/// A setup of three turns, with a context of 500 tokens. The results of tool calls have 1,000.
fn setup_with_tools(long_prompt: LongPrompt) -> Arc<EpisodeSetup> {
    let parameters = r#"{"type": "object"}"#.to_owned();
    let tool = Tool { name: "look".to_owned(), description: String::new(), parameters };
    let script = Script {
        tools: vec![tool],
        call_tools: Arc::new(|_| Ok(Some(vec!["x".repeat(1000)]))),
        names_copy: false,
        ..Script::default()
    };
    let turns = line(4, &[&[0], &[0], &[0]], Target::End);
    let mut setup = EpisodeSetup::clone(&World::new(script).setup(1, turns));
    setup.agents[0].long_prompt = long_prompt;
    setup.agents[0].encoder = Arc::new(Bytes { context: Some(500) });
    Arc::new(setup)
}

/// True if a completion of the scripted model has a tool call.
fn calls_a_tool(transition: &Transition) -> bool {
    ((transition.completion[0] & 0xff) % 10).is_multiple_of(2)
}

#[test]
fn a_turn_whose_tool_results_do_not_fit_is_the_last_of_a_truncated_episode() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for mode in MODES {
        let setup = setup_with_tools(LongPrompt::End);
        let batch = play(&setup, &plan(mode, 8, 4)).unwrap();
        assert!(batch.failures.is_empty() && batch.lost == 0);
        // Every completion is trained on, as the last of its turn.
        assert!(batch.transitions.iter().all(|t| t.final_call && t.key.call == 0 && t.prompt.len() < 500));
        let sampled: usize = batch.transitions.iter().map(|t| t.completion.len()).sum();
        assert_eq!(batch.episodes.iter().map(|e| e.tokens).sum::<u64>(), sampled as u64);
        for episode in &batch.episodes {
            let path = (episode.task, episode.sample);
            let own = |t: &&Transition| t.chosen && (t.key.task, t.key.sample) == path;
            let calls: Vec<bool> = batch.transitions.iter().filter(own).map(calls_a_tool).collect();
            let (last, before) = calls.split_last().unwrap();
            assert_eq!((calls.len(), *last), (episode.turns as usize, episode.truncated));
            assert!(!before.contains(&true) && (*last || calls.len() == 3));
        }
        assert!(batch.episodes.iter().any(|episode| episode.truncated && episode.turns < 3));
        let is_long =
            |kind: &EventKind| matches!(kind, EventKind::PromptTooLong { tokens: 1000.., context: 500 });
        for trace in &batch.traces {
            let truncated = trace.end.truncated;
            assert!(!truncated || trace.events.iter().any(|event| is_long(&event.kind)));
            // The reward knows that the step is the last.
            let scored_end = trace.events.iter().rev().find_map(|event| match &event.kind {
                EventKind::Outcome(outcome) => Some(outcome.done && outcome.truncated),
                _ => None,
            });
            assert!(mode == Rollout::Tree || scored_end == Some(truncated));
            let replayed = EpisodeSetup { generator: Arc::new(DisabledGenerator), ..(*setup).clone() };
            assert_eq!(runtime.block_on(replay(&replayed, trace)).agreement, Agreement::Full);
        }
    }
}

#[test]
fn prompts_with_tool_results_are_cut_by_the_same_rule() {
    for mode in MODES {
        for (rule, begins_with) in [(LongPrompt::Left, "xx"), (LongPrompt::Middle, "agent0 ")] {
            let batch = play(&setup_with_tools(rule), &plan(mode, 4, 4)).unwrap();
            assert!(batch.failures.is_empty() && batch.episodes.iter().all(|e| e.turns == 3 && !e.truncated));
            let later: Vec<_> = batch.transitions.iter().filter(|t| t.key.call > 0).collect();
            assert!(!later.is_empty());
            for t in later {
                // Completions may have 8 tokens.
                let text: String = t.prompt.iter().map(|&token| char::from(token as u8)).collect();
                assert_eq!(t.prompt.len(), 492);
                assert!(text.starts_with(begins_with) && text.ends_with("xxlook"), "{text}");
            }
        }
    }
}
