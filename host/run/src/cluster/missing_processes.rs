//! Work of a run that waits because no process does it.

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
            let mut looks = Looks::default();
            loop {
                tokio::time::sleep(INTERVAL).await;
                let missing = coordinator.missing_processes().await;
                for (process, waiting) in looks.add(missing) {
                    if is_watched(&process) {
                        progress.notice(&Notice::NoProcess { run: run.clone(), process, waiting });
                    }
                }
            }
        }))
    }
}

/// Number of looks in a row at which a kind of process was missing.
#[derive(Default)]
struct Looks(BTreeMap<MissingProcess, u64>);

impl Looks {
    /// Adds a look. Returns the kinds that are missing at a second one in a row. One at which the server could not be asked
    /// changes nothing.
    fn add(&mut self, missing: Vec<(MissingProcess, Option<u64>)>) -> Vec<(MissingProcess, u64)> {
        self.0.retain(|process, _| missing.iter().any(|(own, _)| own == process));
        let mut second = Vec::new();
        for (process, waiting) in missing {
            let Some(waiting) = waiting else { continue };
            let seen = self.0.entry(process.clone()).or_default();
            *seen += 1;
            if *seen == 2 {
                second.push((process, waiting));
            }
        }
        second
    }
}

impl Drop for MissingProcesses {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_process_is_told_once_also_if_the_server_could_not_be_asked_in_between() {
        let mut looks = Looks::default();
        let mut told = |waiting: &[Option<u64>]| {
            looks.add(waiting.iter().map(|waiting| (MissingProcess::Worker, *waiting)).collect()).len()
        };
        let missing = [Some(3)];
        assert_eq!((told(&missing), told(&[None]), told(&missing)), (0, 0, 1));
        assert_eq!((told(&[None]), told(&missing), told(&missing)), (0, 0, 0));
        // A worker joins, and leaves.
        assert_eq!((told(&[]), told(&missing), told(&missing)), (0, 0, 1));
    }
}
