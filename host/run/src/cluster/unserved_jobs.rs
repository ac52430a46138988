//! Jobs that no machine runs.

use std::sync::Arc;
use std::time::Duration;

use pl_cluster::Coordinator;
use tokio::task::JoinHandle;

use crate::host::Host;
use crate::progress::Notice;

/// Time between two looks. Jobs that wait at both are told: a machine that is just joining needs a moment.
const INTERVAL: Duration = Duration::from_secs(5);

/// Looks for jobs that wait although no sandbox machine is there, until the value is dropped.
pub(super) struct UnservedJobs(JoinHandle<()>);

impl UnservedJobs {
    /// Starts to look. The user is told once, and again if all machines have left a second time.
    pub fn watch(host: &Host, coordinator: &Arc<Coordinator>, run: &str) -> UnservedJobs {
        let (coordinator, progress, run) =
            (Arc::clone(coordinator), Arc::clone(host.progress()), run.to_owned());
        UnservedJobs(host.handle().spawn(async move {
            let mut looks = 0_u64;
            loop {
                tokio::time::sleep(INTERVAL).await;
                let Some(jobs) = coordinator.unserved_jobs().await else {
                    looks = 0;
                    continue;
                };
                looks += 1;
                if looks == 2 {
                    progress.notice(&Notice::NoSandboxMachine { run: run.clone(), jobs });
                }
            }
        }))
    }
}

impl Drop for UnservedJobs {
    fn drop(&mut self) {
        self.0.abort();
    }
}
