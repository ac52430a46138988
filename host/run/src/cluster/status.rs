//! The runs of a server, with their workers.

use pl_cluster::{Connection, Role, RunEntry, SandboxStatus, ServerAddress, WorkerStatus};

use crate::error::Error;
use crate::host::Host;

/// A run of a server.
#[derive(Debug, Clone)]
pub struct ClusterRunStatus {
    pub entry: RunEntry,
    /// Tasks that wait or are played.
    pub queued: u64,
    /// Workers that have answered, by name.
    pub workers: Vec<WorkerStatus>,
    /// The sandbox machines of a run that has them.
    pub sandboxes: Option<Sandboxes>,
}

/// Sandbox machines of a run.
#[derive(Debug, Clone)]
pub struct Sandboxes {
    /// Jobs that wait or are run.
    pub queued: u64,
    /// Machines that have answered, by name.
    pub machines: Vec<SandboxStatus>,
}

/// Lists the runs of a server, the newest first, and asks their workers.
///
/// # Errors
/// If the server can't be reached.
pub fn cluster_status(host: &Host, address: &ServerAddress) -> Result<Vec<ClusterRunStatus>, Error> {
    let asking = async {
        let connection = Connection::open(address, "pl-host cluster status", Role::Coordinator).await?;
        let mut all = Vec::new();
        for entry in pl_cluster::runs(&connection).await? {
            let workers = pl_cluster::workers(&connection, &entry.run).await?;
            let sandboxes = match &entry.jobs {
                Some(_) => Some(Sandboxes {
                    queued: pl_cluster::queued_jobs(&connection, &entry.run).await?.unwrap_or_default(),
                    machines: pl_cluster::sandboxes(&connection, &entry.run).await?,
                }),
                None => None,
            };
            if let Some(queued) = pl_cluster::queued(&connection, &entry.run).await? {
                all.push(ClusterRunStatus { entry, queued, workers, sandboxes });
            }
        }
        Ok::<_, pl_cluster::Error>(all)
    };
    host.block_on(asking).map_err(Error::cluster)
}
