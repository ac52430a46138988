//! Learners side by side: each runs on a thread of its own, since none changes a tensor that another one reads.
//!
//! Every learner computes as it would alone, so the results don't depend on the number of threads.

use std::panic::resume_unwind;
use std::sync::mpsc::{Sender, channel};

use crate::error::Error;

use super::LearnerTraining;

/// Runs `work` for every learner with its own input. Calls `progress` on this thread whenever a learner has called its
/// own.
///
/// # Errors
/// The first error in the order of the learners, after all of them have ended.
pub(super) fn run_all<'t, I: Send, T: Send>(
    learners: &mut [LearnerTraining<'t>],
    inputs: Vec<I>,
    progress: &mut dyn FnMut(),
    work: impl Fn(&mut LearnerTraining<'t>, I, &mut dyn FnMut()) -> Result<T, Error> + Sync,
) -> Result<Vec<T>, Error> {
    let pairs = learners.iter_mut().zip(inputs);
    if pairs.len() < 2 {
        return pairs.map(|(learner, input)| work(learner, input, progress)).collect();
    }
    let (sender, receiver) = channel();
    let (work, span) = (&work, &tracing::Span::current());
    let ended: Vec<Result<T, Error>> = std::thread::scope(|scope| {
        let start = |(learner, input)| {
            let sender: Sender<()> = sender.clone();
            // The receiver lives until every sender is gone.
            let mut progress = move || {
                let _ = sender.send(());
            };
            scope.spawn(move || span.in_scope(|| work(learner, input, &mut progress)))
        };
        let running: Vec<_> = pairs.map(start).collect();
        drop(sender);
        receiver.iter().for_each(|()| progress());
        running.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    ended.into_iter().collect()
}
