//! Arguments of runs on several machines: `run --nats`, `worker` and `cluster`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::common::DeviceChoice;
use super::permissions::PermissionArgs;

/// A NATS server.
#[derive(Args, Clone)]
pub struct ServerArgs {
    /// NATS server of the run
    #[arg(long, value_name = "URL")]
    pub nats: String,
    #[command(flatten)]
    pub access: AccessArgs,
}

/// Credentials for a NATS server, and the authorities that vouch for it.
#[derive(Args, Clone)]
pub struct AccessArgs {
    /// File with the credentials for the NATS server: an nkey (`pl-host cluster config` makes them), or a JWT with one
    /// (.creds); PL_HOST_NATS_TOKEN has the token of one that asks for that
    #[arg(long, value_name = "FILE")]
    pub nats_credentials: Option<PathBuf>,
    /// Certificates of authorities that vouch for the NATS server (PEM), besides those of this machine
    #[arg(long, value_name = "FILE")]
    pub nats_ca: Option<PathBuf>,
}

/// A run whose episodes other processes play.
#[derive(Args, Clone)]
pub struct ClusterRunArgs {
    /// NATS server (with JetStream) through which workers play the episodes: `pl-host worker --nats URL` on any machine
    /// [default: that of the workflow's `cluster` block]
    #[arg(long, value_name = "URL", conflicts_with = "local_cluster")]
    pub nats: Option<String>,
    #[command(flatten)]
    pub access: AccessArgs,
    /// Start a NATS server and N workers on this machine, which end with the run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub local_cluster: Option<u32>,
    /// Play in this process, although the workflow has a `cluster` block
    #[arg(long, conflicts_with_all = ["nats", "local_cluster"])]
    pub no_cluster: bool,
    /// Policies that `pl-host learner` trains, in processes of their own [default: `cluster.learners`]
    #[arg(long, value_name = "POLICY,…", value_delimiter = ',', conflicts_with = "no_cluster")]
    pub learners: Option<Vec<String>>,
    /// Send the code that agents write to `pl-host sandbox serve` processes, on any number of machines [default:
    /// `cluster.sandboxes`]
    #[arg(long, conflicts_with = "no_cluster")]
    pub sandboxes: bool,
    /// Folder that all machines of the run share, for the weights of its policies: whole models are too large for the server
    /// [default: the server keeps them]
    #[arg(long, value_name = "DIR", conflicts_with = "no_cluster")]
    pub weights_folder: Option<PathBuf>,
    /// Seconds after which the tasks of a worker that is gone are played by another [default: `cluster.lease`, or 30]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub lease: Option<u64>,
}

#[derive(Args)]
pub struct WorkerArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    /// Run to take part in, as `pl-host cluster status` names it [default: the newest, and after its end the next]
    #[arg(long, value_name = "NAME")]
    pub run: Option<String>,
    /// Name of this worker in messages and in the status [default: the host's name and the process]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Tasks to play at a time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub slots: u32,
    #[command(flatten)]
    pub participant: ParticipantArgs,
    #[command(flatten)]
    pub permissions: PermissionArgs,
}

/// Device and permissions of a process that takes part in runs.
#[derive(Args, Clone)]
pub struct ParticipantArgs {
    /// Device of all tensors
    #[arg(long, value_enum, default_value_t = DeviceChoice::Auto)]
    pub device: DeviceChoice,
    /// Allow runs to use the files, hosts and variables of this machine that their workflows name
    #[arg(long)]
    pub trust: bool,
    /// Folder with the weights of runs that keep them in one, as this machine has it
    #[arg(long, value_name = "DIR")]
    pub weights_folder: Option<PathBuf>,
    /// Take part although the coordinator has another kind of CPU: results are then not bit-reproducible
    #[arg(long)]
    pub mixed_cpus: bool,
}

#[derive(Args)]
pub struct LearnerArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    /// Run to take part in, as `pl-host cluster status` names it [default: the newest, and after its end the next]
    #[arg(long, value_name = "NAME")]
    pub run: Option<String>,
    /// Policy to train, with all adapters on its model [default: that of the run, if it has one learner elsewhere]
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Name of this learner in messages and in the status [default: the host's name and the process]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Rank among the processes that share the updates of `train { data_parallel = N }`, from 0 [default: this process does the
    /// shares of all ranks]
    #[arg(long, value_name = "K", requires = "leader")]
    pub rank: Option<usize>,
    /// Address at which rank 0 listens for the others
    #[arg(long, value_name = "HOST:PORT", requires = "rank")]
    pub leader: Option<String>,
    #[command(flatten)]
    pub participant: ParticipantArgs,
    #[command(flatten)]
    pub permissions: PermissionArgs,
}

#[derive(Subcommand)]
pub enum ClusterCommand {
    /// List the runs of a NATS server with their workers
    Status(ClusterStatusArgs),
    /// Write the configuration of a NATS server into a new folder, with a key for `run` and one each for workers,
    /// learners and sandbox machines
    Config(ClusterConfigArgs),
    /// Run a program that ends with the process PARENT: what `run --local-cluster` starts
    #[command(hide = true)]
    Attached {
        parent: u32,
        #[arg(required = true, num_args = 1.., trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
}

#[derive(Args)]
pub struct ClusterConfigArgs {
    /// Folder of the configuration (nats.conf) and the keys (run.nk, worker.nk, learner.nk, sandbox.nk)
    pub folder: PathBuf,
    /// Address that the server listens on
    #[arg(long, value_name = "HOST:PORT", default_value = "0.0.0.0:4222")]
    pub listen: String,
    /// Folder in which the server stores in-flight tasks and results
    #[arg(long, value_name = "DIR", default_value = "/var/lib/nats")]
    pub store: PathBuf,
    /// Certificate of the server (PEM): connections are encrypted
    #[arg(long, value_name = "FILE", requires = "key")]
    pub certificate: Option<PathBuf>,
    /// Key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
}

#[derive(Args)]
pub struct ClusterStatusArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
