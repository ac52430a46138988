//! Ctrl-C and SIGTERM: the first one lets work in progress come to its end, the second one ends the program at
//! once.

use std::sync::Arc;

use pl_run::{Host, StopRequest};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::app::App;
use crate::stderr;
use crate::visible::visible;

/// Returns a request that Ctrl-C or SIGTERM makes. `rest` describes what is left when a second one ends the program at once, and how
/// to go on from there.
pub fn stop_on_signals(app: &App, rest: impl Fn() -> String + Send + 'static) -> StopRequest {
    let stop = StopRequest::default();
    let (request, terminal) = (stop.clone(), Arc::clone(&app.terminal));
    on_signals(&app.host, "Ctrl-C will end the run without a checkpoint", move |by| {
        if by == SignalKind::interrupt() {
            terminal.undo_echo();
        }
        if request.request() {
            terminal.clear();
            stderr::line(&format!("stopped at once; {}", visible(&rest())));
            end_at_once();
        }
        terminal.show_stop();
    });
    stop
}

/// Returns a request that Ctrl-C or SIGTERM makes, for work that is given up when it is requested. A second signal ends the program.
pub fn give_up_on_signals(app: &App) -> StopRequest {
    let stop = StopRequest::default();
    let request = stop.clone();
    on_signals(&app.host, "Ctrl-C will leave unfinished files", move |_| {
        if request.request() {
            end_at_once();
        }
        stderr::line("stopping; Ctrl-C again ends at once");
    });
    stop
}

/// Returns a future that ends at Ctrl-C or SIGTERM. A second signal ends the program.
pub fn first_signal(host: &Host) -> impl Future<Output = ()> + Send + 'static {
    let (sender, receiver) = oneshot::channel();
    let mut sender = Some(sender);
    on_signals(host, "Ctrl-C will cut off requests in progress", move |_| {
        match sender.take() {
            Some(sender) => drop(sender.send(())),
            None => end_at_once(),
        }
        stderr::line("finishing the requests in progress (press Ctrl-C again to stop at once)");
    });
    async move {
        let _ = receiver.await;
    }
}

/// Calls `signalled` at each Ctrl-C or SIGTERM. If the system refuses, warns of the `consequence` and never calls
/// it.
fn on_signals(
    host: &Host,
    consequence: &'static str,
    mut signalled: impl FnMut(SignalKind) + Send + 'static,
) {
    // From here on, no signal ends the program by itself.
    let both = {
        let _entered = host.handle().enter();
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    };
    host.handle().spawn(async move {
        let (Ok(mut int), Ok(mut term)) = both else {
            tracing::warn!("signals can't be handled: {consequence}");
            // Keeps what `signalled` owns: the end of a channel would look like a signal.
            return std::future::pending().await;
        };
        loop {
            let by = tokio::select! {
                _ = int.recv() => SignalKind::interrupt(),
                _ = term.recv() => SignalKind::terminate(),
            };
            signalled(by);
        }
    });
}

/// Ends the program without the destructors of libtorch, which must not run while other threads compute.
fn end_at_once() -> ! {
    // SAFETY: the call ends the process and touches no memory of it.
    unsafe { libc::_exit(130) }
}
