//! Prompts that are longer than the model's context follow the agent's rule, and never vanish from the counts.

use std::sync::Arc;

use pl_dsl::workflow::{LongPrompt, Rollout, Target};
use pl_rollout::{EpisodeSetup, EventKind, RolloutBatch};

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
