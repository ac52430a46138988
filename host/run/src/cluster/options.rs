//! Options of coordinators and workers.

use std::ffi::OsString;
use std::time::Duration;

use pl_cluster::ServerAddress;
use tch::Device;

/// Environment variable with the token of a NATS server that asks for one.
pub const TOKEN_VARIABLE: &str = "PL_HOST_NATS_TOKEN";

/// Other machines that play the episodes of a run.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    pub server: ClusterServer,
    /// Time after which the tasks of a worker that is gone are played by another.
    pub lease: Duration,
}

/// Server between the machines.
#[derive(Debug, Clone)]
pub enum ClusterServer {
    /// A server that runs. Workers join by themselves.
    Address(ServerAddress),
    /// A server and workers that are started on this machine, and that end with the run.
    Local { workers: u32, commands: AttachedCommands },
}

/// Commands of this program for processes of a local cluster.
#[derive(Debug, Clone)]
pub struct AttachedCommands {
    /// Program and arguments that run the program whose name and arguments follow, and end with their parent.
    pub attached: Vec<OsString>,
    /// Program and arguments of a worker. `--nats URL --run NAME --name NAME` follows.
    pub worker: Vec<OsString>,
}

/// Options of a worker.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    pub address: ServerAddress,
    /// Run to take part in. `None` for the newest of the server, and after its end for the next.
    pub run: Option<String>,
    /// Name in messages and in the status. Unique among the workers of a run.
    pub name: String,
    /// Tasks that are played at a time.
    pub slots: u32,
    pub device: Device,
    /// Allows runs to use the files, hosts and variables of this machine that their workflows name.
    pub trust: bool,
    /// Takes part although this CPU is of another kind than the coordinator's, so that the bits of the run may depend on
    /// who plays a task.
    pub mixed_cpus: bool,
}
