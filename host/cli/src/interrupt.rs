//! Ctrl-C: the first one stops a run after its current step, the second one ends the program at once.

use pl_run::{Host, StopRequest};

/// Returns a request that Ctrl-C or SIGTERM makes.
pub fn stop_on_signals(host: &Host) -> StopRequest {
    let stop = StopRequest::default();
    let request = stop.clone();
    host.handle().spawn(async move {
        use tokio::signal::unix::{SignalKind, signal};
        let (Ok(mut int), Ok(mut term)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
        else {
            tracing::warn!("signals can't be handled: Ctrl-C will end the run without a checkpoint");
            return;
        };
        loop {
            tokio::select! { _ = int.recv() => {}, _ = term.recv() => {} }
            if request.request() {
                eprintln!("stopped at once; the last checkpoint remains");
                std::process::exit(130);
            }
            eprintln!("stopping after this step (press Ctrl-C again to stop at once)");
        }
    });
    stop
}
