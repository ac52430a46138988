//! Learners side by side: each runs on a thread of its own, since none changes a tensor that another one reads.
//!
//! Every learner computes as it would alone, so the results don't depend on the number of threads.

use std::panic::resume_unwind;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use crate::error::Error;
use crate::learner::Learner;

/// Result of a learner's work, with the seconds that it took.
pub(super) struct Timed<T> {
    pub result: T,
    pub seconds: f64,
}

/// Runs `work` for every learner with its own input. Calls `progress` on this thread whenever a learner has called its
/// own.
///
/// # Errors
/// The first error in the order of the learners, after all of them have ended.
pub(super) fn run_all<I: Send, T: Send>(
    learners: &mut [Learner],
    inputs: Vec<I>,
    progress: &mut dyn FnMut(),
    work: impl Fn(&mut Learner, I, &mut dyn FnMut()) -> Result<T, Error> + Sync,
) -> Result<Vec<Timed<T>>, Error> {
    let timed = |learner: &mut Learner, input: I, progress: &mut dyn FnMut()| {
        let started = Instant::now();
        let result = work(learner, input, progress)?;
        Ok(Timed { result, seconds: started.elapsed().as_secs_f64() })
    };
    let pairs = learners.iter_mut().zip(inputs);
    if pairs.len() < 2 {
        return pairs.map(|(learner, input)| timed(learner, input, progress)).collect();
    }
    let (sender, receiver) = channel();
    let (timed, span) = (&timed, &tracing::Span::current());
    let ended: Vec<Result<Timed<T>, Error>> = std::thread::scope(|scope| {
        let start = |(learner, input)| {
            let sender: Sender<()> = sender.clone();
            // The receiver lives until every sender is gone.
            let mut progress = move || {
                let _ = sender.send(());
            };
            scope.spawn(move || span.in_scope(|| timed(learner, input, &mut progress)))
        };
        let running: Vec<_> = pairs.map(start).collect();
        drop(sender);
        receiver.iter().for_each(|()| progress());
        running.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    ended.into_iter().collect()
}
