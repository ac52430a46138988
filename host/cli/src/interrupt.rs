//! Ctrl-C: the first one asks the run to stop after its step, the second one ends the program at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::Runtime;

/// Set once the user wants to stop.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Begins to listen. SIGTERM counts as Ctrl-C.
    pub fn listen(runtime: &Runtime) -> Interrupt {
        let interrupt = Interrupt::default();
        let flag = interrupt.clone();
        runtime.spawn(async move {
            use tokio::signal::unix::{SignalKind, signal};
            let (Ok(mut int), Ok(mut term)) =
                (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
            else {
                tracing::warn!("signals cannot be heard; Ctrl-C will end the run without a checkpoint");
                return;
            };
            loop {
                tokio::select! { _ = int.recv() => {}, _ = term.recv() => {} }
                if flag.0.swap(true, Ordering::Relaxed) {
                    eprintln!("stopped at once; the last checkpoint stands");
                    std::process::exit(130);
                }
                eprintln!("stopping after this step (Ctrl-C again: at once)");
            }
        });
        interrupt
    }

    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
