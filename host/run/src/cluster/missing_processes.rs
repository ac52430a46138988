//! Work of a run that waits because nobody does it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pl_cluster::{Coordinator, MissingProcess};
use tokio::task::JoinHandle;

use crate::host::Host;
use crate::progress::Notice;

/// Time between two looks. Work that waits at both is told: a process that is just joining needs a moment.
const INTERVAL: Duration = Duration::from_secs(5);

/// Looks for work that waits although no process for it is there, until the value is dropped.
pub(super) struct MissingProcesses(JoinHandle<()>);

impl MissingProcesses {
    /// Starts to look for the kinds of processes that `is_watched` accepts. The user is told once of each, and again if all of the
    /// kind have left a second time.
    pub fn watch(
        host: &Host,
        coordinator: &Arc<Coordinator>,
        run: &str,
        is_watched: impl Fn(&MissingProcess) -> bool + Send + 'static,
    ) -> MissingProcesses {
        let (coordinator, progress, run) =
            (Arc::clone(coordinator), Arc::clone(host.progress()), run.to_owned());
        MissingProcesses(host.handle().spawn(async move {
            let mut looks = BTreeMap::new();
            loop {
                tokio::time::sleep(INTERVAL).await;
                let missing = coordinator.missing_processes().await;
                looks.retain(|process, _| missing.iter().any(|(own, _)| own == process));
                for (process, waiting) in missing.into_iter().filter(|(process, _)| is_watched(process)) {
                    let seen: &mut u64 = looks.entry(process.clone()).or_default();
                    *seen += 1;
                    if *seen == 2 {
                        progress.notice(&Notice::NoProcess { run: run.clone(), process, waiting });
                    }
                }
            }
        }))
    }
}

impl Drop for MissingProcesses {
    fn drop(&mut self) {
        self.0.abort();
    }
}
