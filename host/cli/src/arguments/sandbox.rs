//! Arguments of `sandbox`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::cluster::ServerArgs;

#[derive(Subcommand)]
pub enum SandboxCommand {
    /// Run a program like the code of an agent
    Run(SandboxRunArgs),
    /// Show what each backend has and lacks
    Doctor(SandboxDoctorArgs),
    /// Create the image of the docker backend from a registry, or from a root file system
    Image(SandboxImageArgs),
    /// Run the code of agents for runs on other machines (`pl-host run --nats URL --sandboxes`), with the limits of their `sandbox`
    /// block. Needs no model, no plugin and no permission
    Serve(SandboxServeArgs),
    /// Serve jobs on a socket: what `isolation = process` starts
    #[command(hide = true)]
    Worker,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BackendChoice {
    /// Python in WebAssembly; nothing has to be installed
    Wasm,
    /// A container; needs a Docker engine and an image
    Docker,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum IsolationChoice {
    /// A WebAssembly instance in this process
    Instance,
    /// The same in a confined process
    Process,
}

/// Docker engines and the image of their containers.
#[derive(Args)]
pub struct SandboxEngineArgs {
    /// The image of the containers [default: pl-host-python]
    #[arg(long, value_name = "NAME:TAG")]
    pub image: Option<String>,
    /// The OCI runtime of the containers, such as runsc [default: the engine's]
    #[arg(long, value_name = "NAME")]
    pub runtime: Option<String>,
    /// A Docker engine: unix://PATH, tcp://HOST:PORT or https://HOST:PORT [default: $DOCKER_HOST, or
    /// unix:///var/run/docker.sock]
    #[arg(long = "endpoint", value_name = "ADDRESS")]
    pub endpoints: Vec<String>,
    /// The folder with ca.pem, cert.pem and key.pem for https endpoints
    #[arg(long, value_name = "DIR")]
    pub certificates: Option<PathBuf>,
}

#[derive(Args)]
pub struct SandboxRunArgs {
    /// A program: Python, shell (.sh), or anything with --run
    pub file: PathBuf,
    /// The backend that runs it
    #[arg(long, value_enum, default_value_t = BackendChoice::Wasm)]
    pub backend: BackendChoice,
    /// Wall around programs of the wasm backend
    #[arg(long, value_enum, default_value_t = IsolationChoice::Instance)]
    pub isolation: IsolationChoice,
    #[command(flatten)]
    pub engine: SandboxEngineArgs,
    /// The command line in the container, with {file} for the program's file: --run node,{file}
    #[arg(long, value_name = "PART,PART", value_delimiter = ',')]
    pub run: Vec<String>,
    /// Time limit in seconds
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    /// Memory limit in MiB
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub memory: u64,
    /// Print the time and memory that it used
    #[arg(long)]
    pub usage: bool,
}

#[derive(Args)]
pub struct SandboxServeArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    /// Run to take part in, as `pl-host cluster status` names it [default: the newest with `--sandboxes`, and after its end the
    /// next]
    #[arg(long, value_name = "NAME")]
    pub run: Option<String>,
    /// Name of this machine in messages and in the status [default: the host's name and the process]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Jobs to run at a time [default: one per core]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub slots: Option<u32>,
    /// A Docker engine for runs with the `docker` backend, whatever they name: unix://PATH, tcp://HOST:PORT or https://HOST:PORT
    /// [default: $DOCKER_HOST, or unix:///var/run/docker.sock]
    #[arg(long = "endpoint", value_name = "ADDRESS")]
    pub endpoints: Vec<String>,
    /// The folder with ca.pem, cert.pem and key.pem for https endpoints
    #[arg(long, value_name = "DIR")]
    pub certificates: Option<PathBuf>,
}

#[derive(Args)]
pub struct SandboxDoctorArgs {
    #[command(flatten)]
    pub engine: SandboxEngineArgs,
}

#[derive(Args)]
pub struct SandboxImageArgs {
    #[command(flatten)]
    pub engine: SandboxEngineArgs,
    /// The root file system of the image: a folder or a tar archive
    #[arg(long, value_name = "PATH")]
    pub root: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        own: SandboxRunArgs,
    }

    #[test]
    fn limits_that_no_machine_has_are_refused() {
        let parse = |flag: &str| Flags::try_parse_from(["pl-host", "program.py", flag]).map(|_| ());
        for flag in ["--memory=256", "--memory=1048576", "--timeout=86400"] {
            assert!(parse(flag).is_ok(), "{flag}");
        }
        for flag in ["--memory=0", "--memory=17592186044416", "--timeout=18446744073709551615"] {
            assert!(parse(flag).is_err(), "{flag}");
        }
    }
}
