//! Ctrl-C, SIGTERM and SIGHUP, which a closed terminal sends: the first one lets work in progress come to
//! its end, the second one ends the program at once. SIGHUP is left alone if it is ignored, as `nohup`
//! has it.

use std::sync::Arc;

use pl_run::{Host, StopRequest};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::app::App;
use crate::stderr;
use crate::visible::visible;

/// Returns a request that Ctrl-C, SIGTERM or SIGHUP makes. `until` names what comes to its end before the
/// program stops, and `rest` describes what is left when a second one ends the program at once, and how
/// to go on from there.
pub fn stop_on_signals(
    app: &App,
    until: &'static str,
    rest: impl Fn() -> String + Send + 'static,
) -> StopRequest {
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
        terminal.show_stop(until);
    });
    stop
}

/// Returns a request that Ctrl-C, SIGTERM or SIGHUP makes, for work that is given up when it is requested. A
/// second signal ends the program.
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

/// Returns a future that ends at Ctrl-C, SIGTERM or SIGHUP. A second signal ends the program.
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

/// Calls `signalled` at each Ctrl-C, SIGTERM or SIGHUP that counts. If the system refuses, warns of the
/// `consequence` and never calls it.
fn on_signals(
    host: &Host,
    consequence: &'static str,
    mut signalled: impl FnMut(SignalKind) + Send + 'static,
) {
    // From here on, no signal ends the program by itself.
    let all = {
        let _entered = host.handle().enter();
        let hangup = (!is_ignored(libc::SIGHUP)).then(|| signal(SignalKind::hangup())).transpose();
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()), hangup)
    };
    host.handle().spawn(async move {
        let (Ok(mut int), Ok(mut term), Ok(mut hangup)) = all else {
            tracing::warn!("signals can't be handled: {consequence}");
            // Keeps what `signalled` owns: the end of a channel would look like a signal.
            return std::future::pending().await;
        };
        let mut signals = Signals::default();
        loop {
            let by = tokio::select! {
                biased;
                _ = int.recv() => SignalKind::interrupt(),
                _ = term.recv() => SignalKind::terminate(),
                Some(_) = async { hangup.as_mut()?.recv().await } => SignalKind::hangup(),
            };
            if signals.counts(by) {
                signalled(by);
            }
        }
    });
}

/// Signals that the program has received.
#[derive(Default)]
struct Signals {
    any: bool,
    /// True if SIGHUP was the first, and no SIGTERM has followed.
    only_hangup: bool,
}

impl Signals {
    /// Returns true if a signal is the first, or a second one that ends the program at once. The end of a
    /// session is one request, although the system and the shell send SIGHUP and SIGTERM in any order.
    fn counts(&mut self, by: SignalKind) -> bool {
        let is_first = !std::mem::replace(&mut self.any, true);
        if by == SignalKind::hangup() {
            self.only_hangup |= is_first;
            return is_first;
        }
        by != SignalKind::terminate() || !std::mem::take(&mut self.only_hangup)
    }
}

/// Returns true if the process ignores a signal since its start.
fn is_ignored(signal: libc::c_int) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action, the call only writes the current one into `action`, of which zeros are a value.
    let (result, action) = unsafe {
        let result = libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        (result, action.assume_init())
    };
    result == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Ends the program without the destructors of libtorch, which must not run while other threads compute.
fn end_at_once() -> ! {
    // SAFETY: the call ends the process and touches no memory of it.
    unsafe { libc::_exit(130) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_session_is_one_request() {
        let counted = |all: &[SignalKind]| {
            let mut signals = Signals::default();
            all.iter().map(|by| signals.counts(*by)).collect::<Vec<_>>()
        };
        let (int, term, hangup) = (SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup());
        assert_eq!(counted(&[hangup, term, hangup, term]), [true, false, false, true]);
        assert_eq!(counted(&[term, hangup, term]), [true, false, true]);
        assert_eq!(counted(&[hangup, hangup, int]), [true, false, true]);
        assert_eq!(counted(&[int, int]), [true, true]);
    }

    #[test]
    fn an_ignored_signal_is_told_from_others() {
        assert!(!is_ignored(libc::SIGUSR2));
        // SAFETY: no other test uses the signal.
        unsafe { libc::signal(libc::SIGUSR2, libc::SIG_IGN) };
        assert!(is_ignored(libc::SIGUSR2));
    }
}
