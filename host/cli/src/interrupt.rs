//! Ctrl-C and SIGTERM: the first one lets work in progress come to its end, the second one ends the program at
//! once.

use pl_run::{Host, StopRequest};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// Returns a request that Ctrl-C or SIGTERM makes.
pub fn stop_on_signals(host: &Host) -> StopRequest {
    let stop = StopRequest::default();
    let request = stop.clone();
    on_signals(host, "Ctrl-C will end the run without a checkpoint", move || {
        if request.request() {
            eprintln!("stopped at once; the last checkpoint remains");
            std::process::exit(130);
        }
        eprintln!("stopping after this step (press Ctrl-C again to stop at once)");
    });
    stop
}

/// Returns a future that ends at Ctrl-C or SIGTERM. A second signal ends the program.
pub fn first_signal(host: &Host) -> impl Future<Output = ()> + Send + 'static {
    let (sender, receiver) = oneshot::channel();
    let mut sender = Some(sender);
    on_signals(host, "Ctrl-C will cut off requests in progress", move || {
        match sender.take() {
            Some(sender) => drop(sender.send(())),
            None => std::process::exit(130),
        }
        eprintln!("finishing the requests in progress (press Ctrl-C again to stop at once)");
    });
    async move {
        let _ = receiver.await;
    }
}

/// Calls `signalled` at each Ctrl-C or SIGTERM. If the system refuses, warns of the `consequence` and never calls
/// it.
fn on_signals(host: &Host, consequence: &'static str, mut signalled: impl FnMut() + Send + 'static) {
    host.handle().spawn(async move {
        let (Ok(mut int), Ok(mut term)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
        else {
            tracing::warn!("signals can't be handled: {consequence}");
            // Keeps what `signalled` owns: the end of a channel would look like a signal.
            return std::future::pending().await;
        };
        loop {
            tokio::select! { _ = int.recv() => {}, _ = term.recv() => {} }
            signalled();
        }
    });
}
