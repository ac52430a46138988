//! A cluster on this machine: a server and workers that end with the run.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use pl_cluster::{LocalServer, Role, ServerAddress};

use crate::error::cluster::ClusterError;

use super::options::AttachedCommands;

/// A server and workers on this machine.
pub(super) struct LocalCluster {
    // Workers end before their server.
    workers: Vec<Child>,
    server: LocalServer,
    folder: PathBuf,
    count: u32,
    commands: AttachedCommands,
}

impl LocalCluster {
    /// Starts a server with its store in `folder`.
    pub fn start(
        folder: &Path,
        count: u32,
        commands: AttachedCommands,
    ) -> Result<LocalCluster, ClusterError> {
        let server = LocalServer::start(folder, |server| attach(&commands, &server))?;
        let folder = folder.to_path_buf();
        Ok(LocalCluster { workers: Vec::new(), server, folder, count, commands })
    }

    /// Returns the address for the coordinator.
    pub fn address(&self) -> ServerAddress {
        self.server.address(Role::Coordinator)
    }

    /// Starts the workers. What they write goes to a file each.
    pub fn start_workers(&mut self, run: &str) -> Result<(), ClusterError> {
        for number in 1..=self.count {
            let Some((program, arguments)) = self.commands.worker.split_first() else { continue };
            let name = format!("local-{number}");
            let mut worker = Command::new(program);
            let ServerAddress { url, credentials, .. } = self.server.address(Role::Worker);
            worker.args(arguments).args(["--nats", &url]);
            if let Some(credentials) = credentials {
                worker.arg("--nats-credentials").arg(credentials);
            }
            worker.args(["--run", run, "--name", &name]);
            let path = self.folder.join(format!("{name}.log"));
            let failed = |source| ClusterError::File { path: path.clone(), source };
            let log = std::fs::File::create(&path).map_err(failed)?;
            let output = log.try_clone().map_err(failed)?;
            let mut command = attach(&self.commands, &worker);
            command.stdin(Stdio::null()).stdout(output).stderr(log);
            let failed = |source| ClusterError::File { path: PathBuf::from(program), source };
            self.workers.push(command.spawn().map_err(failed)?);
        }
        Ok(())
    }
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            drop(worker.kill());
            drop(worker.wait());
        }
    }
}

/// Returns the command that runs another as a process that ends with this one.
fn attach(commands: &AttachedCommands, inner: &Command) -> Command {
    let Some((program, arguments)) = commands.attached.split_first() else {
        let mut command = Command::new(inner.get_program());
        command.args(inner.get_args());
        return command;
    };
    let mut command = Command::new(program);
    command.args(arguments).arg(inner.get_program()).args(inner.get_args());
    command
}
