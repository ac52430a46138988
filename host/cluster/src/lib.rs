//! Several machines: leases of tasks, a log of results, versions and files, and a queue of jobs over NATS JetStream.
//!
//! A [`Coordinator`] publishes each task as a [`Lease`] into a work queue and waits for its result in a log. A [`Worker`]
//! takes leases, plays them, stores the results in the log and acknowledges the leases after that; updates are leases of learners. Weights, plugins and
//! files lie in an object store under their hashes. A [`JobClient`] sends jobs, the code that models write, to any
//! [`JobRunner`], and waits for their verdicts. What a lease has to be played with, what its result consists of, and jobs with
//! their verdicts are bytes to this crate. `docs/cluster.md` describes the protocol: subjects, streams, keys, and what survives what.

mod blobs;
mod board;
mod connection;
mod coordinator;
mod error;
mod job_client;
mod job_runner;
mod jobs;
mod lease;
mod local_server;
mod names;
mod partial_results;
mod pull;
mod rank_group;
mod registry;
mod result_log;
mod roles;
mod server_config;
mod streams;
mod worker;

pub use connection::{Connection, ServerAddress};
pub use coordinator::{Coordinator, CoordinatorOptions, MissingProcess};
pub use error::Error;
pub use job_client::JobClient;
pub use job_runner::{JobRunner, NextJob, SandboxStatus, TakenJob, queued_jobs, sandboxes};
pub use lease::{Lease, LeaseQueue, WeightsRef};
pub use local_server::{LocalServer, free_port};
pub use names::{MOST_LEARNERS, random_digits};
pub use rank_group::{RankError, RankGroup, RankSettings, listen};
pub use registry::{LearnerEntry, PROTOCOL, RunEntry, SharedFile, runs};
pub use roles::Role;
pub use server_config::ServerConfig;
pub use worker::{LeasedTask, Next, Worker, WorkerStatus, queued, workers};
