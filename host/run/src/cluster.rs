//! Several machines: a training run as the coordinator of workers and learners, a worker, a learner, and a sandbox machine.
//!
//! The training loop doesn't know where an episode is played. With a cluster, [`ClusterRun::player`] stands in for the
//! players of this process: it hands out a task with its tree or its group of episodes as a lease, and returns what the
//! worker has stored. `docs/cluster.md` describes the protocol.

mod counters;
mod cpu;
mod initial_state;
mod join_runs;
mod joined_run;
mod learner;
mod leased_team;
mod leased_weights;
mod local;
mod manifest;
mod message;
mod missing_processes;
mod options;
mod ranks;
mod remote_learner;
mod remote_sandbox;
mod results;
mod run;
mod sandbox_machine;
mod status;
mod stored_files;
mod task;
mod update_task;
mod weights;
mod weights_folder;
mod worker;
mod worker_files;
mod worker_weights;

pub use join_runs::JoinOptions;
pub use joined_run::Participant;
pub use learner::{LearnerOptions, learn};
pub(crate) use leased_weights::LeasedWeights;
pub use options::{AttachedCommands, ClusterOptions, ClusterServer, TOKEN_VARIABLE, WorkerOptions};
pub use pl_cluster::{LearnerEntry, MissingProcess, RunEntry, SandboxStatus, WorkerStatus};
pub use pl_cluster::{Role, ServerAddress, ServerConfig};
pub use ranks::RankPlace;
pub(crate) use remote_learner::RemoteLearner;
pub(crate) use run::ClusterRun;
pub use sandbox_machine::{SandboxMachineOptions, run_jobs};
pub use status::{ClusterRunStatus, Sandboxes, cluster_status};
pub(crate) use task::TeamRef;
pub use worker::work;
