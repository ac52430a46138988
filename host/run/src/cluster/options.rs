//! Options of coordinators and workers.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use pl_cluster::{LearnerEntry, MOST_LEARNERS, ServerAddress};
use pl_trainer::Trainer;

use crate::error::Error;
use crate::error::cluster::ClusterError;
use crate::workflow::CheckedWorkflow;

use super::join_runs::JoinOptions;
use super::joined_run::Participant;
use super::remote_sandbox::no_jobs;

/// Environment variable with the token of a NATS server that asks for one.
pub const TOKEN_VARIABLE: &str = "PL_HOST_NATS_TOKEN";

/// Lease of a run whose workflow has no `cluster` block: as long as that of one that has.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// Other processes that play the episodes of a run, train its policies and run the code of its agents.
#[derive(Debug, Clone, Default)]
pub struct ClusterOptions {
    pub server: ClusterServer,
    /// Time after which the tasks of a worker that is gone are played by another. `None` for that of the workflow's `cluster`
    /// block, or 30 seconds.
    pub lease: Option<Duration>,
    /// Policies whose learners are processes of their own. `None` for those of the workflow's `cluster` block.
    pub learners: Option<Vec<String>>,
    /// Folder with the weights of runs, which all machines of a run share. `None` if the server keeps them.
    pub weights_folder: Option<PathBuf>,
    /// Sends the code that agents write to sandbox machines, also if the workflow's `cluster` block doesn't.
    pub sandboxes: bool,
}

/// Server between the machines.
#[derive(Debug, Clone)]
pub enum ClusterServer {
    /// The server of the workflow's `cluster` block, with other credentials and authorities if they are given. Without the
    /// block, one process plays.
    Workflow { credentials: Option<PathBuf>, authorities: Option<PathBuf> },
    /// None: one process plays.
    None,
    /// A server that runs. Workers join by themselves.
    Address(ServerAddress),
    /// A server and workers that are started on this machine, and that end with the run.
    Local { workers: u32, commands: AttachedCommands },
}

impl Default for ClusterServer {
    fn default() -> ClusterServer {
        ClusterServer::Workflow { credentials: None, authorities: None }
    }
}

impl ClusterServer {
    /// Returns true if the workflow's `cluster` block has an effect.
    fn is_of_workflow(&self) -> bool {
        matches!(self, ClusterServer::Workflow { .. })
    }
}

/// Server of a run that other machines play.
pub(super) enum RunServer {
    Address(ServerAddress),
    Local { workers: u32, commands: AttachedCommands },
}

impl ClusterOptions {
    /// Returns the server of a run. `None` if one process plays.
    ///
    /// # Errors
    /// If the workflow may not read its credentials or authorities.
    pub(super) fn server_of(&self, checked: &CheckedWorkflow) -> Result<Option<RunServer>, Error> {
        Ok(match &self.server {
            ClusterServer::None => None,
            ClusterServer::Address(address) => Some(RunServer::Address(address.clone())),
            ClusterServer::Local { workers, commands } => {
                Some(RunServer::Local { workers: *workers, commands: commands.clone() })
            }
            ClusterServer::Workflow { credentials, authorities } => {
                let Some(cluster) = checked.cluster() else { return Ok(None) };
                let file = |given: &Option<PathBuf>, written: &Option<String>| match (given, written) {
                    (Some(given), _) => Ok::<_, Error>(Some(given.clone())),
                    (None, Some(written)) => {
                        let path = checked.folder.join(written);
                        checked.check_read(&path).map_err(Error::NotRead)?;
                        Ok(Some(path))
                    }
                    (None, None) => Ok(None),
                };
                Some(RunServer::Address(ServerAddress {
                    url: cluster.nats.join(","),
                    credentials: file(credentials, &cluster.credentials)?,
                    authorities: file(authorities, &cluster.authorities)?,
                    token: cluster.token_variable.as_ref().and_then(|name| std::env::var(name).ok()),
                }))
            }
        })
    }

    /// Returns a workflow as these options have it run: without its `cluster` block if the user has chosen another server, or
    /// none, and without a sandbox in this process if other machines run the code of agents.
    ///
    /// # Errors
    /// If there is no server between this process and sandbox machines.
    pub fn applied_to(&self, checked: CheckedWorkflow) -> Result<CheckedWorkflow, Error> {
        let checked = if self.server.is_of_workflow() { checked } else { checked.without_cluster() };
        match self.sandboxes_of(&checked)? {
            // This process plays nothing.
            true => Ok(checked.with_jobs_in(no_jobs())),
            false => Ok(checked),
        }
    }

    /// Returns true if sandbox machines run the code of agents.
    ///
    /// # Errors
    /// If there is no server between this process and them.
    pub(super) fn sandboxes_of(&self, checked: &CheckedWorkflow) -> Result<bool, Error> {
        let is_alone = match &self.server {
            ClusterServer::None => true,
            ClusterServer::Workflow { .. } => checked.cluster().is_none(),
            ClusterServer::Address(_) | ClusterServer::Local { .. } => false,
        };
        match self.sandboxes && is_alone {
            true => Err(Error::cluster(ClusterError::NoServerForJobs)),
            false => Ok(self.sandboxes || checked.cluster().is_some_and(|cluster| cluster.sandboxes)),
        }
    }

    /// Checks that other processes can train what they are to train.
    ///
    /// # Errors
    /// If a policy has no learner, or there is no server between the processes.
    pub(crate) fn check_learners(&self, checked: &CheckedWorkflow, trainer: &Trainer) -> Result<(), Error> {
        match (&self.learners, self.server_of(checked)?) {
            (Some(policies), None) => {
                Err(Error::cluster(ClusterError::NoServer { policies: policies.join(", ") }))
            }
            (_, Some(_)) => self.learners_of(checked, trainer).map(drop),
            (None, None) => Ok(()),
        }
    }

    /// Returns the learners in processes of their own.
    ///
    /// # Errors
    /// If a policy has no learner.
    pub(super) fn learners_of(
        &self,
        checked: &CheckedWorkflow,
        trainer: &Trainer,
    ) -> Result<Vec<LearnerEntry>, Error> {
        let of_workflow = || checked.cluster().map(|cluster| cluster.learners.as_slice());
        let wanted = self.learners.as_deref().or_else(of_workflow).unwrap_or_default();
        let names = |learner: &pl_trainer::Learner| -> Vec<String> {
            learner.policies().iter().map(|policy| policy.name.clone()).collect()
        };
        let all: Vec<Vec<String>> = trainer.learners().iter().map(names).collect();
        if let Some(policy) = wanted.iter().find(|policy| !all.iter().any(|own| own.contains(policy))) {
            let (policy, known) = (policy.clone(), all.concat());
            return Err(Error::cluster(ClusterError::NotTrained { policy, known }));
        }
        let is_wanted = |own: &[String]| own.iter().any(|policy| wanted.contains(policy));
        let entries = all.into_iter().zip(0..).filter(|(own, _)| is_wanted(own));
        let entries: Vec<LearnerEntry> =
            entries.map(|(policies, learner)| LearnerEntry { learner, policies }).collect();
        match entries.last() {
            Some(last) if last.learner >= MOST_LEARNERS => {
                let what = format!("more than {MOST_LEARNERS} learners");
                Err(Error::cluster(ClusterError::Unsupported { what, hint: "train some of them here" }))
            }
            _ => Ok(entries),
        }
    }

    /// Returns the time after which the tasks of a worker that is gone are played by another.
    pub(super) fn lease_of(&self, checked: &CheckedWorkflow) -> Duration {
        self.lease.or_else(|| checked.cluster().map(|cluster| cluster.lease)).unwrap_or(DEFAULT_LEASE)
    }
}

/// Returns the number that messages have of a learner. [`MOST_LEARNERS`] is far below the largest.
pub(super) fn learner_id(learner: usize) -> u32 {
    u32::try_from(learner).unwrap_or(u32::MAX)
}

/// Commands of this program for processes of a local cluster.
#[derive(Debug, Clone)]
pub struct AttachedCommands {
    /// Program and arguments that run the program whose name and arguments follow, and end with their parent.
    pub attached: Vec<OsString>,
    /// Program and arguments of a worker. `--nats URL --run NAME --name NAME` follows.
    pub worker: Vec<OsString>,
    /// Program and arguments of a learner. The same follows, and `--policy NAME`.
    pub learner: Vec<OsString>,
    /// Program and arguments of a sandbox machine. The same follows as for a worker.
    pub sandbox: Vec<OsString>,
}

/// Options of a worker.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    pub join: JoinOptions,
    /// Tasks that are played at a time.
    pub slots: u32,
    pub participant: Participant,
}
