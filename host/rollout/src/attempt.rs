//! One attempt at an episode or tree, successful or failed.

use pl_dsl::workflow::Rollout;

use crate::context::EpisodeContext;
use crate::error::EpisodeFailure;
use crate::flat::play_flat;
use crate::result::EpisodeResult;
use crate::setup::EpisodeSetup;
use crate::trace::recorder::TraceRecorder;
use crate::trace::{EpisodeEnd, Trace};
use crate::tree::play_tree;

/// An attempt at an episode or tree.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// The result, up to the failure if there was one.
    pub result: EpisodeResult,
    /// The failure that ended the attempt early.
    pub failure: Option<EpisodeFailure>,
    pub trace: Trace,
}

/// Plays an episode (flat) or a tree.
pub async fn play_episode(setup: &EpisodeSetup, context: &EpisodeContext) -> Attempt {
    let mut result = EpisodeResult::new(context, setup.agents.len());
    let mut recorder = TraceRecorder::new(context.answers.clone());
    let played = match context.mode {
        Rollout::Flat => play_flat(setup, context, &mut result, &mut recorder).await,
        Rollout::Tree => play_tree(setup, context, &mut result, &mut recorder).await,
    };
    let failure = played.err().map(|fault| {
        recorder.record_fault(&fault);
        context.failure(&fault, recorder.node_visit(), None)
    });
    result.summary.reproducible = recorder.reproducible();
    let end = EpisodeEnd {
        success: result.summary.success,
        truncated: result.summary.truncated,
        turns: result.summary.turns,
        tokens: result.summary.tokens,
        failure: failure.as_ref().map(EpisodeFailure::describe),
    };
    let trace = Trace {
        key: context.key.clone(),
        scenario: setup.scenario.as_deref().map(str::to_owned),
        design: setup.design.as_deref().map(str::to_owned),
        task: context.task.as_ref().clone(),
        mode: context.mode,
        candidates: context.candidates,
        suspends: context.suspends,
        events: recorder.into_events(),
        end,
    };
    Attempt { result, failure, trace }
}
