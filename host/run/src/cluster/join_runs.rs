//! The loop in which workers, learners and sandbox machines take part in the runs of a server.

use std::time::Duration;

use pl_cluster::{Connection, Role, RunEntry, ServerAddress};

use crate::error::Error;
use crate::error::cluster::ClusterError;
use crate::host::Host;
use crate::progress::Notice;
use crate::stop_request::StopRequest;

/// Pause before a server is asked again for runs.
const PAUSE: Duration = Duration::from_secs(1);

/// Pause before a lease or a job that could not be done here is delivered again.
pub(super) const GIVE_BACK: Duration = Duration::from_secs(1);

/// Server, run and name of a process that takes part in runs.
#[derive(Debug, Clone)]
pub struct JoinOptions {
    pub address: ServerAddress,
    /// Run to take part in. A process waits for it. `None` for the newest of the server, which has jobs if the process is a
    /// sandbox machine, and after its end for the next.
    pub run: Option<String>,
    /// Name in messages and in the status. Unique among the processes of its role in a run.
    pub name: String,
}

/// Takes part in runs until a stop is requested, or the one that was asked for has ended. `take_part` joins a run and returns
/// when it has ended.
///
/// # Errors
/// If the server is away; those of `take_part`.
pub(super) fn join_runs(
    host: &Host,
    options: &JoinOptions,
    role: Role,
    stop: &StopRequest,
    take_part: &dyn Fn(&Connection, &RunEntry) -> Result<(), Error>,
) -> Result<(), Error> {
    let kind = match role {
        Role::Coordinator => "run",
        Role::Worker => "worker",
        Role::Learner => "learner",
        Role::Sandbox => "sandbox",
    };
    let name = format!("pl-host {kind} {}", options.name);
    let connection =
        host.block_on(Connection::open(&options.address, &name, role)).map_err(Error::cluster)?;
    let is_wanted = |entry: &RunEntry| match &options.run {
        Some(run) => *run == entry.run,
        None => role != Role::Sandbox || entry.jobs.is_some(),
    };
    let mut awaited = options.run.clone();
    while !stop.is_requested() {
        let runs = host.block_on(pl_cluster::runs(&connection)).map_err(Error::cluster)?;
        let Some(entry) = runs.into_iter().find(is_wanted) else {
            if let Some(run) = awaited.take() {
                host.notify(Notice::WaitingForRun { run });
            }
            std::thread::sleep(PAUSE);
            continue;
        };
        match take_part(&connection, &entry) {
            Ok(()) if options.run.is_some() => return Ok(()),
            Ok(()) => {}
            Err(Error::Cluster(error)) if options.run.is_none() && is_over(&error) => {
                std::thread::sleep(PAUSE)
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns true if a run has ended since it was listed.
fn is_over(error: &ClusterError) -> bool {
    matches!(error, ClusterError::Connection(pl_cluster::Error::NoRun { .. }))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::{Arc, Mutex, mpsc};

    use pl_cluster::{Coordinator, CoordinatorOptions, LocalServer};
    use pl_testing::{Requirement, skip_or_fail};

    use super::*;
    use crate::host::Embedded;
    use crate::progress::{Activity, MetricsLine, NoProgress, Progress, Tracker};

    const EMBEDDED: Embedded = Embedded { std_chat: &[], python_worker: &[], worker_arguments: None };

    /// Sends the names of runs that are waited for.
    struct Waiting(Mutex<mpsc::Sender<String>>);

    impl Progress for Waiting {
        fn start(&self, activity: Activity<'_>) -> Box<dyn Tracker> {
            NoProgress.start(activity)
        }

        fn notice(&self, notice: &Notice) {
            if let Notice::WaitingForRun { run } = notice {
                self.0.lock().unwrap().send(run.clone()).unwrap();
            }
        }

        fn metrics(&self, _line: &MetricsLine<'_>) {}
    }

    #[test]
    fn a_process_of_each_role_waits_for_its_run_while_others_are_there() {
        let folder = tempfile::tempdir().unwrap();
        let server = match LocalServer::start(Path::new("nats-server"), folder.path(), |command| command) {
            Ok(server) => server,
            Err(error) => return skip_or_fail(Requirement::Nats, &error.to_string()),
        };
        let (sender, waiting) = mpsc::channel();
        let host = &Host::new(EMBEDDED, Arc::new(Waiting(Mutex::new(sender)))).unwrap();
        let start = |run: &str| {
            let jobs = Some(serde_json::Value::Null);
            let (run, lease, learners) = (run.to_owned(), PAUSE, Vec::new());
            let options = CoordinatorOptions { run, lease, learners, jobs };
            host.block_on(async {
                let address = server.address(Role::Coordinator);
                let connection = Connection::open(&address, "test", Role::Coordinator).await.unwrap();
                let coordinator = Coordinator::start(&connection, &options).await.unwrap();
                coordinator.open_to_workers("1.0.0", b"", Vec::new()).await.unwrap();
                coordinator
            })
        };
        let _other = start("other");
        for (role, run) in [(Role::Worker, "worker"), (Role::Learner, "learner"), (Role::Sandbox, "sandbox")]
        {
            let (address, name) = (server.address(role), "test".to_owned());
            let options = JoinOptions { address, run: Some(run.to_owned()), name };
            let joined = Mutex::new(Vec::new());
            let take_part = |entry: &RunEntry| {
                joined.lock().unwrap().push(entry.run.clone());
                Ok(())
            };
            let stop = StopRequest::default();
            std::thread::scope(|scope| {
                let joining =
                    scope.spawn(|| join_runs(host, &options, role, &stop, &|_, entry| take_part(entry)));
                let awaited = waiting.recv_timeout(Duration::from_secs(60));
                let coordinator = start(run);
                joining.join().unwrap().unwrap();
                assert_eq!(awaited.as_deref(), Ok(run));
                drop(coordinator);
            });
            assert_eq!(*joined.lock().unwrap(), [run]);
        }
    }
}
