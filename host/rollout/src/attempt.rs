//! One attempt at an episode or tree, whatever becomes of it.

use pl_dsl::workflow::Rollout;

use crate::flat::play_flat;
use crate::record::{Context, Played};
use crate::tape::Tape;
use crate::trace::{End, Trace};
use crate::tree::play_tree;
use crate::{Cast, Failure};

/// What came of an attempt.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// Up to the failure, where there was one.
    pub played: Played,
    /// What ended it before its time.
    pub failure: Option<Failure>,
    pub trace: Trace,
}

/// Plays an episode (flat) or a tree.
pub async fn play(cast: &Cast, context: &Context) -> Attempt {
    let mut played = context.begin(cast);
    let mut tape = Tape::new(context.recorded.clone());
    let result = match context.mode {
        Rollout::Flat => play_flat(cast, context, &mut played, &mut tape).await,
        Rollout::Tree => play_tree(cast, context, &mut played, &mut tape).await,
    };
    let failure = result.err().map(|fault| {
        tape.fault(&fault);
        context.failure(&fault, tape.stop(), None)
    });
    played.summary.reproducible &= !tape.asked();
    let end = End {
        success: played.summary.success,
        truncated: played.summary.truncated,
        turns: played.summary.turns,
        tokens: played.summary.tokens,
        failure: failure.as_ref().map(Failure::in_words),
    };
    let trace = Trace {
        place: context.place.clone(),
        task: context.task.as_ref().clone(),
        mode: context.mode,
        candidates: context.candidates,
        rests: context.rests,
        entries: tape.into_entries(),
        end,
    };
    Attempt { played, failure, trace }
}
