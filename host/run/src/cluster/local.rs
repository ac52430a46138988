//! A cluster on this machine: a server, workers, learners and a sandbox that end with the run.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use pl_cluster::{LearnerEntry, LocalServer, Role, ServerAddress, free_port};
use pl_kernels::cuda::{Driver, driver};

use crate::error::cluster::ClusterError;

use super::options::AttachedCommands;

/// Environment variable with the GPUs that a process may use.
const VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";

/// A server, workers, learners and a sandbox on this machine.
pub(super) struct LocalCluster {
    // They end before their server.
    processes: Vec<Child>,
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
        let missing = || pl_cluster::Error::LocalServer { reason: "it is not on the PATH".to_owned() };
        let program = pl_toolchain::on_path("nats-server").ok_or_else(missing)?;
        let server = LocalServer::start(&program, folder, |server| attach(&commands, &server))?;
        let folder = folder.to_path_buf();
        Ok(LocalCluster { processes: Vec::new(), server, folder, count, commands })
    }

    /// Returns the address for the coordinator.
    pub fn address(&self) -> ServerAddress {
        self.server.address(Role::Coordinator)
    }

    /// Starts the workers, a process for each of the `ranks` of each learner, and one that runs the code of agents if `sandboxes`
    /// is true. What they write goes to a file each.
    pub fn start_processes(
        &mut self,
        run: &str,
        learners: &[LearnerEntry],
        ranks: u32,
        sandboxes: bool,
        weights_folder: Option<&Path>,
    ) -> Result<(), ClusterError> {
        let place: Vec<&OsStr> = match weights_folder {
            Some(folder) => vec![OsStr::new("--weights-folder"), folder.as_os_str()],
            None => Vec::new(),
        };
        for number in 1..=self.count {
            let name = format!("local-{number}");
            let mut command = self.command(&self.commands.worker, Role::Worker, (run, &name));
            command.args(&place);
            self.spawn(command, &name)?;
        }
        let mut cards = visible_cards().into_iter().cycle();
        for LearnerEntry { learner, policies } in learners {
            let leader = if ranks > 1 { Some(format!("127.0.0.1:{}", free_port()?)) } else { None };
            for rank in 0..ranks {
                let name = match &leader {
                    Some(_) => format!("learner-{learner}-rank-{rank}"),
                    None => format!("learner-{learner}"),
                };
                let mut command = self.command(&self.commands.learner, Role::Learner, (run, &name));
                command.arg("--policy").args(policies.first());
                command.args(&place);
                if let Some(leader) = &leader {
                    command.args(["--rank", &rank.to_string(), "--leader", leader]);
                    command.envs(cards.next().map(|card| (VISIBLE_DEVICES, card)));
                }
                self.spawn(command, &name)?;
            }
        }
        if sandboxes {
            let name = "sandbox";
            let command = self.command(&self.commands.sandbox, Role::Sandbox, (run, name));
            self.spawn(command, name)?;
        }
        Ok(())
    }

    /// Returns the command of a process that takes part in a run under a name.
    fn command(&self, program: &[OsString], role: Role, (run, name): (&str, &str)) -> Command {
        let (program, arguments) =
            program.split_first().map_or((OsString::new(), &[][..]), |(first, rest)| (first.clone(), rest));
        let mut command = Command::new(program);
        let ServerAddress { url, credentials, .. } = self.server.address(role);
        command.args(arguments).args(["--nats", &url]);
        if let Some(credentials) = credentials {
            command.arg("--nats-credentials").arg(credentials);
        }
        command.args(["--run", run, "--name", name]);
        command
    }

    fn spawn(&mut self, inner: Command, name: &str) -> Result<(), ClusterError> {
        let path = self.folder.join(format!("{name}.log"));
        let log = std::fs::File::create(&path).map_err(ClusterError::file(&path))?;
        let output = log.try_clone().map_err(ClusterError::file(&path))?;
        let mut command = attach(&self.commands, &inner);
        command.stdin(Stdio::null()).stdout(output).stderr(log);
        let process = command.spawn().map_err(ClusterError::file(Path::new(inner.get_program())))?;
        self.processes.push(process);
        Ok(())
    }
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        for process in &mut self.processes {
            drop(process.kill());
            drop(process.wait());
        }
    }
}

/// Returns the command that runs another as a process that ends with this one.
fn attach(commands: &AttachedCommands, inner: &Command) -> Command {
    let (mut command, own) = match commands.attached.split_first() {
        Some((program, arguments)) => {
            let mut command = Command::new(program);
            command.args(arguments).arg(inner.get_program());
            (command, inner.get_args())
        }
        None => (Command::new(inner.get_program()), inner.get_args()),
    };
    // Signals of the terminal are for the run, which stops the others when it no longer needs them.
    command.process_group(0);
    command.args(own).envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
}

/// Returns the GPUs of this process, as the variable names them. Empty if there is but one.
fn visible_cards() -> Vec<String> {
    let Driver::Found { devices, .. } = driver() else { return Vec::new() };
    let named = std::env::var(VISIBLE_DEVICES).unwrap_or_default();
    let named: Vec<String> = named.split(',').filter(|card| !card.is_empty()).map(str::to_owned).collect();
    let all = if named.is_empty() { (0..devices).map(|card| card.to_string()).collect() } else { named };
    if all.len() > 1 { all } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attached_processes_get_no_signals_of_the_terminal() {
        let (attached, worker, learner, sandbox) = Default::default();
        let commands = AttachedCommands { attached, worker, learner, sandbox };
        let mut inner = Command::new("cat");
        inner.arg("/proc/self/stat");
        let output = attach(&commands, &inner).output().unwrap();
        let stat = String::from_utf8(output.stdout).unwrap();
        // Process, name, state, parent, process group.
        let fields: Vec<&str> = stat.split_whitespace().collect();
        assert_eq!(fields[0], fields[4], "{stat}");
    }
}
